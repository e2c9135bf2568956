import type { z } from "zod";
import { endContainer } from "../assembly/container-ends.ts";
import { loadConfig } from "../config/index.ts";
import type { Env } from "../env.ts";
import { HomeClient } from "../store/home/home-client.ts";
import { type ClassRow, OBJECTS, type ObjectBinding } from "../store/objects/registry.ts";
import { homeUrl } from "../store/objects/rpc.ts";
import { FileClient } from "../store/tenant/files/file-client.ts";
import { StoreClient } from "../store/tenant/vector-stores/store-client.ts";
import { type Administrator, parseTenant, shownKey } from "./keys.ts";
import { type homesQuery, MAX_HOMES } from "./queries.ts";
import { exportFiles, exportStores, isFileCursor } from "./tenant-files.ts";

/**
 * All data that is stored of a tenant: its export, and its erasure, class by class as the registry says. Homes are known
 * only from when the tenant has `track_homes`; those of earlier times, and of keys without it, are not.
 */

export interface TenantData extends Administrator {
  env: Env;
}

/** A home that was used within this time may have a turn in progress that will be stored. Its note stays. */
const SETTLED_AFTER_MS = 3_600_000;

/** Keys that are read at once. */
const KEYS_AT_ONCE = 500;

/** Most files that one call removes. Each vector store takes a call of its own, as a home does. */
const MAX_FILES = 10_000;

/** Most containers whose sessions one call ends. */
const MAX_CONTAINERS = 20;

/** The classes whose rows have a value in a column. */
type ClassesWith<Column extends "exported" | "erased", Value> = {
  [Binding in ObjectBinding]: (typeof OBJECTS)[Binding][Column] extends Value ? Binding : never;
}[ObjectBinding];

function classesWith<Column extends "exported" | "erased", Value extends ClassRow[Column]>(
  column: Column,
  value: Value,
) {
  const bindings = Object.keys(OBJECTS) as ObjectBinding[];
  return bindings.filter((binding) => OBJECTS[binding][column] === value) as ClassesWith<Column, Value>[];
}

/** A page of an export. */
interface ExportPage {
  admin: TenantData;
  tenant: string;
  /** A home, a file or a vector store; undefined for the first page. */
  after: string | undefined;
  limit: number;
  write(line: object): Promise<void>;
  /** Writes lines as they come. */
  pipe(lines: ReadableStream<Uint8Array>): Promise<void>;
}

/** Write what a class has of a page, if the page is not beyond it. Give the next page's `after`, or null where nothing is left. */
const EXPORTERS: {
  readonly [Binding in Exclude<ClassesWith<"exported", "function">, "KEYS">]: (
    page: ExportPage,
  ) => Promise<string | null>;
} = {
  async HOME({ admin, tenant, after, limit, pipe }) {
    if (after !== undefined && isFileCursor(after)) return null;
    const homes = await admin.env.QUOTAS.getByName(tenant).homes(after ?? "", limit + 1);
    const client = new HomeClient(admin.env, tenant);
    for (const home of homes.slice(0, limit)) {
      const answer = await client.ask(home, null, (stub) => stub.fetch(homeUrl({ kind: "export" })));
      if (answer?.body) await pipe(answer.body);
    }
    return homes.length > limit ? (homes[limit - 1] ?? null) : null;
  },
  FILE_DIRECTORIES: ({ admin, tenant, after, limit, write }) =>
    exportFiles(new FileClient(admin.env, tenant), { after, limit }, write),
  VECTOR_STORES: ({ admin, tenant, after, limit, write }) =>
    exportStores(new StoreClient(admin.env, tenant), { after, limit }, write),
};

/**
 * A tenant's data as JSON lines: first its limits, keys (never a secret), usage and what other objects of it give, then its
 * homes, files and vector stores after `after`, and last a line that says whether there are more. Notes the export in the
 * audit log.
 */
export async function exportTenant(
  admin: TenantData,
  id: string,
  { after, limit }: z.output<typeof homesQuery>,
): Promise<ReadableStream<Uint8Array>> {
  const tenant = parseTenant(id);
  const event = { type: "tenant.exported", actor: admin.name, tenant, target: tenant } as const;
  await admin.env.KEYS.getByName().note(event, "admin");
  const lines = after === undefined ? await aboutTenant(admin, tenant) : [];
  const { readable, writable } = new IdentityTransformStream();
  const writeBytes = async (bytes: Uint8Array) => {
    const writer = writable.getWriter();
    await writer.write(bytes);
    writer.releaseLock();
  };
  const write = (line: object) => writeBytes(new TextEncoder().encode(`${JSON.stringify(line)}\n`));
  // The runtime's own pipe waits forever here: between two streams of this kind, of which the second stays open.
  const pipe = async (body: ReadableStream<Uint8Array>) => {
    for await (const bytes of body) await writeBytes(bytes);
  };
  void writePage(lines, { admin, tenant, after, limit, write, pipe })
    .then(() => writable.close())
    // An export without its last line is incomplete.
    .catch((error: unknown) => writable.abort(error).catch(() => {}));
  return readable;
}

async function writePage(lines: readonly object[], page: ExportPage): Promise<void> {
  for (const line of lines) await page.write(line);
  let next: string | null = null;
  for (const exported of Object.values(EXPORTERS)) next ??= await exported(page);
  await page.write({ object: "export.page", has_more: next !== null, next });
}

async function aboutTenant({ env }: TenantData, tenant: string): Promise<object[]> {
  const directory = env.KEYS.getByName();
  const lines: object[] = [{ object: "tenant", id: tenant, limits: await directory.tenantLimits(tenant) }];
  for (let after = ""; ; ) {
    const keys = await directory.list(tenant, after, KEYS_AT_ONCE);
    lines.push(...keys.map(shownKey));
    after = keys.at(-1)?.id ?? "";
    if (keys.length < KEYS_AT_ONCE) break;
  }
  for (const binding of classesWith("exported", "itself"))
    lines.push(...(await env[binding].getByName(tenant).exported()));
  return lines;
}

/** The part of an erasure that one call does. */
interface Erasure {
  admin: TenantData;
  tenant: string;
  after: string | undefined;
  /** The homes that it has erased. */
  homes: readonly string[];
}

/** Erase what the tenant's own objects do not, or a limited part of it. True if something is left. */
const ERASERS: { readonly [Binding in ClassesWith<"erased", "function">]: (part: Erasure) => Promise<boolean> } = {
  async KEYS({ admin, tenant }) {
    await admin.env.KEYS.getByName().eraseTenant(admin.name, tenant);
    await admin.forgetKeys();
    return false;
  },
  async HOME(part) {
    const { admin, tenant, after = "" } = part;
    part.homes = await admin.env.QUOTAS.getByName(tenant).homes(after, MAX_HOMES);
    const client = new HomeClient(admin.env, tenant);
    for (const home of part.homes) await client.ask(home, undefined, (stub) => stub.erase());
    return false;
  },
  async VECTOR_STORES({ admin, tenant }) {
    const stores = new StoreClient(admin.env, tenant);
    const { ids, hasMore } = await stores.list({ limit: MAX_HOMES, order: "asc" });
    // A deleted store stays on the list until the directory removes it.
    for (const id of ids) await stores.remove(id).catch((error: unknown) => stores.forget(id, error));
    return hasMore;
  },
  async FILE_DIRECTORIES({ admin, tenant }) {
    const files = new FileClient(admin.env, tenant);
    const containers = await files.containers.removeSome(MAX_CONTAINERS);
    const { tools } = loadConfig(admin.env);
    await Promise.all(containers.map((id) => endContainer(tools, tenant, id)));
    return (await files.removeSome(MAX_FILES)) >= MAX_FILES || containers.length >= MAX_CONTAINERS;
  },
  async BOARD({ admin, tenant }) {
    await admin.env.BOARD.getByName().eraseTenant(tenant);
    return false;
  },
  async QUOTAS({ admin, tenant, homes }) {
    const quota = admin.env.QUOTAS.getByName(tenant);
    const isEmpty = await quota.forgetHomes(homes, SETTLED_AFTER_MS);
    if (isEmpty) await quota.erase();
    return !isEmpty;
  },
};

/**
 * Erases a tenant: first its keys and limits, then the content of at most `MAX_HOMES` of its homes, its vector stores
 * and its files, and, when no home is left, its counters. The audit log keeps its entries. A repeated call is harmless.
 */
export async function eraseTenant(admin: TenantData, id: string, after: string | undefined) {
  const tenant = parseTenant(id);
  const part: Erasure = { admin, tenant, after, homes: [] };
  const itself: readonly string[] = classesWith("erased", "itself");
  let hasMore = false;
  for (const binding of Object.keys(OBJECTS)) {
    const erase = ERASERS[binding as keyof typeof ERASERS] as (typeof ERASERS)[keyof typeof ERASERS] | undefined;
    if (erase) hasMore = (await erase(part)) || hasMore;
    else if (itself.includes(binding))
      await admin.env[binding as ClassesWith<"erased", "itself">].getByName(tenant).erase();
  }
  const { homes } = part;
  const next = homes.length === MAX_HOMES ? (homes.at(-1) ?? null) : null;
  // Homes with a recent turn are left as well, because it may have been stored since. Another call an hour later
  // removes them.
  return { object: "tenant.erased" as const, id: tenant, homes: homes.length, next, has_more: hasMore };
}
