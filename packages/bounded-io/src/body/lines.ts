import { concatBytes, ReadFault } from "./bounded-read.ts";

const LINE_BREAK = 0x0a;

/**
 * The lines of bytes that arrive in chunks, without their line breaks; empty ones are left out. Only one line and one
 * chunk are in memory. Throws ReadFault (`too_large`) for a line with more than `maxLineBytes`.
 */
export async function* linesOf(
  chunks: AsyncIterable<Uint8Array>,
  maxLineBytes: number,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let line: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  for await (const chunk of chunks) {
    // The next read may overwrite it.
    const bytes = new Uint8Array(chunk);
    let from = 0;
    for (let end = bytes.indexOf(LINE_BREAK); end !== -1; end = bytes.indexOf(LINE_BREAK, from)) {
      line.push(bytes.subarray(from, end));
      from = end + 1;
      const whole = concatBytes(line);
      line = [];
      length = 0;
      if (whole.byteLength > maxLineBytes) throw new ReadFault("too_large");
      if (whole.byteLength > 0) yield whole;
    }
    line.push(bytes.subarray(from));
    length += bytes.byteLength - from;
    if (length > maxLineBytes) throw new ReadFault("too_large");
  }
  if (length > 0) yield concatBytes(line);
}
