import { UnreadableFile } from "./limits.ts";
import { decodeBytes, isKnownCharset } from "./page-text/index.ts";

/**
 * Characters that no text has: all below the space except tab, line feed, vertical tab, form feed, carriage return,
 * backspace and escape.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const BINARY = /[\u0000-\u0007\u000e-\u001a\u001c-\u001f]/;

/**
 * The text of bytes, as `decodeBytes` decodes them with the charset of a media type. An encoding that is only a guess is named before
 * the text. Throws an UnreadableFile for other content.
 */
export function plainText(bytes: Uint8Array, mimeType = ""): string {
  const charset = charsetOf(mimeType);
  const { text, guessed } = decodeBytes(bytes, [charset]);
  if (BINARY.test(text)) {
    throw new UnreadableFile("unsupported_file", "The file is neither text nor a supported format.");
  }
  return noteOf(charset, guessed) + text.toWellFormed();
}

/** A note on the encoding of a text, unless that is certain. */
function noteOf(charset: string | undefined, guessed: string | undefined): string {
  if (charset !== undefined && !isKnownCharset(charset))
    return `[This text says that it is in ${charset}, which cannot be read. It was read as ${guessed ?? "utf-8"}.]\n`;
  if (guessed === undefined) return "";
  const says = charset === undefined ? "does not say its encoding" : `is not in ${charset}, as it says`;
  return `[This text ${says}. It was read as ${guessed}.]\n`;
}

/** The charset of a media type. */
export function charsetOf(mimeType = ""): string | undefined {
  return /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(mimeType.slice(0, 256))?.[1];
}
