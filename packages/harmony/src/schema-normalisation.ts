import { isJsonObject, type JsonObject } from "@responses-edge/bounded-io/json-text";

/**
 * Rewrites JSON Schemas into the subset that the tools block can show (tools-block.ts). openai/harmony writes `any` for
 * everything else, such as pydantic's and zod's form of an optional field (`anyOf: [T, null]`) or of a nested model
 * (`$ref`): the model would learn nothing about it. This is for reading only; arguments are checked against the
 * original.
 */

/** Beyond this depth a schema is `{}`. The block shows fewer levels; wrappers that disappear here count too. */
const MAX_DEPTH = 64;

/**
 * The maximum length of all `$ref` of a schema after expansion: a few that refer to each other could expand to billions
 * of characters.
 */
const MAX_EXPANSION = 64 * 1024;

interface Scope {
  root: unknown;
  /** The rest of `MAX_EXPANSION`. */
  budget: number;
  /** The targets around the present schema. */
  active: unknown[];
  depth: number;
}

/** Takes any JSON, changes none of it, and gives the shown form. Never throws; takes time linear in its size. */
export function normaliseSchema(schema: unknown): unknown {
  return normalise(schema, { root: schema, budget: MAX_EXPANSION, active: [], depth: 0 });
}

function normalise(schema: unknown, scope: Scope): unknown {
  if (!isJsonObject(schema)) return schema;
  if (scope.depth >= MAX_DEPTH) return {};
  scope.depth += 1;
  const { $ref, allOf, anyOf, oneOf, ...rest } = schema;
  const parts = Array.isArray(allOf) ? allOf.map((part) => normalise(part, scope)) : [];
  if (typeof $ref === "string") parts.push(target($ref, scope));
  const own = members(rest, scope);
  const merged = parts.length > 0 ? merge([...parts.filter(isJsonObject), own]) : own;
  const union = Array.isArray(anyOf) ? anyOf : oneOf;
  const result = Array.isArray(union) && union.length > 0 ? withUnion(merged, union, scope) : merged;
  scope.depth -= 1;
  return showable(result);
}

/** The schema that a `$ref` refers to, normalised; `undefined` for one that is missing, recursive, or too large. */
function target(pointer: string, scope: Scope): unknown {
  const schema = resolve(scope.root, pointer);
  if (!isJsonObject(schema) || scope.active.includes(schema) || scope.budget <= 0) return undefined;
  scope.budget -= sizeWithin(schema, scope.budget, 0);
  if (scope.budget <= 0) return undefined;
  scope.active.push(schema);
  const result = normalise(schema, scope);
  scope.active.pop();
  return result;
}

/** The value that a local reference such as `#/$defs/Address` (RFC 6901) names, or `undefined`. */
export function resolve(root: unknown, pointer: string): unknown {
  const [start, ...keys] = pointer.split("/");
  if (start !== "#") return undefined;
  let value = root;
  for (const key of keys) {
    const name = key.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as JsonObject)[name];
  }
  return value;
}

/** The approximate length of a value as JSON, counted up to `limit`. */
function sizeWithin(value: unknown, limit: number, depth: number): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 8;
  if (depth > MAX_DEPTH) return limit;
  let size = 2;
  for (const [key, member] of Object.entries(value)) {
    size += key.length + 4 + sizeWithin(member, limit - size, depth + 1);
    if (size >= limit) break;
  }
  return size;
}

/** One object for several that all apply: later ones win, but properties add up. */
function merge(parts: JsonObject[]): JsonObject {
  const result = Object.fromEntries(parts.flatMap((part) => Object.entries(part)));
  const properties = parts.map((part) => part.properties).filter(isJsonObject);
  if (properties.length > 1) result.properties = Object.fromEntries(properties.flatMap((part) => Object.entries(part)));
  const required = parts.map((part) => part.required).filter(Array.isArray);
  if (required.length > 1) result.required = required.flat();
  return result;
}

/** The members that are schemas are normalised, and texts stay within their line of the block. */
function members(schema: JsonObject, scope: Scope): JsonObject {
  const result = { ...schema };
  if (isJsonObject(schema.properties)) {
    const properties = Object.entries(schema.properties).map(([key, value]) => [key, normalise(value, scope)]);
    result.properties = Object.fromEntries(properties);
  }
  if (isJsonObject(schema.items)) result.items = normalise(schema.items, scope);
  if ("const" in schema) result.enum = [schema.const];
  for (const key of ["title", "description"]) {
    // The block writes `// ` only once.
    if (typeof schema[key] === "string") result[key] = schema[key].trimEnd().split(LINE_END).join("\n// ");
  }
  for (const key of ["enum", "examples"]) {
    const values = result[key];
    if (Array.isArray(values)) result[key] = values.map(oneLine);
  }
  if ("default" in schema) result.default = oneLine(schema.default);
  return result;
}

const LINE_END = /\r\n?|\n/g;

function oneLine(value: unknown): unknown {
  return typeof value === "string" ? value.replace(LINE_END, "\\n") : value;
}

/** The block shows a `oneOf` and then nothing else, so one stays only if it says more than the schema around it. */
function withUnion(schema: JsonObject, union: unknown[], scope: Scope): JsonObject {
  const variants = union.map((variant) => normalise(variant, scope));
  if ("properties" in schema || ("type" in schema && !variants.every(isTyped))) return schema;
  const proper = variants.filter((variant) => !isNull(variant));
  const [only] = proper;
  if (proper.length === 1 && isJsonObject(only)) {
    const alone = merge([only, schema]);
    return proper.length < variants.length ? orNull(alone) : alone;
  }
  const names = variants.map((variant) => (isNull(variant) ? "null" : scalarName(variant)));
  if (names.every((name) => name !== undefined)) return { ...schema, type: [...new Set(names)] };
  return { ...schema, oneOf: variants };
}

function isTyped(schema: unknown): boolean {
  return isJsonObject(schema) && ("type" in schema || "oneOf" in schema);
}

function isNull(schema: unknown): boolean {
  return isJsonObject(schema) && Array.isArray(schema.type) && schema.type.every((name) => name === "null");
}

const SCALARS: unknown[] = ["string", "number", "integer", "boolean"];

/** The type of a schema without other keywords. */
function scalarName(schema: unknown): unknown {
  if (!isJsonObject(schema) || !SCALARS.includes(schema.type)) return undefined;
  return Object.keys(schema).every((key) => key === "type" || key === "title") ? schema.type : undefined;
}

/** The block shows `nullable` only of properties and variants, but other types than scalars would be lost in a list. */
function orNull(schema: JsonObject): JsonObject {
  if (Array.isArray(schema.type)) return { ...schema, type: [...new Set([...schema.type, "null"])] };
  const isScalar = SCALARS.includes(schema.type) && !("enum" in schema);
  return isScalar ? { ...schema, type: [schema.type, "null"] } : { ...schema, nullable: true };
}

/** With a `type` that the block has a notation for. A list of types is shown unchanged, also with literals. */
function showable(schema: JsonObject): JsonObject {
  if ("oneOf" in schema) return schema;
  const { enum: values, type } = schema;
  if (Array.isArray(values) && values.length > 0 && values.every(isLiteral)) {
    if (values.every((value) => typeof value === "string")) return { ...schema, type: "string" };
    return { ...schema, type: values.map((value) => (typeof value === "string" ? `"${value}"` : String(value))) };
  }
  if (Array.isArray(type)) {
    const names = type.filter((name) => name !== "null");
    if (names.length !== 1) return schema;
    const alone = { ...schema, type: names[0] };
    return names.length < type.length ? orNull(alone) : alone;
  }
  if (type === "null") return { ...schema, type: ["null"] };
  if (type !== undefined) return schema;
  if ("properties" in schema) return { ...schema, type: "object" };
  return "items" in schema ? { ...schema, type: "array" } : schema;
}

function isLiteral(value: unknown): boolean {
  return value === null || typeof value !== "object";
}
