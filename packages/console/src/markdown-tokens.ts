import type { Marked, MarkedExtension, Token as TokenOfmarked } from "marked";
import { beside } from "./beside.ts";
import type { Parsed } from "./json.ts";

/** The text of an answer, as tokens of Markdown with mathematics. The tokens contain no HTML yet. */
export type Token = TokenOfmarked & {
  tokens?: Token[];
  items?: Parsed[];
  text?: string;
  raw: string;
  [field: string]: Parsed;
};

/** A longer formula is shown as text. UTF-16 units. */
const MAX_FORMULA = 2_000;

/** A dollar sign with a space or a digit on the wrong side belongs to a price. */
const INLINE = [
  /^\$(?![\s$])((?:\\.|[^\\$\n]){0,500}?(?:\\.|[^\\$\s]))\$(?!\d)/,
  /^\\\(((?:[^\\\n]|\\(?!\))){1,2000}?)\\\)/,
];
const BLOCK = [/^ {0,3}\$\$([^$]{1,2000}?)\$\$[ \t]*(?:\n|$)/, /^ {0,3}\\\[([\s\S]{1,2000}?)\\\][ \t]*(?:\n|$)/];

function formulaIn(forms: readonly RegExp[], source: string) {
  for (const form of forms) {
    const [raw, formula = ""] = form.exec(source) ?? [];
    if (raw !== undefined && formula.length <= MAX_FORMULA) return { raw, formula: formula.trim() };
  }
  return undefined;
}

let library: typeof import("./markdown-reader.ts") | undefined;
let marked: Marked | undefined;

const FORMULAS: MarkedExtension = {
  extensions: [
    {
      name: "formula",
      level: "inline",
      start: (source) => source.search(/\$|\\\(/),
      tokenizer(source) {
        const found = formulaIn(INLINE, source);
        return found && { type: "formula", ...found };
      },
    },
    {
      name: "formula_block",
      level: "block",
      start: (source) => source.search(/(?:^|\n) {0,3}(?:\$\$|\\\[)/),
      tokenizer(source) {
        const found = formulaIn(BLOCK, source);
        return found && { type: "formula_block", ...found };
      },
    },
  ],
};

/** Loads what reads markdown. */
export async function loadMarkdown() {
  library = (await beside("markdown-reader.js")) as typeof import("./markdown-reader.ts");
  marked ??= new library.Marked(FORMULAS);
}

/** Tells whether it is loaded. */
export function readsMarkdown() {
  return marked !== undefined;
}

/**
 * The blocks of a text. A text that cannot be parsed, such as a thousand nested quotations, becomes one paragraph.
 */
export function blocksOf(source: string): Token[] {
  try {
    return (marked?.lexer(source) ?? []) as Token[];
  } catch {
    return [{ type: "text", raw: source, text: source, escaped: false }];
  }
}

/** The fence at the beginning of a text: its mark, its language, and the offset of the code. */
export function fenceOf(source: string) {
  const [line, mark = "", language = ""] = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*\n/.exec(source) ?? [];
  return line === undefined ? undefined : { mark, language, start: line.length };
}

/** A text with its character references resolved. */
export function decoded(text: string) {
  return library?.decodeHTMLStrict(text) ?? text;
}
