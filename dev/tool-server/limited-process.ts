import { type ChildProcess, spawn } from "node:child_process";
import { constants, setPriority } from "node:os";
import type { Readable, Writable } from "node:stream";
import { killWithUs } from "../../cli/serve/orphan-guard.ts";
import { MARKER, markedProcesses, tasksOnMachine } from "./marked-processes.ts";
import type { Settings } from "./settings.ts";

/** The end of a program. */
export type Ending =
  | { kind: "exited"; code: number }
  | { kind: "signalled"; signal: NodeJS.Signals }
  | { kind: "stopped"; reason: string };

export type ProgramOptions = {
  directory: string;
  /** The directory of its session, if `directory` is one below it. */
  base?: string;
  environment?: Record<string, string>;
  /** Receives stdout and stderr, in the order of output. */
  onOutput: (chunk: Buffer) => void;
  /** If set, requests go to its stdin, and it answers on file descriptor 3. Otherwise both are closed. */
  conversation?: boolean;
  /** Its address space, instead of the server's limit. */
  memoryMb?: number | undefined;
};

/** The names of signals by their numbers. */
const SIGNALS = new Map(
  Object.entries(constants.signals).map(([name, number]) => [number, name as NodeJS.Signals] as const),
);

/** A lower priority, so that the server keeps its share of the CPU, whatever the program starts. */
const PRIORITY = 10;

const MAX_OPEN_FILES = 256;

/**
 * RLIMIT_NPROC counts all processes and threads of a user, so it cannot be the limit of one program. It keeps a fork
 * bomb small enough for the process limit to work. It does not apply to root.
 */
const TASKS_PER_PROCESS = 4;

/** A process that has left the group may fork while the others are killed. */
const KILL_ROUNDS = 10;

/** The wait for a process that the search no longer finds and that still holds the pipe. */
const PIPE_CLOSE_MS = 500;

/** A program with limits, in its own process group. The whole group ends with it. */
export class LimitedProcess {
  /** The mark on every process that it starts. */
  readonly marker = crypto.randomUUID();
  /** Resolves when its processes have ended and its output has been read. */
  readonly ended: Promise<Ending>;
  readonly #child: ChildProcess;
  readonly #isWrapped: boolean;
  #stopped: string | null = null;
  #running = true;

  /** `wrap` gives the command that runs another one in a sandbox. */
  constructor(command: string[], options: ProgramOptions, settings: Settings, wrap?: (command: string[]) => string[]) {
    const side = options.conversation ? "pipe" : "ignore";
    this.#isWrapped = wrap !== undefined;
    // In a sandbox a limit of processes counts those of the sandbox.
    const most = wrap ? settings.maxProcesses : undefined;
    const limited = ["/bin/sh", "-c", launcher(settings, options.memoryMb, most), "exec", ...command];
    const [program = "", ...args] = wrap?.(limited) ?? limited;
    this.#child = spawn(program, args, {
      cwd: options.directory,
      env: this.#environment(options),
      stdio: [side, "pipe", "ignore", side],
      detached: true,
    });
    this.#child.stdout?.on("data", options.onOutput);
    // The program may end while a request is being sent. `ended` reports that.
    this.#child.stdin?.on("error", () => {});
    this.answers?.on("error", () => {});
    lowerPriority(this.#child.pid);
    const forget = killWithUs({ pid: this.#child.pid, group: true });
    this.ended = this.#untilEnded();
    void this.ended.then(forget);
  }

  get running(): boolean {
    return this.#running;
  }

  get requests(): Writable | null {
    return this.#child.stdin;
  }

  get answers(): Readable | null {
    return this.#child.stdio[3] as Readable | null;
  }

  /** Kills all its processes. The reason, the rest of "It …", becomes its ending. */
  stop(reason: string): void {
    if (this.#running) this.#stopped ??= reason;
    this.#kill();
  }

  #environment({ directory, environment }: ProgramOptions): Record<string, string> {
    return {
      PATH: process.env.PATH ?? "/usr/local/bin:/usr/bin:/bin",
      HOME: directory,
      TMPDIR: directory,
      LANG: "C.UTF-8",
      ...environment,
      [MARKER]: this.marker,
    };
  }

  #untilEnded(): Promise<Ending> {
    return new Promise((resolve) => {
      this.#child.on("error", (error) => {
        this.#running = false;
        resolve({ kind: "stopped", reason: `could not be started: ${error.message}` });
      });
      this.#child.on("exit", () => {
        this.#running = false;
        this.#kill();
        setTimeout(() => this.#child.stdout?.destroy(), PIPE_CLOSE_MS).unref();
      });
      this.#child.on("close", (code, signal) => {
        if (this.#stopped !== null) resolve({ kind: "stopped", reason: this.#stopped });
        else if (signal !== null) resolve({ kind: "signalled", signal });
        else resolve(this.#exited(code ?? 0));
      });
    });
  }

  /** The sandbox exits with 128 and the number of the signal that has ended its program. */
  #exited(code: number): Ending {
    const signal = this.#isWrapped ? SIGNALS.get(code - 128) : undefined;
    return signal ? { kind: "signalled", signal } : { kind: "exited", code };
  }

  #kill(): void {
    if (this.#child.pid === undefined) return;
    killQuietly(-this.#child.pid);
    for (let round = 0; round < KILL_ROUNDS; round += 1) {
      const left = markedProcesses().get(this.marker);
      if (left === undefined) return;
      for (const pid of left) killQuietly(pid);
    }
  }
}

/** Completes "It …". */
export function describeEnding(ending: Ending, settings: Settings): string {
  switch (ending.kind) {
    case "stopped":
      return ending.reason;
    case "exited":
      return `exited with code ${ending.code}`;
    case "signalled":
      if (ending.signal === "SIGXCPU") return `used up its CPU time of ${settings.cpuSeconds} s`;
      if (ending.signal === "SIGXFSZ") return `wrote a file of more than ${settings.maxFileMb} MB`;
      return `was ended by ${ending.signal}`;
  }
}

/**
 * A constant script: the command follows as its arguments, which no shell reads. Limits set here hold from the
 * command's first instruction on; one that a system does not know (macOS: memory) is left out. The signal of the soft
 * CPU limit can be distinguished from a kill.
 */
function launcher(settings: Settings, memoryMb = settings.memoryMb, inSandbox?: number): string {
  const tasks = tasksOnMachine();
  const limits = [
    "-c 0",
    `-n ${MAX_OPEN_FILES}`,
    `-f ${settings.maxFileMb * 2048}`,
    `-v ${memoryMb * 1024}`,
    `-S -t ${settings.cpuSeconds}`,
    `-H -t ${settings.cpuSeconds + 1}`,
  ];
  const lines = limits.map((limit) => `ulimit ${limit} 2>/dev/null`);
  if (tasks !== null) {
    const most = inSandbox ?? tasks + settings.maxProcesses * TASKS_PER_PROCESS;
    // bash and dash have different names for this limit.
    lines.push(`ulimit -u ${most} 2>/dev/null || ulimit -p ${most} 2>/dev/null`);
  }
  return ["exec 2>&1", ...lines, 'exec "$@"'].join("\n");
}

function lowerPriority(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    setPriority(pid, PRIORITY);
  } catch {
    // It has ended already.
  }
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended already.
  }
}
