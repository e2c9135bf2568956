import { type ApiError, notFound } from "@responses-edge/responses-api/errors";
import { newBatchId } from "@responses-edge/responses-api/ids";
import {
  type AddStoreFile,
  addStoreFileBody,
  type BatchObject,
  chunkingOf,
  type contentPage,
  createBatchBody,
  createStoreBody,
  filesOfBatch,
  type StoreFileObject,
  searchBody,
  type searchPage,
  updateStoreBody,
  updateStoreFileBody,
  type VectorStoreObject,
} from "@responses-edge/responses-api/platform/vector-stores";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { z } from "zod";
import { checkMayStore } from "../store/home/may-store.ts";
import { unwrap } from "../store/objects/rpc.ts";
import type { FileOwner, NewStoreFile, StoreFileQuery } from "../store/tenant/vector-stores/store-files.ts";
import type { StoreQuery } from "../store/tenant/vector-stores/store-list.ts";
import { searchStores } from "../store/tenant/vector-stores/store-searcher.ts";
import type { Caller } from "./transport.ts";

/**
 * Vector stores. `body` is the parsed JSON of a request. Every function that takes an id throws the 404 of a store that
 * is unknown, deleted or another tenant's, and of a file or batch that the store does not have.
 */

/** A page of a list, as it is shown. */
export interface ShownPage<Each> {
  object: "list";
  data: Each[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

export async function createVectorStore(caller: Caller, body: unknown): Promise<VectorStoreObject> {
  const request = parse(createStoreBody, body);
  checkMayStore(caller.identity);
  const { file_ids: ids, chunking_strategy } = request;
  const files = (ids ?? []).map((file_id) => newFile({ file_id, chunking_strategy }));
  const { stores, config } = caller;
  const { id, store } = await stores.begin(config.vectorStores.maxStores);
  const made = {
    id,
    name: request.name ?? "",
    description: request.description ?? null,
    metadata: request.metadata ?? {},
    expiresAfter: request.expires_after ?? null,
  };
  return store.create(made, files, ownerOf(caller));
}

export async function listVectorStores({ stores }: Caller, query: StoreQuery): Promise<ShownPage<VectorStoreObject>> {
  const { ids, hasMore } = await stores.list(query);
  const objects = await Promise.all(ids.map((id) => stores.stub(id).object()));
  // When a store is deleted, the directory is told last.
  const data = objects.filter((object) => object !== null);
  return { ...pageOf(data, hasMore), last_id: ids.at(-1) ?? null };
}

export function retrieveVectorStore({ stores }: Caller, id: string): Promise<VectorStoreObject> {
  return stores.ask(id, (store) => store.object());
}

export function updateVectorStore({ stores }: Caller, id: string, body: unknown): Promise<VectorStoreObject> {
  const { name, metadata, expires_after: expiresAfter } = parse(updateStoreBody, body);
  return stores.ask(id, (store) => store.update({ name: name ?? undefined, metadata, expiresAfter }));
}

export async function deleteVectorStore({ stores, note }: Caller, id: string): Promise<void> {
  await stores.remove(id);
  note?.({ type: "vector_store.deleted", target: id });
}

/** Reads, cuts and embeds all files of a store anew. */
export function reindexVectorStore({ stores }: Caller, id: string): Promise<VectorStoreObject> {
  return stores.ask(id, (store) => store.reindex());
}

export async function searchVectorStore(
  caller: Caller,
  id: string,
  body: unknown,
): Promise<z.output<ReturnType<typeof searchPage>>> {
  const { query, include, ...request } = parse(searchBody, body);
  const queries = typeof query === "string" ? [query] : query;
  const isExplained = include?.includes("explanation");
  const found = await searchStores(caller, [id], { ...request, queries, isExplained });
  return {
    object: "vector_store.search_results.page",
    search_query: queries,
    data: found.map(({ fileId: file_id, filename, score, attributes, text, explanation }) => {
      const result = { file_id, filename, score, attributes, content: [{ type: "text" as const, text }] };
      return explanation ? { ...result, explanation } : result;
    }),
    has_more: false,
    next_page: null,
  };
}

/** Adds a file. The 404 of an unknown file is thrown at once. */
export async function addVectorStoreFile(caller: Caller, id: string, body: unknown): Promise<StoreFileObject> {
  const request = parse(addStoreFileBody, body);
  checkMayStore(caller.identity);
  const { filename } = await caller.files.record(request.file_id);
  const file = { ...newFile(request), filename };
  const [added] = unwrap(await caller.stores.ask(id, (store) => store.addFiles([file], ownerOf(caller))));
  if (!added) throw new TypeError("The vector store has not added a file.");
  return added;
}

export async function listVectorStoreFiles(
  { stores }: Caller,
  id: string,
  query: StoreFileQuery,
): Promise<ShownPage<StoreFileObject>> {
  const missing = query.batch === undefined ? undefined : () => batchNotFound(id, query.batch ?? "");
  const { data, hasMore } = unwrap(await stores.ask(id, (store) => store.files(query), missing));
  return pageOf(data, hasMore);
}

export function retrieveVectorStoreFile({ stores }: Caller, id: string, file: string): Promise<StoreFileObject> {
  return stores.ask(
    id,
    (store) => store.file(file),
    () => fileNotInStore(id, file),
  );
}

export function updateVectorStoreFile(
  { stores }: Caller,
  id: string,
  file: string,
  body: unknown,
): Promise<StoreFileObject> {
  const { attributes } = parse(updateStoreFileBody, body);
  return stores.ask(
    id,
    (store) => store.updateFile(file, attributes),
    () => fileNotInStore(id, file),
  );
}

/** Takes a file out of a store. The file itself stays. */
export async function removeVectorStoreFile(
  { stores, files, waitUntil }: Caller,
  id: string,
  file: string,
): Promise<void> {
  await stores.ask(
    id,
    async (store) => (await store.removeFile(file)) || null,
    () => fileNotInStore(id, file),
  );
  // A store ignores the end of a file that it does not have.
  waitUntil(files.notUsedBy(file, id).catch(() => {}));
}

export async function vectorStoreFileContent(
  { stores }: Caller,
  id: string,
  file: string,
): Promise<z.output<ReturnType<typeof contentPage>>> {
  const { texts, hasMore } = await stores.ask(
    id,
    (store) => store.content(file),
    () => fileNotInStore(id, file),
  );
  return {
    object: "vector_store.file_content.page",
    data: texts.map((text) => ({ type: "text", text })),
    has_more: hasMore,
    next_page: null,
  };
}

/** Adds files as a batch. An unknown file fails later, when it is read. */
export async function createFileBatch(caller: Caller, id: string, body: unknown): Promise<BatchObject> {
  const files = filesOfBatch(parse(createBatchBody, body)).map(newFile);
  checkMayStore(caller.identity);
  return unwrap(await caller.stores.ask(id, (store) => store.addBatch(newBatchId(), files, ownerOf(caller))));
}

export function retrieveFileBatch({ stores }: Caller, id: string, batch: string): Promise<BatchObject> {
  return stores.ask(
    id,
    (store) => store.batch(batch),
    () => batchNotFound(id, batch),
  );
}

export function cancelFileBatch({ stores }: Caller, id: string, batch: string): Promise<BatchObject> {
  return stores.ask(
    id,
    (store) => store.cancelBatch(batch),
    () => batchNotFound(id, batch),
  );
}

function newFile({ file_id: id, attributes, chunking_strategy: chunking }: AddStoreFile): NewStoreFile {
  return { id, filename: null, attributes: attributes ?? null, chunking: chunkingOf(chunking) };
}

function ownerOf({ identity: { keyId, counted } }: Caller): FileOwner {
  return { keyId, counted };
}

function pageOf<Each extends { id: string }>(data: Each[], hasMore: boolean): ShownPage<Each> {
  const [firstId, lastId] = [data[0]?.id ?? null, data.at(-1)?.id ?? null];
  return { object: "list", data, first_id: firstId, last_id: lastId, has_more: hasMore };
}

function fileNotInStore(id: string, file: string): ApiError {
  return notFound("File", file, "file_id", { where: ` in vector store '${id}'` });
}

function batchNotFound(id: string, batch: string): ApiError {
  return notFound("File batch", batch, "batch_id", { where: ` in vector store '${id}'` });
}
