import type { TreeNode } from "@responses-edge/responses-api/platform/tree";
import { callJson } from "./api.ts";
import { Chat, type Turn } from "./chat-model.ts";
import { otherVersions } from "./chat-versions.ts";

/** A chat as the server has stored it, whoever made it. */

const PAGE_LENGTH = 100;

/** The maximum number of turns of one chat. */
const MAX_NODES = 20_000;

/** The chat of a response or conversation: its tree, and those of other versions of its first turn. Rejects as a call of the API does. */
export async function readChat(id: string, signal: AbortSignal): Promise<Chat> {
  const own = await readTree(id, signal);
  const roots = chatOf(own).childrenOf(undefined);
  const others = await otherVersions(roots.map(({ key }) => key)[0] ?? id, signal);
  // The first version may have been deleted.
  const asked = others.filter((other) => !roots.some(({ key }) => key === other));
  const trees = await Promise.all(asked.map((other) => readTree(other, signal).catch(() => [])));
  const nodes = new Map([own, ...trees].flat().map((node) => [node.id, node]));
  return chatOf([...nodes.values()]);
}

/** All nodes of a tree, page by page. */
async function readTree(id: string, signal: AbortSignal): Promise<TreeNode[]> {
  const kind = id.startsWith("conv_") ? "conversations" : "responses";
  const path = `/v1/${kind}/${encodeURIComponent(id)}/tree?order=asc&limit=${PAGE_LENGTH}`;
  const nodes: TreeNode[] = [];
  for (let after = ""; nodes.length < MAX_NODES; ) {
    const page = await callJson(path + after, { signal });
    nodes.push(...page.data);
    if (!page.has_more) break;
    after = `&after=${encodeURIComponent(page.last_id)}`;
  }
  return nodes;
}

function chatOf(nodes: readonly TreeNode[]): Chat {
  const sorted = nodes.toSorted((one, other) => one.created_at - other.created_at || (one.id < other.id ? -1 : 1));
  const known = new Set(nodes.map(({ id }) => id));
  const inConversation = nodes
    .filter(({ position }) => position !== null)
    .sort((one, other) => (one.position ?? 0) - (other.position ?? 0));
  const chat = new Chat(
    sorted.map((node): Turn => {
      const { id, previous_response_id: previous, continues_position: position, created_at: created, status } = node;
      const isOrphan = previous !== null && !known.has(previous);
      return {
        ...{ key: id, id, parent: previous ?? lastUpTo(inConversation, position) },
        ...{ text: node.input?.text ?? "", answered: node.output?.text ?? "", model: node.model },
        ...{ createdAt: created * 1_000, transport: "background", isStored: true },
        ...{ status, isOpen: status === "queued" || status === "in_progress" },
        ...(isOrphan && { isOrphan, note: "The turn before this one was deleted: the chat begins here." }),
      };
    }),
  );
  for (const { turn } of chat.rows()) {
    if (turn.parent !== undefined && chat.get(turn.parent)?.isOrphan) turn.isOrphan = true;
  }
  return chat;
}

/**
 * The id of the last response up to a position of the conversation. The item at the position itself may not be a response.
 * @param nodes in the order of their positions
 */
function lastUpTo(nodes: readonly TreeNode[], position: number | null): string | undefined {
  if (position === null) return undefined;
  let [low, high] = [0, nodes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((nodes[middle]?.position ?? 0) <= position) low = middle + 1;
    else high = middle;
  }
  return nodes[low - 1]?.id;
}
