/** After this time the platform has perhaps ended the request that does the work: another one begins it anew. Milliseconds. */
export const DONE_WITHIN_MS = 10_000;

/** How often others look whether the work goes on. Milliseconds. */
const LOOK_EVERY_MS = 20;

/**
 * Work that one request at a time does for all of its isolate, with something that it tells another object. Others look whether it goes
 * on, and never await its promise, which rejects when the platform ends that request.
 */
export class OneAtATime<Told> {
  readonly #putBack: (told: Told) => void;
  #present: object | undefined;
  #since = 0;
  /** Told, and not answered. */
  #told: Told | undefined;

  /** `putBack` has the next work tell something again. If that has arrived after all, it counts twice, rather than not at all. */
  constructor(putBack: (told: Told) => void) {
    this.#putBack = putBack;
  }

  get isUnderWay(): boolean {
    return this.#present !== undefined && Math.abs(Date.now() - this.#since) < DONE_WITHIN_MS;
  }

  /** Nobody does the work, and all that was told is answered. */
  get isIdle(): boolean {
    return !this.isUnderWay && this.#told === undefined;
  }

  /**
   * Does the work. Puts back before what was told and not answered: the call failed, or the platform ended its request. `isPresent` is
   * false once another request has begun the work anew.
   */
  async run<Result>(work: (isPresent: () => boolean) => Promise<Result>): Promise<Result> {
    if (this.#told !== undefined) this.#putBack(this.#told);
    this.#told = undefined;
    const own = {};
    this.#present = own;
    this.#since = Date.now();
    const isPresent = () => this.#present === own;
    try {
      return await work(isPresent);
    } finally {
      if (isPresent()) this.#present = undefined;
    }
  }

  /** Tells something by a call, and gives its answer. */
  async tell<Answer>(told: Told, call: () => Promise<Answer>): Promise<Answer> {
    this.#told = told;
    const answer = await call();
    if (this.#told === told) this.#told = undefined;
    return answer;
  }

  /** Resolves when nobody does the work. */
  async untilOver(): Promise<void> {
    while (this.isUnderWay) await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}
