import { ApiError, tooManyInProgress } from "@responses-edge/responses-api/errors";

/** The lanes of a connection. The requests of one lane run one after another; lanes run concurrently. */

/** OpenAI's limit of concurrent requests. */
const MAX_IN_FLIGHT = 16;

/** OpenAI's limit of named lanes over the life of a connection. */
const MAX_NAMED_LANES = 32;

/** Most waiting requests. */
const MAX_WAITING = 64;

/** Most waiting refusals. A client that causes more of them loses its connection. */
const MAX_WAITING_REFUSALS = 256;

interface Entry {
  lane: string | undefined;
  /** The memory that it takes, in UTF-16 units of its text. */
  length: number;
  /** A refusal does not count among the requests in flight. */
  isRefusal: boolean;
  run: () => Promise<void>;
}

export class Lanes {
  readonly #maxLength: number;
  readonly #names = new Set<string>();
  /** In the order in which they came. */
  #waiting: Entry[] = [];
  readonly #busy = new Set<string | undefined>();
  readonly #inFlight = new Set<Entry>();

  /** `maxLength`: the maximum total of waiting requests, and of those that run in parallel with others, in UTF-16 units. */
  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  /**
   * Runs a request when its turn in its lane has come; tells whether that is now. `run` must not reject. Throws the 400
   * of one lane too many, and the 429 of a request that may not wait. The caller reports either with `refuse`, in the
   * lane's order, because a reader of the lane takes an error for the end of the response in progress.
   */
  add(lane: string | undefined, length: number, run: () => Promise<void>): boolean {
    if (lane !== undefined && !this.#names.has(lane)) {
      if (this.#names.size >= MAX_NAMED_LANES) throw tooManyLanes();
      this.#names.add(lane);
    }
    const entry: Entry = { lane, length, isRefusal: false, run };
    this.#enter(entry);
    if (this.#inFlight.has(entry)) return true;
    const waiting = this.#waiting.filter(({ isRefusal }) => !isRefusal);
    if (waiting.length <= MAX_WAITING && lengthOf(waiting) <= this.#maxLength) return false;
    this.#waiting.splice(this.#waiting.indexOf(entry), 1);
    throw tooManyTurns();
  }

  /** The total length of waiting requests, in UTF-16 units of text. */
  get waitingLength(): number {
    return lengthOf(this.#waiting);
  }

  /** Reports a refusal when its turn in its lane has come. False if too many are waiting already. */
  refuse(lane: string | undefined, say: () => void): boolean {
    if (this.#waiting.length >= MAX_WAITING_REFUSALS) return false;
    this.#enter({ lane, length: 0, isRefusal: true, run: async () => say() });
    return true;
  }

  /** Drops all waiting requests. */
  clear(): void {
    this.#waiting = [];
  }

  #enter(entry: Entry): void {
    this.#waiting.push(entry);
    this.#start();
  }

  /** Starts every request whose turn has come. No request overtakes one that waits for a free slot. */
  #start(): void {
    const held = new Set(this.#busy);
    let isFull = false;
    this.#waiting = this.#waiting.filter((entry) => {
      if (held.has(entry.lane)) return true;
      held.add(entry.lane);
      isFull ||= !entry.isRefusal && !this.#hasPlaceFor(entry.length);
      if (isFull && !entry.isRefusal) return true;
      void this.#run(entry);
      return false;
    });
  }

  async #run(entry: Entry): Promise<void> {
    this.#busy.add(entry.lane);
    if (!entry.isRefusal) this.#inFlight.add(entry);
    // Runs only after all requests that may start were found.
    await Promise.resolve();
    await entry.run();
    this.#busy.delete(entry.lane);
    this.#inFlight.delete(entry);
    this.#start();
  }

  /** A request that runs alone may have any length. */
  #hasPlaceFor(length: number): boolean {
    const running = [...this.#inFlight];
    return running.length === 0 || (running.length < MAX_IN_FLIGHT && lengthOf(running) + length <= this.#maxLength);
  }
}

function lengthOf(entries: readonly Entry[]): number {
  return entries.reduce((sum, { length }) => sum + length, 0);
}

function tooManyLanes(): ApiError {
  return new ApiError({
    status: 400,
    message: `A connection has at most ${MAX_NAMED_LANES} named lanes. Use one of them, or another connection.`,
    param: "stream_id",
    code: "websocket_stream_limit_reached",
  });
}

function tooManyTurns(): ApiError {
  return tooManyInProgress("Too many requests of this connection are waiting. Send more when responses have ended.");
}
