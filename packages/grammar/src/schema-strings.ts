import { type CharSet, choice, type Expression, repeat } from "./expression.ts";
import { RemainderFault } from "./faults.ts";
import { rulesOfRegex } from "./grammar.ts";
import { rulesOfPattern } from "./json-pattern.ts";
import { ANY_CHARACTER, CODED, rulesOfOne } from "./json-strings.ts";
import type { Rules } from "./lark-rules.ts";
import { Derivative, restOf } from "./rest.ts";
import type { Shape } from "./schema-shapes.ts";

/** The strings of a shape, as their characters, before JSON writes them. */
export interface Strings {
  /** The texts that may follow a prefix. Undefined if there is none. */
  rest(prefix: string): Rules | undefined;
  /** Parts of all characters that may follow a prefix, each with the texts that may follow it. */
  parts(prefix: string): readonly { set: CharSet; rest: Rules }[];
}

/** Formats, as models write their values. Each is within what `mayBeOfFormat` accepts. */
const DATE = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])";
const LATE_DATE =
  "[0-9]{4}-((0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)|[0-9]{2}([2468][048]|0[48]|[13579][26])-02-29";
const TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
const BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const NUMBER = "[0-9]{1,9}";
const TIME_SPAN = `T(${NUMBER}H(${NUMBER}M)?(${NUMBER}S)?|${NUMBER}M(${NUMBER}S)?|${NUMBER}S)`;
const DATE_SPAN = `(${NUMBER}Y(${NUMBER}M)?(${NUMBER}D)?|${NUMBER}M(${NUMBER}D)?|${NUMBER}D)`;
const FORMATS: Readonly<Record<string, string>> = {
  date: `${DATE}|${LATE_DATE}`,
  time: TIME,
  "date-time": `(${DATE}|${LATE_DATE})T${TIME}`,
  duration: `P(${NUMBER}W|${DATE_SPAN}(${TIME_SPAN})?|${TIME_SPAN})`,
  email: `[a-zA-Z0-9_+-]{1,32}(\\.[a-zA-Z0-9_+-]{1,31})*@${LABEL}(\\.${LABEL})+`,
  hostname: `${LABEL}(\\.${LABEL})*`,
  ipv4: `${BYTE}(\\.${BYTE}){3}`,
  ipv6: "([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}",
  uuid: "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
  uri: "[a-zA-Z][a-zA-Z0-9+.-]*:[!#$%&'()*+,./0-9:;=?@A-Z_a-z~-]*",
};

/** Gives the strings of shapes; `unenforced` gets the keywords that they do not keep. */
export class SchemaStrings {
  readonly #unenforced: Set<string>;
  readonly #known = new Map<string, Rules | undefined>();

  constructor(unenforced: Set<string>) {
    this.#unenforced = unenforced;
  }

  /** The first of these binds strings: the values, the first readable pattern, the first known format, the length. */
  of({ scalars, schemas }: Shape): Strings {
    if (scalars) {
      const texts = scalars.filter((value) => typeof value === "string");
      return new RuledStrings(rulesOfOne(choice(texts.map((text) => ({ kind: "text", text })))));
    }
    const bounds = [
      ...this.#bounds(schemas, "pattern", (pattern) => rulesOfPattern(pattern)),
      ...this.#bounds(schemas, "format", (name) => {
        const format = Object.hasOwn(FORMATS, name) ? FORMATS[name] : undefined;
        return format === undefined ? undefined : rulesOfRegex(format);
      }),
    ];
    const lengths = this.#lengths(schemas);
    const isBounded = lengths.min > 0 || lengths.max !== Number.POSITIVE_INFINITY;
    const [first, ...others] = bounds;
    if (!first) return new LongStrings(lengths.min, lengths.max);
    for (const { keyword } of others) this.#unenforced.add(keyword);
    if (isBounded) this.#unenforced.add("maxLength").add("minLength");
    return new RuledStrings(first.rules);
  }

  #bounds(schemas: Shape["schemas"], keyword: string, read: (text: string) => Rules | undefined) {
    const texts = new Set(schemas.map((schema) => schema[keyword]).filter((text) => typeof text === "string"));
    return [...texts].flatMap((text) => {
      const key = `${keyword} ${text}`;
      const rules = this.#known.has(key) ? this.#known.get(key) : read(text);
      this.#known.set(key, rules);
      if (rules) return [{ keyword, rules }];
      this.#unenforced.add(keyword);
      return [];
    });
  }

  #lengths(schemas: Shape["schemas"]): { min: number; max: number } {
    const limits = (keyword: string) =>
      schemas.map((schema) => schema[keyword]).filter((limit) => typeof limit === "number");
    return {
      min: Math.ceil(Math.max(0, ...limits("minLength"))),
      max: Math.floor(Math.min(Number.POSITIVE_INFINITY, ...limits("maxLength"))),
    };
  }
}

/** Strings of rules. */
export class RuledStrings implements Strings {
  readonly #rules: Rules;

  constructor(rules: Rules) {
    this.#rules = rules;
  }

  rest(prefix: string): Rules | undefined {
    return unlessImpossible(() => restOf(this.#rules, prefix));
  }

  parts(prefix: string) {
    const derivative = unlessImpossible(() => new Derivative(this.#rules, prefix));
    if (!derivative) return [];
    return derivative.parts(ANY_CHARACTER).flatMap((set) => {
      const rest = derivative.after(set[0]?.[0] ?? 0);
      return rest ? [{ set, rest }] : [];
    });
  }
}

/** Every string. */
export function anyString(): Strings {
  return new LongStrings(0, Number.POSITIVE_INFINITY);
}

class LongStrings implements Strings {
  readonly #min: number;
  readonly #max: number;

  constructor(min: number, max: number) {
    this.#min = min;
    this.#max = max;
  }

  rest(prefix: string): Rules | undefined {
    return this.#after(this.#lengthOf(prefix));
  }

  parts(prefix: string) {
    const rest = this.#after(this.#lengthOf(prefix) + 1);
    return rest ? [{ set: CODED, rest }] : [];
  }

  #lengthOf(prefix: string): number {
    if (this.#min === 0 && this.#max === Number.POSITIVE_INFINITY) return 0;
    let length = 0;
    for (const _ of prefix) length += 1;
    return length;
  }

  #after(length: number): Rules | undefined {
    if (length > this.#max || this.#min > this.#max) return undefined;
    const any: Expression = { kind: "chars", set: ANY_CHARACTER };
    return rulesOfOne(repeat(any, Math.max(0, this.#min - length), this.#max - length));
  }
}

/** Gives nothing where a prefix begins no text. */
export function unlessImpossible<Value>(find: () => Value): Value | undefined {
  try {
    return find();
  } catch (error) {
    if (error instanceof RemainderFault && error.reason === "no_prefix") return undefined;
    throw error;
  }
}
