/**
 * A server-sent event stream to one client. Events are gathered as text and written when `flush` is called; during a
 * write, more are gathered, so a fast model costs one write per batch and a slow one has no added latency. A native
 * IdentityTransformStream carries the bytes: it is several times cheaper than a JS stream (docs/benchmarks-results.md) and
 * fails as soon as the client disconnects.
 */

/** Beyond this length of gathered text, the turn waits for the client. UTF-16 units. */
const HIGH_WATER_MARK = 64 * 1024;

export const SSE_HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

const encoder = new TextEncoder();

const HEARTBEAT = ": heartbeat\n\n";

export class SseStream {
  static readonly #open = new Set<WeakRef<SseStream>>();

  /** The number of streams that have not ended. A stream whose client has left may never end. */
  static get open(): number {
    for (const reference of SseStream.#open) if (!reference.deref()) SseStream.#open.delete(reference);
    return SseStream.#open.size;
  }

  readonly readable: ReadableStream<Uint8Array>;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #onGone: () => void;
  readonly #heartbeat: ReturnType<typeof setInterval>;
  #pending = "";
  #writing: Promise<void> | undefined;
  #idle = true;
  #closed = false;
  readonly #reference = new WeakRef(this);

  /**
   * `onGone` is called once, when a write finds that the client has disconnected. Heartbeats cause writes in silence.
   */
  constructor(heartbeatMs: number, onGone: () => void) {
    const { readable, writable } = new IdentityTransformStream();
    this.readable = readable;
    this.#writer = writable.getWriter();
    this.#onGone = onGone;
    SseStream.#open.add(this.#reference);
    this.#heartbeat = setInterval(() => this.#beat(), heartbeatMs);
  }

  event(type: string, json: string): void {
    this.#pending += `event: ${type}\ndata: ${json}\n\n`;
  }

  /** Begins to write what was gathered; a promise to wait for when the client lags far behind. */
  flush(): Promise<void> | undefined {
    this.#idle = false;
    if (this.#pending !== "") this.#writing ??= this.#drain();
    return this.#pending.length > HIGH_WATER_MARK ? this.#writing : undefined;
  }

  /** Writes all that was gathered; a promise to wait for until the client has taken it, where it has not. */
  flushed(): Promise<void> | undefined {
    this.flush();
    return this.#writing;
  }

  /** Writes what is left and `[DONE]`, and ends the stream. Another one may follow it, with `last` instead of `[DONE]`. */
  async end(last = "data: [DONE]\n\n"): Promise<void> {
    clearInterval(this.#heartbeat);
    this.#pending += last;
    await this.#writing;
    await this.#drain();
    if (!this.#closed) await this.#writer.close().catch(() => this.#lose());
    SseStream.#open.delete(this.#reference);
  }

  /** Ends the stream without a final event, so that a connected client sees it break off. */
  async abandon(): Promise<void> {
    this.#forget();
    if (this.#closed) return;
    this.#closed = true;
    this.#pending = "";
    await this.#writer.abort("The stream was given up.").catch(() => {});
  }

  async #drain(): Promise<void> {
    while (this.#pending !== "" && !this.#closed) {
      const bytes = encoder.encode(this.#pending);
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
    if (this.#idle && this.#writing === undefined && !this.#closed) {
      this.#pending += HEARTBEAT;
      this.#writing = this.#drain();
    }
    this.#idle = true;
  }

  #lose(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#pending = "";
    this.#forget();
    this.#onGone();
  }

  #forget(): void {
    clearInterval(this.#heartbeat);
    SseStream.#open.delete(this.#reference);
  }
}
