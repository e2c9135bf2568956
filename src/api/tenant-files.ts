import { Buffer } from "node:buffer";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { fileId, parseFileId, parseStoreId } from "@responses-edge/responses-api/ids";
import { filePurpose, MAX_FILENAME_LENGTH } from "@responses-edge/responses-api/platform/files";
import { addStoreFileBody, chunkingOf, createStoreBody } from "@responses-edge/responses-api/platform/vector-stores";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { z } from "zod";
import type { Config } from "../config/index.ts";
import type { Env } from "../env.ts";
import { unwrap } from "../store/objects/rpc.ts";
import { FileClient } from "../store/tenant/files/file-client.ts";
import type { FileRecord } from "../store/tenant/files/file-table.ts";
import type { ReceivedPart } from "../store/tenant/files/received-part.ts";
import { StoreClient } from "../store/tenant/vector-stores/store-client.ts";
import type { NewStoreFile } from "../store/tenant/vector-stores/store-files.ts";

/**
 * Files and vector stores in a tenant's export, and what an import makes of them:
 *
 * file one file, without its bytes
 * file.bytes a piece of its bytes, as base64
 * file.end how many bytes came: fewer than the file has if it was deleted in the meantime
 * vector_store one store, as the API shows it
 * vector_store.file a file in it, likewise; an import indexes it anew
 * vector_store.end
 */

/** Bytes of files of one page, unless one file is larger. Base64 adds a third, and Cloudflare takes bodies of 100 MB. */
const PAGE_BYTES = 64 * 1024 * 1024;

/** Bytes of one line. */
const LINE_BYTES = 512 * 1024;

/** Files of vector stores of one page, unless one store has more. */
const PAGE_STORE_FILES = 20_000;

/** Files of a store that are read, or added, at once. */
const STORE_FILES_AT_ONCE = 500;

type Write = (line: object) => Promise<void>;

/** Tells whether an export continues after a file or a store. */
export function isFileCursor(after: string): boolean {
  return (parseFileId(after) ?? parseStoreId(after)) !== undefined;
}

interface Page {
  /** A home, a file or a vector store; undefined for the first page. */
  after: string | undefined;
  limit: number;
}

/** Writes a page of files, if it is not beyond them. Gives the next page's `after`, or null where nothing is left. */
export async function exportFiles(client: FileClient, { after, limit }: Page, write: Write): Promise<string | null> {
  if (after !== undefined && parseStoreId(after) !== undefined) return null;
  const { data, hasMore } = await client.list({ limit, order: "asc", after: after && parseFileId(after) });
  let bytes = 0;
  for (const [index, record] of data.entries()) {
    await writeFile(client, record, write);
    bytes += record.bytes;
    if (bytes >= PAGE_BYTES && index < data.length - 1) return fileId(record.key);
  }
  return hasMore ? fileId(data.at(-1)?.key ?? "") : null;
}

async function writeFile(client: FileClient, record: FileRecord, write: Write): Promise<void> {
  const { key, filename, mimeType, purpose, bytes, createdAt, expiresAt } = record;
  const id = fileId(key);
  const times = { created_at: createdAt, expires_at: expiresAt };
  await write({ object: "file", id, filename, mime_type: mimeType, purpose, bytes, ...times });
  let written = 0;
  const flush = async (pieces: Uint8Array[]) => {
    const data = Buffer.concat(pieces);
    if (data.length > 0) await write({ object: "file.bytes", data: data.toString("base64") });
    written += data.length;
  };
  let waiting: Uint8Array[] = [];
  let length = 0;
  for await (const piece of bytesOf(client, id)) {
    waiting.push(piece);
    length += piece.length;
    if (length < LINE_BYTES) continue;
    await flush(waiting);
    waiting = [];
    length = 0;
  }
  await flush(waiting);
  await write({ object: "file.end", id, bytes: written });
}

/** The bytes of a file. They end early if it is deleted in the meantime. */
async function* bytesOf(client: FileClient, id: string): AsyncGenerator<Uint8Array> {
  const found = await client.content(id).catch(() => undefined);
  const reader = found?.body.getReader();
  for (;;) {
    const { done, value } = (await reader?.read().catch(() => undefined)) ?? { done: true, value: undefined };
    if (done || !value) return;
    yield value;
  }
}

/** The same of vector stores. */
export async function exportStores(client: StoreClient, page: Page, write: Write): Promise<string | null> {
  const after = page.after !== undefined && parseStoreId(page.after) !== undefined ? page.after : undefined;
  const { ids, hasMore } = await client.list({ limit: page.limit, order: "asc", after });
  let files = 0;
  for (const [index, id] of ids.entries()) {
    files += await writeStore(client, id, write);
    if (files >= PAGE_STORE_FILES && index < ids.length - 1) return id;
  }
  return hasMore ? (ids.at(-1) ?? null) : null;
}

/** Gives the number of the store's files. */
async function writeStore(client: StoreClient, id: string, write: Write): Promise<number> {
  const store = client.stub(id);
  const object = await store.object();
  if (!object || object.status === "expired") return 0;
  await write(object);
  let files = 0;
  for (let after: string | undefined; ; ) {
    const page = await store.files({ limit: STORE_FILES_AT_ONCE, order: "asc", after });
    // Null: the store was deleted in the meantime. Refused: the file of the cursor was deleted.
    if (!page?.ok) break;
    for (const file of page.value.data) await write(file);
    files += page.value.data.length;
    after = page.value.data.at(-1)?.id;
    if (!page.value.hasMore) break;
  }
  await write({ object: "vector_store.end", id });
  return files;
}

const seconds = z.int().min(0);

const line = z.discriminatedUnion("object", [
  z.object({
    object: z.literal("file"),
    id: z.string(),
    filename: z.string().min(1).max(MAX_FILENAME_LENGTH),
    mime_type: z.string().nullable(),
    purpose: filePurpose,
    bytes: z.int().min(0),
    created_at: seconds,
    expires_at: seconds.nullable(),
  }),
  z.object({ object: z.literal("file.bytes"), data: z.string() }),
  z.object({ object: z.literal("file.end"), id: z.string(), bytes: z.int().min(0) }),
  createStoreBody.omit({ file_ids: true, chunking_strategy: true }).extend({
    object: z.literal("vector_store"),
    id: z.string(),
  }),
  addStoreFileBody.omit({ file_id: true }).extend({ object: z.literal("vector_store.file"), id: z.string() }),
  z.object({ object: z.literal("vector_store.end"), id: z.string() }),
]);
type Line = z.output<typeof line>;
type LineOf<Kind extends Line["object"]> = Extract<Line, { object: Kind }>;

const KINDS: readonly string[] = line.options.map(({ shape }) => shape.object.value);

/** Imports are an administrator's work, to which the tenant's limits do not apply. */
const NO_LIMITS = { tenant: { files: null, bytes: null }, key: { files: null, bytes: null } };

/** The owner of imported files: the keys of the exporting deployment are not here. */
const OWNER = { keyId: "", counted: undefined };

/** The lines of files and vector stores in one import. */
export class FilesImport implements AsyncDisposable {
  readonly done = {
    /** `incomplete`: deleted while the export was made. */
    files: { imported: 0, unchanged: 0, incomplete: 0 },
    vector_stores: { imported: 0, unchanged: 0 },
  };
  readonly #files: FileClient;
  readonly #stores: StoreClient;
  readonly #tenant: string;
  readonly #config: Config;
  /** `received` is null where the file is here already. */
  #file: { about: LineOf<"file">; received: ReceivedPart | null } | undefined;
  #store: { id: string; isHere: boolean; waiting: NewStoreFile[] } | undefined;

  constructor(objects: Env, tenant: string, config: Config) {
    this.#files = new FileClient(objects, tenant);
    this.#stores = new StoreClient(objects, tenant);
    this.#tenant = tenant;
    this.#config = config;
  }

  static takes(object: unknown): boolean {
    return typeof object === "string" && KINDS.includes(object);
  }

  async take(value: Record<string, unknown>): Promise<void> {
    const told = parse(line, value);
    switch (told.object) {
      case "file":
        return await this.#beginFile(told);
      case "file.bytes":
        return await this.#open(this.#file, "file").received?.write(Buffer.from(told.data, "base64"));
      case "file.end":
        return await this.#endFile(told);
      case "vector_store":
        return await this.#beginStore(told);
      case "vector_store.file":
        return await this.#addToStore(told);
      case "vector_store.end":
        return await this.#endStore(told);
    }
  }

  /** Throws the 400 of a file or a store that has no end. */
  checkEnded(): void {
    const open = this.#file?.about.id ?? this.#store?.id;
    if (open !== undefined)
      throw invalidRequest("object", `The lines of '${open}' are incomplete: its end is missing before this line.`);
  }

  /** Removes the bytes of an incomplete file. */
  async [Symbol.asyncDispose](): Promise<void> {
    const received = this.#file?.received;
    if (!received) return;
    received[Symbol.dispose]();
    await this.#files.discard(received);
  }

  async #beginFile(about: LineOf<"file">): Promise<void> {
    this.checkEnded();
    const key = parseFileId(about.id);
    if (key === undefined)
      throw invalidRequest("id", `Invalid 'id': '${about.id.slice(0, 64)}' is not the id of a file.`);
    const { maxOpenTurns, files } = this.#config;
    const receiver = { tenant: this.#tenant, config: { maxOpenTurns }, limits: NO_LIMITS };
    const bounds = { maxBytes: files.maxFileBytes, field: "file" };
    this.#file = { about, received: await this.#files.receiveAs(key, OWNER.keyId, { ...receiver, ...bounds }) };
  }

  async #endFile({ id, bytes }: LineOf<"file.end">): Promise<void> {
    const { about, received } = this.#open(this.#file, "file");
    if (id !== about.id)
      throw invalidRequest("id", `Invalid 'id': expected '${about.id}', the file that the lines before belong to.`);
    if (!received) this.done.files.unchanged += 1;
    else if (received.length !== bytes)
      throw invalidRequest("bytes", `Invalid 'bytes': the lines before have ${received.length} bytes.`);
    else if (bytes === about.bytes) {
      const { filename, mime_type: mimeType, purpose, created_at: createdAt, expires_at: expiresAt } = about;
      await this.#files.commit(received, { filename, mimeType, purpose, createdAt, expiresAt }, NO_LIMITS);
      this.done.files.imported += 1;
    } else {
      await this.#files.discard(received);
      this.done.files.incomplete += 1;
    }
    received?.[Symbol.dispose]();
    this.#file = undefined;
  }

  /** The store is put on the list, and so becomes visible, only when it is complete. */
  async #beginStore(about: LineOf<"vector_store">): Promise<void> {
    this.checkEnded();
    const { id, name, description, metadata, expires_after: expiresAfter } = about;
    if (parseStoreId(id) === undefined)
      throw invalidRequest("id", `Invalid 'id': '${id.slice(0, 64)}' is not the id of a vector store.`);
    const isHere = await this.#stores.has(id);
    if (!isHere) {
      const store = { id, name: name ?? "", description: description ?? null, metadata: metadata ?? {} };
      await this.#stores.stub(id).create({ ...store, expiresAfter: expiresAfter ?? null }, [], OWNER);
    }
    this.#store = { id, isHere, waiting: [] };
  }

  async #addToStore({ id, attributes, chunking_strategy: chunking }: LineOf<"vector_store.file">): Promise<void> {
    const { isHere, waiting } = this.#open(this.#store, "vector_store");
    if (isHere) return;
    waiting.push({ id, filename: null, attributes: attributes ?? null, chunking: chunkingOf(chunking) });
    if (waiting.length >= STORE_FILES_AT_ONCE) await this.#send();
  }

  async #endStore({ id }: LineOf<"vector_store.end">): Promise<void> {
    const store = this.#open(this.#store, "vector_store");
    if (id !== store.id)
      throw invalidRequest(
        "id",
        `Invalid 'id': expected '${store.id}', the vector store that the lines before belong to.`,
      );
    await this.#send();
    if (!store.isHere) await this.#stores.add(id, this.#config.vectorStores.maxStores);
    this.done.vector_stores[store.isHere ? "unchanged" : "imported"] += 1;
    this.#store = undefined;
  }

  async #send(): Promise<void> {
    const { id, waiting } = this.#open(this.#store, "vector_store");
    if (waiting.length === 0) return;
    const added = await this.#stores.stub(id).addFiles(waiting.splice(0), OWNER);
    if (added) unwrap(added);
  }

  #open<Open>(open: Open | undefined, kind: string): Open {
    if (open) return open;
    throw invalidRequest("object", `This line belongs to a '${kind}', and no line before it begins one.`);
  }
}
