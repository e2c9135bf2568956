import { callJson } from "./api.ts";
import type { Chat } from "./chat-model.ts";
import { listsResponses } from "./session.ts";

/**
 * Other versions of a chat's first turn. Each is a tree of its own in the store: its metadata name the chat, by the id of
 * the chat's first response.
 */

const CHAT = "chat";

/** The versions that are read of one chat. */
const MAX_VERSIONS = 100;

/** The metadata of a further version of a chat's first turn. */
export function versionMetadata(chat: Chat): Record<string, string> {
  const first = chat.childrenOf(undefined).find(({ id, isStored }) => isStored && id !== undefined);
  const id = first?.fields?.metadata?.[CHAT] ?? first?.id;
  return id === undefined ? {} : { [CHAT]: id };
}

/** Tells whether a tree is another version of a chat that has its own entry in the list. */
export function isOtherVersion(metadata: Record<string, string>) {
  return metadata[CHAT] !== undefined;
}

/**
 * The ids of all stored first responses of a chat. It needs the list of responses; without it there are none.
 * @param root one of them
 */
export async function otherVersions(root: string, signal: AbortSignal): Promise<string[]> {
  if (!listsResponses()) return [];
  const response = await callJson(`/v1/responses/${encodeURIComponent(root)}`, { signal }).catch(() => undefined);
  const chat: string = response?.metadata?.[CHAT] ?? root;
  const query = `metadata[${CHAT}]=${encodeURIComponent(chat)}&limit=${MAX_VERSIONS}`;
  const { data } = await callJson(`/v1/responses?${query}`, { signal });
  return [chat, ...data.map(({ id }: { id: string }) => id)];
}
