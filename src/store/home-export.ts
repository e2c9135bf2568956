import { isJsonObject } from "../protocol/json.ts";
import type { HomeRows } from "./home-rows.ts";

/**
 * All that a home keeps for its tenant, as JSON lines: its conversation, and each settled turn with its input and its
 * response. A turn is read when whoever reads has taken the one before.
 */
export function exportLines({ conversations, turns, items }: HomeRows): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const lines = (function* () {
    const conversation = conversations.only();
    if (conversation) yield conversation;
    const takenOut = items.takenOut();
    const itemsOf = (turn: string, side: "input" | "output") => {
      const all = JSON.parse(turns.conversationItems(turn, side) ?? "[]") as { id?: string }[];
      return all.filter(({ id }) => id === undefined || !takenOut.has(id));
    };
    for (const turn of turns.all()) {
      const [input, output] = [itemsOf(turn, "input"), itemsOf(turn, "output")];
      const head: unknown = JSON.parse(turns.response(turn)?.head ?? "null");
      // A response that was deleted, or was not to be stored, has left its items in its conversation.
      if (isJsonObject(head)) yield { ...head, output, input };
      else if (input.length + output.length > 0) yield { object: "conversation.items", input, output };
    }
  })();
  return new ReadableStream({
    pull(controller) {
      const { done, value } = lines.next();
      if (done) controller.close();
      else controller.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
    },
  });
}
