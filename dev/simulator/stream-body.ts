import { ConnectionLost } from "./errors.ts";
import { type Frame, isDelta, type Step } from "./frames.ts";
import type { Settings } from "./settings.ts";
import { Cutter, joinFrames } from "./sse-bytes.ts";
import { sleep, stall } from "./time.ts";

/** Notified of the stream's events. `released` resolves when a stalled stream shall continue. */
export type StreamObserver = { delta(): void; completed(): void; aborted(): void; readonly released: Promise<void> };

type Ending = "stall" | "cut" | "end" | undefined;

/**
 * The body of a streamed answer. It makes each chunk when it is read and due, and counts deltas. It notices at once if
 * its reader cancels or `signal` aborts, also while it waits.
 */
export function streamBody(
  steps: Iterator<Step>,
  settings: Settings,
  signal: AbortSignal,
  observer: StreamObserver,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const gone = new AbortController();
  const begin = performance.now() + settings.ttft;
  const paced = settings.ttft > 0 || settings.tps > 0;
  const cutter = new Cutter(settings.bytes);
  let controller: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>> | undefined;
  let generated = 0;
  let over = false;
  let lost = false;
  let upcoming: IteratorResult<Step> | undefined;

  function settle(outcome: "completed" | "aborted"): void {
    if (over) return;
    over = true;
    signal.removeEventListener("abort", onAbort);
    observer[outcome]();
  }

  function onAbort(): void {
    settle("aborted");
    gone.abort(signal.reason);
    controller?.error(signal.reason);
  }

  /** The frames of the next HTTP chunk. It looks one step ahead, so that the end is sent with the last frame. */
  function nextGroup(): { frames: Frame[]; ending: Ending } {
    const frames: Frame[] = [];
    let weight = 0;
    upcoming ??= steps.next();
    for (;;) {
      if (upcoming.done === true) return { frames, ending: "end" };
      if (upcoming.value.kind !== "frame") return { frames, ending: upcoming.value.kind };
      if (weight >= settings.chunk) return { frames, ending: undefined };
      const { frame } = upcoming.value;
      frames.push(frame);
      weight += Math.max(1, frame.tokens);
      upcoming = steps.next();
    }
  }

  function waitBefore(frames: readonly Frame[]): number {
    for (const frame of frames) generated += frame.tokens;
    if (!paced) return 0;
    const pace = settings.tps > 0 ? (Math.max(0, generated - 1) * 1000) / settings.tps : 0;
    return begin + pace - performance.now();
  }

  /** Sends one group. "again" if the cutter output nothing, so that the pending read still waits. */
  function write(frames: readonly Frame[], ending: Ending): Promise<void> | "again" | undefined {
    if (over) return undefined;
    for (const frame of frames) if (isDelta(frame)) observer.delta();
    const pieces = cutter.cut(joinFrames(frames, settings), settings.tps === 0 && ending === undefined);
    for (const piece of pieces) controller?.enqueue(piece);
    switch (ending) {
      case undefined:
        return pieces.length > 0 ? undefined : "again";
      case "stall":
        // The data after a stall is sent when the stream is released.
        upcoming = undefined;
        return stall(gone.signal, observer.released).then(() => (pieces.length > 0 ? undefined : pull()));
      case "end":
        settle("completed");
        controller?.close();
        return undefined;
      case "cut":
        // The error is delayed: an error discards queued data, and the next pull comes only after all of it was read.
        lost = true;
        settle("completed");
        return pieces.length > 0 ? undefined : "again";
    }
  }

  function pull(): Promise<void> | undefined {
    for (;;) {
      if (lost) {
        controller?.error(new ConnectionLost("cut"));
        return undefined;
      }
      const { frames, ending } = nextGroup();
      const wait = waitBefore(frames);
      if (wait > 0) return sleep(wait, gone.signal).then(() => again(write(frames, ending)));
      const written = write(frames, ending);
      if (written !== "again") return written;
    }
  }

  function again(written: ReturnType<typeof write>): Promise<void> | undefined {
    return written === "again" ? pull() : written;
  }

  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      start(own) {
        controller = own;
        if (signal.aborted) onAbort();
        else signal.addEventListener("abort", onAbort);
      },
      pull,
      cancel(reason) {
        settle("aborted");
        gone.abort(reason);
      },
    },
    { highWaterMark: 0 },
  );
}
