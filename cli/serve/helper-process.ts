import { type ChildProcess, fork } from "node:child_process";
import { type Answer, type Answers, HELPER_VERSION, type Question } from "./helper-questions.ts";
import { installedFile } from "./installation.ts";
import { Refusal } from "./refusal.ts";

/**
 * A process that does for `serve` what takes much memory, and ends soon after: `serve` runs as long as the Worker does. It reads
 * configurations, for which it has the schemas and the parsers of files, asks model servers, and opens sockets.
 */

/** A start of `serve` has its last question once the Worker's process answers. Milliseconds. */
const IDLE_MS = 2_000;

/**
 * Most of what reading a configuration allocates is garbage soon: in a young generation that has its size at once it is collected
 * once instead of many times.
 */
const YOUNG_GENERATION = ["--min-semi-space-size=16", "--max-semi-space-size=16"];

type Answered<Name extends keyof Answers> = Awaited<ReturnType<Answers[Name]>>;

/** A listening socket, on which this process accepts nothing. It is closed when it is collected as garbage. */
export interface BareSocket {
  fd: number;
  close(): void;
}

/** The helper, while there is one. */
let helper: Helper | undefined;

/** `readConfiguration` of `configuration.ts`. */
export async function readConfiguration(...given: Parameters<Answers["readConfiguration"]>) {
  return (await ask("readConfiguration", given)).value;
}

/** `readChangedFile` of `configuration.ts`. */
export async function readChangedFile(...given: Parameters<Answers["readChangedFile"]>) {
  return (await ask("readChangedFile", given)).value;
}

/** `modelServerLines` of `model-servers.ts`. */
export async function modelServerLines(...given: Parameters<Answers["modelServerLines"]>) {
  return (await ask("modelServerLines", given)).value;
}

/** Listens on an address. Gives the socket and its port, or the system's code of the reason why it cannot. */
export async function listen(...given: Parameters<Answers["listen"]>) {
  const { value, socket } = await ask("listen", given);
  if ("code" in value) return value;
  if (!socket) throw new Error("The helper has sent no socket.");
  return { port: value.port, socket };
}

/** Ends the helper. Questions that it has not answered reject. */
export function endHelper(): void {
  helper?.end();
}

/** Rejects with the Refusal that is the answer, with another error, or if the helper ends before it answers. */
async function ask<Name extends keyof Answers>(
  name: Name,
  given: Parameters<Answers[Name]>,
): Promise<{ value: Answered<Name>; socket: BareSocket | undefined }> {
  helper ??= new Helper(() => {
    helper = undefined;
  });
  const { value, socket } = await helper.ask(name, given);
  return { value: value as Answered<Name>, socket };
}

interface Received {
  value: unknown;
  socket: BareSocket | undefined;
}

class Helper {
  readonly #child: ChildProcess;
  readonly #asked = new Map<number, PromiseWithResolvers<Received>>();
  readonly #forget: () => void;
  #lastId = 0;
  #idle: NodeJS.Timeout | undefined;

  constructor(forget: () => void) {
    this.#forget = forget;
    // In a group of its own: Ctrl-C signals the terminal's group.
    this.#child = fork(installedFile("serve/helper"), [], {
      detached: true,
      serialization: "advanced",
      execArgv: [...process.execArgv, ...YOUNG_GENERATION],
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    this.#child.on("message", (answer, socket) => {
      this.#settle(answer as Answer & { id: number }, socket as BareSocket | undefined);
    });
    this.#child.on("error", () => this.end());
    this.#child.on("exit", () => this.end());
  }

  ask(name: keyof Answers, given: readonly unknown[]): Promise<Received> {
    clearTimeout(this.#idle);
    this.#child.ref();
    this.#child.channel?.ref();
    this.#lastId += 1;
    const asked = Promise.withResolvers<Received>();
    this.#asked.set(this.#lastId, asked);
    const question: Question = { id: this.#lastId, version: HELPER_VERSION, name, given };
    this.#child.send(question, (error) => error && this.end());
    return asked.promise;
  }

  #settle({ id, ...answer }: Answer & { id: number }, socket: BareSocket | undefined): void {
    const asked = this.#asked.get(id);
    this.#asked.delete(id);
    if ("value" in answer) asked?.resolve({ value: answer.value, socket });
    else if ("refusal" in answer) asked?.reject(new Refusal(answer.refusal.exitCode, ...answer.refusal.lines));
    else asked?.reject(new Error(answer.fault));
    if (this.#asked.size > 0) return;
    // While it is idle it does not keep this program from its end.
    this.#child.unref();
    this.#child.channel?.unref();
    this.#idle = setTimeout(() => this.end(), IDLE_MS).unref();
  }

  end(): void {
    this.#forget();
    clearTimeout(this.#idle);
    this.#child.kill("SIGKILL");
    for (const { reject } of this.#asked.values()) {
      reject(new Error("The helper process has ended before it answered."));
    }
    this.#asked.clear();
  }
}
