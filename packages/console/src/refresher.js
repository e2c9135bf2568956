/**
 * Does something now and again, as long as somebody looks: not in a tab in the background, and never twice at once.
 */
export class Refresher {
  #work;
  #everyMs;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #isRunning = false;
  #isOn = false;
  /** True if it was asked for while it was done: what it has found may be older. */
  #isAgain = false;

  /** @param {() => Promise<boolean | void>} work Does not throw. Gives false where nothing new is to be expected. @param {number} everyMs between the end of one and the beginning of the next */
  constructor(work, everyMs) {
    this.#work = work;
    this.#everyMs = everyMs;
  }

  /** Does it at once, and goes on. */
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
