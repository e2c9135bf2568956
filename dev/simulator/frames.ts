import { engineError, errorEvent, VllmError } from "./errors.ts";
import type { Fault, Settings } from "./settings.ts";
import { hash } from "./tokenizer.ts";

const ODD_SIZES = 6;

/** One SSE event: its data, its tokens, and flags that say if it counts as a delta and if it ends the answer. */
export type Frame = {
  readonly data: string;
  readonly tokens: number;
  readonly role: "start" | "delta" | "last delta" | "finish" | "after";
  /** Set by the writer: a frame object that is yielded again (`words=N`) is encoded once. */
  bytes?: Uint8Array<ArrayBuffer>;
};

/** The next action of the stream's writer. */
export type Step = { kind: "frame"; frame: Frame } | { kind: "stall" } | { kind: "cut" } | { kind: "end" };

/** The end of an OpenAI stream. It is a new frame each time, because its bytes depend on the request's settings. */
export function doneFrame(): Frame {
  return { data: "[DONE]", tokens: 0, role: "after" };
}

/**
 * The deltas of some tokens: `size` tokens each, or (`odd`) 1 to 6 by their position. All but the first have at least
 * `interval` tokens: the request's `stream_interval`, as in vLLM.
 */
export function* groups<Token>(
  tokens: Iterable<Token>,
  size: Settings["perDelta"],
  interval: number,
): Generator<readonly Token[]> {
  let group: Token[] = [];
  let at = 0;
  let wanted = groupSize(at, size);
  for (const token of tokens) {
    group.push(token);
    at++;
    if (group.length < wanted) continue;
    yield group;
    group = [];
    wanted = Math.max(interval, groupSize(at, size));
  }
  if (group.length > 0) yield group;
}

function groupSize(at: number, size: Settings["perDelta"]): number {
  return size === "odd" ? 1 + (hash(String(at)) % ODD_SIZES) : size;
}

/** Triggers a fault after its number of deltas, or at the latest before the answer ends. */
export function* withFault(frames: Iterable<Frame>, fault: Fault | undefined, settings: Settings): Generator<Step> {
  const pending = fault !== undefined && "after" in fault ? fault : undefined;
  let deltas = 0;
  let fired = pending === undefined;
  for (const frame of frames) {
    if (!fired && pending !== undefined && (deltas >= pending.after || endsAnswer(frame))) {
      fired = true;
      switch (pending.kind) {
        case "stall":
          yield { kind: "stall" };
          break;
        case "cut":
        case "end":
          yield { kind: pending.kind };
          return;
        case "engine":
        case "error": {
          const error = pending.kind === "engine" ? engineError() : new VllmError(500, "Simulated fault.");
          const data = errorEvent(error, settings.flat);
          yield { kind: "frame", frame: { data, tokens: 0, role: "after" } };
          if (settings.done) yield { kind: "frame", frame: doneFrame() };
          return;
        }
        case "garbage":
          yield { kind: "frame", frame: { data: "{not json", tokens: 0, role: "after" } };
      }
    }
    if (isDelta(frame)) deltas++;
    yield { kind: "frame", frame };
  }
}

/** True if the frame carries generated tokens. */
export function isDelta(frame: Frame): boolean {
  return frame.role === "delta" || frame.role === "last delta";
}

function endsAnswer(frame: Frame): boolean {
  return frame.role !== "start" && frame.role !== "delta";
}
