import { isObject, type Json } from "./json.ts";

/** JSON as Python's `json.dumps` writes it: a space after each comma and colon. */
export function pythonJson(value: Json | undefined): string {
  if (Array.isArray(value)) return `[${value.map(pythonJson).join(", ")}]`;
  if (!isObject(value)) return JSON.stringify(value ?? null);
  const entries = Object.entries(value).filter((entry) => entry[1] !== undefined);
  return `{${entries.map(([key, entry]) => `${JSON.stringify(key)}: ${pythonJson(entry)}`).join(", ")}}`;
}

/** A number as Python's `float` writes it. */
export function pythonFloat(value: number): string {
  return Number.isInteger(value) ? `${value}.0` : String(value);
}
