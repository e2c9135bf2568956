import type { Affinity } from "../assembly/session.ts";
import type { InputItem } from "../items/registry.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { hashText } from "../protocol/hash.ts";

/** What a request shows of the requests that it belongs with, as far as their prompts begin alike. */

/** As much of a prompt's beginning tells one agent's sessions from another's. UTF-16 units, and tools. */
const MAX_INSTRUCTIONS = 4_096;
const MAX_FIRST_MESSAGE = 1_024;
const MAX_TOOLS = 64;

export interface AffinitySource {
  request: CreateRequest;
  input: readonly InputItem[];
  /** It continues a response or a conversation. */
  continues: boolean;
  /** It can be continued itself: it is stored, or its transport keeps it. */
  isKept: boolean;
  /** What a header says of the session that the request is part of. */
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
