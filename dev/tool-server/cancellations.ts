/**
 * Calls that a later request may cancel. Clients before 2026 send `notifications/cancelled` in a separate request, and
 * each request has its own server object.
 */
export class Cancellations {
  readonly #calls = new Map<string, AbortController>();

  /** Runs a call whose signal also fires when its key is cancelled. */
  async run<Result>(key: string, signal: AbortSignal, call: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    const cancelled = new AbortController();
    this.#calls.set(key, cancelled);
    try {
      return await call(AbortSignal.any([signal, cancelled.signal]));
    } finally {
      if (this.#calls.get(key) === cancelled) this.#calls.delete(key);
    }
  }

  cancel(key: string): void {
    this.#calls.get(key)?.abort();
  }
}
