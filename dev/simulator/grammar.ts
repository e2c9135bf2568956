import { mayConform, parseEbnf, type Rules } from "@responses-edge/grammar";
import { badField, GrammarError } from "./errors.ts";
import { isObject, type Json, parseJson } from "./json.ts";
import { fillSchema } from "./schema-filler.ts";
import { admitsText, parseRegex, sampleText } from "./text-grammar.ts";

const TYPES = ["null", "boolean", "object", "array", "number", "integer", "string"];
const FORMATS = [
  "date-time",
  "time",
  "date",
  "duration",
  "email",
  "hostname",
  "ipv4",
  "ipv6",
  "uuid",
  "uri",
  "unknown",
];
/** Keywords that llguidance does not support. */
const UNIMPLEMENTED = ["uniqueItems", "contains", "dependentSchemas", "unevaluatedProperties"];
/** Under these keys are schemas by name. */
const BY_NAME = ["properties", "patternProperties", "$defs", "definitions"];
/** Under these keys are no schemas. */
const DATA = ["enum", "const", "default", "examples", "required"];

/** Refuses a JSON schema as vLLM's grammar compiler does. The first error is reported. */
export function checkGrammar(schema: Json): void {
  const mistake = schemaMistake(schema);
  if (mistake !== undefined) throw new GrammarError(400, `Grammar error: ${mistake}`);
}

/**
 * Reads a grammar or a regular expression. vLLM passes what xgrammar refuses to llguidance, so that the words of a
 * refusal are llguidance's. Throws a 400.
 */
export function compileText({ syntax, source }: { syntax: "grammar" | "regex"; source: string }): Rules {
  if (syntax === "regex") {
    const grammar = parseRegex(source);
    if (grammar === undefined)
      throw new GrammarError(400, `Grammar error: at 1(8): invalid regex "${source}" (in regex)`);
    return grammar;
  }
  if (/^\s*start\s*:(?!:=)/m.test(source)) throw badField("The simulator reads no Lark", "structured_outputs");
  const grammar = parseEbnf(source);
  if (grammar !== undefined) return grammar;
  throw new GrammarError(400, "Invalid grammar specification: Failed to convert the grammar from GBNF to Lark");
}

/** The output under a grammar of a model that would otherwise output `text`. */
export function underGrammar(format: { syntax: "grammar" | "regex"; source: string }, text: string): string {
  const grammar = compileText(format);
  return admitsText(grammar, text) ? text : sampleText(grammar);
}

/** True if the schema has such an error. Within a structural tag, vLLM does not report which. */
export function isRefused(schema: Json): boolean {
  return schemaMistake(schema) !== undefined;
}

/**
 * The first error of a schema. llguidance refuses a schema that no value satisfies. Here a schema counts as such if the
 * value made from it does not satisfy it.
 */
function schemaMistake(schema: Json): string | undefined {
  const mistake = findMistake(schema, schema);
  if (mistake !== undefined) return mistake;
  return mayConform(JSON.stringify(fillSchema(schema)), schema) ? undefined : "Unsatisfiable schema";
}

/** True if a grammar made from the schema accepts the text, as far as the schema is known. */
export function admits(schema: Json, text: string): boolean {
  return mayConform(text, schema) && keepsPatterns(parseJson(text), schema);
}

/** True if the strings in it match their patterns. */
function keepsPatterns(value: Json, schema: Json | undefined): boolean {
  if (!isObject(schema)) return true;
  if (typeof value === "string") {
    const grammar = typeof schema.pattern === "string" ? parseRegex(schema.pattern) : undefined;
    return grammar === undefined || admitsText(grammar, value);
  }
  if (Array.isArray(value)) return value.every((element) => keepsPatterns(element, schema.items));
  const { properties } = schema;
  if (!isObject(value) || !isObject(properties)) return true;
  return Object.entries(value).every(
    ([name, member = null]) => !Object.hasOwn(properties, name) || keepsPatterns(member, properties[name]),
  );
}

function findMistake(schema: Json | undefined, root: Json): string | undefined {
  if (!isObject(schema)) return undefined;
  const unimplemented = UNIMPLEMENTED.filter((key) => Object.hasOwn(schema, key) && schema[key] !== false);
  if (unimplemented.length > 0) return `Unimplemented keys: ${JSON.stringify(unimplemented)}`;
  const types = Array.isArray(schema.type) ? schema.type : [schema.type ?? "string"];
  const wrong = types.find((type) => typeof type !== "string" || !TYPES.includes(type));
  if (wrong !== undefined) return `Invalid type: ${wrong}`;
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/") && resolve(root, schema.$ref) === undefined) {
    return `Pointer '${schema.$ref.slice(1)}' does not exist`;
  }
  if (typeof schema.format === "string" && !FORMATS.includes(schema.format)) return `Unknown format: ${schema.format}`;
  if (typeof schema.pattern === "string" && !isPattern(schema.pattern)) {
    return `regex parse error:\n    ${schema.pattern}`;
  }
  for (const [key, value] of Object.entries(schema)) {
    if (DATA.includes(key)) continue;
    const schemas =
      isObject(value) && BY_NAME.includes(key) ? Object.values(value) : Array.isArray(value) ? value : [value];
    for (const entry of schemas) {
      const mistake = findMistake(entry, root);
      if (mistake !== undefined) return mistake;
    }
  }
  return undefined;
}

function resolve(root: Json, ref: string): Json | undefined {
  let found: Json | undefined = root;
  for (const step of ref.slice("#/".length).split("/")) {
    found = isObject(found) ? found[step.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  }
  return found;
}

function isPattern(pattern: string): boolean {
  try {
    new RegExp(pattern, "u");
    return true;
  } catch {
    return false;
  }
}
