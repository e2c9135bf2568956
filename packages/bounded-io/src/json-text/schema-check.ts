/**
 * Checks JSON text against a schema. Some results stay unknown: an unknown keyword (a pattern of the client's would run
 * on this server), or too much work.
 */

type Schema = Record<string, unknown>;

/** The maximum of checked schemas, values and characters: nested alternatives multiply. */
const MAX_STEPS = 200_000;
const MAX_DEPTH = 200;

/** Keywords that cannot be violated. */
const ANNOTATIONS = new Set([
  "$comment",
  "$defs",
  "$id",
  "$schema",
  "default",
  "definitions",
  "deprecated",
  "description",
  "examples",
  "readOnly",
  "title",
  "writeOnly",
]);

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

/** Most characters of a name or a value in the description of a violation. */
const MAX_SHOWN = 64;

/** Most values of an enumeration in the description of a violation. */
const MAX_LISTED = 8;

class Check {
  readonly #root: unknown;
  /** The unknown result. No known keyword negates another one. */
  readonly #unknown: boolean;
  #steps = 0;
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

  /** Tells whether a value conforms to one of several schemas. Their own violations are not noted: none is meant. */
  #holdsOne(value: unknown, schemas: readonly unknown[], depth: number): boolean {
    const before = this.violation;
    const holds = schemas.some((each) => this.holds(value, each, depth));
    this.violation = before;
    return holds;
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
        const target = this.#resolve(rule);
        return target === undefined ? this.#unknown : this.holds(value, target, depth);
      }
      case "allOf":
        return Array.isArray(rule) ? rule.every((each) => this.holds(value, each, depth)) : this.#unknown;
      case "anyOf":
        return Array.isArray(rule) ? this.#holdsOne(value, rule, depth) : this.#unknown;
      case "oneOf":
        // A value that conforms to none of them violates it. A value that conforms to several is not found out.
        if (!Array.isArray(rule) || !this.#unknown) return this.#unknown;
        return this.#holdsOne(value, rule, depth);
      case "properties":
      case "required":
      case "additionalProperties":
      case "minProperties":
      case "maxProperties":
        return !isObject(value) || this.#keepsObjectRule(value, keyword, rule, schema, depth);
      case "items":
        if (!Array.isArray(value)) return true;
        // With `prefixItems` it is about the items after them; earlier drafts call these a list.
        if (schema.prefixItems !== undefined || Array.isArray(rule)) return this.#unknown;
        return value.every((each, index) => this.#holdsAt(index, each, rule, depth));
      case "minItems":
      case "maxItems":
        return !Array.isArray(value) || this.#isWithin(value.length, keyword, rule);
      case "minLength":
      case "maxLength":
        return typeof value !== "string" || this.#isWithin(this.#codePoints(value), keyword, rule);
      case "minimum":
      case "maximum":
        return typeof value !== "number" || this.#isWithin(value, keyword, rule);
      case "exclusiveMinimum":
        return typeof value !== "number" || (typeof rule === "number" ? value > rule : this.#unknown);
      case "exclusiveMaximum":
        return typeof value !== "number" || (typeof rule === "number" ? value < rule : this.#unknown);
      default:
        return this.#unknown;
    }
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
        if (schema.patternProperties !== undefined) return this.#unknown;
        return entries.every(([key, each]) => Object.hasOwn(known, key) || this.#holdsAt(key, each, rule, depth));
      }
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

  /** The number of characters, as JSON Schema counts them. */
  #codePoints(text: string): number {
    this.#work(text.length);
    let count = 0;
    for (const _ of text) count += 1;
    return count;
  }

  /** The schema of a local reference (`#/$defs/name`). */
  #resolve(reference: unknown): unknown {
    // Anything else is another document, or an anchor.
    if (typeof reference !== "string" || !/^#(?:\/|$)/.test(reference)) return undefined;
    this.#work(reference.length);
    let target = this.#root;
    for (const part of reference.slice(1).split("/").slice(1)) {
      const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
      if (typeof target !== "object" || target === null || !Object.hasOwn(target, key)) return undefined;
      target = (target as Schema)[key];
    }
    return target;
  }
}

/** A keyword that a value violates, in words. */
function faultOf(keyword: string, rule: unknown): string {
  switch (keyword) {
    case "type":
      return `is not of type ${(Array.isArray(rule) ? rule : [rule]).slice(0, MAX_LISTED).join(" or ")}`;
    case "enum":
      return `is none of ${listed(rule)}`;
    case "const":
      return `is not ${listed([rule])}`;
    case "anyOf":
    case "oneOf":
      return `matches none of the alternatives of '${keyword}'`;
    default:
      return `violates '${keyword}'${typeof rule === "number" ? ` (${rule})` : ""}`;
  }
}

/** The first of some values. Long texts are cut, and objects left out: a schema may have them by the megabyte. */
function listed(values: unknown): string {
  if (!Array.isArray(values)) return "its values";
  const texts = values.slice(0, MAX_LISTED).map((value: unknown) => {
    if (typeof value === "string") return JSON.stringify(shown(value));
    return typeof value === "object" && value !== null ? "…" : String(value);
  });
  return values.length > MAX_LISTED ? `${texts.join(", ")}, …` : texts.join(", ");
}

/** `a.b[0]`. */
function pathOf(path: readonly (string | number)[]): string {
  return path
    .map((key) => (typeof key === "number" ? `[${key}]` : `.${key}`))
    .join("")
    .replace(/^\./, "");
}

/** The beginning of a text, on one line. */
function shown(text: string): string {
  const cut = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
  return cut.replace(/\s+/g, " ").toWellFormed();
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Undefined for a type that JSON Schema does not have. */
function isOfType(value: unknown, type: unknown): boolean | undefined {
  switch (type) {
    case "object":
      return isObject(value);
    case "array":
      return Array.isArray(value);
    case "null":
      return value === null;
    case "integer":
      return Number.isInteger(value);
    case "string":
    case "number":
    case "boolean":
      return typeof value === type;
    default:
      return undefined;
  }
}
