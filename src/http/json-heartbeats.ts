import type { Context } from "hono";
import type { SlowAnswer } from "../api/transport.ts";

/**
 * White space before the JSON of an answer that takes its time (`JSON_HEARTBEATS`). It is how a gateway on plain workerd learns that
 * the client has left: the runtime tells only by a write that fails. JSON may begin with white space (RFC 8259 §2).
 */

const encoder = new TextEncoder();
const HEARTBEAT = encoder.encode("\n");

export class JsonHeartbeats implements SlowAnswer {
  readonly #intervalMs: number;
  readonly #first = Promise.withResolvers<ReadableStream<Uint8Array>>();
  #timer: ReturnType<typeof setInterval> | undefined;
  #writer: WritableStreamDefaultWriter<Uint8Array> | undefined;

  /** `intervalMs`: time between heartbeats, and before the first one. */
  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  get hasBegun(): boolean {
    return this.#writer !== undefined;
  }

  begin(onLeft: () => void): void {
    const beat = (): void => {
      if (!this.#writer) {
        const { readable, writable } = new IdentityTransformStream();
        this.#writer = writable.getWriter();
        this.#first.resolve(readable);
      }
      this.#writer.write(HEARTBEAT).catch(() => {
        clearInterval(this.#timer);
        onLeft();
      });
    };
    this.#timer = setInterval(beat, this.#intervalMs);
  }

  /**
   * The answer that `answering` resolves to, where it comes before the first heartbeat. Otherwise an answer of heartbeats and its body:
   * the status 200 and the headers are sent with the first heartbeat. Rejects as `answering` does before then.
   */
  async before(answering: Promise<Response>, context: Context): Promise<Response> {
    const ended = answering.finally(() => clearInterval(this.#timer));
    const first = await Promise.race([ended, this.#first.promise]);
    if (first instanceof Response) return first;
    context.executionCtx.waitUntil(this.#end(ended));
    return context.body(first, 200, { "content-type": "application/json" });
  }

  /** Never rejects: a client that has left gets nothing, and one whose answer cannot be had sees the connection break off. */
  async #end(answering: Promise<Response>): Promise<void> {
    const writer = this.#writer;
    try {
      const answer = await answering;
      await writer?.write(new Uint8Array(await answer.arrayBuffer()));
      await writer?.close();
    } catch {
      await writer?.abort("The answer was given up.").catch(() => {});
    }
  }
}
