import { choice, type Expression, NOTHING, sequence, text } from "./expression.ts";
import { RemainderFault } from "./faults.ts";
import { IMPOSSIBLE, MORE_SPACE, SPACE } from "./json-rules.ts";
import { escapesOf, readOpenString, rulesOfOne } from "./json-strings.ts";
import type { Rules } from "./lark-rules.ts";
import { ANY_NUMBER, INTEGER_IN_ANY_FORM } from "./number-ranges.ts";
import { type OpenArray, type OpenJson, type OpenObject, readOpenJson } from "./open-json.ts";
import { restOf } from "./rest.ts";
import { SchemaRules } from "./schema-rules.ts";
import type { Schemas, Shape } from "./schema-shapes.ts";
import { type Strings, unlessImpossible } from "./schema-strings.ts";
import { trimmed } from "./trimmed.ts";

/**
 * The rules of the texts that may follow the beginning of a JSON text of a schema. The beginning may have its members
 * in any order, and any white space and escapes. The rest has the members that have not come in the schema's order
 * (`SchemaObjects`), and the white space of `SPACE`. So every text of the rules is valid but for the keywords in
 * `unenforced`, and the grammar has every valid completion that is written so.
 */
export function restOfSchema(schema: unknown, prefix: string): { rules: Rules; unenforced: readonly string[] } {
  const { open, endsInSpace } = readOpenJson(prefix);
  const rest = new SchemaRest(schema, endsInSpace);
  const rules = trimmed(rest.of(schema, open));
  if (!rules) throw new RemainderFault("no_prefix");
  return { rules, unenforced: [...rest.unenforced].sort() };
}

/** The maximum of named members that may begin as a key does which has begun out of order. */
const MAX_OUT_OF_ORDER = 4;

class SchemaRest {
  readonly #schema: SchemaRules;
  /** White space at the end of the prefix may go on. */
  readonly #space: Expression;

  constructor(root: unknown, endsInSpace: boolean) {
    this.#schema = new SchemaRules(root);
    this.#space = endsInSpace ? choice([SPACE, MORE_SPACE]) : SPACE;
  }

  get unenforced(): ReadonlySet<string> {
    return this.#schema.shapes.unenforced;
  }

  of(schema: unknown, open: OpenJson): Rules {
    const whole = open.kind === "nothing" ? this.#schema.value([schema]) : this.#rest([schema], open, 0);
    return this.#schema.rules.finish(whole);
  }

  /** The rest of a value that has begun `depth` containers deep. */
  #rest(schemas: Schemas, open: OpenJson, depth: number): Expression {
    return this.#schema.rules.named(`rest_${depth}_${this.#schema.shapes.key(schemas)}`, () => {
      if (open.kind === "value") return this.#mayHold(open.value, schemas) ? NOTHING : IMPOSSIBLE;
      return choice(this.#schema.shapes.shapes(schemas).map((shape) => this.#restOf(shape, open, depth)));
    });
  }

  #restOf(shape: Shape, open: OpenJson, depth: number): Expression {
    switch (open.kind) {
      case "object":
        return shape.types.has("object") ? this.#object(shape, open, depth) : IMPOSSIBLE;
      case "array":
        return shape.types.has("array") ? this.#array(shape, open, depth) : IMPOSSIBLE;
      case "scalar":
        return this.#scalar(shape, open.raw);
      default:
        return IMPOSSIBLE;
    }
  }

  #object(shape: Shape, open: OpenObject, depth: number): Expression {
    const { objects } = this.#schema;
    const { key, child } = open;
    const isMember = ([key, value]: readonly [string, unknown]) =>
      objects.mayHaveKey(shape, key) && this.#mayHold(value, objects.memberSchemas(shape, key));
    if (!open.members.every(isMember)) return IMPOSSIBLE;
    const used = new Set(open.members.map(([name]) => name));
    const next = () => objects.next(shape, objects.names(shape, used), used.size);
    switch (open.at) {
      case "first":
        return sequence([this.#space, objects.first(shape, used, true)]);
      case "comma":
        return sequence([this.#space, objects.first(shape, used, false)]);
      case "after":
        return sequence([this.#space, next()]);
      case "key":
        return this.#key(shape, key, used);
    }
    if (!objects.mayHaveKey(shape, key)) return IMPOSSIBLE;
    used.add(key);
    const schemas = objects.memberSchemas(shape, key);
    if (open.at === "colon") {
      const value = [text(":"), SPACE, this.#schema.value(schemas), SPACE];
      return sequence([this.#space, ...value, next()]);
    }
    return sequence([this.#child(schemas, child, depth), SPACE, next()]);
  }

  #child(schemas: Schemas, child: OpenJson, depth: number): Expression {
    if (child.kind === "nothing") return sequence([this.#space, this.#schema.value(schemas)]);
    return this.#rest(schemas, child, depth + 1);
  }

  /** The rest of a member whose key has begun: one that a schema names, or another. */
  #key(shape: Shape, raw: string, used: ReadonlySet<string>): Expression {
    const { objects } = this.#schema;
    const restOfName = (name: string): Expression | undefined => {
      const whole = JSON.stringify(name);
      if (whole.startsWith(raw)) return text(whole.slice(raw.length));
      if (!raw.includes("\\")) return undefined;
      const written = readOpenString(raw.slice(1));
      if (!written || !name.startsWith(written.text)) return undefined;
      const left = name.slice(written.text.length);
      if (written.pending === "") return text(JSON.stringify(left).slice(1));
      const code = left.codePointAt(0);
      const begun = code === undefined ? undefined : escapesOf([[code, code]], written.pending);
      return (
        begun && sequence([begun, text(JSON.stringify(left.slice(String.fromCodePoint(code ?? 0).length)).slice(1))])
      );
    };
    const options = objects.named(shape, used, ({ name }) => restOfName(name));
    const names = objects.names(shape, used);
    if (options.length === 0) {
      const begun = names.filter(({ name }) => restOfName(name) !== undefined).slice(0, MAX_OUT_OF_ORDER);
      for (const { name } of begun) {
        const others = names.filter((other) => other.name !== name);
        const value = objects.value(objects.memberSchemas(shape, name));
        options.push(sequence([restOfName(name) ?? IMPOSSIBLE, value, objects.next(shape, others, used.size + 1)]));
      }
    }
    for (const { keys, schemas } of objects.otherKeys(shape)) {
      const rest = this.#string(keys, raw.slice(1));
      options.push(sequence([rest, objects.value(schemas), objects.next(shape, names, used.size + 1)]));
    }
    return choice(options);
  }

  #array(shape: Shape, open: OpenArray, depth: number): Expression {
    const { length } = open.items;
    if (!open.items.every((value, at) => this.#mayHold(value, this.#schema.itemSchemas(shape, at)))) return IMPOSSIBLE;
    switch (open.at) {
      case "first":
        return sequence([this.#space, this.#schema.firstItems(shape, length, true)]);
      case "comma":
        return sequence([this.#space, this.#schema.firstItems(shape, length, false)]);
      case "after":
        return sequence([this.#space, this.#schema.nextItems(shape, length)]);
      case "value": {
        const item = this.#child(this.#schema.itemSchemas(shape, length), open.child, depth);
        return sequence([item, SPACE, this.#schema.nextItems(shape, length + 1)]);
      }
    }
  }

  #scalar(shape: Shape, raw: string): Expression {
    if (raw.startsWith('"')) {
      return shape.types.has("string") ? this.#string(this.#schema.strings.of(shape), raw.slice(1)) : IMPOSSIBLE;
    }
    if (/^[-\d]/.test(raw)) return shape.types.has("number") ? this.#number(shape, raw) : IMPOSSIBLE;
    const words = (["boolean", "null"] as const).filter((type) => shape.types.has(type));
    const begun = words.flatMap((type) => this.#schema.words(type, shape)).filter((word) => word.startsWith(raw));
    return choice(begun.map((word) => text(word.slice(raw.length))));
  }

  /** The rest of a string from somewhere after its first quote. */
  #string(strings: Strings, raw: string): Expression {
    const open = readOpenString(raw);
    if (!open) return IMPOSSIBLE;
    if (open.pending === "") {
      const rules = strings.rest(open.text);
      return rules ? this.#schema.rules.strings(rules) : IMPOSSIBLE;
    }
    return choice(
      strings.parts(open.text).flatMap(({ set, rest }) => {
        const begun = escapesOf(set, open.pending);
        return begun ? [sequence([begun, this.#schema.rules.strings(rest)])] : [];
      }),
    );
  }

  /**
   * The rest of a number. One that has begun in another form than the range has (with an exponent, `2.0` for an
   * integer) goes on in it; whether it ends within the range is not enforced.
   */
  #number(shape: Shape, raw: string): Expression {
    const inRange = unlessImpossible(() => restOf(rulesOfOne(this.#schema.numbers(shape)), raw));
    if (inRange) return this.#schema.rules.texts(inRange);
    const { min, max } = this.#schema.limits(shape);
    const value = Number(raw);
    const isOutside = (min && value < min.value) || (max && value > max.value);
    if (shape.scalars || (isOutside && !/[eE]/.test(raw))) return IMPOSSIBLE;
    const form = shape.isInteger ? INTEGER_IN_ANY_FORM : ANY_NUMBER;
    const rest = unlessImpossible(() => restOf(rulesOfOne(form), raw));
    if (!rest) return IMPOSSIBLE;
    if (min) this.#schema.shapes.unenforced.add("minimum");
    if (max) this.#schema.shapes.unenforced.add("maximum");
    return this.#schema.rules.texts(rest);
  }

  #mayHold(value: unknown, schemas: Schemas): boolean {
    return schemas.every((schema) => this.#schema.shapes.mayHold(value, schema));
  }
}
