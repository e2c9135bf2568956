import { callJson } from "./api.ts";
import type { Parsed } from "./json.ts";

/** Objects that lists name only by their ids. Each is looked up when it is first asked for. */
export class LookUps {
  #path;
  #redraw;
  #found: Map<string, Parsed> = new Map();

  /**
   * @param path of the API, to which the id is added
   * @param redraw Called when an object was found.
   */
  constructor(path: string, redraw: () => void) {
    this.#path = path;
    this.#redraw = redraw;
  }

  /** The object; undefined while it is not known, and if it does not exist. */
  get(id: string): Parsed {
    if (!this.#found.has(id)) {
      this.#found.set(id, undefined);
      void this.#ask(id);
    }
    return this.#found.get(id);
  }

  async #ask(id: string) {
    const found = await callJson(`${this.#path}/${encodeURIComponent(id)}`).catch(() => undefined);
    if (found) this.set(id, found);
  }

  /** Sets an object that is known already. */
  set(id: string, object: Parsed) {
    this.#found.set(id, object);
    this.#redraw();
  }
}
