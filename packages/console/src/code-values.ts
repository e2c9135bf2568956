import type { Parsed } from "./json.ts";

/** Values of a request's body as a language writes them. */

/** Stands in a body for a file that the program reads itself. */
export class LocalFile {
  name: string;
  type: string;

  constructor(name: string, type: string) {
    this.name = name;
    this.type = type;
  }
}

/** The form of values in a language. */
export interface Form {
  string(text: string): string;
  file(file: LocalFile): string;
  key(name: string): string;
  words: { true: string; false: string; null: string };
  indent: string;
  /** Within the braces of an object on one line. */
  space: string;
}

/** The longest line of a list or object. Characters. */
const LINE = 80;

/** The code of a value; `depth`: the number of levels by which its lines are indented. */
export function written(value: unknown, form: Form, depth = 0): string {
  if (value instanceof LocalFile) return form.file(value);
  if (typeof value === "string") return form.string(value);
  if (value === null || value === undefined) return form.words.null;
  if (typeof value === "boolean") return form.words[value ? "true" : "false"];
  if (typeof value !== "object") return String(value);
  const parts = Array.isArray(value)
    ? value.map((each) => written(each, form, depth + 1))
    : Object.entries(value).map(([name, each]) => `${form.key(name)}: ${written(each, form, depth + 1)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (parts.length === 0) return open + close;
  const space = open === "{" ? form.space : "";
  const line = `${open}${space}${parts.join(", ")}${space}${close}`;
  if (line.length + depth * 2 < LINE && !line.includes("\n")) return line;
  const indent = form.indent.repeat(depth + 1);
  return `${open}\n${parts.map((part) => indent + part).join(",\n")}\n${form.indent.repeat(depth)}${close}`;
}

/** Shorter texts of files stay in the code. Characters. */
const SHORT = 1_000;

/**
 * A body that was sent, with what a program reads of files in the place of their bytes. `name` is that of the file.
 */
export function withLocalFiles(value: unknown, name = "image"): Parsed {
  if (typeof value === "string" && value.length > SHORT && value.startsWith("data:")) {
    const type = /^data:([\w.+/-]*)/.exec(value)?.[1] || "application/octet-stream";
    return new LocalFile(name === "image" ? `image.${type.split("/")[1]}` : name, type);
  }
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => withLocalFiles(each));
  const own = "filename" in value ? String(value.filename) : undefined;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withLocalFiles(each, own)]));
}

/** True if there are files in a value. */
export function filesIn(value: unknown): boolean {
  if (value instanceof LocalFile) return true;
  return typeof value === "object" && value !== null && Object.values(value).some(filesIn);
}
