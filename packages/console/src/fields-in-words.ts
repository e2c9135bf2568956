import { type Form, fieldsIn, memberOf, otherValues } from "./fields.ts";
import type { ApiObject } from "./json.ts";

/** The values of a form in a line: `Weight: 1 · Models: qwen3`. */
export function valuesInWords(form: Form, values: ApiObject): string {
  const entries = fieldsIn(form).flatMap(({ name, label, kind, options }): [string, unknown][] => {
    if (kind === "others") return Object.entries(otherValues(form, values) ?? {});
    const value = memberOf(values, name);
    return [[label, options?.find(([each]) => each === value)?.[1] ?? value]];
  });
  const isGiven = ([, value]: [string, unknown]) => value != null && value !== "" && value !== false;
  return entries.filter(isGiven).map(entryInWords).join(" · ") || "none";
}

function entryInWords([label, value]: [string, unknown]) {
  if (value === true) return label;
  if (Array.isArray(value)) return `${label}: ${value.join(", ") || "nothing"}`;
  return `${label}: ${typeof value === "object" ? JSON.stringify(value) : value}`;
}
