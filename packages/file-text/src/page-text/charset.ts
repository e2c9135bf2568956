import { decodeBytes } from "./encoding.ts";

/** The characters of a page's bytes: by byte order mark, then header, then `<meta>`, as browsers decide. */

/** The part of a page in which browsers look for its `<meta charset>`. */
const SNIFFED_BYTES = 1024;

const META = /<meta[^>]+?charset\s*=\s*["']?\s*([\w:.-]+)/i;

/**
 * The text that the bytes are, as `decodeBytes` decodes them.
 *
 * @param isCut True if the bytes may end anywhere: a character that is cut in two is then left out.
 */
export function decodePage(bytes: Uint8Array, headerCharset: string | undefined, isCut: boolean): string {
  return decodeBytes(bytes, [headerCharset, metaCharset(bytes)], isCut).text;
}

function metaCharset(bytes: Uint8Array): string | undefined {
  const head = Array.from(bytes.subarray(0, SNIFFED_BYTES), (byte) => String.fromCharCode(byte)).join("");
  const label = META.exec(head)?.[1];
  // If it were true, it could not have been read.
  return label && /^utf-?16/i.test(label) ? "utf-8" : label;
}
