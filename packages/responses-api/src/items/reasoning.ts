import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import { itemId, itemStatus, reasoningText, summaryText, text } from "./parts.ts";
import { answered, COMPLETED, contentDelta, delta, given, inContent, inItem, normal, once, status } from "./shapes.ts";

/** OpenAI's limit of `encrypted_content`, in characters. */
export const MAX_SEALED_LENGTH = 20_971_520;

const inSummary = once(() => ({ ...inItem(), summary_index: z.int().min(0) }));
const summaryPart = () => ({ ...inSummary(), part: summaryText() });
const form = normal("type id summary content encrypted_content status", COMPLETED);

/**
 * Reasoning that a client returns: plain (`content` or `summary`), encrypted (`encrypted_content`), or both. Building
 * the prompt shows whether it decrypts.
 */
export const reasoning = {
  prefix: "rs",
  kind: "reasoning",
  input: given("reasoning", {
    id: itemId,
    summary: list(z.object({ type: z.literal("summary_text"), text })).nullish(),
    content: list(z.object({ type: z.literal("reasoning_text"), text })).nullish(),
    encrypted_content: z.string().max(MAX_SEALED_LENGTH).nullish(),
    status: itemStatus,
  }).transform(({ summary, content, encrypted_content: sealed, ...item }) =>
    form({
      ...item,
      summary: summary ?? [],
      content: content?.length ? content : undefined,
      encrypted_content: sealed || undefined,
    }),
  ),
  output: () =>
    answered("reasoning", {
      summary: z.array(summaryText()),
      content: z.array(reasoningText()).optional(),
      encrypted_content: z.string().nullish(),
      status: status().optional(),
    }),
  events: {
    "response.reasoning_text.delta": contentDelta,
    "response.reasoning_text.done": () => ({ ...inContent(), text: z.string() }),
    "response.reasoning_summary_part.added": summaryPart,
    "response.reasoning_summary_part.done": summaryPart,
    "response.reasoning_summary_text.delta": () => ({ ...inSummary(), ...delta() }),
    "response.reasoning_summary_text.done": () => ({ ...inSummary(), text: z.string() }),
  },
} as const satisfies ItemType;

/**
 * The part of stored reasoning that clients see. It is unchanged, unless the operator hides it; encrypted content only
 * on request (`include`).
 */
export interface ReasoningShown {
  /** The operator hides reasoning (`REASONING_CONTENT`). */
  hidden: boolean;
  /** The request includes `encrypted_content`. */
  encrypted: boolean;
}

/** An item, or an array of items, as JSON text. If nothing has to be left out, it is the same text. */
export function shownItems(json: string, shown: ReasoningShown): string {
  const isAsMade = !shown.hidden && (shown.encrypted || !json.includes('"encrypted_content"'));
  if (isAsMade || !json.includes('"reasoning"')) return json;
  const items = JSON.parse(json) as StoredItem | StoredItem[];
  return JSON.stringify(Array.isArray(items) ? items.map((item) => shownItem(item, shown)) : shownItem(items, shown));
}

type StoredItem = { type: string } & Record<string, unknown>;

function shownItem(item: StoredItem, { hidden, encrypted }: ReasoningShown): StoredItem {
  if (item.type !== "reasoning") return item;
  const { encrypted_content: sealed, ...rest } = item;
  if (hidden) {
    delete rest.content;
    rest.summary = [];
  }
  return encrypted && sealed !== undefined ? { ...rest, encrypted_content: sealed } : rest;
}

/**
 * An event of a log from before the operator hid reasoning; undefined for an event about reasoning only. `json` is its
 * text, and `type` its type.
 */
export function withoutReasoning(type: string, json: string): string | undefined {
  if (type.startsWith("response.reasoning_")) return undefined;
  if (!TELLS.some((word) => json.includes(word))) return json;
  const event = JSON.parse(json) as LoggedEvent;
  if (event.part?.type === "reasoning_text") return undefined;
  const hide = (item: StoredItem) => shownItem(item, { hidden: true, encrypted: true });
  if (event.item) event.item = hide(event.item);
  const { response } = event;
  if (response?.output) response.output = response.output.map(hide);
  for (const field of RAW_MESSAGES) delete response?.[field];
  return JSON.stringify(event);
}

/** A response without its output, as JSON text: raw messages from before the operator hid reasoning are left out. */
export function shownHead(json: string, { hidden }: ReasoningShown): string {
  if (!hidden || !RAW_MESSAGES.some((field) => json.includes(field))) return json;
  const head = JSON.parse(json) as { [Field in (typeof RAW_MESSAGES)[number]]?: unknown };
  for (const field of RAW_MESSAGES) delete head[field];
  return JSON.stringify(head);
}

/** Fields of a response that contain reasoning among other data. */
const RAW_MESSAGES = ["input_messages", "output_messages"] as const;

/** Every event that contains reasoning without naming it has one of these in its text. */
const TELLS = ['"reasoning_text"', '"summary_text"', '"output_messages"'];

interface LoggedEvent {
  part?: { type: string };
  item?: StoredItem;
  response?: { output?: StoredItem[]; input_messages?: unknown; output_messages?: unknown };
}
