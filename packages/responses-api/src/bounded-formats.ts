import { expansionOf, MAX_EXPANSION, type Syntax } from "@responses-edge/grammar";
import { invalidRequest } from "./errors.ts";
import { isJsonObject, type JsonObject } from "./json.ts";
import { formatPath } from "./validation-errors.ts";

/**
 * Bounds the formats that a request passes to a model server: JSON schemas, regular expressions, grammars, structural
 * tags. Measured with xgrammar 0.2.8 on a vocabulary of 200,000 tokens: counts alone cost nothing, and the time for an
 * object's optional properties grows faster than their number (400: 2 s of CPU; 1,000: more than 45 s).
 */

/** The maximum of a count in a JSON schema: `maxLength` of a long text. */
const MAX_COUNT = 1_000_000;

/** The maximum of optional properties of an object in a JSON schema. */
const MAX_OPTIONAL_PROPERTIES = 500;

/**
 * Fields with a regular expression or a grammar, in vLLM's requests of any version, in schemas and in structural tags.
 */
const TEXTS: Readonly<Record<string, (text: string) => Syntax>> = {
  pattern: () => "regex",
  regex: () => "regex",
  guided_regex: () => "regex",
  grammar: syntaxOf,
  guided_grammar: syntaxOf,
};

/** Fields with JSON text that contains such formats. */
const JSON_TEXTS = new Set(["guided_json", "json", "json_schema", "schema", "structural_tag"]);

/** `minItems` is checked separately, because its list's content is repeated as often. */
const MINIMA = new Set(["minLength", "minProperties", "minContains"]);
const MAXIMA = new Set(["maxItems", "maxLength", "maxProperties", "maxContains"]);

/** Fields of schemas that have values, not schemas. */
const VALUES = new Set(["const", "default", "description", "enum", "examples", "title"]);

/** vLLM distinguishes the two in the same way. */
function syntaxOf(text: string): Syntax {
  return text.includes("::=") ? "ebnf" : "lark";
}

type Path = readonly (string | number)[];

/** Throws the 400 of a format in `value` that expands too far; it names the field, whose path begins with `path`. */
export function refuseLargeFormats(value: unknown, path: Path): void {
  if (typeof value === "object" && value !== null) new Formats().check(value, [...path], 1);
}

class Formats {
  /** The elements of all formats so far. */
  #expansion = 0;

  /** `times`: the minimum of repetitions of the value. */
  check(value: unknown, path: (string | number)[], times: number): void {
    if (typeof value !== "object" || value === null) return;
    if (Array.isArray(value)) {
      for (const [index, each] of value.entries()) {
        path.push(index);
        this.check(each, path, times);
        path.pop();
      }
      return;
    }
    const fields = value as JsonObject;
    this.#checkProperties(fields, path);
    const { minItems } = fields;
    const inner = typeof minItems === "number" ? times * Math.max(1, minItems) : times;
    if (inner > MAX_EXPANSION) throw tooLarge([...path, "minItems"]);
    for (const key in fields) {
      const field = fields[key];
      if (typeof field === "object") {
        if (VALUES.has(key)) continue;
        path.push(key);
        this.check(field, path, inner);
        path.pop();
      } else if (typeof field === "string") {
        if (Object.hasOwn(TEXTS, key) || JSON_TEXTS.has(key)) this.#checkText(key, field, path, inner);
      } else if (MINIMA.has(key) && inner * numberOf(field) > MAX_EXPANSION) throw tooLarge([...path, key]);
      else if (MAXIMA.has(key) && numberOf(field) > MAX_COUNT) {
        throw refusal([...path, key], `a count of a JSON schema is at most ${MAX_COUNT}`);
      }
    }
  }

  #checkText(key: string, text: string, path: Path, times: number): void {
    const syntax = Object.hasOwn(TEXTS, key) ? TEXTS[key]?.(text) : undefined;
    if (syntax !== undefined) this.#count(expansionOf(text, syntax) * times, [...path, key]);
    if (!JSON_TEXTS.has(key) || !/^\s*[[{]/.test(text)) return;
    let json: unknown;
    try {
      json = JSON.parse(text);
    } catch {
      return;
    }
    this.check(json, [...path, key], times);
  }

  #checkProperties({ properties, patternProperties, required }: JsonObject, path: Path): void {
    if (isJsonObject(patternProperties)) {
      for (const key in patternProperties) this.#count(expansionOf(key, "regex"), [...path, "patternProperties"]);
    }
    if (!isJsonObject(properties)) return;
    const needed = new Set(Array.isArray(required) ? required : []);
    const names = Object.keys(properties);
    if (names.length <= MAX_OPTIONAL_PROPERTIES) return;
    if (names.filter((name) => !needed.has(name)).length <= MAX_OPTIONAL_PROPERTIES) return;
    const why = `an object has at most ${MAX_OPTIONAL_PROPERTIES} properties that 'required' does not name`;
    throw refusal([...path, "properties"], why);
  }

  #count(expansion: number, path: Path): void {
    this.#expansion += expansion;
    if (this.#expansion > MAX_EXPANSION) throw tooLarge(path);
  }
}

function numberOf(value: unknown): number {
  return typeof value === "number" ? value : 0;
}

function tooLarge(path: Path): Error {
  return refusal(path, `it expands to more than ${MAX_EXPANSION} elements`);
}

function refusal(path: Path, why: string): Error {
  const field = formatPath([...path]);
  return invalidRequest(field, `Invalid '${field}': ${why}.`, "above_max_value");
}
