import { readFileSync, statSync } from "node:fs";
import { parse as parseToml, TomlError } from "smol-toml";
import { isMap, isScalar, LineCounter, parseDocument } from "yaml";
import { misspeltVariables, type TextVariables, VARIABLE_NAMES } from "../../src/config/index.ts";
import { systemCode } from "../serve/refusal.ts";
import type { FilePlaces } from "./file-places.ts";

/**
 * The file of `CONFIG_FILE`: the variables as YAML, or as TOML if its name ends so, each by its name in lower case. A text, a number or a flag is the
 * variable's value; a list of texts is joined with commas, and any other value becomes JSON.
 */
export interface ConfigFile extends FilePlaces {
  /** The variables in the file, by their names. */
  variables: Readonly<Record<string, string>>;
  /** The errors of the file by itself: `FILE:LINE: …`. */
  mistakes: string[];
  /** The file has no variables: it cannot be read, or is no list of variables. */
  isUnreadable: boolean;
}

/** The maximum length of a configuration, in bytes. */
const MAX_BYTES = 1024 * 1024;

/** Reads the file. `others` are variables that it may set beside the Worker's. */
export function readConfigFile(path: string, others: readonly string[]): ConfigFile {
  const lines = new Map<string, number>();
  const variables: Record<string, string> = {};
  const mistakes: string[] = [];
  const file = { path, variables, mistakes, isUnreadable: true, lines };
  let text: string;
  try {
    if (statSync(path).size > MAX_BYTES) {
      mistakes.push(`${path}: expected at most ${MAX_BYTES} bytes`);
      return file;
    }
    text = readFileSync(path, "utf8");
  } catch (error) {
    mistakes.push(`${path}: the file cannot be read (${systemCode(error)})`);
    return file;
  }
  const read = path.endsWith(".toml") ? readToml(text) : readYaml(text);
  if (!Array.isArray(read)) {
    mistakes.push(...read.faults.map(({ line, message }) => `${path}:${line}: ${message}`));
    return file;
  }
  file.isUnreadable = false;
  const known = new Set<string>([...VARIABLE_NAMES, ...others]);
  for (const { written, line, value } of read) {
    const place = `${path}:${line}`;
    const name = written.toUpperCase();
    if (written !== written.toLowerCase() || !known.has(name)) {
      const [[, meant] = []] = misspeltVariables([name]);
      const guess = meant ?? (known.has(name) ? name : undefined);
      mistakes.push(`${place}: unknown variable '${written}'${guess ? `. Do you mean '${guess.toLowerCase()}'?` : ""}`);
      continue;
    }
    lines.set(name, line);
    try {
      const said = textOf(value());
      if (said !== undefined) variables[name] = said;
    } catch (error) {
      mistakes.push(`${place}: ${error instanceof Error ? error.message : error}`);
    }
  }
  return file;
}

/** A variable of a file, its line from 1, and its value, which may be invalid by itself. */
interface Entry {
  written: string;
  line: number;
  value(): unknown;
}

/** The variables of a file, or the reasons why it has none. */
type Read = Entry[] | { faults: { line: number; message: string }[] };

function readYaml(text: string): Read {
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, prettyErrors: false });
  const lineAt = (offset = 0) => lineCounter.linePos(offset).line;
  const faults = document.errors.map(({ message, pos }) => ({ line: lineAt(pos[0]), message }));
  if (faults.length > 0) return { faults };
  if (document.contents === null) return [];
  if (!isMap(document.contents)) {
    return { faults: [{ line: 1, message: 'expected variables by their names, such as "upstreams:"' }] };
  }
  return document.contents.items.map(({ key, value }) => ({
    written: isScalar(key) ? String(key.value) : "",
    line: lineAt(isScalar(key) ? key.range?.[0] : undefined),
    value: () => (value as { toJS(document: unknown): unknown } | null)?.toJS(document),
  }));
}

function readToml(text: string): Read {
  try {
    const lines = text.split("\n");
    return Object.entries(parseToml(text)).map(([written, value]) => {
      // A key, or the head of a table, at the beginning of a line.
      const begins = new RegExp(`^\\s*\\[{0,2}\\s*["']?${RegExp.escape(written)}["']?\\s*[=.\\]]`);
      return {
        written,
        line:
          1 +
          Math.max(
            0,
            lines.findIndex((line) => begins.test(line)),
          ),
        value: () => value,
      };
    });
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    // Its further lines show the text.
    return { faults: [{ line: error.line, message: error.message.split("\n", 1)[0] ?? "" }] };
  }
}

/** A value of the file as the text of a variable; undefined for an empty value. */
function textOf(value: unknown): string | undefined {
  if (value === null || value === undefined || value === "") return undefined;
  if (typeof value !== "object") return String(value);
  const isList = Array.isArray(value) && value.every((each) => typeof each !== "object" || each === null);
  return isList ? value.join(",") : JSON.stringify(value);
}

/** The Worker's variables among those of the file. */
export function workerPart(variables: Readonly<Record<string, string>>): TextVariables {
  const own: readonly string[] = VARIABLE_NAMES;
  const part: TextVariables = Object.fromEntries(Object.entries(variables).filter(([name]) => own.includes(name)));
  // As `workerVariables` does (docs/operations.md).
  if (part.VLLM_BASE_URL?.startsWith("http://")) part.VLLM_TRANSPORT ??= "mixed";
  return part;
}
