import type { ServerAttempt } from "@responses-edge/turn/contract/engine";
import type { Flow } from "./pool/fair-queue.ts";

/** The options of a request to the model servers. */

/** The key that a turn shares with the turns that should go to the same server, because it has their prompts cached. */
export interface ServerKey {
  /**
   * Sent to the server as `X-ServerKey-ID`, for a router behind it. Reveals nothing of its origin; undefined: not sent.
   */
  id: string | undefined;
  /** The key that chooses the server; undefined: the load does. */
  key: string | undefined;
  /** The key is that of a conversation, whose earlier turns went to the same server. */
  isRoot: boolean;
  /** The turn may as well go to another server: none is known to have the prompt's beginning cached. */
  isFresh?: boolean | undefined;
}

export interface UpstreamOptions {
  serverKey?: ServerKey | undefined;
  /** vLLM's name of the requested model: only servers that have it are asked. */
  model?: string | undefined;
  /** Called for every request for an answer of the model, and for each attempt at it. */
  onAttempt?: ((call: ServerAttempt) => void) | undefined;
  /** The sender of the requests for answers, which may have to wait for a saturated server. Without it none waits. */
  flow?: Flow | undefined;
  /** Called with the time that a request has waited for a saturated server, in milliseconds. */
  onWaited?: ((ms: number) => void) | undefined;
  /** Gives the headers of a request's trace, if the server should get them. */
  trace?: (() => Record<string, string> | undefined) | undefined;
}
