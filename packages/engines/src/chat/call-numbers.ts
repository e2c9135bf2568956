/** A call that a server is writing. */
interface PresentCall {
  id: string;
  readonly number: number;
}

/**
 * Numbers the calls of an answer. Ollama and others give parallel calls one index, or none: a call with another id is
 * another call.
 */
export class CallNumbers {
  /** By the server's index. */
  readonly #present = new Map<number, PresentCall>();
  #count = 0;

  /** The number of the call to which a piece belongs. `id` and `name` may be empty. */
  numberOf(index: number, id: string, name: string): number {
    const present = this.#present.get(index);
    const isAnother = name !== "" && id !== "" && present?.id !== "" && present?.id !== id;
    if (present && !isAnother) {
      present.id ||= id;
      return present.number;
    }
    const number = this.#count++;
    this.#present.set(index, { id, number });
    return number;
  }
}
