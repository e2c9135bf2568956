import { charSet, chars, choice, type Expression, NOTHING, partsOf, repeat, sequence } from "./expression.ts";
import { RemainderFault } from "./faults.ts";
import { asJson, STRING_RULES } from "./json-strings.ts";
import type { Rules } from "./lark-rules.ts";

/** No text at all. */
export const IMPOSSIBLE: Expression = choice([]);

/** White space between the parts of a JSON text, as llama.cpp has it: a model cannot write it without an end. */
export const SPACE: Expression = { kind: "rule", name: "space" };

const TABS = chars(
  charSet([
    [0x09, 0x09],
    [0x20, 0x20],
  ]),
);

/** White space that goes on. */
export const MORE_SPACE: Expression = repeat(
  choice([TABS, { kind: "text", text: "\n" }, { kind: "text", text: "\r" }]),
  0,
  20,
);

/** The maximum of rules of one remainder. */
const MAX_RULES = 10_000;

/** The maximum of parts of all rules of one remainder. */
const MAX_PARTS = 50_000;

/** Rules of JSON texts while they are made. */
export class JsonRules {
  readonly #rules = new Map<string, Expression>([
    [
      "space",
      choice([
        NOTHING,
        { kind: "text", text: " " },
        sequence([repeat({ kind: "text", text: "\n" }, 1, 2), repeat(TABS, 0, 20)]),
      ]),
    ],
  ]);
  readonly #open: (() => void)[] = [];
  #parts = 0;

  /** The rule of a name; `make` gives its expression later, so that rules may use themselves. */
  named(name: string, make: () => Expression): Expression {
    if (!this.#rules.has(name)) {
      if (this.#rules.size === MAX_RULES) throw new RemainderFault("too_large");
      this.#rules.set(name, IMPOSSIBLE);
      this.#open.push(() => {
        const made = make();
        this.#count(made);
        this.#rules.set(name, made);
      });
    }
    return { kind: "rule", name };
  }

  /** The texts of other rules, as they are. */
  texts(rules: Rules): Expression {
    return this.#grafted(rules, (rule) => rule);
  }

  /** The strings of rules, from some character on, and the last quote. */
  strings(rules: Rules): Expression {
    const string = this.#grafted(rules, (rule) => asJson(rule, (name) => this.named(name, STRING_RULES[name])));
    return sequence([string, { kind: "text", text: '"' }]);
  }

  /** Takes over rules under other names; one rule stays where it is used. */
  #grafted({ start, rules }: Rules, encoded: (rule: Expression) => Expression): Expression {
    const only = rules.size === 1 ? rules.get(start) : undefined;
    if (only) return encoded(only);
    const names = new Map([...rules.keys()].map((name) => [name, `text_${this.#rules.size}_${name}`]));
    const nameOf = (name: string) => names.get(name) ?? name;
    for (const [name, rule] of rules) this.named(nameOf(name), () => encoded(renamed(rule, nameOf)));
    return { kind: "rule", name: nameOf(start) };
  }

  #count(expression: Expression): void {
    this.#parts += 1;
    for (const part of partsOf(expression)) this.#count(part);
    if (this.#parts > MAX_PARTS) throw new RemainderFault("too_large");
  }

  /** All rules, once those that are used are made. */
  finish(start: Expression): Rules {
    this.#rules.set("start", start);
    for (let make = this.#open.pop(); make; make = this.#open.pop()) make();
    return { start: "start", rules: this.#rules };
  }
}

function renamed(expression: Expression, nameOf: (name: string) => string): Expression {
  switch (expression.kind) {
    case "rule":
      return { kind: "rule", name: nameOf(expression.name) };
    case "sequence":
      return sequence(expression.parts.map((part) => renamed(part, nameOf)));
    case "choice":
      return choice(expression.options.map((option) => renamed(option, nameOf)));
    case "repeat":
      return repeat(renamed(expression.part, nameOf), expression.min, expression.max);
    default:
      return expression;
  }
}
