import { UnreadableFile } from "./limits.ts";

/**
 * Characters that no text has: all below the space except tab, line feed, vertical tab, form feed, carriage return,
 * backspace and escape.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const BINARY = /[\u0000-\u0007\u000e-\u001a\u001c-\u001f]/;

/**
 * The text of bytes: by their byte order mark, as UTF-8, by the charset of a media type, or else, if possible, in
 * Windows' western encoding. Throws an UnreadableFile for other content.
 */
export function plainText(bytes: Uint8Array, mimeType = ""): string {
  const mark = byteOrderMark(bytes);
  const text = mark ? new TextDecoder(mark).decode(bytes) : unmarkedText(bytes, mimeType);
  if (BINARY.test(text)) {
    throw new UnreadableFile("unsupported_file", "The file is neither text nor a supported format.");
  }
  return text.toWellFormed();
}

function byteOrderMark([first, second, third]: Uint8Array): string | undefined {
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if (first === 0xfe && second === 0xff) return "utf-16be";
  if (first === 0xff && second === 0xfe) return "utf-16le";
  return undefined;
}

function unmarkedText(bytes: Uint8Array, mimeType: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    return decoderOf(charsetOf(mimeType)).decode(bytes);
  }
}

/** The charset of a media type. */
export function charsetOf(mimeType = ""): string | undefined {
  return /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(mimeType.slice(0, 256))?.[1];
}

function decoderOf(charset = "windows-1252"): TextDecoder {
  try {
    return new TextDecoder(charset);
  } catch {
    return new TextDecoder("windows-1252");
  }
}
