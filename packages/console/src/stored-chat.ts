import { callJson } from "./api.ts";
import type { Turn } from "./chat-model.ts";
import { listsResponses } from "./session.ts";
import { Tree, type TreeNode } from "./tree-model.ts";

/** A chat as the server has stored it, whoever made it. */

const PAGE_LENGTH = 100;

/** The maximum number of turns of one chat. */
export const MAX_NODES = 20_000;

/** The key of the metadata by which another version of a chat's first turn names the chat: by its first response's id. */
export const CHAT = "chat";

/** All nodes of a chat: of the tree that has a response or conversation, and of those with other versions of its first turn. */
export async function readChat(id: string, signal: AbortSignal): Promise<TreeNode[]> {
  const own = await readTree(id, signal);
  if (!listsResponses()) return own;
  const roots = new Tree(own).roots.map(({ node }) => node.id);
  const chat = await chatOf(roots[0] ?? id, signal);
  const versions = await callJson(`/v1/responses?metadata[${CHAT}]=${encodeURIComponent(chat)}&limit=${PAGE_LENGTH}`, {
    signal,
  });
  const others = [chat, ...versions.data.map((version: { id: string }) => version.id)].filter(
    (each) => !roots.includes(each),
  );
  // The first version may have been deleted.
  const trees = await Promise.all(others.map((other) => readTree(other, signal).catch(() => [])));
  const known = new Set<string>();
  return [own, ...trees].flat().filter((node) => !known.has(node.id) && known.add(node.id));
}

/** The id by which a first turn names its chat: its own, unless it is another version of one. */
async function chatOf(root: string, signal: AbortSignal): Promise<string> {
  const response = await callJson(`/v1/responses/${encodeURIComponent(root)}`, { signal }).catch(() => undefined);
  return response?.metadata?.[CHAT] ?? root;
}

/** All nodes of a tree, page by page. Rejects as a call of the API does. */
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

/** The turns of stored nodes, each after the one that it continues. */
export function turnsOf(nodes: readonly TreeNode[]): Turn[] {
  const orphans = new Set<string>();
  return new Tree(nodes).rows(new Set()).map(({ node, parent, isOrphan }) => {
    if (isOrphan || (parent && orphans.has(parent.node.id))) orphans.add(node.id);
    return {
      key: node.id,
      ...(parent && { parent: parent.node.id }),
      id: node.id,
      text: node.input?.text ?? "",
      model: node.model,
      createdAt: node.created_at * 1_000,
      transport: "background",
      isStored: true,
      isOpen: ["queued", "in_progress"].includes(node.status),
      status: node.status,
      answered: node.output?.text ?? "",
      ...(orphans.has(node.id) && { isOrphan: true }),
      ...(isOrphan && { note: "The turn before this one was deleted: the chat begins here." }),
    };
  });
}

/** The turns of a chat as nodes, for its map. */
export function nodesOf(turns: Iterable<Turn>): TreeNode[] {
  return [...turns].map(({ key, parent, createdAt, status, isOpen, model, text, answered }) => ({
    id: key,
    previous_response_id: parent ?? null,
    position: null,
    continues_position: null,
    created_at: createdAt / 1_000,
    status: status ?? (isOpen ? "in_progress" : "failed"),
    background: true,
    model,
    usage: null,
    input: { type: "message", text },
    output: answered ? { type: "message", text: answered } : null,
  }));
}
