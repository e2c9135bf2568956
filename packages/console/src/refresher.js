/** Repeats a task while the page is visible. It does not run in a background tab, and never twice at the same time. */
export class Refresher {
  #work;
  #everyMs;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #isRunning = false;
  #isOn = false;
  /** True if the task was requested while it ran: its result may be older than the request. */
  #isAgain = false;

  /**
   * @param {() => Promise<boolean | void>} work Does not throw. Returns false if no change is expected.
   * @param {number} everyMs the time from the end of one run to the start of the next
   */
  constructor(work, everyMs) {
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
    /** @type {boolean | void} */
    let isMoreExpected;
    do {
      this.#isAgain = false;
      isMoreExpected = document.hidden || (await this.#work());
    } while (this.#isAgain);
    this.#isRunning = false;
    if (this.#isOn && isMoreExpected !== false) this.#timer = setTimeout(() => void this.now(), this.#everyMs);
  }
}
