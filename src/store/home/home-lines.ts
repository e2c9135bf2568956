import { list } from "@responses-edge/bounded-io/schemas/collections";
import { metadata } from "@responses-edge/responses-api/create-fields";
import type { ErrorFields } from "@responses-edge/responses-api/errors";
import { MAX_ID_LENGTH, responseId } from "@responses-edge/responses-api/ids";
import { inputItem, isKept } from "@responses-edge/responses-api/items/registry";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import type { Replay } from "@responses-edge/turn/contract/engine";
import { exportedTiming, isKeptTiming } from "@responses-edge/turn/timing";
import { z } from "zod";
import type { HomeRows } from "./home-rows.ts";
import type { SettledTurn } from "./turn-store.ts";

/**
 * The lines in which an export tells of one home, and an import reads it again:
 *
 * home its key, the items removed from its conversation, and its live runs
 * conversation if it has one
 * response, or a turn, with its input and output; `turn` has the parts that the API does not show
 * conversation.items
 * response.events the events of the response before it, in order, where it has an event log
 * home.end the number of turns; a home without it is incomplete
 *
 * A valid line is used as it came, not as zod gives it, because the order of keys is stored, too.
 */

/** The version of these lines. */
export const LINES_VERSION = 1;

/** The last second of the year 9999. */
const MAX_TIME = 253_402_300_799;

/** Most elements of one list of a line. */
const MAX_ELEMENTS = 100_000;

/** The longest times of a turn, in characters. */
const MAX_TIMING_LENGTH = 65_536;

const homeKey = z.string().regex(/^[0-9A-Za-z]{22}$/);
const turnKey = z.string().regex(/^[0-9A-Za-z]{10}$/);
const id = z.string().min(1).max(MAX_ID_LENGTH);
const seconds = z.int().min(0).max(MAX_TIME);
const milliseconds = z
  .int()
  .min(0)
  .max(MAX_TIME * 1000);
const position = z.int().min(0).max(1_000_000_000).nullable();

/** Every stored item has its type, and is valid as input. */
const items = list(
  inputItem.refine((item) => isKept(item), {
    message: "Expected an item, but got what stands for one.",
    path: ["type"],
  }),
  { max: MAX_ELEMENTS },
);

const replay = z.looseObject({ item: id, messages: list(z.looseObject({}), { max: MAX_ELEMENTS }) });

/** The parts of a turn that the API does not show. */
const turn = z.strictObject({
  id: turnKey,
  parent: turnKey.nullable(),
  created_at_ms: milliseconds,
  position,
  base: position,
  messages: list(replay, { max: MAX_ELEMENTS }).nullable(),
  timing: z.string().max(MAX_TIMING_LENGTH).refine(isKeptTiming, "Expected times as an export has them.").optional(),
  failure: z.looseObject({ status: z.int().min(400).max(599), message: z.string(), code: z.string() }).optional(),
});

const home = z.strictObject({
  object: z.literal("home"),
  id: homeKey,
  version: z.literal(LINES_VERSION),
  taken_out: list(id, { max: MAX_ELEMENTS }),
  in_progress: list(id, { max: MAX_ELEMENTS }),
});

const conversation = z.strictObject({
  object: z.literal("conversation"),
  id,
  created_at: seconds,
  metadata,
  created_at_ms: milliseconds,
});

const response = z.looseObject({
  object: z.literal("response"),
  id,
  status: z.enum(["completed", "incomplete", "failed", "cancelled"]),
  created_at: seconds,
  model: z.string(),
  output: items,
  input: items,
  turn,
});

const conversationItems = z.strictObject({
  object: z.literal("conversation.items"),
  output: items,
  input: items,
  turn,
});

const events = z.strictObject({
  object: z.literal("response.events"),
  response_id: id,
  from: z.int().min(0),
  events: list(z.union([z.looseObject({}), z.string()]), { min: 1, max: MAX_ELEMENTS }),
});

const homeEnd = z.strictObject({ object: z.literal("home.end"), id: homeKey, turns: z.int().min(0) });

export const homeLine = z.discriminatedUnion("object", [
  home,
  conversation,
  response,
  conversationItems,
  events,
  homeEnd,
]);

export type HomeBegin = z.output<typeof home>;
type ConversationLine = z.output<typeof conversation>;
export type TurnLine = z.output<typeof response> | z.output<typeof conversationItems>;
export type EventsLine = z.output<typeof events>;

/** A line with something to store. */
export type KeptLine = HomeBegin | ConversationLine | TurnLine | EventsLine;
export type HomeLine = KeptLine | z.output<typeof homeEnd>;

/** An event of a line: its JSON as a value if it serializes to the same text, or else as text. */
export function eventValue(json: string): JsonObject | string {
  const value = JSON.parse(json) as JsonObject;
  return JSON.stringify(value) === json ? value : json;
}

/** The JSON text of an event of a line. */
export function eventText(event: JsonObject | string): string {
  return typeof event === "string" ? event : JSON.stringify(event);
}

/**
 * Everything that a home stores for its tenant, as JSON lines (`home-lines.ts`): its conversation, and each settled
 * turn with its input, its response and its event log. A home that stores nothing has no lines. A turn is read after
 * the reader has taken the one before it. `home` is its key. With `turn` only that turn, and those that it continues.
 */
export function exportLines(rows: HomeRows, home: string, turn?: string): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const lines = linesOf(rows, home, turn === undefined ? undefined : continuedTurns(rows, turn));
  return new ReadableStream({
    pull(controller) {
      const { done, value } = lines.next();
      if (done) controller.close();
      else controller.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
    },
  });
}

/** A turn, those that it continues, and those of its conversation that it has seen. */
function continuedTurns({ turns }: HomeRows, turn: string): Set<string> {
  const continued = new Set<string>();
  let base: number | null = null;
  for (let at: string | null = turn; at !== null; ) {
    const settled = turns.settled(at);
    if (!settled) break;
    continued.add(at);
    ({ base, parent: at } = settled);
  }
  if (base === null) return continued;
  for (const each of turns.conversationTurns("asc")) {
    if ((turns.settled(each)?.position ?? Number.POSITIVE_INFINITY) > base) break;
    continued.add(each);
  }
  return continued;
}

function* linesOf(rows: HomeRows, home: string, only?: ReadonlySet<string>): Generator<HomeLine> {
  const { conversations, turns, items, runs, log } = rows;
  const unstored = rows.unstored();
  const all = turns.all().filter((turn) => !unstored.has(turn) && only?.has(turn) !== false);
  const running = only ? [] : runs.turns();
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
  if (conversation) {
    const { object, id, created_at, metadata } = conversation;
    yield { object, id, created_at, metadata, created_at_ms: conversations.createdAt(id) };
  }
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

/**
 * A turn. Its response is as the API retrieves it. If its response was deleted, or has `store: false`, the
 * conversation's items are given, without removed ones; undefined if none is left.
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
    ...(settled.timing != null && { timing: exportedTiming(settled.timing) }),
    ...(failure && { failure }),
  };
  if (hasResponse) return { ...head, output, input, turn: hidden } as TurnLine;
  if (input.length + output.length === 0) return undefined;
  return { object: "conversation.items", output, input, turn: hidden } as TurnLine;
}
