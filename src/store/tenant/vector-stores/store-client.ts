import { ApiError, invalidRequest, notFound, storeNotFound } from "@responses-edge/responses-api/errors";
import { newStoreKey, parseStoreId, storeId } from "@responses-edge/responses-api/ids";
import type { Env } from "../../../env.ts";
import type { Stub } from "../../objects/objects.ts";
import type { StoreIdPage, StoreQuery } from "./store-list.ts";

/** Most stores that an isolate remembers to exist. Their own objects are authoritative. */
const MAX_KNOWN = 10_000;
const known = new Set<string>();

/** A tenant's vector stores. An id is looked up in the tenant's own directory: an invented id opens no object. */
export class StoreClient {
  readonly #tenant: string;
  readonly #objects: Pick<Env, "FILE_DIRECTORIES" | "VECTOR_STORES">;

  constructor(objects: Pick<Env, "FILE_DIRECTORIES" | "VECTOR_STORES">, tenant: string) {
    this.#tenant = tenant;
    this.#objects = objects;
  }

  /** A new store's id, and its empty object. Throws the 400 of a tenant that has `max` stores. */
  async begin(max: number): Promise<{ id: string; store: Stub<"VECTOR_STORES"> }> {
    const id = storeId(newStoreKey());
    await this.add(id, max);
    return { id, store: this.stub(id) };
  }

  /** Adds a store to the list. Throws the 400 of a tenant that has `max` stores. */
  async add(id: string, max: number): Promise<void> {
    if (await this.#directory.addStore(id, max)) return;
    const message = `You already have ${max} vector stores, the maximum (VECTOR_STORES_PER_TENANT).`;
    throw invalidRequest(null, message, "too_many_vector_stores");
  }

  /** Tells whether a store is on the list. */
  has(id: string): Promise<boolean> {
    return this.#directory.hasStore(id);
  }

  /** A page of ids. Throws the 400 of an invalid cursor. */
  async list(query: StoreQuery): Promise<StoreIdPage> {
    const page = await this.#directory.stores(query);
    if (page) return page;
    const [field, id] = query.after === undefined ? ["before", query.before] : ["after", query.after];
    throw notFound("Vector store", id ?? "", field ?? "after", { status: 400 });
  }

  /**
   * Asks a store. Throws the 404 of one that is unknown, deleted or another tenant's; `missing` is the error if it
   * lacks the thing that the question is about.
   */
  async ask<T>(
    id: string,
    question: (store: Stub<"VECTOR_STORES">) => Promise<T | null>,
    missing: () => ApiError = () => storeNotFound(id),
  ): Promise<T> {
    if (parseStoreId(id) === undefined) throw storeNotFound(id);
    const name = `${this.#tenant}:${id}`;
    if (!known.has(name)) {
      if (!(await this.#directory.hasStore(id))) throw storeNotFound(id);
      if (known.size >= MAX_KNOWN) known.clear();
      known.add(name);
    }
    const answer = await question(this.stub(id));
    if (answer !== null) return answer;
    known.delete(name);
    throw missing();
  }

  /** Removes a store and its content. Throws as `ask` does. */
  async remove(id: string): Promise<void> {
    await this.ask(id, async (store) => (await store.delete()) || null);
    known.delete(`${this.#tenant}:${id}`);
    await this.#directory.removeStore(id);
  }

  /** Removes a deleted store from the list. Throws the error of one that could not be removed. */
  async forget(id: string, error: unknown): Promise<void> {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    await this.#directory.removeStore(id);
  }

  /** The object of a store; this server has made its id. */
  stub(id: string): Stub<"VECTOR_STORES"> {
    const key = parseStoreId(id) ?? "";
    return this.#objects.VECTOR_STORES.getByName(this.#tenant, key);
  }

  get #directory(): Stub<"FILE_DIRECTORIES"> {
    return this.#objects.FILE_DIRECTORIES.getByName(this.#tenant);
  }
}
