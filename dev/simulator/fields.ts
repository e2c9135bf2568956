import { invalidBody } from "./errors.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";

const TRUE = ["true", "yes", "on", "t", "y", "1"];
const FALSE = ["false", "no", "off", "f", "n", "0"];

/**
 * A boolean field, or a text or number that pydantic accepts as one. Absent and null read as `undefined`. This reader
 * and the ones below throw a 400 for another type.
 */
export function booleanField(body: JsonObject, name: string): boolean | undefined {
  const value = body[name] ?? undefined;
  if (value === undefined || typeof value === "boolean") return value;
  const text = String(value).toLowerCase();
  if (TRUE.includes(text)) return true;
  if (FALSE.includes(text)) return false;
  const parsing = typeof value === "string" || typeof value === "number";
  throw invalidBody({
    type: parsing ? "bool_parsing" : "bool_type",
    loc: `body.${name}`,
    msg: `Input should be a valid boolean${parsing ? ", unable to interpret input" : ""}`,
    input: value,
  });
}

/** A string field. */
export function stringField(body: JsonObject, name: string): string | undefined {
  const value = body[name] ?? undefined;
  if (value === undefined || typeof value === "string") return value;
  throw invalidBody({ type: "string_type", loc: `body.${name}`, msg: "Input should be a valid string", input: value });
}

/** A number field. */
export function numberField(body: JsonObject, name: string): number | undefined {
  return readNumber(body[name] ?? undefined, `body.${name}`, "float");
}

/** An integer field. */
export function integerField(body: JsonObject, name: string): number | undefined {
  return readInteger(body[name] ?? undefined, `body.${name}`);
}

/** A list of integers. */
export function integersField(body: JsonObject, name: string): number[] {
  return (listField(body, name) ?? []).map((value, index) => readInteger(value, `body.${name}.${index}`) ?? 0);
}

/** An object field. */
export function objectField(body: JsonObject, name: string): JsonObject | undefined {
  const value = body[name] ?? undefined;
  if (value === undefined || isObject(value)) return value;
  throw invalidBody({
    type: "dict_type",
    loc: `body.${name}`,
    msg: "Input should be a valid dictionary",
    input: value,
  });
}

/** A list field. */
export function listField(body: JsonObject, name: string): Json[] | undefined {
  const value = body[name] ?? undefined;
  if (value === undefined || Array.isArray(value)) return value;
  throw invalidBody({ type: "list_type", loc: `body.${name}`, msg: "Input should be a valid list", input: value });
}

/** The 400 for a missing required field. `input`: the object that lacks it. */
export function missing(loc: string, input: Json): Error {
  return invalidBody({ type: "missing", loc, msg: "Field required", input });
}

function readInteger(value: Json | undefined, loc: string): number | undefined {
  const number = readNumber(value, loc, "int");
  if (number === undefined || Number.isInteger(number)) return number;
  throw invalidBody({
    type: "int_from_float",
    loc,
    msg: "Input should be a valid integer, got a number with a fractional part",
    input: value,
  });
}

function readNumber(value: Json | undefined, loc: string, kind: "int" | "float"): number | undefined {
  if (value === undefined || typeof value === "number") return value;
  if (typeof value === "boolean") return Number(value);
  const noun = kind === "int" ? "integer" : "number";
  if (typeof value !== "string") {
    throw invalidBody({ type: `${kind}_type`, loc, msg: `Input should be a valid ${noun}`, input: value });
  }
  const parsed = value.trim() === "" ? Number.NaN : Number(value);
  if (!Number.isNaN(parsed)) return parsed;
  throw invalidBody({
    type: `${kind}_parsing`,
    loc,
    msg: `Input should be a valid ${noun}, unable to parse string as ${kind === "int" ? "an integer" : "a number"}`,
    input: value,
  });
}
