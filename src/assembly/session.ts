import { createHash } from "node:crypto";
import { hashText } from "@responses-edge/engines/hash";
import type { Session } from "@responses-edge/engines/upstream";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import { type TreeAddress, type TurnAddress, treeOf } from "@responses-edge/responses-api/ids";
import type { InputItem } from "@responses-edge/responses-api/items/registry";

/** Which requests belong together at the model servers: those whose prompts begin alike, so that a cache has them; and what keeps tenants apart in these caches. */

/** How a request shows, beside its tree, that it has its beginning in common with others. */
export interface Affinity {
  /** The request's turn can be continued on this server, so that its tree is the same in all turns after it. */
  isRooted: boolean;
  /** The client's own word: `prompt_cache_key`, or a header that names a session. */
  hint?: string | undefined;
  /** How its prompt begins, hashed; known where it counts. */
  beginning?: string | undefined;
}

/** A turn whose session is wanted. Runs that were kept by earlier versions have no affinity, and can be continued. */
export interface SessionOwner extends TurnAddress {
  tenant?: string | undefined;
  affinity?: Affinity | undefined;
}

/**
 * The session of a turn. Its server is chosen by the root of its conversation, wherever that can be gone on with: turns, branches,
 * sockets and runs all have it, and no client needs to say anything. A router behind the server cannot know it of clients that
 * keep their items themselves: to it, what these say comes first.
 */
export function sessionOf(owner: SessionOwner, model: string): Session {
  const { tenant = "", affinity = { isRooted: true } } = owner;
  const { isRooted, hint, beginning } = affinity;
  // The model is in all keys: its replicas are not another model's, and neither is its cache.
  const root = isRooted ? rootKey(tenant, model, treeOf(owner)) : undefined;
  const said = hint === undefined ? undefined : `${tenant}\n${model}\nhint\n${hint}`;
  const seen = beginning === undefined ? undefined : `${tenant}\n${model}\nbeginning\n${beginning}`;
  const text = said ?? root ?? seen;
  const id = text === undefined ? undefined : hashText(text);
  return { id, key: root ?? said ?? seen, isRoot: isRooted };
}

/** The key by which all turns of a tree go to one server. */
export function rootKey(tenant: string, model: string, { home, tree }: TreeAddress): string {
  return `${tenant}\n${model}\nroot\n${home}${tree}`;
}

/** As much of a prompt's beginning tells one agent's sessions from another's. UTF-16 units, and tools. */
const MAX_INSTRUCTIONS = 4_096;
const MAX_FIRST_MESSAGE = 1_024;
const MAX_TOOLS = 64;

interface AffinitySource {
  request: CreateRequest;
  input: readonly InputItem[];
  /** It continues a response or a conversation. */
  continues: boolean;
  /** It can be continued itself: it is stored, or its transport keeps it. */
  isKept: boolean;
  /** The session that a header of the request names. */
  clientSession: string | undefined;
  /** There are several model servers to choose from. */
  hasPool: boolean;
}

export function affinityOf({ request, input, continues, isKept, clientSession, hasPool }: AffinitySource): Affinity {
  const hint = request.prompt_cache_key ?? clientSession;
  const isRooted = continues || isKept;
  // A new conversation is put where its beginning may be known.
  const counts = hint === undefined && (hasPool ? !continues : !isRooted);
  return { isRooted, hint, beginning: counts ? beginningOf(request, input) : undefined };
}

/**
 * Instructions, tools and the first thing that the user says, hashed; undefined where there is none of them. Without the
 * user's message all sessions of an agent would go to one server.
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

function firstUserText(input: readonly InputItem[]): string {
  for (const item of input) {
    if (item.type !== "message" || item.role !== "user") continue;
    for (const part of item.content) if (part.type === "input_text") return part.text;
  }
  return "";
}

const salts = new Map<string, string>();

/**
 * The salt of a tenant's prompts at vLLM. With it nobody can time another tenant's prefix cache. A client's
 * own `cache_salt` parts the tenant's cache further.
 */
export function tenantCacheSalt(tenant: string, clientSalt?: string | null): string {
  if (clientSalt != null) return hashSalt(`${tenant}\n${clientSalt}`);
  // As many entries as there are tenants in the configuration.
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
