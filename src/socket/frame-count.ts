/** Frames that a client may send at once, and more each second; a long one counts as several. */
const FRAME_BURST = 1_000;
const FRAMES_PER_SECOND = 100;

/** A frame of 32 MiB may be 32 KiB on the wire if it is compressed. */
const LONG_FRAME_LENGTH = 128 * 1024;

/** The most unread frames of a tenant in this process: its connections share the thread. */
const MAX_UNREAD_FRAMES = 4_000;

/** Unread frames, by tenant. */
const unread = new Map<string, number>();

/** Counts the frames of one connection. */
export class FrameCount {
  readonly #tenant: string;
  #allowed = FRAME_BURST;
  #countedAt = Date.now();

  constructor(tenant: string) {
    this.#tenant = tenant;
  }

  /** Counts a frame that has come. Gives what there is too much of, if the connection is to be closed for it. */
  take(length: number): string | undefined {
    const now = Date.now();
    const allowed = this.#allowed + ((now - this.#countedAt) / 1000) * FRAMES_PER_SECOND;
    this.#allowed = Math.min(FRAME_BURST, allowed) - 1 - Math.floor(length / LONG_FRAME_LENGTH);
    this.#countedAt = now;
    this.#note(1);
    if (this.#allowed < 0) return "frames in too short a time";
    const isFull = (unread.get(this.#tenant) ?? 0) > MAX_UNREAD_FRAMES;
    return isFull ? "frames in too short a time, together with your other connections" : undefined;
  }

  /** Notes that frames are read, or dropped. */
  leave(frames: number): void {
    this.#note(-frames);
  }

  #note(change: number): void {
    const left = (unread.get(this.#tenant) ?? 0) + change;
    if (left > 0) unread.set(this.#tenant, left);
    else unread.delete(this.#tenant);
  }
}
