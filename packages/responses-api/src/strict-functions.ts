import { isJsonObject, type JsonObject } from "./json.ts";
import type { FunctionTool, Tool } from "./tools.ts";

/**
 * Strict functions. At OpenAI a function of the Responses API is strict unless it says otherwise: an omitted `strict`
 * means that its schema is brought into the strict form, where it can be. There every property then becomes required.
 * Here an optional property stays optional, because the grammars of model servers can leave one out.
 */

/** Keywords of the strict form that OpenAI documents, and that grammars of model servers support. */
const STRICT_KEYWORDS = new Set([
  ...["$comment", "$defs", "$ref", "$schema", "additionalProperties", "anyOf", "const", "default", "definitions"],
  ...["deprecated", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "items", "maxItems"],
  ...["maximum", "minItems", "minimum", "properties", "required", "title", "type"],
]);

const TYPES = new Set(["array", "boolean", "integer", "null", "number", "object", "string"]);

/** Most schemas within one. OpenAI allows 5,000 properties. */
const MAX_SCHEMAS = 5_000;

/** Known results, by the schema. */
const known = new WeakMap<JsonObject, boolean>();

/** Tells whether the strict form of a function's schema exists: closed objects of known keywords, without free ones. */
function hasStrictForm(parameters: JsonObject | null): boolean {
  if (parameters === null) return false;
  const before = known.get(parameters);
  if (before !== undefined) return before;
  const result = parameters.type === "object" && new StrictForm(parameters).exists;
  known.set(parameters, result);
  return result;
}

/** Tells whether a function is strict: it says so, or it says nothing and its schema has a strict form. */
export function isStrict({ strict, parameters }: Pick<FunctionTool, "strict" | "parameters">): boolean {
  return strict ?? hasStrictForm(parameters);
}

/** A tool as a response shows it: each function with the strictness that it has. */
export function withStrictness(tool: Tool): Tool {
  if (tool.type === "function") return tool.strict === null ? { ...tool, strict: isStrict(tool) } : tool;
  return tool.type === "namespace"
    ? { ...tool, tools: tool.tools.map((each) => withStrictness(each) as typeof each) }
    : tool;
}

class StrictForm {
  readonly #root: JsonObject;
  #schemas = 0;

  constructor(root: JsonObject) {
    this.#root = root;
  }

  get exists(): boolean {
    return this.#isStrict(this.#root);
  }

  #isStrict(schema: unknown): boolean {
    this.#schemas += 1;
    if (this.#schemas > MAX_SCHEMAS || !isJsonObject(schema)) return false;
    if (!Object.keys(schema).every((keyword) => STRICT_KEYWORDS.has(keyword))) return false;
    const { type, properties = {}, additionalProperties = false, items, anyOf, $ref: reference } = schema;
    const types = Array.isArray(type) ? type : [type];
    if (type !== undefined && !types.every((each) => TYPES.has(each as string))) return false;
    if (reference !== undefined && !this.#leadsSomewhere(reference)) return false;
    if (anyOf !== undefined && !(Array.isArray(anyOf) && anyOf.every((each) => this.#isStrict(each)))) return false;
    if (items !== undefined && !this.#isStrict(items)) return false;
    if (!isJsonObject(properties) || additionalProperties !== false) return false;
    // An object or a list of anything has no strict form.
    if (types.includes("object") && schema.properties === undefined && schema.additionalProperties === undefined)
      return false;
    if (types.includes("array") && items === undefined) return false;
    if (type === undefined && [reference, anyOf, schema.enum, schema.const].every((each) => each === undefined))
      return false;
    const { $defs = {}, definitions = {} } = schema;
    return [properties, $defs, definitions].every(
      (schemas) => isJsonObject(schemas) && Object.values(schemas).every((each) => this.#isStrict(each)),
    );
  }

  /** Tells whether a reference is to a definition of the schema, and does not only lead to references. */
  #leadsSomewhere(reference: unknown): boolean {
    if (reference === "#") return true;
    const [, list = "", name = ""] =
      (typeof reference === "string" && /^#\/(\$defs|definitions)\/([^/~%]+)$/.exec(reference)) || [];
    const definitions = this.#root[list];
    if (!isJsonObject(definitions) || !Object.hasOwn(definitions, name)) return false;
    const found = definitions[name];
    return isJsonObject(found) && found.$ref === undefined;
  }
}
