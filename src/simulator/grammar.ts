import { GrammarError } from "./errors.ts";
import { isObject, type Json } from "./json.ts";

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
/** What llguidance has no grammar for. */
const UNIMPLEMENTED = ["uniqueItems", "contains", "dependentSchemas", "unevaluatedProperties"];
/** Under these keys are schemas by name. */
const BY_NAME = ["properties", "patternProperties", "$defs", "definitions"];
/** Under these keys is no schema. */
const DATA = ["enum", "const", "default", "examples", "required"];

/** Refuses a JSON schema as vLLM's grammar compiler does; the first mistake counts. */
export function checkGrammar(schema: Json): void {
  const mistake = findMistake(schema, schema);
  if (mistake !== undefined) throw new GrammarError(400, `Grammar error: ${mistake}`);
}

/** Whether the schema has such a mistake: within a structural tag there is no word about which. */
export function isRefused(schema: Json): boolean {
  return findMistake(schema, schema) !== undefined;
}

function findMistake(schema: Json | undefined, root: Json): string | undefined {
  if (!isObject(schema)) return undefined;
  const unimplemented = UNIMPLEMENTED.filter((key) => Object.hasOwn(schema, key) && schema[key] !== false);
  if (unimplemented.length > 0) return `Unimplemented keys: ${JSON.stringify(unimplemented)}`;
  const types = Array.isArray(schema.type) ? schema.type : [schema.type ?? "string"];
  const wrong = types.find((type) => typeof type !== "string" || !TYPES.includes(type));
  if (wrong !== undefined) return `Invalid type: ${wrong}`;
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/") && !resolves(root, schema.$ref)) {
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

function resolves(root: Json, ref: string): boolean {
  let found: Json | undefined = root;
  for (const step of ref.slice("#/".length).split("/")) {
    found = isObject(found) ? found[step.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  }
  return found !== undefined;
}

function isPattern(pattern: string): boolean {
  try {
    new RegExp(pattern, "u");
    return true;
  } catch {
    return false;
  }
}
