/** The description of a violation of a schema, which may have keys and values by the megabyte. */

/** Most characters of a name or a value. */
const MAX_SHOWN = 64;

/** Most values of an enumeration. */
const MAX_LISTED = 8;

/** A keyword that a value violates, in words. */
export function faultOf(keyword: string, rule: unknown): string {
  switch (keyword) {
    case "type":
      return `is not of type ${(Array.isArray(rule) ? rule : [rule]).slice(0, MAX_LISTED).join(" or ")}`;
    case "enum":
      return `is none of ${listed(rule)}`;
    case "const":
      return `is not ${listed([rule])}`;
    case "anyOf":
      return "matches none of the alternatives of 'anyOf'";
    case "oneOf":
      return "matches none of the alternatives of 'oneOf', or several";
    case "pattern":
      return `does not match the pattern ${listed([rule])}`;
    case "format":
      return `is no ${listed([rule])}`;
    case "not":
      return "matches the schema of 'not'";
    default:
      return `violates '${keyword}'${typeof rule === "number" ? ` (${rule})` : ""}`;
  }
}

/** The first of some values. Long texts are cut, and objects left out: a schema may have them by the megabyte. */
function listed(values: unknown): string {
  if (!Array.isArray(values)) return "its values";
  const texts = values.slice(0, MAX_LISTED).map((value: unknown) => {
    if (typeof value === "string") return JSON.stringify(shown(value));
    return typeof value === "object" && value !== null ? "…" : String(value);
  });
  return values.length > MAX_LISTED ? `${texts.join(", ")}, …` : texts.join(", ");
}

/** `a.b[0]`. */
export function pathOf(path: readonly (string | number)[]): string {
  return path
    .map((key) => (typeof key === "number" ? `[${key}]` : `.${key}`))
    .join("")
    .replace(/^\./, "");
}

/** The beginning of a text, on one line. */
export function shown(text: string): string {
  const cut = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
  return cut.replace(/\s+/g, " ").toWellFormed();
}
