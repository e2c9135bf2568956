import { createHash, randomBytes } from "node:crypto";
import type { Grants } from "../../src/contract/grants.ts";
import { type Gateway, joinRunning, startGateway } from "./support.ts";

/** A gateway with a root key, and calls of the admin API. */

export const ROOT = "root-key-of-ops";

export const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

export const ADMIN_KEY = `ops:${sha256(ROOT)}`;

/** Starts a gateway that caches keys only for a moment. */
export function startWithKeys(vars: Record<string, string> = {}): Promise<Gateway> {
  return startGateway({ ADMIN_KEY, KEY_CACHE_MS: "100", ...vars });
}

/** Joins the running gateway with a root key (`joinGateway`): each file makes its own tenants and keys (`newKeys`). */
export function joinWithKeys(): Promise<Gateway> {
  return joinRunning("with keys", { ADMIN_KEY, KEY_CACHE_MS: "100", EMBEDDINGS_MODEL: "simulator" }, true);
}

type Json = Record<string, unknown>;

export async function call(
  gateway: Pick<Gateway, "fetch" | "url">,
  method: string,
  path: string,
  body?: unknown,
  bearer: string = ROOT,
): Promise<Response> {
  return gateway.fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${bearer}`, ...(body !== undefined && { "content-type": "application/json" }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

/** A call of the admin API that must succeed. */
export async function ask<T = Json>(
  gateway: Pick<Gateway, "fetch" | "url">,
  method: string,
  path: string,
  body?: unknown,
): Promise<T> {
  const answer = await call(gateway, method, path, body);
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return JSON.parse(text) as T;
}

/** The admin API's form of a key. */
export interface ShownKey {
  id: string;
  tenant: string;
  name: string;
  redacted_value: string;
  expires_at: number | null;
  disabled: boolean;
  limits: Partial<Grants> | null;
  source: "admin_api" | "configuration";
}

export interface Page<Item> {
  data: Item[];
  last_id: string | null;
  has_more: boolean;
}

export type MadeKey = ShownKey & { value: string };

export function makeKey(
  gateway: Pick<Gateway, "fetch" | "url">,
  tenant: string,
  limits?: Partial<Grants>,
  more: object = {},
): Promise<MadeKey> {
  return ask<MadeKey>(gateway, "POST", "/v1/admin/keys", { tenant, ...(limits && { limits }), ...more });
}

interface Usage {
  input_tokens?: number;
  output_tokens?: number;
  num_model_requests: number;
}

/** A tenant's usage of today, as soon as there is any. */
export async function usageOf(
  gateway: Pick<Gateway, "fetch" | "url">,
  { tenant }: Pick<MadeKey, "tenant">,
  kind = "completions",
): Promise<Usage | undefined> {
  const from = Math.floor(Date.now() / 1000) - 86_400;
  const path = `/v1/organization/usage/${kind}?start_time=${from}&project_ids=${tenant}`;
  const { data } = await ask<{ data: { results: Usage[] }[] }>(gateway, "GET", path);
  return data.flatMap(({ results }) => results).find((result) => result.num_model_requests !== 0);
}

let tenants = 0;

/** The name of a tenant that no other test has. */
export function newTenant(): string {
  tenants += 1;
  return `tenant-${tenants}`;
}

/** A key of a new tenant for each name. */
export async function newKeys<Name extends string>(
  gateway: Pick<Gateway, "fetch" | "url">,
  ...names: Name[]
): Promise<Record<Name, string>> {
  const made = names.map(async (name) => [name, (await makeKey(gateway, newTenant())).value]);
  return Object.fromEntries(await Promise.all(made)) as Record<Name, string>;
}

/** Creates a response with a key. Gives the raw answer. */
export function create(gateway: Gateway, key: Pick<MadeKey, "value"> | string, body: object = {}): Promise<Response> {
  const value = typeof key === "string" ? key : key.value;
  return call(gateway, "POST", "/v1/responses", { model: "simulator", input: "Hello!", ...body }, value);
}

/** A text that compresses to three quarters of its length. */
export function incompressible(length: number): string {
  return randomBytes((length * 3) / 4).toString("base64");
}

/** The body of a conversation, or of items to add, that takes about this many bytes. */
export function longMessage(length: number): object {
  return { items: [{ type: "message", role: "user", content: incompressible(length) }] };
}

export interface StorageResult {
  usage_bytes: number;
  num_responses: number;
  num_conversations: number;
  project_id: string | null;
  api_key_id: string | null;
  limits: Partial<Grants> | null;
}

/** The stored amounts of a key's own tenant; with a root key, of a named tenant. */
export async function storageOf(gateway: Gateway, who: MadeKey | string, query = ""): Promise<StorageResult[]> {
  const [bearer, of] = typeof who === "string" ? [ROOT, `&project_ids=${who}`] : [who.value, ""];
  const answer = await call(gateway, "GET", `/v1/organization/usage/storage?${of}${query}`, undefined, bearer);
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${answer.status} ${text}`);
  return (JSON.parse(text) as { data: { results: StorageResult[] }[] }).data.flatMap(({ results }) => results);
}
