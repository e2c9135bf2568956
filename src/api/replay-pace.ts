import { shownTiming } from "@responses-edge/turn/timing";
import type { StoredResponse } from "../store/home/stored-response.ts";

/** The pace of a replay: when each event comes, by the times that are kept of a response (`timing.ts`). */

/** The longest replay, at its speed 1, in milliseconds: what comes later comes then. */
const MAX_MS = 3_600_000;

/** The times of a response's events, in milliseconds since it was accepted. */
export interface ReplayTimes {
  /** The output items whose times are kept, each with the length of its texts in UTF-16 units. */
  items: readonly { began: number; ended: number; length: number }[];
  settled: number;
}

/** The times of a response; undefined if none are kept, because it is in progress or older than these. */
export function timesOf({ head, output, keptTiming }: StoredResponse): ReplayTimes | undefined {
  if (keptTiming === null) return undefined;
  const { model } = JSON.parse(head) as { model: string };
  const items = JSON.parse(output) as { id?: string }[];
  const timing = shownTiming(keptTiming, { model, items: items.map(({ id = "" }) => id) });
  if (!timing) return undefined;
  const within = (ms: number) => Math.min(Math.max(0, ms), MAX_MS);
  return {
    items: timing.items.map(({ began_ms, ended_ms }, index) => ({
      began: within(began_ms),
      ended: within(ended_ms ?? began_ms),
      length: textLength(items[index]),
    })),
    settled: within(timing.settled_ms),
  };
}

/** Fields with a text that deltas have. */
const WORDS = new Set(["text", "refusal", "arguments", "input", "code"]);

/** The length of the texts of an item that come as deltas, in UTF-16 units. */
function textLength(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  if (Array.isArray(value)) return value.reduce((sum: number, each) => sum + textLength(each), 0);
  let length = 0;
  for (const [field, each] of Object.entries(value)) {
    if (typeof each === "string") length += WORDS.has(field) ? each.length : 0;
    else if (field === "content" || field === "summary") length += textLength(each);
  }
  return length;
}

/** The place of an event in the output, and the text that it adds. */
interface Place {
  output_index?: number;
  delta?: string;
}

/**
 * Gives a function that tells the time of each event, which it is asked for in order: milliseconds since the response was accepted, never
 * less than those of the event before. Deltas come evenly by the length of their text within the time of their item.
 */
export function clockOf({ items, settled }: ReplayTimes): (type: string, place: Place) => number {
  /** UTF-16 units of deltas so far, by `output_index`. */
  const written = new Map<number, number>();
  let last = 0;
  return (type, { output_index: index, delta }) => {
    const item = index === undefined ? undefined : items[index];
    let at = last;
    if (TERMINAL.has(type)) at = settled;
    else if (item && index !== undefined && delta !== undefined) {
      const length = (written.get(index) ?? 0) + delta.length;
      written.set(index, length);
      at = item.began + (item.ended - item.began) * Math.min(1, length / Math.max(1, item.length));
    } else if (item && type === "response.output_item.added") at = item.began;
    else if (item && type === "response.output_item.done") at = item.ended;
    last = Math.max(last, at);
    return last;
  };
}

const TERMINAL = new Set(["response.completed", "response.failed", "response.incomplete"]);

const encoder = new TextEncoder();
const HEARTBEAT = encoder.encode(": heartbeat\n\n");

interface Pace {
  times: ReplayTimes;
  /** 1 for that of the original. */
  speed: number;
  /** The time between comments in a pause, in milliseconds. */
  heartbeatMs: number;
  signal: AbortSignal;
}

/**
 * The events of an SSE stream with the pauses between them that they had at first, divided by `speed`. The first event comes at once.
 * Within an item, deltas come evenly by the length of their text. Breaks off when `signal` is aborted.
 */
export function pacedEvents(
  events: ReadableStream<Uint8Array>,
  { times, speed, heartbeatMs, signal }: Pace,
): ReadableStream<Uint8Array> {
  const timeOf = clockOf(times);
  const decoder = new TextDecoder();
  let rest = "";
  let begun: { clock: number; now: number } | undefined;
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>({
    async transform(bytes, controller) {
      const frames = (rest + decoder.decode(bytes, { stream: true })).split("\n\n");
      rest = frames.pop() ?? "";
      for (const frame of frames) {
        const data = frame.startsWith("event: ") ? frame.indexOf("\ndata: ") : -1;
        if (data > 0) {
          const at = timeOf(frame.slice("event: ".length, data), placeIn(frame.slice(data + "\ndata: ".length)));
          begun ??= { clock: at, now: Date.now() };
          const due = begun.now + (at - begun.clock) / speed;
          for (let left = due - Date.now(); left > 0; left = due - Date.now()) {
            await scheduler.wait(Math.min(left, heartbeatMs), { signal });
            if (left > heartbeatMs) controller.enqueue(HEARTBEAT);
          }
        }
        controller.enqueue(encoder.encode(`${frame}\n\n`));
      }
    },
    flush(controller) {
      if (rest !== "") controller.enqueue(encoder.encode(rest));
    },
  });
  // A client that leaves cancels the stream, and an error of one side reaches the other.
  events.pipeTo(writable).catch(() => {});
  return readable;
}

function placeIn(json: string): Place {
  // Only events about an item have a place; the others may be long.
  return json.includes('"output_index":') ? (JSON.parse(json) as Place) : {};
}
