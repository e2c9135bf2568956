import { UnreadableFile } from "./limits.ts";
import { decodeBytes } from "./page-text/index.ts";

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
  const { text, guessed } = decodeBytes(bytes, [charsetOf(mimeType)]);
  if (BINARY.test(text)) {
    throw new UnreadableFile("unsupported_file", "The file is neither text nor a supported format.");
  }
  const note = guessed === undefined ? "" : `[This text does not say its encoding. It was read as ${guessed}.]\n`;
  return note + text.toWellFormed();
}

/** The charset of a media type. */
export function charsetOf(mimeType = ""): string | undefined {
  return /;\s*charset\s*=\s*"?([\w.:-]{1,40})/i.exec(mimeType.slice(0, 256))?.[1];
}
