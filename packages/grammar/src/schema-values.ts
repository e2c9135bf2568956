/** Facts about values and keywords, as JSON Schema has them. */

/** Keywords that cannot be violated, or not by themselves (`minContains`, `then`). */
export const ANNOTATIONS = new Set([
  "$comment",
  "$defs",
  "$id",
  "$schema",
  "default",
  "definitions",
  "deprecated",
  "description",
  "else",
  "examples",
  "maxContains",
  "minContains",
  "readOnly",
  "then",
  "title",
  "writeOnly",
]);

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Undefined where that is unknown: fractions are not exact. */
export function isMultiple(value: number, of: unknown): boolean | undefined {
  if (typeof of !== "number" || of <= 0) return undefined;
  const times = value / of;
  if (Number.isInteger(times)) return true;
  const isFar = Math.abs(times - Math.round(times)) > 1e-9 * Math.max(1, Math.abs(times));
  return isFar ? false : undefined;
}

/** Undefined for a type that JSON Schema does not have. */
export function isOfType(value: unknown, type: unknown): boolean | undefined {
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
