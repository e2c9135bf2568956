import type { BatchSink } from "../turn/turn.ts";

/**
 * A server-sent event stream to one client.
 *
 * Events are gathered as text and written when `flush` is called; while a write is under way, more are gathered, so
 * a fast model costs one write per batch and a slow one none of the latency. A native IdentityTransformStream carries
 * the bytes: it is several times cheaper than a JS stream (docs/benchmarks.md) and fails as soon as the client is gone.
 */

/** Text gathered beyond this holds the turn back until the client has read. UTF-16 units. */
const HIGH_WATER_MARK = 64 * 1024;

const HEARTBEAT = ": heartbeat\n\n";

export class SseStream implements BatchSink {
  readonly readable: ReadableStream<Uint8Array>;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #encoder = new TextEncoder();
  readonly #onGone: () => void;
  readonly #heartbeat: ReturnType<typeof setInterval>;
  #pending = "";
  #writing: Promise<void> | undefined;
  #idle = true;
  #gone = false;

  /** `onGone` is called once, when a write finds that nobody reads any more. Heartbeats make that happen in silence. */
  constructor(heartbeatMs: number, onGone: () => void) {
    const { readable, writable } = new IdentityTransformStream();
    this.readable = readable;
    this.#writer = writable.getWriter();
    this.#onGone = onGone;
    this.#heartbeat = setInterval(() => this.#beat(), heartbeatMs);
  }

  event(type: string, json: string): void {
    this.#pending += `event: ${type}\ndata: ${json}\n\n`;
  }

  flush(): Promise<void> | undefined {
    this.#idle = false;
    if (this.#pending !== "") this.#writing ??= this.#drain();
    return this.#pending.length > HIGH_WATER_MARK ? this.#writing : undefined;
  }

  /** Writes what is left and `[DONE]`, and ends the stream. */
  async end(): Promise<void> {
    clearInterval(this.#heartbeat);
    this.#pending += "data: [DONE]\n\n";
    await this.#writing;
    await this.#drain();
    if (!this.#gone) await this.#writer.close().catch(() => this.#lose());
  }

  /** Ends the stream without a last word: nobody is there, or nothing right can be said. */
  async abandon(): Promise<void> {
    clearInterval(this.#heartbeat);
    this.#pending = "";
    this.#gone = true;
    await this.#writer.abort().catch(() => {});
  }

  async #drain(): Promise<void> {
    while (this.#pending !== "" && !this.#gone) {
      const bytes = this.#encoder.encode(this.#pending);
      this.#pending = "";
      try {
        await this.#writer.write(bytes);
      } catch {
        this.#lose();
      }
    }
    this.#writing = undefined;
  }

  #beat(): void {
    if (this.#idle && this.#writing === undefined && !this.#gone) {
      this.#pending += HEARTBEAT;
      this.#writing = this.#drain();
    }
    this.#idle = true;
  }

  #lose(): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#pending = "";
    clearInterval(this.#heartbeat);
    this.#onGone();
  }
}
