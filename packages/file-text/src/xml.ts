import { UnreadableFile } from "./limits.ts";

/**
 * XML as a flat run of tags and text, from pieces of bytes. Only XML's own five entities, and no document type, because
 * those let small files grow.
 */
export interface XmlSink {
  /** `name` without its prefix. */
  open(name: string, attributes: (name: string) => string | undefined): void;
  close(name: string): void;
  /** Text of an element. A long one arrives in several pieces. */
  text(text: string): void;
}

/** A longer tag was never closed. */
const MAX_TAG = 65_536;

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

/**
 * Gives `sink` the content of the pieces. Throws an UnreadableFile for other content than XML, and for elements nested
 * deeper than `maxDepth`.
 */
export async function readXml(pieces: AsyncIterable<Uint8Array>, sink: XmlSink, maxDepth: number): Promise<void> {
  const decoder = new TextDecoder();
  const reader = new XmlReader(sink, maxDepth);
  for await (const piece of pieces) reader.push(decoder.decode(piece, { stream: true }));
  reader.end();
}

class XmlReader {
  readonly #sink: XmlSink;
  readonly #maxDepth: number;
  #rest = "";
  #depth = 0;

  constructor(sink: XmlSink, maxDepth: number) {
    this.#sink = sink;
    this.#maxDepth = maxDepth;
  }

  push(text: string): void {
    const source = this.#rest + text;
    let at = 0;
    for (;;) {
      const tag = source.indexOf("<", at);
      const textEnd = tag === -1 ? wholeReferences(source, at) : tag;
      if (textEnd > at) this.#sink.text(decode(source.slice(at, textEnd)));
      at = textEnd;
      if (tag === -1) break;
      const end = this.#markup(source, at);
      if (end === undefined) break;
      at = end;
    }
    this.#rest = source.slice(at);
    if (this.#rest.length > MAX_TAG) throw malformed();
  }

  end(): void {
    if (this.#rest.trim() !== "" || this.#depth !== 0) throw malformed();
  }

  /** Reads the markup that begins with the `<` at `at`; gives its end, or undefined if that has not arrived yet. */
  #markup(source: string, at: number): number | undefined {
    if (source.startsWith("<!--", at)) return after(source, "-->", at + 4);
    if (source.startsWith("<?", at)) return after(source, "?>", at + 2);
    if (source.startsWith("<![CDATA[", at)) {
      const end = after(source, "]]>", at + 9);
      if (end !== undefined) this.#sink.text(source.slice(at + 9, end - 3));
      return end;
    }
    // The beginning of one of those, whose rest is still to come.
    if (source[at + 1] === "!") {
      if (source.length - at < 9) return undefined;
      throw new UnreadableFile(
        "invalid_file",
        "The file's XML declares a document type or entities, which are not supported.",
      );
    }
    const end = tagEnd(source, at + 1);
    if (end === undefined) return undefined;
    this.#tag(source.slice(at + 1, end));
    return end + 1;
  }

  #tag(tag: string): void {
    if (tag.startsWith("/")) {
      this.#depth--;
      if (this.#depth < 0) throw malformed();
      this.#sink.close(localName(tag.slice(1).trim()));
      return;
    }
    const isEmpty = tag.endsWith("/");
    const content = isEmpty ? tag.slice(0, -1) : tag;
    const nameEnd = content.search(/\s|$/);
    const name = localName(content.slice(0, nameEnd));
    if (name === "") throw malformed();
    this.#depth++;
    if (this.#depth > this.#maxDepth) {
      throw new UnreadableFile("too_large", `The file's XML is nested more than ${this.#maxDepth} elements deep.`);
    }
    this.#sink.open(name, (wanted) => attributeOf(content.slice(nameEnd), wanted));
    if (!isEmpty) return;
    this.#depth--;
    this.#sink.close(name);
  }
}

/** Where the tag ends that has begun before `at`: a `>` in a quoted value is none. */
function tagEnd(source: string, at: number): number | undefined {
  let quote = "";
  for (; at < source.length; at++) {
    const character = source.charAt(at);
    if (quote !== "") {
      if (character === quote) quote = "";
    } else if (character === '"' || character === "'") quote = character;
    else if (character === ">") return at;
  }
  return undefined;
}

/** An attribute by its whole name, prefix and all. */
function attributeOf(attributes: string, wanted: string): string | undefined {
  let at = 0;
  for (;;) {
    const equals = attributes.indexOf("=", at);
    if (equals === -1) return undefined;
    const name = attributes.slice(at, equals).trim();
    const start = skipSpace(attributes, equals + 1);
    const end = attributes.indexOf(attributes.charAt(start), start + 1);
    if (end === -1) return undefined;
    if (name === wanted) return decode(attributes.slice(start + 1, end));
    at = end + 1;
  }
}

function skipSpace(text: string, at: number): number {
  while (/\s/.test(text.charAt(at))) at++;
  return at;
}

function localName(name: string): string {
  return name.slice(name.indexOf(":") + 1);
}

function after(source: string, mark: string, at: number): number | undefined {
  const found = source.indexOf(mark, at);
  return found === -1 ? undefined : found + mark.length;
}

/** The end of the complete part of the text: a reference may be cut in two. */
function wholeReferences(source: string, at: number): number {
  const reference = source.lastIndexOf("&");
  return reference >= at && source.length - reference < 12 && !source.includes(";", reference)
    ? reference
    : source.length;
}

function decode(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(/&(#x[\da-f]{1,6}|#\d{1,7}|\w{1,8});/gi, (whole, name: string) => {
    if (!name.startsWith("#")) return ENTITIES[name] ?? whole;
    const code = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code).toWellFormed() : "";
  });
}

function malformed(): UnreadableFile {
  return new UnreadableFile("invalid_file", "The file is damaged: its XML is not well-formed.");
}
