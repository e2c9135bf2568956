/** After this time the platform has perhaps ended the request that does the work: another one begins it anew. Milliseconds. */
export const DONE_WITHIN_MS = 10_000;

/** How often others look whether the work goes on. Milliseconds. */
const LOOK_EVERY_MS = 20;

/**
 * Work that one request at a time does for all of its isolate. Others look whether it goes on, and never await its promise, which
 * rejects when the platform ends that request.
 */
export class OneAtATime {
  #present: object | undefined;
  #since = 0;

  get isUnderWay(): boolean {
    return this.#present !== undefined && Math.abs(Date.now() - this.#since) < DONE_WITHIN_MS;
  }

  /** Begins the work, which ends when the result is disposed of. `isPresent` is false once another request has begun it anew. */
  begin(): Disposable & { readonly isPresent: boolean } {
    const isPresent = () => this.#present === own;
    const own = {
      get isPresent() {
        return isPresent();
      },
      [Symbol.dispose]: () => {
        if (isPresent()) this.#present = undefined;
      },
    };
    this.#present = own;
    this.#since = Date.now();
    return own;
  }

  /** Resolves when nobody does the work. */
  async untilOver(): Promise<void> {
    while (this.isUnderWay) await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}
