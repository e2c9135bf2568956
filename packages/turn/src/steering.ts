/** An event that does not belong to the turn's response, such as `response.steer.accepted`. */
export type AsideEvent = { type: string } & Readonly<Record<string, unknown>>;

/**
 * Ends a running turn whose user has sent another message, which the next turn answers. The generation stops where it
 * is, calls of hosted tools are still answered, and the turn ends as `incomplete` with the reason `steered`.
 */
export class Steering {
  readonly #abort = new AbortController();
  #say: ((event: AsideEvent) => void) | undefined;

  /** Aborted when the turn is steered. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Ends the turn. A repeated call does nothing. */
  steer(): void {
    this.#abort.abort();
  }

  /** Sends an event in the turn's sequence, also after the turn has ended. False if the turn has not begun. */
  say(event: AsideEvent): boolean {
    this.#say?.(event);
    return this.#say !== undefined;
  }

  /** Makes `say` send the events from now on. The turn calls this when it begins. */
  attach(say: (event: AsideEvent) => void): void {
    this.#say = say;
  }
}
