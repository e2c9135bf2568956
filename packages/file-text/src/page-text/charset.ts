/** The characters of a page's bytes: by byte order mark, then header, then `<meta>`, as browsers decide. */

/** The part of a page in which browsers look for its `<meta charset>`. */
const SNIFFED_BYTES = 1024;

const META = /<meta[^>]+?charset\s*=\s*["']?\s*([\w:.-]+)/i;

/**
 * The text that the bytes are. Bytes that are no characters in their encoding become U+FFFD.
 *
 * @param isCut True if the bytes may end anywhere: a character that is cut in two is then left out.
 */
export function decodePage(bytes: Uint8Array, headerCharset: string | undefined, isCut: boolean): string {
  const label = byteOrderMark(bytes) ?? headerCharset ?? metaCharset(bytes);
  if (label !== undefined) {
    const decoder = decoderOf(label);
    if (decoder) return decoder.decode(bytes, { stream: isCut });
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes, { stream: isCut });
  } catch {
    // Undeclared and not UTF-8: usually a page in Windows' western encoding.
    return (decoderOf(label === undefined ? "windows-1252" : "utf-8") ?? new TextDecoder()).decode(bytes);
  }
}

function byteOrderMark([first, second, third]: Uint8Array): string | undefined {
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if (first === 0xfe && second === 0xff) return "utf-16be";
  if (first === 0xff && second === 0xfe) return "utf-16le";
  return undefined;
}

function metaCharset(bytes: Uint8Array): string | undefined {
  const head = Array.from(bytes.subarray(0, SNIFFED_BYTES), (byte) => String.fromCharCode(byte)).join("");
  const label = META.exec(head)?.[1];
  // If it were true, it could not have been read.
  return label && /^utf-?16/i.test(label) ? "utf-8" : label;
}

function decoderOf(label: string): TextDecoder | undefined {
  try {
    return new TextDecoder(label);
  } catch {
    return undefined;
  }
}
