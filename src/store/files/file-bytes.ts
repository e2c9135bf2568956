import { DurableObject } from "cloudflare:workers";
import type { Variables } from "../../config/index.ts";
import { Schema, type Versions } from "../schema.ts";

/** Bytes of a row, which must stay below 2 MB; Cloudflare's RPC takes 32 MiB. */
export const PIECE_BYTES = 1024 * 1024;

/** The tables of a file, by version. What was made once is never changed: a new version adds to it. */
export const FILE_BYTES_VERSIONS: Versions = [
  ["CREATE TABLE piece (part INTEGER NOT NULL, seq INTEGER NOT NULL, bytes BLOB NOT NULL, UNIQUE (part, seq))"],
];

/**
 * The bytes of a file, in rows of at most 1 MiB: one Durable Object, named tenant + key. A file that was uploaded in parts has several,
 * which follow each other as the directory says. Nobody is led here but by the directory.
 */
export class FileBytes extends DurableObject<Variables> {
  readonly #schema: Schema;

  constructor(state: DurableObjectState, env: Variables) {
    super(state, env);
    this.#schema = new Schema(state.storage, FILE_BYTES_VERSIONS);
  }

  /** Keeps a piece of a part. Again is harmless. Throws where the piece before it is not there: the file was removed meanwhile. */
  append(part: number, seq: number, bytes: Uint8Array): void {
    if (bytes.byteLength > PIECE_BYTES) throw new RangeError(`A piece has ${PIECE_BYTES} bytes at most.`);
    if (seq > 0 && this.#schema.rows("SELECT 1 FROM piece WHERE part = ? AND seq = ?", part, seq - 1).length === 0) {
      throw new Error("The piece before this one is not there.");
    }
    const insert =
      "INSERT INTO piece (part, seq, bytes) VALUES (?, ?, ?) ON CONFLICT (part, seq) DO UPDATE SET bytes = excluded.bytes";
    this.#schema.write(insert, part, seq, bytes.slice().buffer);
  }

  /** The bytes of the parts that the path lists, one after another: `http://file/0,1`. 404 where there are none of a part. */
  override async fetch(request: Request): Promise<Response> {
    const parts = new URL(request.url).pathname.slice(1).split(",").map(Number);
    const has = (part: number) => this.#schema.rows("SELECT 1 FROM piece WHERE part = ? LIMIT 1", part).length > 0;
    if (!parts.every(has)) return new Response(null, { status: 404 });
    return new Response(this.#stream(parts));
  }

  /** Removes all that is kept here. */
  async erase(): Promise<void> {
    const deleted = this.ctx.storage.deleteAll();
    this.#schema.forget();
    await deleted;
  }

  /** Reads a row when the one before it has gone. Breaks off where the file is removed meanwhile: its length tells. */
  #stream(parts: readonly number[]): ReadableStream<Uint8Array> {
    const select = "SELECT bytes FROM piece WHERE part = ? AND seq = ?";
    let at = 0;
    let seq = 0;
    return new ReadableStream<Uint8Array>(
      {
        pull: (controller) => {
          for (; at < parts.length; at += 1, seq = 0) {
            const [row] = this.#schema.rows<{ bytes: ArrayBuffer }>(select, parts[at] ?? 0, seq);
            if (!row) continue;
            seq += 1;
            if (row.bytes.byteLength > 0) return controller.enqueue(new Uint8Array(row.bytes));
          }
          controller.close();
        },
      },
      { highWaterMark: 0 },
    );
  }
}
