import { type FileHandle, open } from "node:fs/promises";

/**
 * Puts files into an encoded message of Cap'n Proto (https://capnproto.org/encoding.html). A text or a blob is a list of bytes, to
 * which one pointer points: the file is appended to the message, and the pointer is set to it.
 */

/** The bytes of a word, the unit of offsets and sizes, and of the header: the number of segments less one, and the segment's words. */
const WORD = 8;

/** Files are copied in pieces: whole ones would stay in the memory of this process until a collection. Bytes. */
const PIECE = 256 * 1024;

/** The kind of a pointer to a list, and that of a list whose elements are bytes. */
const LIST = 1;
const BYTES = 2;

/**
 * Writes a message to `target`, from its beginning, with files in the place of texts and blobs.
 *
 * @param message One segment, as workerd encodes a configuration of any size. Its header and its pointers are changed.
 * @param paths The path of each file, by the whole text, or blob, in its place: ASCII, and nowhere else in the message.
 * @throws Error if the message has more segments, a text is not in it, or a file cannot be read.
 */
export async function withFiles(
  message: Buffer,
  paths: ReadonlyMap<string, string>,
  target: FileHandle,
): Promise<void> {
  if (message.readUInt32LE(0) !== 0) throw new Error("The message has more than one segment.");
  const piece = Buffer.alloc(PIECE);
  let end = message.length;
  for (const [name, path] of paths) {
    const start = end;
    await using file = await open(path);
    for (;;) {
      const { bytesRead } = await file.read(piece);
      if (bytesRead === 0) break;
      await target.write(piece, 0, bytesRead, end);
      end += bytesRead;
    }
    end = start + point(message, name, start, end - start);
  }
  message.writeUInt32LE(end / WORD - 1, 4);
  await target.write(message, 0, message.length, 0);
  // The zeros behind the last file.
  await target.truncate(end);
}

/** Sets the pointer to the bytes `name` to others, of a length, at another place. Gives the whole words of these, in bytes. */
function point(message: Buffer, name: string, place: number, length: number): number {
  const list = message.indexOf(name);
  for (let at = WORD; list !== -1 && at < message.length; at += WORD) {
    const low = message.readInt32LE(at);
    const high = message.readUInt32LE(at + 4);
    if ((low & 3) !== LIST || (high & 7) !== BYTES || at + WORD * (1 + (low >> 2)) !== list) continue;
    // A text ends with a zero, a blob does not.
    const bytes = length + (high >>> 3) - name.length;
    message.writeInt32LE((((place - at) / WORD - 1) << 2) | LIST, at);
    message.writeUInt32LE(((bytes << 3) | BYTES) >>> 0, at + 4);
    return Math.ceil(bytes / WORD) * WORD;
  }
  throw new Error(`The message has no text '${name}'.`);
}
