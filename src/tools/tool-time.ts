import { ToolFault } from "./tool-fault.ts";

/** The time that all tools of a turn have together. */
export class ToolTime {
  readonly #deadline: number;

  /** `ms` from now on. */
  constructor(ms: number) {
    this.#deadline = Date.now() + ms;
  }

  /** Whether calls may still be made. */
  get isLeft(): boolean {
    return Date.now() < this.#deadline;
  }

  /** Throws ToolFault `timeout` when no call may be made any more. */
  check(): void {
    if (!this.isLeft) throw new ToolFault("timeout", "The tools of this turn have used up their time.");
  }

  /** At most `ms`, and not beyond the turn's time. In milliseconds, at least one. */
  atMost(ms: number): number {
    return Math.max(1, Math.min(ms, this.#deadline - Date.now()));
  }

  /** Runs what it is given one after another, in the order in which it is given: for tools that have a state. */
  inOrder(): <T>(work: () => Promise<T>) => Promise<T> {
    let last: Promise<unknown> = Promise.resolve();
    return (work) => {
      const done = last.then(() => {
        this.check();
        return work();
      });
      last = done.catch(() => {});
      return done;
    };
  }
}
