/** An event that does not belong to the turn's response, such as `response.steer.accepted`. */
export type AsideEvent = { type: string } & Readonly<Record<string, unknown>>;

/**
 * Ends a turn that is under way, because its user has said something that another turn is to answer: its generation is broken off where it
 * is, calls that this server runs are answered first, and it is incomplete (`steered`).
 */
export class Steering {
  readonly #abort = new AbortController();
  #say: ((event: AsideEvent) => void) | undefined;

  /** Aborted once the turn is to end. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Ends the turn; again is harmless. */
  steer(): void {
    this.#abort.abort();
  }

  /** Says an event in the turn's sequence, also when the turn has ended. False where there is no turn yet. */
  say(event: AsideEvent): boolean {
    this.#say?.(event);
    return this.#say !== undefined;
  }

  /** Has the events said by a turn. To be called by it. */
  attach(say: (event: AsideEvent) => void): void {
    this.#say = say;
  }
}
