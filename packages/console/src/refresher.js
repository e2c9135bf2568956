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

  /** @param {() => Promise<void>} work Does not throw. @param {number} everyMs between the end of one and the beginning of the next */
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
    if (this.#isRunning) return;
    clearTimeout(this.#timer);
    this.#isRunning = true;
    if (!document.hidden) await this.#work();
    this.#isRunning = false;
    if (this.#isOn) this.#timer = setTimeout(() => void this.now(), this.#everyMs);
  }
}
