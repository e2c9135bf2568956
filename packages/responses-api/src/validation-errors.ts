import type * as z from "zod";
import { type ApiError, invalidRequest } from "./errors.ts";

/** Turns zod's issues into OpenAI's 400: one error, which names the invalid field by its path. */

type Issue = z.core.$ZodIssue;
type Path = readonly PropertyKey[];

/** The maximum length of a quotation of the client's values and keys, such as those of `metadata`. */
const MAX_QUOTED = 64;

/** A client's text as an error quotes it. */
export function shortened(text: string): string {
  return text.length > MAX_QUOTED ? `${text.slice(0, MAX_QUOTED)}…` : text;
}

/** `["input", 2, "content"]` → `input[2].content`. */
export function formatPath(path: Path): string {
  let text = "";
  for (const key of path) {
    const name = typeof key === "number" ? `[${key}]` : shortened(String(key));
    text += text === "" || typeof key === "number" ? name : `.${name}`;
  }
  return text;
}

function valueAt(value: unknown, path: Path): unknown {
  let current = value;
  for (const key of path) {
    if (typeof current !== "object" || current === null) return undefined;
    current = (current as Record<PropertyKey, unknown>)[key];
  }
  return current;
}

function typeName(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "number") return Number.isInteger(value) ? "an integer" : "a decimal";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function quoted(value: unknown): string {
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") return typeName(value);
  return `'${shortened(String(value))}'`;
}

const TYPE_NAMES: Record<string, string> = {
  array: "an array",
  boolean: "a boolean",
  int: "an integer",
  number: "a number",
  object: "an object",
  record: "an object",
  string: "a string",
};

/**
 * The finding that says most. A union fails in every branch; the branch that got furthest into the value is the one
 * the client meant. Branches that failed at once only tell which types would have been right.
 */
function mostTelling(issue: Issue): { issue: Issue; path: Path; expected?: string } {
  if (issue.code !== "invalid_union" || issue.errors.length === 0) return { issue, path: issue.path };
  const candidates = issue.errors.map((branch) => branch[0]).filter((inner) => inner !== undefined);
  const deepest = candidates
    .map((inner) => mostTelling(inner))
    .reduce((best, next) =>
      next.path.length > best.path.length || (best.issue.code === "invalid_type" && next.issue.code !== "invalid_type")
        ? next
        : best,
    );
  const path = [...issue.path, ...deepest.path];
  if (deepest.path.length > 0 || deepest.issue.code !== "invalid_type") return { ...deepest, path };
  const types = candidates.map((inner) => (inner.code === "invalid_type" ? TYPE_NAMES[inner.expected] : undefined));
  return { issue: deepest.issue, path, expected: types.filter((name) => name !== undefined).join(" or ") };
}

/** Findings about the type, the value or the discriminator of a field: without a value they mean that it is missing. */
const MISSING_WHEN_UNDEFINED = new Set(["invalid_type", "invalid_value", "invalid_union"]);

/** The message of a finding, and its code. */
function describe(issue: Issue, field: string, value: unknown, expected?: string): [message: string, code: string] {
  if (value === undefined && MISSING_WHEN_UNDEFINED.has(issue.code)) {
    return [`Missing required parameter: '${field}'.`, "missing_required_parameter"];
  }
  const invalid = `Invalid '${field}':`;
  switch (issue.code) {
    case "invalid_type": {
      const wanted = expected ?? TYPE_NAMES[issue.expected] ?? issue.expected;
      return [`Invalid type for '${field}': expected ${wanted}, but got ${typeName(value)} instead.`, "invalid_type"];
    }
    case "invalid_value": {
      const values = issue.values.map((allowed) => `'${String(allowed)}'`).join(", ");
      return [`Invalid value: ${quoted(value)}. Supported values are: ${values}.`, "invalid_value"];
    }
    case "invalid_union":
      return [`Invalid value: ${quoted(value)} is not a supported '${issue.discriminator ?? field}'.`, "invalid_value"];
    case "too_big": {
      const { origin, maximum, inclusive } = issue;
      if (origin === "string") {
        const message = `${invalid} string too long. Expected a string with maximum length ${maximum}.`;
        return [message, "string_above_max_length"];
      }
      if (origin === "array") {
        return [`${invalid} array too long. Expected at most ${maximum} elements.`, "array_above_max_length"];
      }
      return [`${invalid} expected a value ${inclusive === false ? "<" : "<="} ${maximum}.`, "above_max_value"];
    }
    case "too_small": {
      const { origin, minimum, inclusive } = issue;
      if (origin === "string") {
        const message = `${invalid} string too short. Expected a string with minimum length ${minimum}.`;
        return [message, "string_below_min_length"];
      }
      if (origin === "array") {
        return [`${invalid} array too short. Expected at least ${minimum} elements.`, "array_below_min_length"];
      }
      return [`${invalid} expected a value ${inclusive === false ? ">" : ">="} ${minimum}.`, "below_min_value"];
    }
    case "invalid_format": {
      const wanted =
        issue.pattern === undefined ? `the format '${issue.format}'` : `the expected pattern ${issue.pattern}`;
      return [`${invalid} ${quoted(value)} does not match ${wanted}.`, "invalid_value"];
    }
    case "invalid_key":
      return [`${invalid} ${issue.issues[0]?.message ?? "invalid key"}.`, "invalid_value"];
    case "unrecognized_keys": {
      const [name = ""] = issue.keys;
      const path = field === "" ? shortened(name) : `${field}.${shortened(name)}`;
      return [`Unknown parameter: '${path}'.`, "unknown_parameter"];
    }
    case "custom":
      return [issue.message, typeof issue.params?.code === "string" ? issue.params.code : "invalid_value"];
    default:
      return [`Invalid value for '${field}'.`, "invalid_value"];
  }
}

/** Parses `value` with `schema`. Throws as `firstFault` says. */
export function parse<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw firstFault(result.error, value);
}

/** The 400 of the first finding about `value`, with the field's path in `param`. */
export function firstFault({ issues }: z.core.$ZodError, value: unknown): ApiError {
  const [first] = issues;
  if (!first) return invalidRequest(null, "Invalid request body.");
  const { issue, path, expected } = mostTelling(first);
  const field = formatPath(path);
  const [message, code] = describe(issue, field, valueAt(value, path), expected);
  return invalidRequest(field === "" ? null : field, message, code);
}
