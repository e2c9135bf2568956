import type { z } from "zod";
import type { Env } from "../env.ts";
import { HomeClient } from "../store/home/home-client.ts";
import { homeUrl } from "../store/objects/rpc.ts";
import { FileClient } from "../store/tenant/files/file-client.ts";
import { StoreClient } from "../store/tenant/vector-stores/store-client.ts";
import { type Administrator, parseTenant, shownKey } from "./keys.ts";
import { type homesQuery, MAX_HOMES } from "./queries.ts";
import { exportFiles, isFileCursor } from "./tenant-files.ts";

/**
 * All data that is stored of a tenant: its export, and its erasure. Homes are known only from when the tenant has
 * `track_homes`; those of earlier times, and of keys without it, are not.
 */

export interface TenantData extends Administrator {
  homes: Env;
  quotas: Env["QUOTAS"];
  files: Env;
  webhooks: Env["WEBHOOKS"];
  batches: { getByName(tenant: string): { erase(): Promise<void> } };
  responseIndexes: Env["RESPONSE_INDEXES"];
}

/** A home that was used within this time may have a turn in progress that will be stored. Its note stays. */
const SETTLED_AFTER_MS = 3_600_000;

/** Keys that are read at once. */
const KEYS_AT_ONCE = 500;

/**
 * A tenant's data as JSON lines: first its limits, keys (never a secret) and usage, then its homes, files and vector
 * stores after `after`, and last a line that says whether there are more. Notes the export in the audit log.
 */
export async function exportTenant(
  admin: TenantData,
  id: string,
  { after, limit }: z.output<typeof homesQuery>,
): Promise<ReadableStream<Uint8Array>> {
  const tenant = parseTenant(id);
  const directory = admin.directories.getByName();
  await directory.note({ type: "tenant.exported", actor: admin.name, tenant, target: tenant }, "admin");
  const quota = admin.quotas.getByName(tenant);
  const isAmongFiles = after !== undefined && isFileCursor(after);
  const homes = isAmongFiles ? [] : await quota.homes(after ?? "", limit + 1);
  const lines = after === undefined ? [...(await aboutTenant(admin, tenant))] : [];
  const asked = homes.slice(0, limit);
  const hasMore = homes.length > limit;
  const { readable, writable } = new IdentityTransformStream();
  void writeAll(writable, admin, tenant, lines, asked, (write) => {
    if (hasMore) return Promise.resolve(asked.at(-1) ?? null);
    return exportFiles(admin.files, tenant, { after: isAmongFiles ? after : undefined, limit }, write);
  });
  return readable;
}

async function writeAll(
  writable: WritableStream<Uint8Array>,
  admin: TenantData,
  tenant: string,
  lines: readonly object[],
  homes: readonly string[],
  /** Writes the part after the homes. Gives the next page's `after`. */
  writeRest: (write: (line: object) => Promise<void>) => Promise<string | null>,
): Promise<void> {
  const client = new HomeClient(admin.homes, tenant);
  const write = async (line: object) => {
    const writer = writable.getWriter();
    await writer.write(new TextEncoder().encode(`${JSON.stringify(line)}\n`));
    writer.releaseLock();
  };
  try {
    for (const line of lines) await write(line);
    for (const home of homes) {
      await client.ask(home, undefined, async (stub) => {
        const { body } = await stub.fetch(homeUrl({ kind: "export" }));
        await body?.pipeTo(writable, { preventClose: true });
      });
    }
    const next = await writeRest(write);
    await write({ object: "export.page", has_more: next !== null, next });
    await writable.close();
  } catch (error) {
    // An export without its last line is incomplete.
    await writable.abort(error).catch(() => {});
  }
}

async function aboutTenant({ directories, quotas }: TenantData, tenant: string): Promise<object[]> {
  const directory = directories.getByName();
  const lines: object[] = [{ object: "tenant", id: tenant, limits: await directory.tenantLimits(tenant) }];
  for (let after = ""; ; ) {
    const keys = await directory.list(tenant, after, KEYS_AT_ONCE);
    lines.push(...keys.map(shownKey));
    after = keys.at(-1)?.id ?? "";
    if (keys.length < KEYS_AT_ONCE) break;
  }
  const usage = await quotas.getByName(tenant).usage({ from: 0, until: Number.MAX_SAFE_INTEGER });
  lines.push(...usage.map((row) => ({ object: "usage", ...row })));
  return lines;
}

/** Most files that one call removes. Each vector store takes a call of its own, as a home does. */
const MAX_FILES = 10_000;

/** Removes a limited number of a tenant's vector stores and files. True if none is left. */
async function eraseFiles({ files }: TenantData, tenant: string): Promise<boolean> {
  const stores = new StoreClient(files, tenant);
  const { ids, hasMore } = await stores.list({ limit: MAX_HOMES, order: "asc" });
  // A deleted store stays on the list until the directory removes it.
  for (const id of ids) await stores.remove(id).catch((error: unknown) => stores.forget(id, error));
  return (await new FileClient(files, tenant).removeSome(MAX_FILES)) < MAX_FILES && !hasMore;
}

/**
 * Erases a tenant: first its keys and limits, then the content of at most `MAX_HOMES` of its homes, its vector stores
 * and its files, and, when no home is left, its counters. The audit log keeps its entries. A repeated call is harmless.
 */
export async function eraseTenant(admin: TenantData, id: string, after: string | undefined) {
  const tenant = parseTenant(id);
  const directory = admin.directories.getByName();
  await directory.eraseTenant(admin.name, tenant);
  admin.forgetKeys();
  const quota = admin.quotas.getByName(tenant);
  // First, because a running batch stores responses and files.
  await admin.batches.getByName(tenant).erase();
  const homes = await quota.homes(after ?? "", MAX_HOMES);
  const client = new HomeClient(admin.homes, tenant);
  for (const home of homes) await client.ask(home, undefined, (stub) => stub.erase());
  const hasNoFiles = await eraseFiles(admin, tenant);
  const isEmpty = await quota.forgetHomes(homes, SETTLED_AFTER_MS);
  await admin.webhooks.getByName(tenant).erase();
  await admin.responseIndexes.getByName(tenant).erase();
  if (isEmpty) await quota.erase();
  const next = homes.length === MAX_HOMES ? (homes.at(-1) ?? null) : null;
  // Homes with a recent turn are left as well, because it may have been stored since. Another call an hour later
  // removes them.
  return { object: "tenant.erased" as const, id: tenant, homes: homes.length, next, has_more: !isEmpty || !hasNoFiles };
}
