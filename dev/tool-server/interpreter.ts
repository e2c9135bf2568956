import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { callLimits } from "./call-limits.ts";
import { CapturedOutput } from "./captured-output.ts";
import type { Ending, LimitedProcess } from "./limited-process.ts";
import type { ProgramHost } from "./program-host.ts";

/** The output of a cell, and the interpreter's end if it ended. */
export type CellResult = { output: string; ending: Ending | null };

export type Python = { path: string; version: string };

const DRIVER = fileURLToPath(new URL("driver.py", import.meta.url));

/** Only the last message on the answers' descriptor counts. */
const ANSWER_WINDOW = 1024;

/** Finds the interpreter behind a command, past the wrappers of version managers. Null if there is none. */
export async function findPython(command: string): Promise<Python | null> {
  const question = "import platform, sys; print(sys.executable); print(platform.python_version())";
  try {
    const { stdout } = await promisify(execFile)(command, ["-I", "-c", question], { timeout: 10_000 });
    const [path, version] = stdout.trim().split("\n");
    return path && version ? { path, version } : null;
  } catch {
    return null;
  }
}

/** A running Python that keeps its variables between cells. */
export class Interpreter {
  readonly #host: ProgramHost;
  readonly #process: LimitedProcess;
  #captured: CapturedOutput | null = null;
  #answers = "";
  #onAnswer: (() => void) | null = null;

  /** `memoryMb`: its address space, if the server's own limit does not apply. */
  constructor(python: string, directory: string, host: ProgramHost, memoryMb?: number) {
    this.#host = host;
    this.#process = host.start([python, "-I", "-u", host.sandbox?.driver ?? DRIVER], {
      directory,
      conversation: true,
      memoryMb,
      onOutput: (chunk) => this.#captured?.add(chunk),
    });
    this.#process.answers?.on("data", (chunk: Buffer) => {
      this.#answers = (this.#answers + chunk.toString("latin1")).slice(-ANSWER_WINDOW);
      this.#onAnswer?.();
    });
  }

  get running(): boolean {
    return this.#process.running;
  }

  get ended(): Promise<Ending> {
    return this.#process.ended;
  }

  /** Runs one cell at a time. A cell that takes too long, or is aborted, ends the interpreter. */
  async run(code: string, signal: AbortSignal): Promise<CellResult> {
    const captured = new CapturedOutput(this.#host.settings.maxOutputBytes);
    this.#captured = captured;
    const release = callLimits(this.#process, this.#host.settings.timeoutMs, signal);
    const ending = await Promise.race([this.#answer(code), this.#process.ended]);
    release();
    this.#captured = null;
    return { output: captured.text(), ending };
  }

  stop(reason: string): Promise<Ending> {
    this.#process.stop(reason);
    return this.#process.ended;
  }

  async #answer(code: string): Promise<null> {
    const token = randomBytes(16).toString("hex");
    const body = Buffer.from(JSON.stringify({ token, code }));
    const length = Buffer.alloc(4);
    length.writeUInt32BE(body.length);
    this.#process.requests?.write(Buffer.concat([length, body]));
    await new Promise<void>((resolve) => {
      this.#onAnswer = () => {
        if (this.#answers.includes(token)) resolve();
      };
    });
    // The output was written before the answer. This turn of the event loop may have read the answer before the rest of
    // the output. The next turn reads all of it.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    return null;
  }
}
