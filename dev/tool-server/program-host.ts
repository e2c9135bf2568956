import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LimitedProcess, type ProgramOptions } from "./limited-process.ts";
import { markedProcesses } from "./marked-processes.ts";
import { Sandbox, type SandboxedDirectory, workdirIn } from "./sandbox.ts";
import type { Settings } from "./settings.ts";

const WATCH_MS = 100;
/**
 * The number of searches after which all processes of the machine are examined again. A program's first process gets
 * its marker a moment after its start.
 */
const LOOKS = 10;

/** Owns the processes and the directories of programs on this machine. */
export class ProgramHost {
  readonly settings: Settings;
  readonly #root = mkdtempSync(join(tmpdir(), "responses-edge-tools-"));
  #sandbox: Sandbox | undefined;
  /** The directories of sessions, in a sandbox. */
  readonly #mounted = new Map<string, SandboxedDirectory>();
  readonly #running = new Set<LimitedProcess>();
  readonly #onExit = () => this.#endAtExit();
  #watch: NodeJS.Timeout | null = null;
  /** Processes of others. */
  readonly #others = new Set<number>();
  #looks = 0;

  constructor(settings: Settings) {
    this.settings = settings;
    process.on("exit", this.#onExit);
  }

  /** Has programs run in a sandbox, where the settings say so. Throws the Error of one that does not work here. */
  useSandbox(python: { path: string } | null): void {
    if (this.settings.sandbox === "none") return;
    // Programs of other users pass through it to their directories.
    chmodSync(this.#root, 0o711);
    this.#sandbox = Sandbox.start(this.settings, python, this.#root);
  }

  get sandbox(): Sandbox | undefined {
    return this.#sandbox;
  }

  /** A new, empty directory. */
  createDirectory(): string {
    const directory = mkdtempSync(join(this.#root, "session-"));
    if (this.#sandbox) this.#mounted.set(directory, this.#sandbox.mount(directory));
    return directory;
  }

  async removeDirectory(directory: string): Promise<void> {
    if (this.#mounted.delete(directory)) this.#sandbox?.unmount(directory);
    await rm(directory, { recursive: true, force: true, maxRetries: 3 }).catch((error: Error) => {
      console.error(`Could not remove ${directory}: ${error.message}`);
    });
  }

  /** Starts a program; no shell reads the command. */
  start(command: string[], options: ProgramOptions): LimitedProcess {
    const { base = options.directory, directory } = options;
    const mounted = this.#mounted.get(base);
    const sandbox = this.#sandbox;
    const wrap = sandbox && mounted && ((line: string[]) => sandbox.wrap(line, mounted, workdirIn(base, directory)));
    const program = new LimitedProcess(command, options, this.settings, wrap);
    this.#running.add(program);
    this.#watch ??= setInterval(() => this.#stopCrowds(), WATCH_MS);
    void program.ended.then(() => {
      this.#running.delete(program);
      if (this.#running.size === 0) this.#stopWatching();
    });
    return program;
  }

  /** Ends every program and removes every directory. */
  async close(): Promise<void> {
    process.off("exit", this.#onExit);
    const programs = [...this.#running];
    for (const program of programs) program.stop("was ended: the tool server stops");
    await Promise.all(programs.map((program) => program.ended));
    await this.removeDirectory(this.#root);
  }

  #stopCrowds(): void {
    this.#looks += 1;
    if (this.#looks % LOOKS === 0) this.#others.clear();
    const processes = markedProcesses(this.settings.maxProcesses + 1, this.#others);
    for (const program of this.#running) {
      const count = processes.get(program.marker)?.length ?? 0;
      if (count > this.settings.maxProcesses) {
        program.stop(`started more than ${this.settings.maxProcesses} processes, and was ended`);
      }
    }
  }

  #stopWatching(): void {
    if (this.#watch !== null) clearInterval(this.#watch);
    this.#watch = null;
  }

  #endAtExit(): void {
    for (const program of this.#running) program.stop("was ended: the tool server stops");
    for (const directory of this.#mounted.keys()) this.#sandbox?.unmount(directory);
    rmSync(this.#root, { recursive: true, force: true });
  }
}
