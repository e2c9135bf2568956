import { isJsonObject } from "@responses-edge/bounded-io/json-text";
import type { ToolNamespace } from "./message.ts";

/**
 * The `# Tools` section, byte for byte as openai/harmony writes it (`template_tools_section` and
 * `json_schema_to_typescript` in `src/encoding.rs`): gpt-oss was trained on its oddities too, so they stay.
 */

/**
 * The maximum of nested objects, variants and arrays, beyond which a type is `any`. The reference has no limit, but
 * indents each level by four: a deep and wide schema would grow with the product.
 */
const MAX_DEPTH = 32;

/** Takes namespaces by key, which orders them; gives the section without a line end. Never throws. */
export function toolsBlock(namespaces: Readonly<Record<string, ToolNamespace>>): string {
  const keys = Object.keys(namespaces).sort(byCodePoint);
  const sections = keys.map((key) => namespaces[key]).filter((namespace) => namespace !== undefined);
  return ["# Tools", ...sections.map(namespaceBlock)].join("\n\n");
}

function namespaceBlock({ name, description, tools }: ToolNamespace): string {
  const about = lines(description ?? "");
  if (tools.length === 0) return [`## ${name}\n`, ...about].join("\n");
  const parts = [`## ${name}\n`, ...about.map(comment), `namespace ${name} {\n`];
  for (const tool of tools) {
    for (const line of lines(tool.description)) parts.push(comment(line));
    const argument = tool.parameters == null ? "" : `_: ${typeOf(tool.parameters, "", 0)}`;
    parts.push(`type ${tool.name} = (${argument}) => any;\n`);
  }
  parts.push(`} // namespace ${name}`);
  return parts.join("\n");
}

/** A JSON Schema as a TypeScript type. An unknown keyword gives `any`. */
function typeOf(schema: unknown, indent: string, depth: number): string {
  if (depth > MAX_DEPTH) return "any";
  const variants = field(schema, "oneOf");
  if (Array.isArray(variants)) return variants.map((variant) => variantLine(variant, indent, depth)).join("");
  const type = field(schema, "type");
  if (Array.isArray(type)) {
    const names = type.filter((name) => typeof name === "string").map((name) => (name === "integer" ? "number" : name));
    return names.length > 0 ? names.join(" | ") : "any";
  }
  switch (type) {
    case "object":
      return objectType(schema, indent, depth);
    case "array": {
      const items = field(schema, "items");
      return items === undefined ? "Array<any>" : `${typeOf(items, indent, depth + 1)}[]`;
    }
    case "string": {
      const values = field(schema, "enum");
      const literals = Array.isArray(values) ? values.filter((value) => typeof value === "string") : [];
      return literals.length > 0 ? literals.map((value) => `"${value}"`).join(" | ") : "string";
    }
    case "number":
    case "integer":
      return "number";
    case "boolean":
      return "boolean";
    default:
      return "any";
  }
}

/** A variant of a `oneOf` that is not a property's. */
function variantLine(variant: unknown, indent: string, depth: number): string {
  const about = [field(variant, "description"), defaultOf(variant, "json")].filter((part) => typeof part === "string");
  return `\n${indent} | ${variantType(variant, indent, depth)}${about.length > 0 ? ` // ${about.join(" ")}` : ""}`;
}

function variantType(variant: unknown, indent: string, depth: number): string {
  return nullable(variant, typeOf(variant, `${indent}   `, depth + 1));
}

function nullable(schema: unknown, type: string): string {
  return field(schema, "nullable") === true && !type.includes("null") ? `${type} | null` : type;
}

function objectType(schema: unknown, indent: string, depth: number): string {
  const description = field(schema, "description");
  const about = typeof description === "string" ? `${indent}// ${description}\n` : "";
  const required = new Set(asArray(field(schema, "required")));
  const declared = field(schema, "properties");
  const properties = Object.entries(isJsonObject(declared) ? declared : {});
  const text = properties.map(([key, value]) => property(required.has(key) ? key : `${key}?`, value, indent, depth));
  return `${about}{\n${text.join("")}${indent}}`;
}

function property(key: string, schema: unknown, indent: string, depth: number): string {
  const title = field(schema, "title");
  const variants = field(schema, "oneOf");
  let text = typeof title === "string" ? `${indent}// ${title}\n${indent}//\n` : "";
  const description = field(schema, "description");
  if (variants === undefined && typeof description === "string") text += `${indent}// ${description}\n`;
  const examples = asArray(field(schema, "examples"));
  if (examples.length > 0) text += `${indent}// Examples:\n`;
  for (const example of examples) if (typeof example === "string") text += `${indent}// - "${example}"\n`;
  if (Array.isArray(variants)) return text + variantsProperty(key, schema, variants, indent, depth);
  const type = nullable(schema, typeOf(schema, `${indent}    `, depth + 1));
  const value = variants === undefined ? defaultOf(schema, "bare") : undefined;
  return `${text}${indent}${key}: ${type},${value === undefined ? "" : ` // ${value}`}\n`;
}

function variantsProperty(key: string, schema: unknown, variants: unknown[], indent: string, depth: number): string {
  const description = field(schema, "description");
  const isAbove = typeof description === "string" && description !== field(variants[0], "description");
  const value = defaultOf(schema, "bare");
  let text = isAbove ? `${indent}// ${description}\n` : "";
  if (value !== undefined) text += `${indent}// ${value}\n`;
  text += `${indent}${key}:\n`;
  for (const [index, variant] of variants.entries()) {
    const own = field(variant, "description");
    const isNews = own !== description && !(index === 0 && isAbove);
    const about = [isNews ? own : undefined, defaultOf(variant, "bare")].filter((part) => typeof part === "string");
    const type = variantType(variant, indent, depth);
    text += `${indent} | ${type}${about.length > 0 ? ` // ${about.join(" ")}` : ""}\n`;
  }
  return `${text}${indent},\n`;
}

/** `default: …`, if there is one. A string is in quotes, unless it is one of an enum: then it is bare, or JSON. */
function defaultOf(schema: unknown, enumDefault: "bare" | "json"): string | undefined {
  const value = field(schema, "default");
  if (value === undefined) return undefined;
  if (typeof value !== "string") return `default: ${compactJson(value)}`;
  if (asArray(field(schema, "enum")).length === 0) return `default: "${value}"`;
  return `default: ${enumDefault === "bare" ? value : JSON.stringify(value)}`;
}

/**
 * JSON as Rust's serde_json prints it: numbers beyond the safe integers have another notation than JavaScript's. Never
 * throws; what lies more than 500 levels deep is `null`.
 */
export function compactJson(value: unknown, depth = 0): string {
  if (typeof value === "string") return JSON.stringify(value.toWellFormed());
  if (typeof value === "number") return rustNumber(value);
  if (typeof value === "boolean") return String(value);
  if (depth > 500) return "null";
  if (Array.isArray(value)) return `[${value.map((element) => compactJson(element, depth + 1)).join(",")}]`;
  if (!isJsonObject(value)) return "null";
  const members = Object.entries(value).map(([key, member]) => `${compactJson(key)}:${compactJson(member, depth + 1)}`);
  return `{${members.join(",")}}`;
}

/** Digits up to 10^16 and down to 10^-5, else an exponent without a plus. */
function rustNumber(value: number): string {
  if (Number.isSafeInteger(value)) return String(value);
  const magnitude = Math.abs(value);
  if (magnitude >= 1e16 || magnitude < 1e-5) return value.toExponential().replace("+", "");
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

/** A member of a JSON object, never one that it inherits; of anything else `undefined`. */
function field(schema: unknown, key: string): unknown {
  return isJsonObject(schema) && Object.hasOwn(schema, key) ? schema[key] : undefined;
}

function asArray(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function comment(line: string): string {
  return `// ${line}`;
}

/** As Rust's `str::lines`: a last line end starts no line, and a lone `\r` ends none. */
function lines(text: string): string[] {
  const all = text.split(/\r?\n/);
  if (all.at(-1) === "") all.pop();
  return all;
}

/** As Rust compares strings; JavaScript's own order puts U+10000 and above before U+E000. */
function byCodePoint(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    const difference = ascending(a.charCodeAt(index)) - ascending(b.charCodeAt(index));
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

function ascending(unit: number): number {
  return unit >= 0xd800 && unit < 0xe000 ? unit + 0x10000 : unit;
}
