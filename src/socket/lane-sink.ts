import { inOpenResponses } from "@responses-edge/bounded-io/event-stream/open-responses";
import type { ClientSink } from "../api/transport.ts";
import type { Config } from "../config/index.ts";
import { laneHead } from "./frames.ts";
import type { Outbox } from "./outbox.ts";

/** Heartbeats of silence after which a turn repeats `response.in_progress`. It carries the whole response. */
const HEARTBEATS_OF_SILENCE = 6;

/** Leads the events of one response to its lane. */
export class LaneSink implements ClientSink {
  /** Clients take an `error` frame for the end of the lane's response, and what follows it for the next one. */
  readonly failsAlone = true;
  readonly signOfLifeMs: number;
  readonly #outbox: Outbox;
  readonly #head: string | undefined;
  readonly #speaksOpenResponses: boolean;

  constructor(
    outbox: Outbox,
    lane: string | undefined,
    { config, speaksOpenResponses = false }: { config: Pick<Config, "heartbeatMs">; speaksOpenResponses?: boolean },
  ) {
    this.#outbox = outbox;
    this.#head = laneHead(lane);
    this.#speaksOpenResponses = speaksOpenResponses;
    this.signOfLifeMs = HEARTBEATS_OF_SILENCE * config.heartbeatMs;
  }

  event(_type: string, json: string): void {
    const event = this.#speaksOpenResponses ? inOpenResponses(json) : json;
    this.#outbox.send(this.#head === undefined ? event : this.#head + event.slice(1));
  }

  flush(): Promise<void> | undefined {
    return this.#outbox.drained();
  }

  /** The terminal event has said it. */
  async end(): Promise<void> {}

  /** The client has gone, or gets an error frame. */
  async abandon(): Promise<void> {}
}
