import { DEFAULT_LIMITS } from "@responses-edge/file-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import { pictureReader } from "../../../assembly/ocr.ts";
import { loadConfig } from "../../../config/index.ts";
import type { RawEnv } from "../../../env.ts";
import { Permits } from "../../limits/permits.ts";
import type { Stub } from "../../objects/objects.ts";
import { OwnedObject } from "../../objects/owned-object.ts";
import { OBJECTS } from "../../objects/registry.ts";
import { Schema } from "../../objects/schema.ts";
import { bucketFault } from "./bucket.ts";
import { PIECE_BYTES } from "./bytes-at-rest.ts";
import { configuredBuckets } from "./configured-buckets.ts";
import type { FileRecord } from "./file-table.ts";
import { KeptText, TEXT_TABLES, type TextOutcome } from "./kept-text.ts";

/** The tables of a file. */
const TABLES = [
  "CREATE TABLE piece (part INTEGER NOT NULL, seq INTEGER NOT NULL, bytes BLOB NOT NULL, UNIQUE (part, seq))",
  ...TEXT_TABLES,
];

/** The URLs at which `fetch` of a file's object answers with a stream. The body is the file's record, as JSON. */
const CONTENT = "http://file/content";
const TEXT = "http://file/text";

/** The header with the number of bytes that the caller has already. */
const FROM = "x-from";

/**
 * Asks the object of a file for its bytes, or for its text as JSON lines: 404 if bytes are missing, 422 with the reason if
 * the file has no text. The body goes on where it breaks off if the object is handed over meanwhile.
 */
export async function askFile(
  object: Stub<"FILE_BYTES">,
  kind: "content" | "text",
  record: FileRecord,
): Promise<Response> {
  const ask = (from: number) => {
    const headers = { [FROM]: String(from) };
    return object.fetch(kind === "content" ? CONTENT : TEXT, { method: "POST", headers, body: JSON.stringify(record) });
  };
  const answer = await ask(0);
  return answer.ok && answer.body ? new Response(continued(answer.body, ask), answer) : answer;
}

/** A body whose rest comes from another answer when it breaks off. */
function continued(
  body: ReadableStream<Uint8Array>,
  ask: (from: number) => Promise<Response>,
): ReadableStream<Uint8Array> {
  let reader = body.getReader();
  let from = 0;
  let askedAt = -1;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        for (;;) {
          try {
            const { done, value } = await reader.read();
            if (done) return controller.close();
            from += value.byteLength;
            return controller.enqueue(value);
          } catch (error) {
            const rest = askedAt < from ? await ask(from) : undefined;
            if (!(rest?.ok && rest.body)) throw error;
            askedAt = from;
            reader = rest.body.getReader();
          }
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
}

/**
 * The bytes of a file, in rows of at most 1 MiB or, if a bucket stores them, elsewhere, and the text that was read from
 * it: one Durable Object, named tenant + key. A file that was uploaded has several parts, whose order the directory
 * knows. Only the directory leads here.
 */
export class FileBytes extends OwnedObject {
  readonly #schema: Schema;
  readonly #text: KeptText;
  readonly #tenant: string;

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "FILE_BYTES");
    this.#tenant = this.named.tenant ?? "";
    this.#schema = new Schema(state.storage, TABLES, OBJECTS.FILE_BYTES.migrations);
    this.#text = new KeptText(this.#schema, this.#tenant);
  }

  /**
   * Stores a piece of a part. A repeated call is harmless. Throws if the piece before it is missing: the file was
   * removed in the meantime.
   */
  append(part: number, seq: number, bytes: Uint8Array): void {
    if (bytes.byteLength > PIECE_BYTES) throw new RangeError(`A piece has ${PIECE_BYTES} bytes at most.`);
    if (seq > 0 && this.#schema.rows("SELECT 1 FROM piece WHERE part = ? AND seq = ?", part, seq - 1).length === 0) {
      throw new Error("The piece before this one is not there.");
    }
    const insert =
      "INSERT INTO piece (part, seq, bytes) VALUES (?, ?, ?) ON CONFLICT (part, seq) DO UPDATE SET bytes = excluded.bytes";
    this.#schema.write(insert, part, seq, bytes.slice().buffer);
  }

  /** Answers `askFile`. */
  override async fetch(request: Request): Promise<Response> {
    const record = await request.json<FileRecord>();
    const from = Number(request.headers.get(FROM) ?? 0);
    if (request.url === TEXT) return this.#textOf(record, from);
    return this.#has(record)
      ? new Response(streamOf(this.#pieces(record.parts), from))
      : new Response(null, { status: 404 });
  }

  /** Removes the parts that are not in a list. */
  keep(parts: readonly number[]): void {
    this.#schema.rows("DELETE FROM piece WHERE part NOT IN (SELECT value FROM json_each(?))", JSON.stringify(parts));
  }

  /** Removes everything that is stored here. */
  async erase(): Promise<void> {
    this.#text.forget();
    const deleted = this.ctx.storage.deleteAll();
    this.#schema.forget();
    await deleted;
  }

  #has({ parts }: FileRecord): boolean {
    return parts.every((part) => this.#schema.rows("SELECT 1 FROM piece WHERE part = ? LIMIT 1", part).length > 0);
  }

  /**
   * The rows of parts, each read when the one before it was sent. They end early if the file is removed in the
   * meantime, which its length shows.
   */
  *#pieces(parts: readonly number[]): Generator<Uint8Array> {
    const select = "SELECT bytes FROM piece WHERE part = ? AND seq = ?";
    for (const part of parts) {
      for (let seq = 0; ; seq += 1) {
        const [row] = this.#schema.rows<{ bytes: ArrayBuffer }>(select, part, seq);
        if (!row) break;
        if (row.bytes.byteLength > 0) yield new Uint8Array(row.bytes);
      }
    }
  }

  async #textOf(record: FileRecord, from: number): Promise<Response> {
    try {
      const { outcome: known } = this.#text;
      const isKnown = known && (known.ok || !known.isScan || loadConfig(this.env).files.ocrModel === undefined);
      const outcome = isKnown ? known : await this.#makeText(record);
      if (!outcome) return new Response(null, { status: 404 });
      if (!outcome.ok) return Response.json(outcome, { status: 422 });
    } catch (error) {
      if (error instanceof ApiError) return Response.json(error.toFields(), { status: 503 });
      throw error;
    }
    const encoder = new TextEncoder();
    const lines = this.#text.pages().map((page) => encoder.encode(`${JSON.stringify(page)}\n`));
    return new Response(streamOf(lines, from));
  }

  /** Undefined if bytes are missing. Throws the 503 and the 429 of an isolate without memory for it. */
  async #makeText(record: FileRecord): Promise<TextOutcome | undefined> {
    if (record.at === "rows" && !this.#has(record)) return undefined;
    if (record.bytes > DEFAULT_LIMITS.maxBytes) return TOO_LARGE;
    const config = loadConfig(this.env);
    const { maxOpenTurns } = config;
    const bucket = configuredBuckets(config, this.#tenant).find(({ at }) => at === record.at);
    if (record.at !== "rows" && !bucket) throw bucketFault();
    using _permits = new Permits("body", { tenant: this.#tenant, config: { maxOpenTurns } }, record.bytes);
    const read = pictureReader(config, this.#tenant, new AbortController().signal);
    const ocr = read && { read, maxPages: config.files.maxOcrPages };
    const bytes = async () => {
      const all = new Uint8Array(record.bytes);
      let at = 0;
      for await (const piece of bucket?.pieces(record) ?? this.#pieces(record.parts)) {
        all.set(piece, at);
        at += piece.length;
      }
      if (at < record.bytes) throw new Error("The file was removed meanwhile.");
      return all;
    };
    const made = this.#text.make(record, bytes, ocr);
    // The caller may leave. The work continues for the next one.
    this.waitUntil(made.catch(() => {}));
    return await made;
  }
}

declare module "../../objects/objects.ts" {
  interface ObjectClasses {
    FILE_BYTES: FileBytes;
  }
}

/** Such a file is refused without being read. */
const TOO_LARGE: TextOutcome = {
  ok: false,
  code: "too_large",
  message: `The file has more than ${DEFAULT_LIMITS.maxBytes} bytes: its text is not read.`,
};

/** A stream of pieces without its first `from` bytes. It takes the next piece when the one before it was sent. */
function streamOf(pieces: Iterator<Uint8Array>, from: number): ReadableStream<Uint8Array> {
  let skip = from;
  return new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        for (;;) {
          const { done, value } = pieces.next();
          if (done) return controller.close();
          if (skip < value.byteLength) {
            controller.enqueue(value.subarray(skip));
            skip = 0;
            return;
          }
          skip -= value.byteLength;
        }
      },
    },
    { highWaterMark: 0 },
  );
}
