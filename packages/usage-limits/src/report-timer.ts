/** Keeps work alive that outlives a request. */
export type WaitUntil = (promise: Promise<unknown>) => void;

/** The delay of a report after the first that it is about, and between attempts. Milliseconds. */
const REPORT_AFTER_MS = 1_000;

/** The number of attempts of a report that fails. */
const MAX_REPORTS = 10;

/** Reports what many requests add up, together and beside them: within a second, and again each second while that fails. */
export class ReportTimer {
  readonly #report: () => Promise<boolean>;
  /** The time of the next report, Unix milliseconds; undefined if none is due. */
  #due: number | undefined;

  /** `report` resolves with false if there is something left to report. It never rejects. */
  constructor(report: () => Promise<boolean>) {
    this.#report = report;
  }

  /** Has a report made after `afterMs`, unless an earlier one is due. `waitUntil` is that of the present request. */
  start(waitUntil: WaitUntil, afterMs = REPORT_AFTER_MS): void {
    const now = Date.now();
    // A timer whose request was ended by the platform never fires.
    if (this.#due !== undefined && now < this.#due + REPORT_AFTER_MS && this.#due <= now + afterMs) return;
    waitUntil(this.#run(afterMs));
  }

  /** Nothing is due any more: everything is being reported. Gives what `putBack` takes. */
  take(): number | undefined {
    const due = this.#due;
    this.#due = undefined;
    return due;
  }

  /** The report has failed. The timer that was due before goes on. */
  putBack(due: number | undefined): void {
    this.#due ??= due;
  }

  async #run(afterMs: number): Promise<void> {
    for (let left = MAX_REPORTS, wait = afterMs; left > 0; left -= 1, wait = REPORT_AFTER_MS) {
      const due = Date.now() + wait;
      this.#due = due;
      await new Promise((resolve) => setTimeout(resolve, wait));
      // It was reported meanwhile, or another report is due.
      if (this.#due !== due) return;
      if (await this.#report()) return;
      // A later use has begun a report of its own, with these figures.
      if (this.#due !== undefined && this.#due !== due) return;
    }
  }
}
