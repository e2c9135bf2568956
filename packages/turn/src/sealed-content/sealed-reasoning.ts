import { contextLengthExceeded } from "@responses-edge/responses-api/errors";
import {
  type Item,
  isClientCall,
  isServerCall,
  type OutputItem,
  type ReasoningItem,
} from "@responses-edge/responses-api/items/registry";
import type { InputTransformation } from "@responses-edge/responses-api/response";
import type { EngineName, RawMessage, Replay, ToolExchange } from "../contract/engine.ts";
import type { Opened, Sealer } from "./sealing.ts";

/**
 * The content of a reasoning item's `encrypted_content`: everything that `previous_response_id` would restore in the
 * prompt of a client that keeps its items itself. Such a client may leave out ids, and reformat arguments.
 */
interface SealedReasoning {
  v: 1;
  /** The engine that made it, and can read it. */
  engine: EngineName;
  /** The thought, if its engine has no message for it. */
  text?: string;
  /** The raw messages of the thought, and those that led to it. */
  messages?: RawMessage[];
  /** The calls since the thought before this one, and the client's call that follows it. */
  calls?: SealedCall[];
}

interface SealedCall {
  /** The id of its item. */
  item: string;
  /** The call id by which the client answers a call, and the arguments with which it was made. */
  call_id?: string;
  arguments?: string;
  messages: RawMessage[];
  exchange?: ToolExchange;
}

/** The longest JSON of everything that one prompt opens, in UTF-16 units: the limit of a history. */
const MAX_OPENED_LENGTH = 12 * 1024 * 1024;

/** Most left-out items that a response lists, which it does in every snapshot. */
const MAX_TOLD = 1_000;

/** Seals the reasoning of a turn, and opens that of its prompt. */
export interface ReasoningSeal {
  sealer: Sealer;
  engine: EngineName;
}

/**
 * The `encrypted_content` of a thought. `replays` are those since the earlier thought, including its own; `output` has
 * the turn's items.
 */
export function sealReasoning(
  { sealer, engine }: ReasoningSeal,
  thought: { id: string; text: string },
  replays: readonly Replay[],
  output: readonly OutputItem[],
): string {
  const own = replays.find(({ item }) => item === thought.id);
  const items = itemsOf(replays, output);
  const calls = replays.flatMap((replay) => sealedCall(replay, items.get(replay.item)));
  const content: SealedReasoning = {
    v: 1,
    engine,
    ...(own ? { messages: own.messages } : { text: thought.text }),
    ...(calls.length > 0 && { calls }),
  };
  return sealer.seal("reasoning", content);
}

/** The items behind some replays, by id. They are the last ones, so no more of the output is read. */
function itemsOf(replays: readonly Replay[], output: readonly OutputItem[]): Map<string, OutputItem> {
  const wanted = new Set(replays.map(({ item }) => item));
  const items = new Map<string, OutputItem>();
  for (let index = output.length - 1; index >= 0 && items.size < wanted.size; index -= 1) {
    const item = output[index];
    if (item?.id !== undefined && wanted.has(item.id)) items.set(item.id, item);
  }
  return items;
}

/** A call to be sealed with the thought beside it. A hosted tool's call without an answer cannot be repeated. */
function sealedCall({ item: id, messages, exchange }: Replay, item: OutputItem | undefined): SealedCall[] {
  if (!item) return [];
  if (isServerCall(item)) {
    if (!exchange) return [];
    // The tool's memory is only for this server, and images are too large for a client to keep.
    const { memory: _, images: __, ...shown } = exchange;
    return [{ item: id, messages, exchange: shown }];
  }
  const call = clientCall(item);
  return call ? [{ item: id, ...call, messages }] : [];
}

/** The call id of a client's call, and the arguments if the item has them as the model wrote them. */
function clientCall(item: Item | OutputItem): { call_id: string; arguments?: string } | undefined {
  if (!isClientCall(item) || typeof item.call_id !== "string") return undefined;
  const said: unknown = "arguments" in item ? item.arguments : "input" in item ? item.input : undefined;
  return { call_id: item.call_id, ...(typeof said === "string" && { arguments: said }) };
}

/** The history of a turn, from which its prompt is made. */
interface Past {
  history: Item[];
  replays: Replay[];
  input: Item[];
}

/**
 * Opens the sealed reasoning of a history. The sealed content takes precedence over the text that the client shows. An
 * item that cannot be opened is used as it is shown, and left out if it shows nothing; `removed` lists those, up to the
 * response's limit. Without `seal` nothing can be opened. Takes time linear in the history. Throws the 400 of more than
 * a prompt may open.
 */
export function openReasoning(past: Past, seal: ReasoningSeal | undefined): Past & { removed: InputTransformation[] } {
  const isSealed = (item: Item) => item.type === "reasoning" && item.encrypted_content !== undefined;
  if (!past.history.some(isSealed) && !past.input.some(isSealed)) return { ...past, removed: [] };
  const opening = new Opening(past, seal);
  const history = opening.items(past.history, true);
  const input = opening.items(past.input, false);
  opening.placeCalls(history);
  opening.placeCalls(input);
  return { history, input, replays: [...past.replays, ...opening.replays], removed: opening.removed };
}

class Opening {
  readonly replays: Replay[] = [];
  readonly removed: InputTransformation[] = [];
  readonly #seal: ReasoningSeal | undefined;
  /** Ids of the items with a replay, and of those that were processed. */
  readonly #replayed: Set<string>;
  readonly #seen = new Set<string>();
  /** By `call_id`, and by the id of the item. */
  readonly #calls = new Map<string, SealedCall>();
  #made = 0;
  #lengthLeft = MAX_OPENED_LENGTH;

  constructor({ replays }: Past, seal: ReasoningSeal | undefined) {
    this.#seal = seal;
    this.#replayed = new Set(replays.filter(({ before }) => !before).map(({ item }) => item));
  }

  items(items: readonly Item[], isHistory: boolean): Item[] {
    return items.flatMap((item) => {
      if (item.type !== "reasoning" || item.encrypted_content === undefined) return [item];
      return this.#item(item, isHistory);
    });
  }

  #item({ encrypted_content: blob = "", ...shown }: ReasoningItem, isHistory: boolean): Item[] {
    const hasText = (shown.content?.length ?? 0) + shown.summary.length > 0;
    const isKept = shown.id !== undefined && this.#replayed.has(shown.id);
    // An item that this server has stored has its sealed messages already.
    if (isKept || (isHistory && hasText && this.#seal?.engine === "chat")) return [shown];
    const content = this.#open(blob);
    if (typeof content !== "string") return [this.#opened(shown, content)];
    if (hasText) return [shown];
    const { id = "" } = shown;
    if (this.removed.length < MAX_TOLD)
      this.removed.push({ type: "reasoning", id, action: "removed", reason: content });
    return [];
  }

  /** The content of a blob, or why it is unusable. */
  #open(blob: string): SealedReasoning | InputTransformation["reason"] {
    const opened: Opened = this.#seal?.sealer.open("reasoning", blob) ?? { reason: "unreadable" };
    if (opened.reason !== undefined) {
      return opened.reason === "model_mismatch" ? "model_mismatch" : "organization_mismatch";
    }
    const content = opened.payload as SealedReasoning;
    if (content.v !== 1) return "organization_mismatch";
    if (content.engine !== this.#seal?.engine) return "model_mismatch";
    this.#lengthLeft -= JSON.stringify(content).length;
    if (this.#lengthLeft < 0) throw contextLengthExceeded("The encrypted reasoning in 'input' is too long.");
    return content;
  }

  #opened(shown: ReasoningItem, { text, messages, calls = [] }: SealedReasoning): Item {
    for (const call of calls) this.#calls.set(call.call_id ?? call.item, call);
    if (!messages) return { ...shown, content: [{ type: "reasoning_text", text: text ?? "" }] };
    const id = this.#ownId(shown);
    this.replays.push({ item: id, messages });
    return { ...shown, id };
  }

  /** Restores the messages of calls that were sealed with the reasoning. */
  placeCalls(items: Item[]): void {
    if (this.#calls.size === 0) return;
    for (const [index, item] of items.entries()) {
      const call = this.#sealedCallOf(item);
      if (!call || (item.id !== undefined && this.#replayed.has(item.id))) continue;
      const id = this.#ownId(item);
      items[index] = { ...item, id };
      this.replays.push({ item: id, messages: call.messages, ...(call.exchange && { exchange: call.exchange }) });
    }
  }

  #sealedCallOf(item: Item): SealedCall | undefined {
    if (isServerCall(item)) return item.id === undefined ? undefined : this.#calls.get(item.id);
    const said = clientCall(item);
    const call = said && this.#calls.get(said.call_id);
    if (call?.arguments === undefined) return call;
    // A client may have changed the model's call.
    return isSameJson(call.arguments, said?.arguments ?? "") ? call : undefined;
  }

  /** An id by which a replay can name only this item of the prompt. */
  #ownId({ id, type }: Item): string {
    const isOwn = id !== undefined && !this.#seen.has(id);
    const own = isOwn ? id : `${type}_sealed_${this.#made++}`;
    this.#seen.add(own);
    return own;
  }
}

/** Tells whether two texts are the same JSON, apart from white space, or the same text. */
function isSameJson(a: string, b: string): boolean {
  if (a === b) return true;
  try {
    return JSON.stringify(JSON.parse(a)) === JSON.stringify(JSON.parse(b));
  } catch {
    // Not JSON, or nested too deeply to be compared.
    return false;
  }
}
