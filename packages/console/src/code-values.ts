import type { ApiObject, Parsed } from "./json.ts";

/** A request, and the values of its body as a language writes them. */

/** A request of which a program is made. */
export interface Request {
  /** as it is sent, with files as LocalFile */
  body: ApiObject;
  /** what the program does with the answer */
  kind: "whole" | "stream" | "socket" | "calls";
  /** ends in `/v1` */
  baseUrl: string;
  hasFiles: boolean;
  /** Those that the request offers, with the names of their parameters in a line. */
  functions: { name: string; parameters: string }[];
  /** True if the next request repeats what was said so far. A conversation has it already. */
  repeats: boolean;
  /** True if the request forces a call. The next request must not, or it never ends in a text. */
  isForced: boolean;
}

/** Stands in a body for a file that the program reads itself. */
export class LocalFile {
  name: string;
  type: string;

  constructor(name: string, type: string) {
    this.name = name;
    this.type = type;
  }
}

/** How a language writes values, where it is other than in JSON. */
export interface Syntax {
  file(file: LocalFile): string;
  string?(text: string): string;
  /** By default as a string. */
  key?(name: string): string;
  /** The words for true, false and null. */
  words?: readonly [string, string, string];
  /** By default two spaces. */
  indent?: string;
  /** Within the braces of an object on one line. */
  space?: string;
}

/** The longest line of a list or object. Characters. */
const LINE = 80;

/** The code of a value; `depth`: the number of levels by which its lines are indented. */
export function written(value: unknown, syntax: Syntax, depth = 0): string {
  const { file, string = JSON.stringify, key = string, words: [yes, no, none] = ["true", "false", "null"] } = syntax;
  if (value instanceof LocalFile) return file(value);
  if (typeof value === "string") return string(value);
  if (value === null || value === undefined) return none;
  if (typeof value === "boolean") return value ? yes : no;
  if (typeof value !== "object") return String(value);
  const parts = Array.isArray(value)
    ? value.map((each) => written(each, syntax, depth + 1))
    : Object.entries(value).map(([name, each]) => `${key(name)}: ${written(each, syntax, depth + 1)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (parts.length === 0) return open + close;
  const { indent = "  ", space = "" } = syntax;
  const around = open === "{" ? space : "";
  const line = `${open}${around}${parts.join(", ")}${around}${close}`;
  if (line.length + depth * 2 < LINE && !line.includes("\n")) return line;
  const inner = parts.map((part) => indent.repeat(depth + 1) + part).join(",\n");
  return `${open}\n${inner}\n${indent.repeat(depth)}${close}`;
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
