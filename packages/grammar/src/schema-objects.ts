import { charSet, chars, choice, complement, type Expression, NOTHING, repeat, sequence, text } from "./expression.ts";
import { RemainderFault } from "./faults.ts";
import { rulesOfPattern } from "./json-pattern.ts";
import { IMPOSSIBLE, type JsonRules, SPACE } from "./json-rules.ts";
import { ANY_CHARACTER, rulesOfOne } from "./json-strings.ts";
import type { SchemaShapes, Schemas, Shape } from "./schema-shapes.ts";
import { anyString, RuledStrings, type SchemaStrings, type Strings } from "./schema-strings.ts";
import { isObject } from "./schema-values.ts";

/** A member that a schema names. */
export interface Name {
  name: string;
  isRequired: boolean;
}

/** Keys that no schema names, and the schemas of their values. */
export interface OtherKeys {
  keys: Strings;
  schemas: Schemas;
}

/** The rules of values, and the parts of the schema that they come from. */
export interface ValueRules {
  rules: JsonRules;
  shapes: SchemaShapes;
  strings: SchemaStrings;
  value(schemas: Schemas): Expression;
}

/** The maximum of characters of a name by which another key must differ from it. */
const MAX_DIFFERENCE = 64;

/** The maximum of characters of all names of an object, as far as other keys must differ from them. */
const MAX_NAMES = 20_000;

/**
 * Members of objects, as rules. They come in the order in which the schemas name them, then those that no schema names.
 * So the rules grow with the schema, not with the orders of its properties.
 */
export class SchemaObjects {
  readonly #owner: ValueRules;
  readonly #otherKeys = new Map<Shape, OtherKeys[]>();
  #count = 0;

  constructor(owner: ValueRules) {
    this.#owner = owner;
  }

  /** The schemas of a member. A pattern that is not known to match counts as one that does. */
  memberSchemas({ schemas }: Shape, key: string): Schemas {
    return schemas.flatMap(({ properties, patternProperties, additionalProperties }) => {
      const own = isObject(properties) && Object.hasOwn(properties, key) ? [properties[key]] : [];
      const patterns = isObject(patternProperties) ? Object.entries(patternProperties) : [];
      const matched = patterns.filter(([pattern]) => this.#mayMatch(key, pattern)).map(([, each]) => each);
      if (own.length + matched.length > 0) return [...own, ...matched];
      return additionalProperties === undefined ? [] : [additionalProperties];
    });
  }

  /** Tells whether a key may be one of the object's. */
  mayHaveKey({ schemas }: Shape, key: string): boolean {
    return schemas.every(({ propertyNames = true }) => this.#owner.shapes.mayHold(key, propertyNames));
  }

  /** The members that the schemas name and that have not come, in order. */
  names(shape: Shape, used: ReadonlySet<string>): Name[] {
    const required = new Set(
      shape.schemas.flatMap(({ required: names }) => (Array.isArray(names) ? (names as unknown[]) : [])),
    );
    const named = shape.schemas.flatMap(({ properties }) => (isObject(properties) ? Object.keys(properties) : []));
    const all = [...new Set([...named, ...required])].filter((name) => typeof name === "string");
    return all
      .filter((name) => !used.has(name) && this.mayHaveKey(shape, name))
      .map((name) => ({ name, isRequired: required.has(name) }));
  }

  /** The members after a bracket (`mayEnd`) or a comma, and the last bracket. */
  first(shape: Shape, used: ReadonlySet<string>, mayEnd: boolean): Expression {
    const options = this.named(shape, used, ({ name }) => text(JSON.stringify(name)));
    if (this.names(shape, used).every(({ isRequired }) => !isRequired)) {
      const { min, max } = this.#counts(shape, used.size);
      if (max > 0) options.push(sequence([this.#others(shape), this.#moreOthers(shape, min - 1, max - 1), text("}")]));
      if (mayEnd && min <= 0) options.push(text("}"));
    }
    return choice(options);
  }

  /**
   * The members from one on that comes before any other that is required, whose key goes on with `rest`, and the last
   * bracket.
   */
  named(shape: Shape, used: ReadonlySet<string>, rest: (name: Name) => Expression | undefined): Expression[] {
    const { rules } = this.#owner;
    const names = this.names(shape, used);
    const required = names.findIndex(({ isRequired }) => isRequired);
    const end = required < 0 ? names.length : required + 1;
    this.#count += 1;
    const prefix = `members_${this.#count}`;
    const after = (at: number): Expression => {
      const next = names[at];
      if (at === end || !next) return end === 1 ? make(at) : rules.named(`${prefix}_${at}`, () => make(at));
      return rules.named(`${prefix}_${at}`, () => sequence([this.#next(shape, next), after(at + 1)]));
    };
    const make = (at: number) => this.next(shape, names.slice(at), used.size + at);
    return names.slice(0, end).flatMap((name, at) => {
      const key = rest(name);
      return key ? [sequence([key, this.value(this.memberSchemas(shape, name.name)), after(at + 1)])] : [];
    });
  }

  /** The members after a complete one, and the last bracket. `count`: those that have come. */
  next(shape: Shape, names: readonly Name[], count: number): Expression {
    const { min, max } = this.#counts(shape, count);
    const more = max < 0 ? IMPOSSIBLE : this.#moreOthers(shape, min, max);
    return sequence([...names.map((name) => this.#next(shape, name)), more, text("}")]);
  }

  /** A member after its key: the colon, the value, and white space. */
  value(schemas: Schemas): Expression {
    return sequence([SPACE, text(":"), SPACE, this.#owner.value(schemas), SPACE]);
  }

  /** A member and the comma before it. */
  #next(shape: Shape, { name, isRequired }: Name): Expression {
    const value = this.value(this.memberSchemas(shape, name));
    const member = sequence([text(","), SPACE, text(JSON.stringify(name)), value]);
    return isRequired ? member : repeat(member, 0, 1);
  }

  #moreOthers(shape: Shape, min: number, max: number): Expression {
    const more = sequence([text(","), SPACE, this.#others(shape)]);
    return max <= 0 ? NOTHING : repeat(more, Math.max(0, min), max);
  }

  /** The number of members that must and may still come. It is kept for objects without named members. */
  #counts(shape: Shape, used: number): { min: number; max: number } {
    const { unenforced } = this.#owner.shapes;
    const limits = (keyword: string) => {
      const found = shape.schemas.map((each) => each[keyword]).filter((value) => typeof value === "number");
      const isKept =
        found.length === 0 ||
        (this.names(shape, new Set()).length === 0 && found.every((each) => each < 2 || keyword !== "minProperties"));
      if (!isKept) unenforced.add(keyword);
      return found;
    };
    const min = Math.max(0, ...limits("minProperties"));
    const max = Math.min(Number.POSITIVE_INFINITY, ...limits("maxProperties"));
    const isMap = this.names(shape, new Set()).length === 0;
    return isMap ? { min: min - used, max: max - used } : { min: 0, max: Number.POSITIVE_INFINITY };
  }

  /** A member that no schema names. */
  #others(shape: Shape): Expression {
    const others = this.otherKeys(shape);
    const number = [...this.#otherKeys.keys()].indexOf(shape);
    return this.#owner.rules.named(`others_${number}`, () =>
      choice(
        others.map(({ keys, schemas }) => {
          const rules = keys.rest("");
          return rules ? sequence([text('"'), this.#owner.rules.strings(rules), this.value(schemas)]) : IMPOSSIBLE;
        }),
      ),
    );
  }

  /**
   * The keys that no schema names. A value of such a key keeps the schemas of all patterns, because the key may match
   * several.
   */
  otherKeys(shape: Shape): OtherKeys[] {
    const known = this.#otherKeys.get(shape);
    if (known) return known;
    const { schemas } = shape;
    const patterns = schemas.map(({ patternProperties }) => (isObject(patternProperties) ? patternProperties : {}));
    const ofPatterns = patterns.flatMap((each) => Object.values(each));
    const ofOthers = schemas.map(({ additionalProperties = true }) => additionalProperties);
    const made = this.#anyKeys(shape).map((keys) => ({ keys, schemas: [...ofOthers, ...ofPatterns] }));
    for (const pattern of new Set(patterns.flatMap((each) => Object.keys(each)))) {
      const rules = rulesOfPattern(pattern);
      if (!rules) continue;
      if (schemas.some(({ propertyNames }) => propertyNames !== undefined)) {
        this.#owner.shapes.unenforced.add("propertyNames");
      }
      const others = ofOthers.filter((_, at) => !Object.hasOwn(patterns[at] ?? {}, pattern));
      const named = this.#namesLike(shape, (name) => this.#mayMatch(name, pattern));
      made.push({ keys: new RuledStrings(rules), schemas: [...ofPatterns, ...others, ...named] });
    }
    this.#otherKeys.set(shape, made);
    return made;
  }

  /** Any keys that `propertyNames` allows, but those that a schema names. */
  #anyKeys(shape: Shape): Strings[] {
    const named = this.names(
      { ...shape, schemas: shape.schemas.map(({ propertyNames: _, ...each }) => each) },
      new Set(),
    );
    const allowed = shape.schemas.flatMap(({ propertyNames }) => (propertyNames === undefined ? [] : [propertyNames]));
    if (allowed.length > 0) {
      if (named.length > 0) return [];
      const shapes = this.#owner.shapes.shapes(allowed).filter(({ types }) => types.has("string"));
      return shapes.map((each) => this.#owner.strings.of(each));
    }
    if (named.length === 0) return [anyString()];
    return [new RuledStrings(rulesOfOne(except(named.map(({ name }) => name))))];
  }

  /** The schemas of named members whose names other keys may be, too. */
  #namesLike(shape: Shape, isLike: (name: string) => boolean): Schemas {
    const names = this.names(shape, new Set()).filter(({ name }) => isLike(name));
    return names.flatMap(({ name }) => this.memberSchemas(shape, name));
  }

  #mayMatch(key: string, pattern: string): boolean {
    return this.#owner.shapes.mayHold(key, { pattern });
  }
}

interface Trie {
  isName: boolean;
  /** No name is followed further than here: keys that begin so are not written. */
  isCut: boolean;
  children: Map<number, Trie>;
}

/** Any text but some names. */
function except(names: readonly string[]): Expression {
  const root: Trie = { isName: false, isCut: false, children: new Map() };
  let size = 0;
  for (const name of names) {
    let node = root;
    const characters = [...name];
    for (const character of characters.slice(0, MAX_DIFFERENCE)) {
      const code = character.codePointAt(0) ?? 0;
      const child = node.children.get(code) ?? { isName: false, isCut: false, children: new Map<number, Trie>() };
      node.children.set(code, child);
      node = child;
      size += 1;
    }
    if (characters.length > MAX_DIFFERENCE) node.isCut = true;
    else node.isName = true;
  }
  if (size > MAX_NAMES) throw new RemainderFault("too_large");
  return unlike(root);
}

const ANY_TEXT = repeat(chars(ANY_CHARACTER), 0, Number.POSITIVE_INFINITY);

function unlike({ isName, isCut, children }: Trie): Expression {
  if (isCut) return IMPOSSIBLE;
  const others = complement(charSet([...children.keys()].map((code) => [code, code])));
  const longer = [...children].map(([code, child]) => sequence([text(String.fromCodePoint(code)), unlike(child)]));
  return choice([sequence([chars(others), ANY_TEXT]), ...longer, ...(isName ? [] : [NOTHING])]);
}
