import type { Item, OutputItem } from "@responses-edge/responses-api/items/registry";

/** An event that does not belong to the turn's response, such as `response.steer.accepted`. */
export type AsideEvent = { type: string } & Readonly<Record<string, unknown>>;

/** The turn that a `Steering` reaches. */
export interface SteeredTurn {
  /** Sends an event in the turn's sequence, also after the turn has ended. */
  say(event: AsideEvent): void;
  /** Adds items to the output that are complete, with their events. */
  show(items: readonly OutputItem[]): void;
  /** Throws the 400 of injected items that the turn cannot take. `waiting`: items that it has not taken yet. */
  check(items: readonly Item[], waiting: readonly Item[]): void;
  /** Told that items wait. The turn takes them when it can. */
  injected(): void;
}

/** Outputs of a client's calls that a turn is to take while it runs: all of them, or none. */
export interface Injection {
  readonly items: readonly Item[];
  /** Called when they belong to the turn. */
  readonly taken: () => void;
}

/**
 * Reaches a running turn whose user has sent something. A message ends the turn, and the next turn answers it: the
 * generation stops where it is, calls of hosted tools are still answered, and the turn ends as `incomplete` with the
 * reason `steered`. Outputs of calls become part of the turn, which goes on.
 */
export class Steering {
  readonly #abort = new AbortController();
  #turn: SteeredTurn | undefined;
  #waiting: Injection[] = [];

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
    this.#turn?.say(event);
    return this.#turn !== undefined;
  }

  /**
   * Gives outputs to the turn, which takes them as soon as it writes no other item. False if the turn has not begun.
   * Throws the 400 of outputs that it does not wait for.
   */
  inject(injection: Injection): boolean {
    if (!this.#turn) return false;
    const waiting = this.#waiting.flatMap(({ items }) => items);
    this.#turn.check(injection.items, waiting);
    this.#waiting.push(injection);
    this.#turn.injected();
    return true;
  }

  /** Gives the outputs that wait, each once. */
  take(): Injection[] {
    return this.#waiting.splice(0);
  }

  /** Adds complete items to the turn's output. */
  show(items: readonly OutputItem[]): void {
    this.#turn?.show(items);
  }

  /** Makes it reach this turn from now on. The turn calls this when it begins. */
  attach(turn: SteeredTurn): void {
    this.#turn = turn;
  }
}
