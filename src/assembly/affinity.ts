import { createHash } from "node:crypto";
import { hashText } from "@responses-edge/engines/hash";
import type { ServerKey } from "@responses-edge/engines/upstream";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { type TreeAddress, type TurnAddress, treeOf } from "@responses-edge/responses-api/ids";
import type { InputItem, Item } from "@responses-edge/responses-api/items/registry";

/**
 * Identifies the requests that belong together at the model servers, because their prompts begin alike and a cache has
 * that beginning; and keeps tenants apart in these caches.
 */

/** Signs, beside its tree, that a request has its beginning in common with others. */
export interface Affinity {
  /** The request's turn can be continued on this server, so that later turns have the same tree. */
  isRooted: boolean;
  /** The client's own name for requests that belong together: `prompt_cache_key`, or the session id in a header. */
  hint?: string | undefined;
  /** Hash of the prompt's beginning; set where it decides. */
  beginning?: string | undefined;
  /** The conversation begins with this request. */
  isFresh?: boolean | undefined;
}

/** A turn whose server is to be chosen. */
export interface KeyedTurn extends TurnAddress {
  tenant: string;
  affinity: Affinity;
}

/**
 * The key by which a turn's server is chosen. Where the conversation can be continued here, its root chooses the server: all turns, branches, sockets
 * and runs have that root, and clients need not say anything. A router behind the server does not know the root, and clients that
 * keep their items themselves do not have it: for the router, the client's own name comes first.
 */
export function serverKeyOf(owner: KeyedTurn, model: string): ServerKey {
  const { tenant, affinity } = owner;
  const { isRooted, hint, beginning, isFresh } = affinity;
  // All keys contain the model, because another model has other replicas and another cache.
  const root = isRooted ? rootKey(tenant, model, treeOf(owner)) : undefined;
  const said = hint === undefined ? undefined : `${tenant}\n${model}\nhint\n${hint}`;
  const seen = beginning === undefined ? undefined : `${tenant}\n${model}\nbeginning\n${beginning}`;
  const text = said ?? root ?? seen;
  const id = text === undefined ? undefined : hashText(text);
  return { id, key: root ?? said ?? seen, isRoot: isRooted, isFresh };
}

/** The key that leads all turns of a tree to one server. */
export function rootKey(tenant: string, model: string, { home, tree }: TreeAddress): string {
  return `${tenant}\n${model}\nroot\n${home}${tree}`;
}

/** The part of a prompt that is hashed: enough to distinguish one agent's conversations from another's. UTF-16 units, and tools. */
const MAX_INSTRUCTIONS = 4_096;
const MAX_FIRST_MESSAGE = 1_024;
const MAX_TOOLS = 64;

interface AffinitySource {
  request: CreateRequest;
  input: readonly InputItem[];
  /** True if the request continues a response or a conversation. */
  continues: boolean;
  /** True if it can be continued: it is stored, or its transport keeps it. */
  isKept: boolean;
  /** The session id that an agent sends in a header. */
  clientSession: string | undefined;
  /** True if there are several model servers to choose from. */
  hasPool: boolean;
}

export function affinityOf({ request, input, continues, isKept, clientSession, hasPool }: AffinitySource): Affinity {
  const hint = request.prompt_cache_key ?? clientSession;
  const isRooted = continues || isKept;
  // A new conversation goes where its beginning may be cached.
  const counts = hint === undefined && (hasPool ? !continues : !isRooted);
  const isFresh = hasPool && !continues && hint === undefined && input.every(isClients);
  return { isRooted, hint, beginning: counts ? beginningOf(request, input) : undefined, isFresh };
}

/** Tells whether an item is the client's, and no output of a model. */
function isClients(item: InputItem): boolean {
  return item.type === "message" && item.role !== "assistant";
}

/**
 * Hash of the instructions, the tools and the user's first message; undefined if all are absent. Without the user's
 * message, all conversations of an agent would go to one server.
 */
function beginningOf({ instructions, tools }: CreateRequest, input: readonly InputItem[]): string | undefined {
  const names = tools?.slice(0, MAX_TOOLS).map((tool) => ("name" in tool ? `${tool.type} ${tool.name}` : tool.type));
  const parts = [
    instructions?.slice(0, MAX_INSTRUCTIONS) ?? "",
    names?.join("\n") ?? "",
    firstUserText(input).slice(0, MAX_FIRST_MESSAGE),
  ];
  if (parts.every((part) => part === "")) return undefined;
  return hashText(parts.join("\0"));
}

/** The first text of the first user message of an input; empty without one. */
export function firstUserText(input: readonly (InputItem | Item)[]): string {
  for (const item of input) {
    if (item.type !== "message" || item.role !== "user") continue;
    for (const part of item.content) if (part.type === "input_text") return part.text;
  }
  return "";
}

const salts = new Map<string, string>();

/**
 * The salt of a tenant's prompts at vLLM, with which nobody can time another tenant's prefix cache. A client's own
 * `cache_salt` divides the tenant's cache further.
 */
export function tenantCacheSalt(tenant: string, clientSalt?: string | null): string {
  if (clientSalt != null) return hashSalt(`${tenant}\n${clientSalt}`);
  // Has at most as many entries as the configuration has tenants.
  let salt = salts.get(tenant);
  if (salt === undefined) {
    salt = hashSalt(`${tenant}\n`);
    salts.set(tenant, salt);
  }
  return salt;
}

function hashSalt(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}
