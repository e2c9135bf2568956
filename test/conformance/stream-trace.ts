/** A stream of typed events, arranged for the rules: per item, and per part of an item. */
import { isDeepStrictEqual } from "node:util";
import type {
  Response,
  ResponseCompletedEvent,
  ResponseCreatedEvent,
  ResponseErrorEvent,
  ResponseFailedEvent,
  ResponseIncompleteEvent,
  ResponseInProgressEvent,
  ResponseOutputItem,
  ResponseQueuedEvent,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { show } from "./violations.ts";

export interface StreamOptions {
  /** True: every delta must have `obfuscation`. False: none may. Undefined: either. */
  obfuscation?: boolean;
  /** True if log probabilities were requested; undefined when unknown. */
  logprobs?: boolean;
  /** True if the response was created with `background: true`; undefined when unknown. */
  background?: boolean;
  /** The request was only prepared (`generate: false`). */
  prepared?: boolean;
  /** The stream was cut off: nothing is required of its end. */
  partial?: boolean;
  /** The response was cancelled while streaming: the terminal event may be missing, or say `cancelled`. */
  cancelled?: boolean;
  /** It came over a WebSocket: `response.failed` comes alone. */
  socket?: boolean;
  /** The stream is a replay that begins after this sequence number; rules that need the beginning are left out. */
  startingAfter?: number;
}

export type LifecycleEvent =
  | ResponseCreatedEvent
  | ResponseQueuedEvent
  | ResponseInProgressEvent
  | ResponseCompletedEvent
  | ResponseIncompleteEvent
  | ResponseFailedEvent;

/** An event and its place in the stream. */
export interface Placed<Event = ResponseStreamEvent> {
  readonly position: number;
  readonly name: string;
  readonly event: Event;
}

/** An output item from its `output_item.added` on. */
export interface TracedItem {
  readonly index: number;
  readonly added: ResponseOutputItem;
  readonly addedAt: number;
  readonly done: ResponseOutputItem | undefined;
  /** The position of its `output_item.done`; Infinity when there is none. */
  readonly doneAt: number;
  /** Every event with its `output_index`, but for added and done. */
  readonly events: readonly Placed[];
  readonly parts: PartReplay;
}

export interface Trace {
  readonly options: StreamOptions;
  readonly events: readonly Placed[];
  readonly hasDoneSentinel: boolean;
  readonly lifecycle: readonly Placed<LifecycleEvent>[];
  readonly errors: readonly Placed<ResponseErrorEvent>[];
  readonly terminal: Placed<LifecycleEvent> | undefined;
  /** In the order in which they were added. */
  readonly items: readonly TracedItem[];
}

const TERMINAL_TYPES: ReadonlySet<string> = new Set(["response.completed", "response.incomplete", "response.failed"]);

/** Arranges events whose shape is known to be right. */
export function traceStream(events: readonly Placed[], hasDoneSentinel: boolean, options: StreamOptions): Trace {
  const lifecycle = events.filter(isLifecycle);
  return {
    options,
    events,
    hasDoneSentinel,
    lifecycle,
    errors: events.filter((placed): placed is Placed<ResponseErrorEvent> => placed.event.type === "error"),
    terminal: lifecycle.find(isTerminalEvent),
    items: traceItems(events),
  };
}

export function isTerminalEvent(placed: Placed): boolean {
  return TERMINAL_TYPES.has(placed.event.type);
}

export function isLifecycle(placed: Placed): placed is Placed<LifecycleEvent> {
  return "response" in placed.event;
}

/** How a rule names an event: `event 7 (response.output_text.delta)`. */
export function at(placed: Placed): string {
  return `event ${placed.position} (${placed.event.type})`;
}

function traceItems(events: readonly Placed[]): TracedItem[] {
  const byIndex = new Map<number, Placed[]>();
  for (const placed of events) {
    if (!("output_index" in placed.event)) continue;
    const own = byIndex.get(placed.event.output_index);
    if (own === undefined) byIndex.set(placed.event.output_index, [placed]);
    else own.push(placed);
  }
  const items: TracedItem[] = [];
  for (const placed of events) {
    if (placed.event.type !== "response.output_item.added") continue;
    const index = placed.event.output_index;
    const own = byIndex.get(index) ?? [];
    const done = own.find(({ event }) => event.type === "response.output_item.done");
    const item = {
      index,
      added: placed.event.item,
      addedAt: placed.position,
      done: done?.event.type === "response.output_item.done" ? done.event.item : undefined,
      doneAt: done?.position ?? Number.POSITIVE_INFINITY,
      events: own.filter(
        ({ event }) => event.type !== "response.output_item.added" && event.type !== "response.output_item.done",
      ),
    };
    items.push({ ...item, parts: replayParts(item) });
  }
  return items;
}

type Channel = "content" | "summary";

interface Part {
  readonly place: string;
  readonly type: string;
  text: string;
  logprobs: unknown[];
  annotations: unknown[];
  state: "open" | "texted" | "closed";
}

/** The faults of one item's parts in the stream: broken order, and text that does not add up. */
export interface PartReplay {
  readonly order: string[];
  readonly text: string[];
  /** Parts that did not begin empty. */
  readonly beginnings: string[];
}

/** Follows the parts of an item from `added` to `done`, and compares them with the finished item. */
function replayParts(item: Omit<TracedItem, "parts">): PartReplay {
  const replay: PartReplay = { order: [], text: [], beginnings: [] };
  const channels: Record<Channel, Part[]> = { content: [], summary: [] };

  const open = (placed: Placed, channel: Channel, index: number, type: string, text: string): void => {
    const parts = channels[channel];
    const previous = parts.at(-1);
    if (index !== parts.length) replay.order.push(`${at(placed)} adds part ${index}, expected ${parts.length}`);
    if (previous !== undefined && previous.state !== "closed") {
      replay.order.push(`${at(placed)} adds a part while ${previous.place} is open`);
    }
    if (text !== "") replay.beginnings.push(`${at(placed)} adds a part that begins with ${show(text)}`);
    const place = `item ${item.index} ${channel} ${index}`;
    parts.push({ place, type, text: "", logprobs: [], annotations: [], state: "open" });
  };

  const find = (placed: Placed, channel: Channel, index: number, type: string, state: Part["state"]) => {
    const part = channels[channel][index];
    if (part === undefined) replay.order.push(`${at(placed)} has no part ${index} added before it`);
    else if (part.type !== type) replay.order.push(`${at(placed)} does not fit a ${part.type} part`);
    else if (part.state !== state) replay.order.push(`${at(placed)} comes while ${part.place} is ${part.state}`);
    return part;
  };

  const append = (placed: Placed, channel: Channel, index: number, type: string, delta: string): Part | undefined => {
    const part = find(placed, channel, index, type, "open");
    if (part !== undefined) part.text += delta;
    return part;
  };

  const finishText = (placed: Placed, channel: Channel, index: number, type: string, text: string) => {
    const part = find(placed, channel, index, type, "open");
    if (part === undefined) return undefined;
    part.state = "texted";
    if (part.text !== text) {
      replay.text.push(`${at(placed)} says ${show(text)}, the deltas of ${part.place} ${show(part.text)}`);
    }
    return part;
  };

  const close = (placed: Placed, channel: Channel, index: number, type: string, text: string) => {
    const part = find(placed, channel, index, type, "texted");
    if (part === undefined) return undefined;
    part.state = "closed";
    if (part.text !== text) {
      replay.text.push(`${at(placed)} says ${show(text)}, the deltas of ${part.place} ${show(part.text)}`);
    }
    return part;
  };

  const compareLists = (placed: Placed, what: string, streamed: unknown[], final: unknown): void => {
    if (!sameJson(streamed, final)) {
      replay.text.push(`${at(placed)} has ${what} ${show(final)}, streamed were ${show(streamed)}`);
    }
  };

  for (const placed of item.events) {
    const { event } = placed;
    switch (event.type) {
      case "response.content_part.added":
        open(placed, "content", event.content_index, event.part.type, partText(event.part));
        break;
      case "response.reasoning_summary_part.added":
        open(placed, "summary", event.summary_index, event.part.type, event.part.text);
        break;
      case "response.output_text.delta":
        append(placed, "content", event.content_index, "output_text", event.delta)?.logprobs.push(...event.logprobs);
        break;
      case "response.refusal.delta":
        append(placed, "content", event.content_index, "refusal", event.delta);
        break;
      case "response.reasoning_text.delta":
        append(placed, "content", event.content_index, "reasoning_text", event.delta);
        break;
      case "response.reasoning_summary_text.delta":
        append(placed, "summary", event.summary_index, "summary_text", event.delta);
        break;
      case "response.output_text.annotation.added": {
        const part = channels.content[event.content_index];
        if (part === undefined || part.state === "closed") {
          replay.order.push(`${at(placed)} annotates a part that is not open`);
        } else if (event.annotation_index !== part.annotations.length) {
          replay.order.push(`${at(placed)} is annotation ${event.annotation_index} of ${part.annotations.length}`);
        }
        part?.annotations.push(event.annotation);
        break;
      }
      case "response.output_text.done": {
        const part = finishText(placed, "content", event.content_index, "output_text", event.text);
        if (part !== undefined) compareLists(placed, "logprobs", part.logprobs, event.logprobs);
        break;
      }
      case "response.refusal.done":
        finishText(placed, "content", event.content_index, "refusal", event.refusal);
        break;
      case "response.reasoning_text.done":
        finishText(placed, "content", event.content_index, "reasoning_text", event.text);
        break;
      case "response.reasoning_summary_text.done":
        finishText(placed, "summary", event.summary_index, "summary_text", event.text);
        break;
      case "response.content_part.done": {
        const part = close(placed, "content", event.content_index, event.part.type, partText(event.part));
        if (part !== undefined && event.part.type === "output_text") {
          compareLists(placed, "annotations", part.annotations, event.part.annotations);
          compareLists(placed, "logprobs", part.logprobs, event.part.logprobs);
        }
        break;
      }
      case "response.reasoning_summary_part.done":
        close(placed, "summary", event.summary_index, event.part.type, event.part.text);
        break;
      default:
        break;
    }
  }

  if (item.done !== undefined) {
    for (const part of [...channels.content, ...channels.summary]) {
      if (part.state !== "closed") replay.order.push(`${part.place} is ${part.state} when its item is done`);
    }
    for (const channel of ["content", "summary"] as const) {
      const final = finalTexts(item.done, channel);
      const streamed = channels[channel].map((part) => part.text);
      if (final !== undefined && !sameJson(final, streamed)) {
        replay.text.push(`item ${item.index} has ${channel} ${show(final)}, streamed were ${show(streamed)}`);
      }
    }
  }
  return replay;
}

/** The texts of an item's parts; undefined when items of this type have no such parts. */
function finalTexts(item: ResponseOutputItem, channel: Channel): string[] | undefined {
  if (item.type === "message") return channel === "content" ? item.content.map(partText) : undefined;
  if (item.type !== "reasoning") return undefined;
  return (channel === "content" ? (item.content ?? []) : item.summary).map((part) => part.text);
}

function partText(part: { type: string; text?: string; refusal?: string }): string {
  return part.text ?? part.refusal ?? "";
}

/** Tells whether two values are the same JSON, in any order of keys. */
export function sameJson(left: unknown, right: unknown): boolean {
  return isDeepStrictEqual(left, right) || canonical(left) === canonical(right);
}

function canonical(value: unknown): string {
  return (
    JSON.stringify(value, (_key, node: unknown) =>
      typeof node === "object" && node !== null && !Array.isArray(node)
        ? Object.fromEntries(Object.entries(node).sort(([a], [b]) => (a < b ? -1 : 1)))
        : node,
    ) ?? "undefined"
  );
}

/** The id of an item; undefined when it has none. */
export function itemId(item: Response["output"][number] | undefined): string | undefined {
  return item !== undefined && "id" in item && typeof item.id === "string" ? item.id : undefined;
}
