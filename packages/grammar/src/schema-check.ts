import { rulesOfPattern } from "./json-pattern.ts";
import { Recogniser } from "./recogniser.ts";
import { mayBeOfFormat } from "./schema-formats.ts";
import { ANNOTATIONS, isMultiple, isObject, isOfType } from "./schema-values.ts";
import { faultOf, pathOf, shown } from "./schema-words.ts";

/**
 * Checks JSON text against a schema. Some results stay unknown: an unknown keyword or format, a pattern with
 * look-arounds and the like, or too much work. A pattern of the client's is never run as a `RegExp`, which may take
 * exponential time.
 */

type Schema = Record<string, unknown>;

/** The maximum of checked schemas, values and characters: nested alternatives multiply. */
const MAX_STEPS = 200_000;
const MAX_DEPTH = 200;

/** So many steps of reading a text with a pattern are one step here. */
const STEPS_OF_PATTERNS = 2;

/** Characters that `.` or `\s` of ECMAScript's expressions, and those of `rulesOfPattern`, treat differently. */
const AMBIGUOUS = /[\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]/;

/** Tells whether JSON text certainly conforms to a schema: false also for an unknown result. */
export function conforms(text: string, schema: unknown): boolean {
  return passes(text, schema, false);
}

/** Tells whether JSON text may conform to a schema: false only if it certainly does not, like text that is no JSON. */
export function mayConform(text: string, schema: unknown): boolean {
  return passes(text, schema, true);
}

function passes(text: string, schema: unknown, unknown: boolean): boolean {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return false;
  }
  try {
    return new Check(schema, unknown).holds(value, schema, 0);
  } catch (error) {
    if (error instanceof TooMuchWork) return unknown;
    throw error;
  }
}

/**
 * Why a value certainly does not conform to a schema, in words for whoever made it: the first place that violates it.
 * Undefined if it may conform.
 */
export function violationOf(value: unknown, schema: unknown): string | undefined {
  const check = new Check(schema, true);
  try {
    return check.holds(value, schema, 0) ? undefined : check.violation;
  } catch (error) {
    if (error instanceof TooMuchWork) return undefined;
    throw error;
  }
}

class TooMuchWork extends Error {}

/**
 * Compares values with schemas that are parts of one: false only for a value that certainly does not conform. All
 * comparisons together have the work of one.
 */
export function comparisonWithin(root: unknown): (value: unknown, schema: unknown) => boolean {
  const check = new Check(root, true);
  return (value, schema) => {
    try {
      return check.holds(value, schema, 0);
    } catch (error) {
      if (error instanceof TooMuchWork) return true;
      throw error;
    }
  };
}

/** The schema of a local reference (`#/$defs/name`); undefined for any other. */
export function schemaAt(root: unknown, reference: unknown): unknown {
  // Anything else is another document, or an anchor.
  if (typeof reference !== "string" || !/^#(?:\/|$)/.test(reference)) return undefined;
  let target = root;
  for (const part of reference.slice(1).split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof target !== "object" || target === null || !Object.hasOwn(target, key)) return undefined;
    target = (target as Schema)[key];
  }
  return target;
}

class Check {
  readonly #root: unknown;
  /** The unknown result: true where a value counts that may conform, false where it must do so certainly. */
  #unknown: boolean;
  #steps = 0;
  /** Recognisable patterns of the schema. */
  readonly #patterns = new Map<string, ReturnType<typeof rulesOfPattern>>();
  /** The keys and indices that lead to the value under examination. */
  readonly #path: (string | number)[] = [];
  /** The first violation; undefined while there is none. */
  violation: string | undefined;

  constructor(root: unknown, unknown: boolean) {
    this.#root = root;
    this.#unknown = unknown;
  }

  #work(steps: number): void {
    this.#steps += steps;
    if (this.#steps > MAX_STEPS) throw new TooMuchWork();
  }

  holds(value: unknown, schema: unknown, depth: number): boolean {
    this.#work(1);
    if (depth > MAX_DEPTH) return this.#unknown;
    if (typeof schema === "boolean") return schema || this.#violates("is not allowed");
    if (typeof schema !== "object" || schema === null) return this.#unknown;
    for (const [keyword, rule] of Object.entries(schema)) {
      if (ANNOTATIONS.has(keyword) || this.#keeps(value, keyword, rule, schema as Schema, depth + 1)) continue;
      return this.violation !== undefined ? false : this.#violates(faultOf(keyword, rule));
    }
    return true;
  }

  /** Notes a violation, if it is the first. Gives false. */
  #violates(fault: string): false {
    if (this.violation !== undefined) return false;
    this.#work(this.#path.length);
    const where = this.#path.length === 0 ? "the value" : `'${shown(pathOf(this.#path))}'`;
    this.violation = `${where} ${fault}`;
    return false;
  }

  /** Examines a part of the value. */
  #holdsAt(key: string | number, value: unknown, schema: unknown, depth: number): boolean {
    this.#path.push(key);
    const holds = this.holds(value, schema, depth);
    this.#path.pop();
    return holds;
  }

  /**
   * Tells whether a value conforms to a schema: possibly, where `unknown` is true, otherwise certainly. Its violations
   * are not noted: it need not conform.
   */
  #conforms(unknown: boolean, value: unknown, schema: unknown, depth: number): boolean {
    const before = { violation: this.violation, unknown: this.#unknown };
    this.#unknown = unknown;
    const holds = this.holds(value, schema, depth);
    this.#unknown = before.unknown;
    this.violation = before.violation;
    return holds;
  }

  /** Tells whether the number of some pairs of a value and a schema that conform is within bounds. */
  #isCountWithin(
    pairs: readonly (readonly [value: unknown, schema: unknown])[],
    bounds: [number, number],
    depth: number,
  ) {
    const [min, max] = bounds;
    let certain = 0;
    let possible = 0;
    for (const [value, schema] of pairs) {
      if (!this.#conforms(true, value, schema, depth)) continue;
      possible += 1;
      if (this.#conforms(false, value, schema, depth)) certain += 1;
    }
    return this.#unknown ? possible >= min && certain <= max : certain >= min && possible <= max;
  }

  #keeps(value: unknown, keyword: string, rule: unknown, schema: Schema, depth: number): boolean {
    switch (keyword) {
      case "type":
        // OpenAPI's way to allow null, which some generators of schemas still write.
        if (value === null && schema.nullable === true) return true;
        return (Array.isArray(rule) ? rule : [rule]).some((type) => isOfType(value, type) ?? this.#unknown);
      case "enum":
        return Array.isArray(rule) ? rule.some((each) => this.#isSame(value, each)) : this.#unknown;
      case "const":
        return this.#isSame(value, rule);
      case "$ref": {
        if (typeof rule === "string") this.#work(rule.length);
        const target = schemaAt(this.#root, rule);
        return target === undefined ? this.#unknown : this.holds(value, target, depth);
      }
      case "allOf":
        return Array.isArray(rule) ? rule.every((each) => this.holds(value, each, depth)) : this.#unknown;
      case "anyOf":
        if (!Array.isArray(rule)) return this.#unknown;
        return rule.some((each) => this.#conforms(this.#unknown, value, each, depth));
      case "oneOf":
        if (!Array.isArray(rule)) return this.#unknown;
        return this.#isCountWithin(
          rule.map((each) => [value, each]),
          [1, 1],
          depth,
        );
      case "not":
        return !this.#conforms(!this.#unknown, value, rule, depth);
      case "if":
        return this.#keepsCondition(value, schema, depth);
      case "properties":
      case "required":
      case "additionalProperties":
      case "patternProperties":
      case "propertyNames":
      case "dependentRequired":
      case "dependentSchemas":
      case "dependencies":
      case "minProperties":
      case "maxProperties":
        return !isObject(value) || this.#keepsObjectRule(value, keyword, rule, schema, depth);
      case "items":
      case "prefixItems":
      case "additionalItems":
      case "contains":
      case "uniqueItems":
      case "minItems":
      case "maxItems":
        return !Array.isArray(value) || this.#keepsListRule(value, keyword, rule, schema, depth);
      case "pattern":
        return typeof value !== "string" || (this.#matches(value, rule) ?? this.#unknown);
      case "format":
        if (typeof value !== "string") return true;
        this.#work(value.length);
        // No calendar was asked.
        return mayBeOfFormat(value, rule) === false ? false : this.#unknown;
      case "minLength":
      case "maxLength":
        return typeof value !== "string" || this.#isWithin(this.#codePoints(value), keyword, rule);
      case "minimum":
      case "maximum":
        return typeof value !== "number" || this.#isWithin(value, keyword, rule);
      case "multipleOf":
        return typeof value !== "number" || (isMultiple(value, rule) ?? this.#unknown);
      case "exclusiveMinimum":
        return typeof value !== "number" || (typeof rule === "number" ? value > rule : this.#unknown);
      case "exclusiveMaximum":
        return typeof value !== "number" || (typeof rule === "number" ? value < rule : this.#unknown);
      default:
        return this.#unknown;
    }
  }

  #keepsCondition(value: unknown, schema: Schema, depth: number): boolean {
    const { if: condition, then = true, else: otherwise = true } = schema;
    if (this.#conforms(false, value, condition, depth)) return this.holds(value, then, depth);
    if (!this.#conforms(true, value, condition, depth)) return this.holds(value, otherwise, depth);
    return this.#unknown;
  }

  #keepsListRule(value: readonly unknown[], keyword: string, rule: unknown, schema: Schema, depth: number): boolean {
    this.#work(value.length);
    switch (keyword) {
      case "prefixItems":
      case "items": {
        // Before 2020, `items` was the list of the first ones.
        if (Array.isArray(rule)) {
          return value.slice(0, rule.length).every((each, at) => this.#holdsAt(at, each, rule[at], depth));
        }
        const first = Array.isArray(schema.prefixItems) ? schema.prefixItems.length : 0;
        return value.every((each, at) => at < first || this.#holdsAt(at, each, rule, depth));
      }
      case "additionalItems": {
        const { items } = schema;
        if (!Array.isArray(items)) return true;
        return value.every((each, at) => at < items.length || this.#holdsAt(at, each, rule, depth));
      }
      case "contains": {
        const { minContains: min = 1, maxContains: max = Number.POSITIVE_INFINITY } = schema;
        if (typeof min !== "number" || typeof max !== "number") return this.#unknown;
        return this.#isCountWithin(
          value.map((each) => [each, rule]),
          [min, max],
          depth,
        );
      }
      case "uniqueItems":
        return rule === true ? this.#areUnique(value) : rule === false || this.#unknown;
      default:
        return this.#isWithin(value.length, keyword, rule);
    }
  }

  #areUnique(values: readonly unknown[]): boolean {
    const isScalar = (value: unknown) => typeof value !== "object" || value === null;
    const scalars = values.filter(isScalar);
    if (new Set(scalars).size < scalars.length) return false;
    const others = values.filter((value) => !isScalar(value));
    return others.every((value, at) => others.every((other, before) => before >= at || !this.#isSame(value, other)));
  }

  #keepsObjectRule(
    value: Record<string, unknown>,
    keyword: string,
    rule: unknown,
    schema: Schema,
    depth: number,
  ): boolean {
    const entries = Object.entries(value);
    this.#work(entries.length);
    switch (keyword) {
      case "properties":
        if (!isObject(rule)) return this.#unknown;
        return entries.every(([key, each]) => !Object.hasOwn(rule, key) || this.#holdsAt(key, each, rule[key], depth));
      case "required":
        if (!Array.isArray(rule)) return this.#unknown;
        this.#work(rule.length);
        return rule.every((key) => {
          if (typeof key !== "string") return this.#unknown;
          return Object.hasOwn(value, key) || this.#violates(`has no '${shown(key)}'`);
        });
      case "additionalProperties": {
        const known = isObject(schema.properties) ? schema.properties : {};
        const patterns = isObject(schema.patternProperties) ? Object.keys(schema.patternProperties) : [];
        return entries.every(([key, each]) => {
          if (Object.hasOwn(known, key)) return true;
          const matches = patterns.map((pattern) => this.#matches(key, pattern));
          if (matches.includes(true)) return true;
          return matches.includes(undefined) ? this.#unknown : this.#holdsAt(key, each, rule, depth);
        });
      }
      case "patternProperties":
        if (!isObject(rule)) return this.#unknown;
        return entries.every(([key, each]) =>
          Object.entries(rule).every(([pattern, one]) => {
            const isMatch = this.#matches(key, pattern);
            return isMatch === undefined ? this.#unknown : !isMatch || this.#holdsAt(key, each, one, depth);
          }),
        );
      case "propertyNames":
        return entries.every(([key]) => {
          const isAllowed = this.#conforms(this.#unknown, key, rule, depth);
          return isAllowed || this.#violates(`has the name '${shown(key)}', which 'propertyNames' does not allow`);
        });
      case "dependentRequired":
      case "dependentSchemas":
      case "dependencies":
        if (!isObject(rule)) return this.#unknown;
        return Object.entries(rule).every(([key, needed]) => {
          this.#work(1);
          if (!Object.hasOwn(value, key)) return true;
          return this.holds(value, Array.isArray(needed) ? { required: needed } : needed, depth);
        });
      default:
        return this.#isWithin(entries.length, keyword, rule);
    }
  }

  /** Keywords such as `minLength`, `maximum`: whether a count or number obeys one. */
  #isWithin(value: number, keyword: string, limit: unknown): boolean {
    if (typeof limit !== "number") return this.#unknown;
    return keyword.startsWith("min") ? value >= limit : value <= limit;
  }

  #isSame(a: unknown, b: unknown): boolean {
    this.#work(1);
    if (a === b) return true;
    if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
    const keys = Object.keys(a);
    this.#work(keys.length);
    if (Array.isArray(a) !== Array.isArray(b) || keys.length !== Object.keys(b).length) return false;
    return keys.every((key) => Object.hasOwn(b, key) && this.#isSame((a as Schema)[key], (b as Schema)[key]));
  }

  /** Tells whether a pattern has a match in a text; undefined where that is unknown. */
  #matches(text: string, pattern: unknown): boolean | undefined {
    if (typeof pattern !== "string" || !text.isWellFormed() || AMBIGUOUS.test(text)) return undefined;
    let rules = this.#patterns.get(pattern);
    const isNew = !this.#patterns.has(pattern);
    if (isNew) {
      this.#work(pattern.length);
      rules = rulesOfPattern(pattern);
      this.#patterns.set(pattern, rules);
    }
    if (!rules) return undefined;
    const recogniser = new Recogniser(rules, (MAX_STEPS - this.#steps) * STEPS_OF_PATTERNS);
    if (isNew) this.#work(recogniser.size);
    recogniser.push(text);
    this.#work(Math.ceil(recogniser.steps / STEPS_OF_PATTERNS));
    return recogniser.isUnread ? undefined : recogniser.accepts;
  }

  /** The number of characters, as JSON Schema counts them. */
  #codePoints(text: string): number {
    this.#work(text.length);
    let count = 0;
    for (const _ of text) count += 1;
    return count;
  }
}
