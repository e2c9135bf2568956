import type { Replay } from "../contract/engine.ts";
import type { ErrorFields } from "../protocol/errors.ts";
import { responseId } from "../protocol/ids.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Conversation } from "./conversation-store.ts";
import { type ConversationLine, eventValue, type HomeLine, LINES_VERSION, type TurnLine } from "./home-lines.ts";
import type { HomeRows } from "./home-rows.ts";
import type { SettledTurn } from "./turn-store.ts";

/**
 * All that a home keeps for its tenant, as JSON lines (`home-lines.ts`): its conversation, and each settled turn with its
 * input, its response and its event log. A home that keeps nothing has none. A turn is read when whoever reads has taken
 * the one before. `home` is its key.
 */
export function exportLines(rows: HomeRows, home: string): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const lines = linesOf(rows, home);
  return new ReadableStream({
    pull(controller) {
      const { done, value } = lines.next();
      if (done) controller.close();
      else controller.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
    },
  });
}

function* linesOf({ conversations, turns, items, runs, log }: HomeRows, home: string): Generator<HomeLine> {
  const all = turns.all();
  const running = runs.turns();
  const conversation = conversations.only();
  if (all.length + running.length === 0 && !conversation) return;
  const takenOut = items.takenOut();
  yield {
    object: "home",
    id: home,
    version: LINES_VERSION,
    taken_out: [...takenOut],
    in_progress: running.map((turn) => responseId({ home, turn })),
  };
  if (conversation) yield conversationLine(conversation, conversations.createdAt(conversation.id));
  let count = 0;
  for (const turn of all) {
    const settled = turns.settled(turn);
    if (!settled) continue;
    const line = turnLine(settled, takenOut, log.failure(turn));
    if (!line) continue;
    count += 1;
    yield line;
    if (line.object !== "response") continue;
    for (let block = log.next(turn, -1); block; block = log.next(turn, block.to)) {
      const events = block.events.map(eventValue);
      yield { object: "response.events", response_id: responseId({ home, turn }), from: block.from, events };
    }
  }
  yield { object: "home.end", id: home, turns: count };
}

/** `createdAt` in Unix milliseconds. */
function conversationLine({ id, object, created_at, metadata }: Conversation, createdAt: number): ConversationLine {
  return { object, id, created_at, metadata, created_at_ms: createdAt };
}

/**
 * A turn. A response is as it can be retrieved. Of a turn whose response was deleted, or was not to be stored, its
 * conversation has the items, without those that were taken out; undefined where that is none.
 */
export function turnLine(
  settled: SettledTurn,
  takenOut: ReadonlySet<string>,
  failure: ErrorFields | undefined,
): TurnLine | undefined {
  const { turn, parent, createdAt, position, base } = settled;
  const head: unknown = JSON.parse(settled.response ?? "null");
  const hasResponse = isJsonObject(head);
  const isLeft = (id: string | undefined) => hasResponse || id === undefined || !takenOut.has(id);
  const itemsOf = (json: string) => (JSON.parse(json) as { id?: string }[]).filter(({ id }) => isLeft(id));
  const [output, input] = [itemsOf(settled.output), itemsOf(settled.input)];
  const replays = settled.messages === null ? null : (JSON.parse(settled.messages) as Replay[]);
  const hidden = {
    ...{ id: turn, parent, created_at_ms: createdAt, position, base },
    messages: replays?.filter(({ item }) => isLeft(item)) ?? null,
    ...(failure && { failure }),
  };
  if (hasResponse) return { ...head, output, input, turn: hidden } as TurnLine;
  if (input.length + output.length === 0) return undefined;
  return { object: "conversation.items", output, input, turn: hidden } as TurnLine;
}
