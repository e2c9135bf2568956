/**
 * What clients get to see of reasoning that is stored. It is shown as it was made, unless the operator hides it; sealed
 * content only where it is asked for (`include`).
 */
export interface ReasoningShown {
  /** The operator hides what models think (`REASONING_CONTENT`). */
  hidden: boolean;
  /** `encrypted_content` is asked for. */
  encrypted: boolean;
}

/** An item, or an array of items, as JSON text. Where nothing is to be left out, it is the same text. */
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
 * An event of a log from before the operator hid reasoning; undefined for one that tells of nothing else. `json` is its
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

/** A response but for its output, as JSON text: raw messages from before the operator hid reasoning are left out. */
export function shownHead(json: string, { hidden }: ReasoningShown): string {
  if (!hidden || !RAW_MESSAGES.some((field) => json.includes(field))) return json;
  const head = JSON.parse(json) as { [Field in (typeof RAW_MESSAGES)[number]]?: unknown };
  for (const field of RAW_MESSAGES) delete head[field];
  return JSON.stringify(head);
}

/** Fields of a response that have what a model thinks among all else. */
const RAW_MESSAGES = ["input_messages", "output_messages"] as const;

/** What is in the text of every event that tells of reasoning, beside those that have it in their names. */
const TELLS = ['"reasoning_text"', '"summary_text"', '"output_messages"'];

interface LoggedEvent {
  part?: { type: string };
  item?: StoredItem;
  response?: { output?: StoredItem[]; input_messages?: unknown; output_messages?: unknown };
}
