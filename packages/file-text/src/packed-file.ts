import type { Allowance, TextLimits } from "./limits.ts";
import { readXml, type XmlSink } from "./xml.ts";
import type { Zip } from "./zip.ts";

/** A file that is an archive of XML: Office Open XML, OpenDocument, EPUB. */
export interface PackedFile {
  zip: Zip;
  limits: TextLimits;
  /** The rest of the text's limit. */
  text: Allowance;
}

/** Reads one part; a missing one is empty. */
export function readPart({ zip, limits }: PackedFile, name: string, sink: XmlSink): Promise<void> {
  return readXml(zip.read(name), sink, limits.maxDepth);
}

/** A growing text, within the rest of its limit. */
export class Text {
  readonly #allowance: Allowance;
  #text = "";

  constructor(allowance: Allowance) {
    this.#allowance = allowance;
  }

  /**
   * Throws an UnreadableFile, `too_large`. UTF-8 has at least a byte for each UTF-16 unit, so units are counted while
   * the text grows.
   */
  add(text: string): void {
    this.#allowance.take(text.length);
    this.#text += text;
  }

  finish(): string {
    // Line by line: a regular expression for spaces before a line's end would take quadratic time.
    const lines = this.#text.split("\n").map((line) => line.trimEnd());
    return lines
      .join("\n")
      .replace(/\n{3,}/g, "\n\n")
      .trim();
  }
}
