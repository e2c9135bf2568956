import { ApiFault, callJson } from "./api.ts";
import type { Parsed } from "./json.ts";

/** The number of objects that are asked for at once. */
const AT_ONCE = 6;

/** Objects that lists name only by their ids. Each is looked up when it is first asked for. */
export class LookUps {
  #path;
  #redraw;
  #found: Map<string, Parsed> = new Map();
  #waiting: string[] = [];
  #running = 0;

  /**
   * @param path of the API, to which the id is added
   * @param redraw Called when an object was found.
   */
  constructor(path: string, redraw: () => void) {
    this.#path = path;
    this.#redraw = redraw;
  }

  /** The object; undefined while it is not known, null if it does not exist. */
  get(id: string): Parsed {
    if (!this.#found.has(id)) {
      this.#found.set(id, undefined);
      this.#waiting.push(id);
      if (this.#running < AT_ONCE) void this.#work();
    }
    return this.#found.get(id);
  }

  /** Sets an object that is known already. */
  set(id: string, object: Parsed) {
    this.#found.set(id, object);
  }

  async #work() {
    this.#running += 1;
    for (let id = this.#waiting.shift(); id !== undefined; id = this.#waiting.shift()) {
      try {
        this.#found.set(id, await callJson(`${this.#path}/${encodeURIComponent(id)}`));
      } catch (error) {
        this.#found.set(id, error instanceof ApiFault && error.status === 404 ? null : undefined);
      }
      this.#redraw();
    }
    this.#running -= 1;
  }
}
