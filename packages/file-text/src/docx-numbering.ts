import { written } from "./list-numbers.ts";
import { type PackedFile, readPart } from "./packed-file.ts";

/** The numbers of a document's lists (ECMA-376 part 1, 17.9). */

interface Level {
  /** How the number is written: `decimal`, `lowerLetter`, `bullet` … */
  format: string;
  /** The text with the numbers of this level and those above it: `%1.%2`. */
  text: string;
  start: number;
}

/** More definitions are not read. */
const MAX_DEFINITIONS = 10_000;
const MAX_LEVEL = 9;

export class Numbering {
  /** The levels of each kind of list, the kind of each list, and the list of each style. */
  readonly #kinds = new Map<string, Level[]>();
  readonly #lists = new Map<string, string>();
  readonly #styles = new Map<string, { id: string; level: number }>();
  /** The last numbers of each kind of list, by level. */
  readonly #counts = new Map<string, number[]>();

  static async read(file: PackedFile): Promise<Numbering> {
    const numbering = new Numbering();
    await numbering.#readLists(file);
    await numbering.#readStyles(file);
    return numbering;
  }

  /** The next number of a list, of its own or of its style, as it stands before a paragraph; empty without a list. */
  next(own: { id: string; level: number } | undefined, style: string | undefined): string {
    const ofStyle = style === undefined ? undefined : this.#styles.get(style);
    const id = own?.id || ofStyle?.id;
    const kind = id === undefined ? undefined : this.#lists.get(id);
    const levels = kind === undefined ? undefined : this.#kinds.get(kind);
    const at = Math.min(MAX_LEVEL, Math.max(0, own?.level ?? ofStyle?.level ?? 0));
    const level = levels?.[at];
    if (!levels || !level || kind === undefined) return "";
    const indent = "  ".repeat(at);
    if (level.format === "bullet") return `${indent}- `;
    if (level.format === "none") return "";
    const counts = this.#counts.get(kind) ?? [];
    this.#counts.set(kind, counts);
    counts[at] = (counts[at] ?? level.start - 1) + 1;
    counts.length = at + 1;
    const shown = level.text.replaceAll(/%([1-9])/g, (_, digit: string) => {
      const of = Number(digit) - 1;
      return written(counts[of] ?? levels[of]?.start ?? 1, levels[of]?.format ?? "decimal");
    });
    return shown === "" ? "" : `${indent}${shown} `;
  }

  async #readLists(file: PackedFile): Promise<void> {
    let kind: Level[] | undefined;
    let level: Level | undefined;
    let list: string | undefined;
    await readPart(file, "word/numbering.xml", {
      open: (name, attributes) => {
        const value = attributes("w:val") ?? "";
        if (this.#kinds.size + this.#lists.size > MAX_DEFINITIONS) return;
        if (name === "abstractNum") {
          kind = [];
          this.#kinds.set(attributes("w:abstractNumId") ?? "", kind);
        } else if (name === "lvl") {
          level = { format: "decimal", text: "", start: 1 };
          const at = Number(attributes("w:ilvl"));
          if (kind && at >= 0 && at <= MAX_LEVEL) kind[at] = level;
        } else if (name === "numFmt" && level) level.format = value;
        else if (name === "lvlText" && level) level.text = value.slice(0, 64);
        else if (name === "start" && level) level.start = Number(value) || 0;
        else if (name === "num") list = attributes("w:numId");
        else if (name === "abstractNumId" && list !== undefined) this.#lists.set(list, value);
      },
      close(name) {
        if (name === "abstractNum") kind = level = undefined;
        else if (name === "num") list = undefined;
      },
      text() {},
    });
  }

  async #readStyles(file: PackedFile): Promise<void> {
    let style: string | undefined;
    await readPart(file, "word/styles.xml", {
      open: (name, attributes) => {
        if (name === "style") style = attributes("w:styleId");
        if (style === undefined || this.#styles.size > MAX_DEFINITIONS) return;
        const known = this.#styles.get(style) ?? { id: "", level: 0 };
        if (name === "numId") this.#styles.set(style, { ...known, id: attributes("w:val") ?? "" });
        else if (name === "ilvl") this.#styles.set(style, { ...known, level: Number(attributes("w:val") ?? 0) });
      },
      close(name) {
        if (name === "style") style = undefined;
      },
      text() {},
    });
  }
}
