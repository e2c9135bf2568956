import { written } from "./list-numbers.ts";

/** The numbers of lists in OpenDocument texts (ISO 26300, 16.30). */

/** A level of a list's style: how its numbers are written, and what stands around them. */
interface Level {
  /** `decimal`, `lowerLetter` …; `bullet` without numbers. */
  format: string;
  before: string;
  after: string;
  start: number;
}

const FORMATS: Readonly<Record<string, string>> = {
  ...{ "1": "decimal", a: "lowerLetter", A: "upperLetter", i: "lowerRoman", I: "upperRoman" },
};

/** More styles, and deeper levels, are not read. */
const MAX_STYLES = 10_000;
const MAX_LEVEL = 10;

type Attributes = (name: string) => string | undefined;

export class OpenDocumentLists {
  readonly #styles = new Map<string, Level[]>();
  /** The numbers of each style so far, by level. */
  readonly #counts = new Map<string, number[]>();
  #defined: Level[] | undefined;
  /** The styles of the lists that are open, from the outermost. */
  readonly #open: string[] = [];
  #isNext = false;

  /** To be called with each element; it looks at those that define styles, lists and their items. */
  onOpen(name: string, attributes: Attributes): void {
    if (name === "list-style") {
      this.#defined = [];
      if (this.#styles.size < MAX_STYLES) this.#styles.set(attributes("style:name") ?? "", this.#defined);
    } else if (name.startsWith("list-level-style-")) {
      const level = Number(attributes("text:level")) - 1;
      if (!this.#defined || !(level >= 0 && level < MAX_LEVEL)) return;
      const format = name.endsWith("number") ? (FORMATS[attributes("style:num-format") ?? ""] ?? "none") : "bullet";
      const [before = "", after = ""] = [attributes("style:num-prefix"), attributes("style:num-suffix")];
      this.#defined[level] = { format, before, after, start: Number(attributes("text:start-value") ?? 1) || 1 };
    } else if (name === "list") {
      const style = attributes("text:style-name") ?? this.#open.at(-1) ?? "";
      const goesOn = attributes("text:continue-numbering") === "true" || attributes("text:continue-list") !== undefined;
      if (!goesOn) this.#counts.get(style)?.splice(this.#open.length);
      this.#open.push(style);
    } else if (name === "list-item") this.#isNext = true;
    else if (name === "list-header") this.#isNext = false;
  }

  onClose(name: string): void {
    if (name === "list-style") this.#defined = undefined;
    else if (name === "list") this.#open.pop();
    else if (name === "list-item") this.#isNext = false;
  }

  /** The number of the item that begins here, as it stands before its first paragraph; empty elsewhere. */
  next(): string {
    if (!this.#isNext) return "";
    this.#isNext = false;
    const style = this.#open.at(-1) ?? "";
    const depth = Math.min(MAX_LEVEL, this.#open.length) - 1;
    const level = this.#styles.get(style)?.[depth];
    const indent = "  ".repeat(Math.max(0, depth));
    if (!level || level.format === "bullet") return `${indent}- `;
    if (level.format === "none") return indent;
    const counts = this.#counts.get(style) ?? [];
    this.#counts.set(style, counts);
    counts[depth] = (counts[depth] ?? level.start - 1) + 1;
    counts.length = depth + 1;
    return `${indent}${level.before}${written(counts[depth] ?? 1, level.format)}${level.after} `;
  }
}
