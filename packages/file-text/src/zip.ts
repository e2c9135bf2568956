import type { LongWork } from "@responses-edge/bounded-io/long-work";
import { Inflate } from "fflate";
import { Allowance, type TextLimits, UnreadableFile } from "./limits.ts";

/** Reads a zip archive by its central directory (APPNOTE.TXT 4.3), each entry as a stream. Neither zip64 nor encrypted entries: Office writes none. */

interface Entry {
  method: number;
  /** The beginning of its local header, and the end of its bytes. */
  start: number;
  end: number;
  compressed: Uint8Array;
}

const END_OF_DIRECTORY = 0x06054b50;
const DIRECTORY_ENTRY = 0x02014b50;
const LOCAL_HEADER = 0x04034b50;

/** The maximum length of the comment after the end of the directory: 64 KiB. */
const MAX_END = 22 + 0xffff;

const STORED = 0;
const DEFLATED = 8;
const ENCRYPTED = 1;

/** Compressed bytes that are expanded at once: DEFLATE expands one to at most 1,032. */
const PIECE = 1024;

/** Expanding a kilobyte takes about ten microseconds. */
const UNITS_PER_BYTE = 0.01;

export class Zip {
  readonly #entries: ReadonlyMap<string, Entry>;
  readonly #expanded: Allowance;
  readonly #work: LongWork;

  /** Throws an UnreadableFile for content that is no archive, and for an archive with overlapping entries. */
  constructor(bytes: Uint8Array, limits: TextLimits, work: LongWork) {
    this.#entries = readDirectory(bytes, limits);
    this.#expanded = new Allowance(limits.maxExpandedBytes, "bytes when it is expanded");
    this.#work = work;
  }

  /** The names of entries that match, sorted. */
  names(pattern: RegExp): string[] {
    return [...this.#entries.keys()].filter((name) => pattern.test(name)).toSorted();
  }

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /**
   * The bytes of an entry, piece by piece; none for a missing one. Throws an UnreadableFile for bytes that are not
   * DEFLATE, and for too many.
   */
  async *read(name: string): AsyncGenerator<Uint8Array> {
    const entry = this.#entries.get(name);
    if (!entry) return;
    const { method, compressed } = entry;
    let made: Uint8Array[] = [];
    const inflate = new Inflate((piece) => made.push(piece));
    for (let at = 0; at < compressed.length || at === 0; at += PIECE) {
      const piece = compressed.subarray(at, at + PIECE);
      if (method === STORED) made.push(piece);
      else expand(inflate, piece, at + PIECE >= compressed.length);
      for (const each of made) {
        this.#expanded.take(each.length);
        const slice = this.#work.spend(each.length * UNITS_PER_BYTE);
        if (slice) await slice;
        yield each;
      }
      made = [];
    }
  }
}

function expand(inflate: Inflate, piece: Uint8Array, isLast: boolean): void {
  try {
    inflate.push(piece, isLast);
  } catch {
    throw new UnreadableFile("invalid_file", "The file is damaged: a part of it cannot be expanded.");
  }
}

function readDirectory(bytes: Uint8Array, { maxEntries }: TextLimits): Map<string, Entry> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = endOfDirectory(view);
  const count = view.getUint16(end + 10, true);
  if (count > maxEntries) throw new UnreadableFile("too_large", `The file has more than ${maxEntries} entries.`);
  const entries = new Map<string, Entry>();
  let at = view.getUint32(end + 16, true);
  for (let read = 0; read < count; read++) {
    if (at + 46 > end || view.getUint32(at, true) !== DIRECTORY_ENTRY) throw damaged();
    const nameLength = view.getUint16(at + 28, true);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + nameLength));
    const isEncrypted = (view.getUint16(at + 8, true) & ENCRYPTED) !== 0;
    const method = view.getUint16(at + 10, true);
    if (isEncrypted || (method !== STORED && method !== DEFLATED)) {
      throw new UnreadableFile("unsupported_file", "The file is encrypted, or has an unsupported compression.");
    }
    const start = view.getUint32(at + 42, true);
    const compressed = compressedBytes(bytes, view, start, view.getUint32(at + 20, true));
    entries.set(name, { method, start, end: compressed.byteOffset - bytes.byteOffset + compressed.length, compressed });
    at += 46 + nameLength + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
  }
  refuseOverlaps(entries.values());
  return entries;
}

/** The position of the record that ends the directory. */
function endOfDirectory(view: DataView): number {
  for (let at = view.byteLength - 22; at >= Math.max(0, view.byteLength - MAX_END); at--) {
    if (view.getUint32(at, true) === END_OF_DIRECTORY) return at;
  }
  throw damaged();
}

function compressedBytes(bytes: Uint8Array, view: DataView, start: number, size: number): Uint8Array {
  if (start + 30 > bytes.length || view.getUint32(start, true) !== LOCAL_HEADER) throw damaged();
  const from = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
  if (from + size > bytes.length) throw damaged();
  return bytes.subarray(from, from + size);
}

/** An archive with entries that share bytes is an attack that expands without end. */
function refuseOverlaps(entries: Iterable<Entry>): void {
  let last = 0;
  for (const { start, end } of [...entries].toSorted((one, other) => one.start - other.start)) {
    if (start < last) throw new UnreadableFile("invalid_file", "The file is damaged: parts of it overlap.");
    last = end;
  }
}

function damaged(): UnreadableFile {
  return new UnreadableFile("invalid_file", "The file is damaged, or cut off: its list of entries cannot be read.");
}
