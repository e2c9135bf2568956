import type { Hints } from "./hints.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";
import { parseRegex, sampleText } from "./text-grammar.ts";

const FORMATS: Record<string, string> = {
  date: "2025-01-31",
  "date-time": "2025-01-31T12:00:00Z",
  time: "12:00:00Z",
  duration: "P1D",
  email: "user@example.com",
  hostname: "example.com",
  ipv4: "192.0.2.1",
  ipv6: "2001:db8::1",
  uri: "https://example.com/",
  url: "https://example.com/",
  uuid: "00000000-0000-4000-8000-000000000000",
};

const DEEPEST = 32;

/** The maximum length of arrays and strings: a schema may demand more than the memory holds. */
const LONGEST = 10_000;

type Place = {
  root: Json;
  name: string;
  depth: number;
  open: readonly string[];
  sparse: boolean;
  hints: Hints | undefined;
};

/**
 * A value that satisfies a JSON Schema. It is always the same for the same schema and hints: the hinted value, else the
 * first of every choice, every property, one element per array, a string's own property name. A recursive schema is
 * followed once. Then optional parts are left out. Lengths beside a `pattern`, and `not`, are not supported.
 */
export function fillSchema(schema: Json, hints?: Hints): Json {
  return fill(schema, { root: schema, name: "text", depth: 0, open: [], sparse: false, hints });
}

function fill(schema: Json | undefined, place: Place): Json {
  if (!isObject(schema)) return place.name;
  if (place.depth > DEEPEST) return null;
  const here = { ...place, depth: place.depth + 1 };
  if (typeof schema.$ref === "string") {
    const sparse = here.sparse || here.open.includes(schema.$ref);
    return fill(resolve(here.root, schema.$ref), { ...here, sparse, open: [...here.open, schema.$ref] });
  }
  if (schema.const !== undefined) return schema.const;
  if (Array.isArray(schema.enum)) return here.hints?.choice(schema.enum) ?? schema.enum[0] ?? null;
  if (Array.isArray(schema.allOf)) return fill(merge(schema, schema.allOf, here.root), here);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices)) {
    const ends = choices.find((choice) => !(isObject(choice) && here.open.includes(String(choice.$ref))));
    const { anyOf: _, oneOf: __, ...rest } = schema;
    const chosen = ends ?? choices[0];
    return fill(isObject(chosen) && chosen.$ref === undefined ? { ...rest, ...chosen } : chosen, here);
  }
  switch (typeOf(schema)) {
    case "null":
      return null;
    case "boolean":
      return true;
    case "integer":
    case "number":
      return here.hints?.number(schema) ?? fillNumber(schema);
    case "array":
      return fillArray(schema, here);
    case "object":
      return fillObject(schema, here);
    default:
      return fillString(schema, here);
  }
}

function typeOf(schema: JsonObject): string {
  const { type } = schema;
  if (typeof type === "string") return type;
  if (Array.isArray(type)) return String(type.find((entry) => entry !== "null") ?? "null");
  if (isObject(schema.properties) || schema.required !== undefined) return "object";
  if (schema.items !== undefined || schema.prefixItems !== undefined) return "array";
  if (schema.minimum !== undefined || schema.maximum !== undefined) return "number";
  return "string";
}

function fillObject(schema: JsonObject, place: Place): JsonObject {
  const filled: JsonObject = {};
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required : [];
  for (const name of Object.keys(properties)) {
    if (properties[name] === false || (place.sparse && !required.includes(name))) continue;
    set(filled, name, fill(properties[name], { ...place, name }));
  }
  for (const name of required) {
    if (typeof name === "string" && !Object.hasOwn(filled, name)) {
      set(filled, name, fill(schema.additionalProperties, { ...place, name }));
    }
  }
  return filled;
}

/** Also for a property named `__proto__`. */
function set(object: JsonObject, name: string, value: Json): void {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}

function fillArray(schema: JsonObject, place: Place): Json[] {
  const tuple = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  const least = typeof schema.minItems === "number" ? Math.min(schema.minItems, LONGEST) : place.sparse ? 0 : 1;
  const most = typeof schema.maxItems === "number" ? schema.maxItems : Number.POSITIVE_INFINITY;
  const length = Math.min(most, Math.max(tuple.length, least));
  return Array.from({ length }, (_, index) => {
    const item = fill(tuple[index] ?? schema.items, place);
    return schema.uniqueItems === true && index > 0 ? distinct(item, index) : item;
  });
}

function distinct(item: Json, index: number): Json {
  if (typeof item === "string") return `${item}${index + 1}`;
  return typeof item === "number" ? item + index : item;
}

function fillNumber(schema: JsonObject): number {
  const step = typeof schema.multipleOf === "number" ? schema.multipleOf : undefined;
  let value = 1;
  if (typeof schema.minimum === "number") value = schema.minimum;
  else if (typeof schema.exclusiveMinimum === "number") value = schema.exclusiveMinimum + (step ?? 1);
  else if (typeof schema.maximum === "number") value = Math.min(1, schema.maximum);
  else if (typeof schema.exclusiveMaximum === "number" && schema.exclusiveMaximum <= 1)
    value = schema.exclusiveMaximum - 1;
  else if (step !== undefined) value = step;
  if (schema.type === "integer") value = Math.ceil(value);
  return step === undefined ? value : Math.ceil(value / step) * step;
}

function fillString(schema: JsonObject, { name, hints }: Place): string {
  const { format, minLength, maxLength, pattern } = schema;
  const grammar = typeof pattern === "string" ? parseRegex(pattern) : undefined;
  if (grammar !== undefined) return sampleText(grammar);
  const named = hints?.text(name) ?? name;
  let text = typeof format === "string" ? (FORMATS[format] ?? named) : named;
  if (typeof minLength === "number") text = text.padEnd(Math.min(minLength, LONGEST), "x");
  return typeof maxLength === "number" ? text.slice(0, maxLength) : text;
}

function merge(schema: JsonObject, parts: Json[], root: Json): JsonObject {
  let { allOf: _, ...merged } = schema;
  for (const part of parts) {
    const resolved = isObject(part) && typeof part.$ref === "string" ? resolve(root, part.$ref) : part;
    if (!isObject(resolved)) continue;
    const properties = {
      ...(isObject(merged.properties) ? merged.properties : {}),
      ...(isObject(resolved.properties) ? resolved.properties : {}),
    };
    const required = [merged.required, resolved.required].flatMap((list) => (Array.isArray(list) ? list : []));
    merged = { ...merged, ...resolved };
    if (Object.keys(properties).length > 0) merged.properties = properties;
    if (required.length > 0) merged.required = required;
  }
  return merged;
}

function resolve(root: Json, ref: string): Json | undefined {
  let found: Json | undefined = root;
  for (const step of ref.replace(/^#/, "").split("/").slice(1)) {
    const key = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(found)) found = found[Number(key)];
    else found = isObject(found) && Object.hasOwn(found, key) ? found[key] : undefined;
  }
  return found;
}
