import { analyse } from "chardet";

/** The encoding of a text, as browsers decide it, and where nothing is declared by its bytes. */

/** A decoded text. */
export interface Decoded {
  text: string;
  /** The name of the encoding, if it was guessed and may be another one. */
  guessed: string | undefined;
}

/** Bytes that the guess looks at. */
const SAMPLE_BYTES = 16 * 1024;

const ESCAPE = 0x1b;

/** A guess that is as sure as this is right: encodings of several bytes have a form that texts in others do not have. */
const SURE = 90;

/** Names of the guess that browsers read as supersets of them. */
const SUPERSETS: Readonly<Record<string, string>> = { "ISO-8859-1": "windows-1252", "KOI8-R": "koi8-u" };

/** Encodings whose every byte is a character: nothing shows that a declared one is wrong. */
const SINGLE_BYTE = /^(iso-?8859|latin|l\d|windows-125|cp125|us-ascii|ascii|koi8|ibm|macintosh)/i;

/**
 * Decodes bytes: by their byte order mark, by the first of the declared encodings that fits them, as UTF-8, or by a guess. Bytes
 * that are no characters in their encoding become U+FFFD.
 *
 * @param declared The encodings that the file or its sender name.
 * @param isCut True if the bytes may end anywhere: a character that is cut in two is then left out.
 */
export function decodeBytes(bytes: Uint8Array, declared: readonly (string | undefined)[], isCut = false): Decoded {
  const certain = (text: string): Decoded => ({ text, guessed: undefined });
  const utf32 = utf32Of(bytes, declared[0]);
  if (utf32 !== undefined) return certain(utf32);
  const marked = byteOrderMark(bytes) ?? unmarkedUtf16(bytes);
  if (marked) return certain(new TextDecoder(marked).decode(bytes, { stream: isCut }));
  const utf8 = strictly("utf-8", bytes, isCut);
  for (const label of declared) {
    if (label === undefined) continue;
    // UTF-8 that is declared as something else is hardly ever anything else.
    if (utf8 !== undefined && SINGLE_BYTE.test(label)) return certain(utf8);
    const text = strictly(label, bytes, isCut);
    if (text !== undefined) return certain(text);
  }
  // Japanese mail is of seven bits, and has escapes.
  if (utf8 !== undefined && bytes.indexOf(ESCAPE) === -1) return certain(utf8);
  const sample = sampleOf(bytes);
  for (const { name, confidence } of guesses(sample)) {
    if (utf8 !== undefined && name !== "ISO-2022-JP") return certain(utf8);
    const label = SUPERSETS[name] ?? windowsName(name, sample);
    const text = strictly(label, sample, true) === undefined ? undefined : strictly(label, bytes, isCut);
    if (text !== undefined) return { text, guessed: confidence >= SURE ? undefined : label };
  }
  if (utf8 !== undefined) return certain(utf8);
  const known = declared.find((label) => label !== undefined && decoderOf(label));
  const label = known ?? "windows-1252";
  return { text: new TextDecoder(label).decode(bytes, { stream: isCut }), guessed: label };
}

function byteOrderMark([first, second, third]: Uint8Array): string | undefined {
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if (first === 0xfe && second === 0xff) return "utf-16be";
  if (first === 0xff && second === 0xfe) return "utf-16le";
  return undefined;
}

/** Bytes that show which UTF-16 a text is in. */
const UTF16_SAMPLE = 4_096;

/** Characters that every text has, and those that none has, but for the rare private ones. */
const COMMON = /[\n\r\t 0-9A-Za-z.,:;\u3001\u3002]/g;
const STRANGE = /[\p{Cc}\p{Cn}\p{Co}\p{Cs}]/gu;

/** UTF-16 without a byte order mark: with zero bytes, which other texts do not have, and of characters that a text has in one order alone. */
function unmarkedUtf16(bytes: Uint8Array): string | undefined {
  const sample = bytes.subarray(0, UTF16_SAMPLE);
  if (bytes.length < 4 || bytes.length % 2 === 1 || !sample.includes(0)) return undefined;
  const [little = -1, big = -1] = ["utf-16le", "utf-16be"].map((label) => {
    const text = strictly(label, sample, true)?.replace(/[\n\r\t\f]/g, " ");
    return text === undefined || text.search(STRANGE) >= 0 ? -1 : (text.match(COMMON)?.length ?? 0);
  });
  if (little <= 0 && big <= 0) return undefined;
  return little > big ? "utf-16le" : "utf-16be";
}

/** The text of UTF-32, which no decoder of the platform reads: with a byte order mark, declared, or with zeros where only it has them. */
function utf32Of(bytes: Uint8Array, declared: string | undefined): string | undefined {
  if (bytes.length < 4 || bytes.length % 4 !== 0) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isBig = view.getUint16(0) === 0;
  const isMarked = view.getUint32(0, !isBig) === 0xfeff;
  if (
    !isMarked &&
    !/^(?:utf-?32|ucs-?4)/i.test(declared ?? "") &&
    !(view.getUint32(0, !isBig) < 0x110000 && hasZeros(bytes, isBig))
  )
    return undefined;
  const pieces: string[] = [];
  let codes: number[] = [];
  for (let at = isMarked ? 4 : 0; at < bytes.length; at += 4) {
    const code = view.getUint32(at, !isBig);
    codes.push(code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0xfffd : code);
    if (codes.length < 4_096 && at + 4 < bytes.length) continue;
    pieces.push(String.fromCodePoint(...codes));
    codes = [];
  }
  return pieces.join("");
}

/** Tells whether the highest byte of each character is zero, and the next one nearly so. */
function hasZeros(bytes: Uint8Array, isBig: boolean): boolean {
  for (let at = 0; at < Math.min(bytes.length, UTF16_SAMPLE); at += 4) {
    if (bytes[at + (isBig ? 0 : 3)] !== 0 || (bytes[at + (isBig ? 1 : 2)] ?? 0) > 0x10) return false;
  }
  return true;
}

/** The bytes from a little before the first one that is not ASCII. */
function sampleOf(bytes: Uint8Array): Uint8Array {
  let at = 0;
  while (at < bytes.length && (bytes[at] ?? 0) < 0x80 && bytes[at] !== ESCAPE) at += 1;
  return bytes.subarray(Math.max(0, at - 256), Math.max(0, at - 256) + SAMPLE_BYTES);
}

/** Bytes of Turkish letters, which are Icelandic ones in windows-1252, and of letters that only Icelandic has beside them. */
const TURKISH = new Set([0xd0, 0xdd, 0xde, 0xf0, 0xfd, 0xfe]);
const ICELANDIC = new Set([0xe1, 0xe6, 0xed, 0xfa]);

/** Guesses of the encoding, the best one first. */
function guesses(sample: Uint8Array): { name: string; confidence: number }[] {
  const all = analyse(sample);
  const isTurkish = sample.some((byte) => TURKISH.has(byte)) && !sample.some((byte) => ICELANDIC.has(byte));
  const [best] = all;
  const turkish = all.find(({ name }) => name === "ISO-8859-9" || name === "windows-1254");
  if (!isTurkish || !turkish || !best || turkish.confidence < best.confidence / 2) return all;
  return [turkish, ...all];
}

/** Windows' encodings for those of ISO 8859 that they extend: files in these are much more common, and have bytes that ISO 8859 leaves out. */
const EXTENDED: Readonly<Record<string, string>> = {
  "ISO-8859-6": "windows-1256",
  "ISO-8859-7": "windows-1253",
  "ISO-8859-8": "windows-1255",
  "ISO-8859-9": "windows-1254",
};

/** Letters of ISO 8859-2 that are signs in windows-1250. */
const LETTERS_OF_ISO_8859_2 = new Set([0xa1, 0xa6, 0xac, 0xb1, 0xb6, 0xbc]);

function windowsName(name: string, sample: Uint8Array): string {
  if (name === "ISO-8859-2") {
    return sample.some((byte) => LETTERS_OF_ISO_8859_2.has(byte)) ? name : "windows-1250";
  }
  const hasMore = sample.some((byte) => byte >= 0x80 && byte < 0xa0);
  return (hasMore || name === "ISO-8859-9" ? EXTENDED[name] : undefined) ?? name;
}

/** The text of bytes that are all characters of an encoding; undefined if some are not. */
function strictly(label: string, bytes: Uint8Array, isCut: boolean): string | undefined {
  try {
    return new TextDecoder(label, { fatal: true, ignoreBOM: false }).decode(bytes, { stream: isCut });
  } catch {
    return undefined;
  }
}

/** Tells whether a text can be read in an encoding of this name. */
export function isKnownCharset(label: string): boolean {
  return /^(?:utf-?32|ucs-?4)/i.test(label) || decoderOf(label) !== undefined;
}

function decoderOf(label: string): TextDecoder | undefined {
  try {
    return new TextDecoder(label);
  } catch {
    return undefined;
  }
}
