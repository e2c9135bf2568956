import { conversationNotFound, responseNotFound } from "../protocol/errors.ts";
import { parseResponseId, responseId, type TreeAddress, type TurnAddress, treeOf } from "../protocol/ids.ts";
import { conversationAddress } from "../store/client.ts";
import { type ItemPage, type PageRequest, unknownCursor } from "../store/item-store.ts";
import type { Caller } from "./transport.ts";

/**
 * The tree that a response or a conversation is in: all responses of it, in pages. Both throw the 404 of what is
 * unknown, deleted or another tenant's, and the 400 of an `after` that is no response of this tree's.
 */

export async function responseTree({ homes }: Caller, address: TurnAddress, page: PageRequest): Promise<ItemPage> {
  const within = withinTree(page, treeOf(address));
  const tree = await homes.ask(address.home, null, (home) => home.tree(address, within));
  if (!tree) throw responseNotFound(responseId(address));
  return tree;
}

export async function conversationTree({ homes }: Caller, id: string, page: PageRequest): Promise<ItemPage> {
  const { home } = conversationAddress(id);
  const within = withinTree(page, { home, tree: "" });
  const tree = await homes.ask(home, null, (stub) => stub.conversationTree(id, home, within));
  if (!tree) throw conversationNotFound(id);
  return tree;
}

/** The same page, whose `after` is a turn of the tree. That one may have been deleted meanwhile. */
function withinTree({ after, ...page }: PageRequest, { home, tree }: TreeAddress): PageRequest {
  if (after === undefined) return page;
  const address = parseResponseId(after);
  if (address?.home !== home || !address.turn.startsWith(tree)) throw unknownCursor(after);
  return { ...page, after: address.turn };
}
