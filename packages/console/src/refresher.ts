/** Repeats a task while the page is visible. It does not run in a background tab, and never twice at the same time. */
export class Refresher {
  #work;
  #everyMs;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isRunning = false;
  #isOn = false;
  /** True if the task was requested while it ran: its result may be older than the request. */
  #isAgain = false;

  /**
   * @param work Does not throw. Returns false if no change is expected.
   * @param everyMs the time from the end of one run to the start of the next
   */
  constructor(work: () => Promise<unknown>, everyMs: number) {
    this.#work = work;
    this.#everyMs = everyMs;
  }

  /** Runs the task at once, and then repeats it. */
  start() {
    this.#isOn = true;
    void this.now();
  }

  stop() {
    this.#isOn = false;
    clearTimeout(this.#timer);
  }

  async now() {
    if (this.#isRunning) {
      this.#isAgain = true;
      return;
    }
    clearTimeout(this.#timer);
    this.#isRunning = true;
    let isMoreExpected: unknown;
    do {
      this.#isAgain = false;
      isMoreExpected = document.hidden || (await this.#work());
    } while (this.#isAgain);
    this.#isRunning = false;
    if (this.#isOn && isMoreExpected !== false) this.#timer = setTimeout(() => void this.now(), this.#everyMs);
  }
}
