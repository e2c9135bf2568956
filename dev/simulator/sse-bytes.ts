import type { Frame } from "./frames.ts";
import type { Settings } from "./settings.ts";

type Bytes = Uint8Array<ArrayBuffer>;

const encoder = new TextEncoder();
const EMPTY: Bytes = new Uint8Array(0);

/** The SSE bytes of some frames. */
export function joinFrames(frames: readonly Frame[], settings: Settings): Bytes {
  const [first] = frames;
  if (first === undefined) return EMPTY;
  return frames.length === 1
    ? encodeFrame(first, settings)
    : concat(frames.map((frame) => encodeFrame(frame, settings)));
}

function encodeFrame(frame: Frame, settings: Settings): Bytes {
  if (frame.bytes === undefined) {
    const end = settings.crlf ? "\r\n" : "\n";
    const comment = settings.comments ? `: simulator${end}${end}` : "";
    frame.bytes = encoder.encode(`${comment}data: ${frame.data}${end}${end}`) as Bytes;
  }
  return frame.bytes;
}

/** Cuts a byte stream into pieces of one size, wherever that falls; without a size it leaves chunks as they are. */
export class Cutter {
  #size: number | undefined;
  #held: Bytes = EMPTY;

  constructor(size: number | undefined) {
    this.#size = size;
  }

  /** The pieces that `chunk` completes; unless `hold`, also a last short one. */
  cut(chunk: Bytes, hold: boolean): Bytes[] {
    if (this.#size === undefined) return chunk.length > 0 ? [chunk] : [];
    const bytes = this.#held.length > 0 ? concat([this.#held, chunk]) : chunk;
    const pieces: Bytes[] = [];
    let at = 0;
    for (; at + this.#size <= bytes.length; at += this.#size) pieces.push(bytes.slice(at, at + this.#size));
    this.#held = bytes.slice(at);
    if (!hold && this.#held.length > 0) {
      pieces.push(this.#held);
      this.#held = EMPTY;
    }
    return pieces;
  }
}

function concat(parts: readonly Bytes[]): Bytes {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
