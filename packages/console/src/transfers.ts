import { messageWithField } from "./dialogs.ts";

/** Files on their way to the server, a few at once. */

/** At the same time. Browsers open six connections to a server. */
const AT_ONCE = 3;

export interface Transfer {
  file: File;
  state: "waiting" | "sending" | "done" | "failed" | "cancelled";
  /** bytes */
  sent: number;
  fault: string;
  abort: AbortController;
}

/** The files that a field has; it is empty again. */
export function takenFiles({ target }: Event): File[] {
  const field = target as HTMLInputElement;
  const files = [...(field.files ?? [])];
  field.value = "";
  return files;
}

export class Transfers {
  list: readonly Transfer[] = [];
  #send;
  #changed;
  #ended;

  /**
   * @param send Sends a file and tells the bytes that were sent. Throws what goes wrong.
   * @param changed Called when the list has changed.
   * @param ended Called when a file was sent, or could not be, or was cancelled.
   */
  constructor(
    send: (file: File, options: { signal: AbortSignal; progress: (bytes: number) => void }) => Promise<void>,
    changed: () => void,
    ended: (transfer: Transfer) => void,
  ) {
    this.#send = send;
    this.#changed = changed;
    this.#ended = ended;
  }

  /** Those that have not ended. */
  get open() {
    return this.list.filter(({ state }) => state === "waiting" || state === "sending");
  }

  add(files: Iterable<File>) {
    const added = Array.from(files, (file): Transfer => {
      return { file, state: "waiting", sent: 0, fault: "", abort: new AbortController() };
    });
    this.list = [...this.list, ...added];
    this.#next();
  }

  cancel(transfer: Transfer) {
    transfer.abort.abort();
    if (transfer.state === "waiting") transfer.state = "cancelled";
    this.#changed();
  }

  forgetEnded() {
    this.list = this.open;
    this.#changed();
  }

  #next() {
    const busy = this.list.filter(({ state }) => state === "sending").length;
    const waiting = this.list.filter(({ state }) => state === "waiting");
    for (const transfer of waiting.slice(0, Math.max(0, AT_ONCE - busy))) void this.#run(transfer);
    this.#changed();
  }

  async #run(transfer: Transfer) {
    const { signal } = transfer.abort;
    transfer.state = "sending";
    const progress = (bytes: number) => {
      transfer.sent = bytes;
      this.#changed();
    };
    try {
      await this.#send(transfer.file, { signal, progress });
      transfer.state = "done";
    } catch (error) {
      transfer.state = signal.aborted ? "cancelled" : "failed";
      transfer.fault = signal.aborted ? "" : messageWithField(error);
    }
    this.#ended(transfer);
    this.#next();
  }
}
