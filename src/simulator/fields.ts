import { badRequest } from "./errors.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";

/** A boolean field; absent and null read as `undefined`. Throws a 400 for another type, as do the readers below. */
export function booleanField(body: JsonObject, name: string): boolean | undefined {
  const value = body[name] ?? undefined;
  if (value !== undefined && typeof value !== "boolean")
    throw badRequest(`${name}: Input should be a valid boolean`, name);
  return value;
}

/** A string field. */
export function stringField(body: JsonObject, name: string): string | undefined {
  const value = body[name] ?? undefined;
  if (value !== undefined && typeof value !== "string")
    throw badRequest(`${name}: Input should be a valid string`, name);
  return value;
}

/** A number field. */
export function numberField(body: JsonObject, name: string): number | undefined {
  const value = body[name] ?? undefined;
  if (value !== undefined && typeof value !== "number")
    throw badRequest(`${name}: Input should be a valid number`, name);
  return value;
}

/** An integer field. */
export function integerField(body: JsonObject, name: string): number | undefined {
  const value = numberField(body, name);
  if (value !== undefined && !Number.isInteger(value))
    throw badRequest(`${name}: Input should be a valid integer`, name);
  return value;
}

/** An object field. */
export function objectField(body: JsonObject, name: string): JsonObject | undefined {
  const value = body[name] ?? undefined;
  if (value !== undefined && !isObject(value)) throw badRequest(`${name}: Input should be a valid dictionary`, name);
  return value;
}

/** A list field. */
export function listField(body: JsonObject, name: string): Json[] | undefined {
  const value = body[name] ?? undefined;
  if (value !== undefined && !Array.isArray(value)) throw badRequest(`${name}: Input should be a valid list`, name);
  return value;
}
