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

/** Formats, each within those that `mayBeOfFormat` accepts. */
const DATE = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])";
const TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
const BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
const ATOM = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
const GROUP = "[0-9a-fA-F]{1,4}";
/** At most seven groups beside `::`, which stands for the others. */
const SHORT_IPV6 = [2, 3, 4, 5, 6]
  .map((after) => `(${GROUP}:){1,${7 - after}}(:${GROUP}){1,${after}}`)
  .concat(`(${GROUP}:){1,7}:`, `(${GROUP}:){1,6}:${GROUP}`, `:((:${GROUP}){1,7}|:)`)
  .join("|");
const TIME_SPAN = "T([0-9]+H([0-9]+M)?([0-9]+S)?|[0-9]+M([0-9]+S)?|[0-9]+S)";
const DATE_SPAN = "([0-9]+Y([0-9]+M)?([0-9]+D)?|[0-9]+M([0-9]+D)?|[0-9]+D)";
const FORMATS: Readonly<Record<string, string>> = {
  date: DATE,
  time: TIME,
  "date-time": `${DATE}[Tt ]${TIME}`,
  duration: `P([0-9]+W|${DATE_SPAN}(${TIME_SPAN})?|${TIME_SPAN})`,
  email: `${ATOM}(\\.${ATOM})*@${LABEL}(\\.${LABEL})*`,
  hostname: `${LABEL}(\\.${LABEL})*`,
  ipv4: `${BYTE}(\\.${BYTE}){3}`,
  ipv6: `(${GROUP}:){7}${GROUP}|${SHORT_IPV6}`,
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
    const ruled = new RuledStrings(first.rules);
    return first.keyword === "format" ? this.#orAny(ruled) : ruled;
  }

  /** Servers differ in what they take for a format: a string that began in another form goes on freely. */
  #orAny(strings: Strings): Strings {
    const free = () => {
      this.#unenforced.add("format");
      return anyString();
    };
    return {
      rest: (prefix) => strings.rest(prefix) ?? free().rest(prefix),
      parts: (prefix) => {
        const parts = strings.parts(prefix);
        return parts.length > 0 ? parts : free().parts(prefix);
      },
    };
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
