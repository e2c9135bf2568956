import type { Item } from "../items/registry.ts";
import { type ErrorFields, invalidRequest } from "../protocol/errors.ts";
import { responseId } from "../protocol/ids.ts";
import { initialResponse } from "../protocol/response.ts";
import type { HomeRows } from "./home-rows.ts";
import { type ItemPage, type PageRequest, pageOf, unknownCursor } from "./item-page.ts";
import { type Result, refused } from "./result.ts";
import type { RunHost } from "./run-host.ts";
import type { RunSpec } from "./run-store.ts";
import type { StoredResponse } from "./turn-store.ts";

/** What the operator is told of a run that lives. */
export interface LiveRunFacts {
  model: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** False of a turn under an `Idempotency-Key`. */
  isBackground: boolean;
  /** The model server that has answered last, by its name; null where none has. */
  server: string | null;
  /** Events so far: about one for each token. */
  events: number;
}

/** Responses as a client sees them, whether they are settled or still run. Reading one takes up the home's orphans. */
export class ResponseReader {
  readonly #rows: HomeRows;
  readonly #runs: RunHost;

  constructor(rows: HomeRows, runs: RunHost) {
    this.#rows = rows;
    this.#runs = runs;
  }

  /** A response; null when there is none (any more). */
  retrieve(turn: string): StoredResponse | null {
    this.#runs.takeUpOrphans();
    const settled = this.#rows.turns.response(turn);
    if (settled) return settled;
    const live = this.#runs.live(turn);
    return live ? runningBody(live.spec, "in_progress") : null;
  }

  /** Whether there is such a response. */
  has(turn: string): boolean {
    this.#runs.takeUpOrphans();
    return this.#rows.turns.hasResponse(turn) || this.#runs.live(turn) !== undefined;
  }

  /** A page of a turn's own input; null when there is no such response. The 400 when the input has not the item `after`. */
  inputItems(turn: string, { limit, order, after }: PageRequest): Result<ItemPage> | null {
    if (this.retrieve(turn) === null) return null;
    const stored = this.#rows.turns.items(turn, "input");
    const items = stored === undefined ? this.#runs.live(turn)?.spec.input : (JSON.parse(stored) as Item[]);
    if (!items) return null;
    const ordered = order === "desc" ? items.toReversed() : items;
    if (after === undefined) return { ok: true, value: pageOf(ordered, limit) };
    const at = ordered.findIndex((item) => item.id === after);
    return at === -1 ? refused(unknownCursor(after)) : { ok: true, value: pageOf(ordered.slice(at + 1), limit) };
  }

  /** Waits until a run is settled and gives its response, with the failure as it was; null when there is none. */
  async finished(turn: string): Promise<{ response: StoredResponse; failure: ErrorFields | null } | null> {
    this.#runs.takeUpOrphans();
    await this.#runs.live(turn)?.ended;
    const response = this.retrieve(turn);
    return response && { response, failure: this.#rows.log.failure(turn) ?? null };
  }

  /**
   * Stops a run; gives the response as it then stands, also when it had ended before. Null when there is none. The 400
   * when it was not made with `background: true`.
   */
  async cancel(turn: string): Promise<Result<StoredResponse> | null> {
    const found = this.retrieve(turn);
    if (!found) return null;
    const { background } = JSON.parse(found.head) as { background: boolean | null };
    if (!background) return refused(invalidRequest("response_id", "Cannot cancel a synchronous response."));
    await this.#runs.cancel(turn);
    const cancelled = this.retrieve(turn);
    return cancelled && { ok: true, value: cancelled };
  }

  /** A run that lives, without anything that was said in it; null when it does not. */
  liveRun(turn: string): LiveRunFacts | null {
    this.#runs.takeUpOrphans();
    const run = this.#runs.live(turn);
    if (!run) return null;
    const { model, createdAt, request } = run.spec;
    const isBackground = request.background === true;
    return { model: model.name, createdAt, isBackground, server: run.server() ?? null, events: run.log.events };
  }

  /** Stops a run of whichever kind; gives the status with which it has ended. Null when it does not live. */
  async cancelRun(turn: string): Promise<string | null> {
    this.#runs.takeUpOrphans();
    if (!(await this.#runs.cancel(turn))) return null;
    const ended = this.#rows.turns.response(turn);
    return ended && (JSON.parse(ended.head) as { status: string }).status;
  }
}

/** The response of a run that is not settled: no output yet, because none of it is final. */
export function runningBody(spec: RunSpec, status: "queued" | "in_progress"): StoredResponse {
  const identity = { id: responseId(spec), model: spec.model.name, createdAt: Math.floor(spec.createdAt / 1000) };
  const { output, ...head } = initialResponse(spec.request, identity);
  return { head: JSON.stringify({ ...head, status }), output: JSON.stringify(output) };
}
