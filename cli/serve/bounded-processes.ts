import { once } from "node:events";
import { rmSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import {
  type BoundedTask,
  type LastLine,
  type PassedBound,
  TASK_HEADER,
  taskOf,
} from "../../src/contract/bounded-tasks.ts";
import { type BoundedProcess, startProcess } from "./bounded-process.ts";
import { encodeConfig } from "./encoded-config.ts";
import { type LogFormat, ownLine } from "./log-lines.ts";
import { BOUNDS, type BoundsOfTasks, untilBound } from "./process-bounds.ts";
import { makeProcessFolder, type ProcessFolder } from "./process-folder.ts";
import { TaskTurns } from "./task-turns.ts";
import { boundedConfig } from "./workerd.ts";

/**
 * Has files read (docs/files.md#files-that-do-harm) and programs run by processes of their own, one task in a process at a
 * time: a hostile file or program can keep its process busy for ever, or fill it with memory. Such a task fails, and nothing
 * else does. Processes start with the first task, and end when there was none for a while. All workers, and those that take
 * their place, share them.
 */

// As in `launcher-socket.ts`: without Node's `fetch`.
const { createServer } = process.getBuiltinModule("node:http");

/** Tasks of a type that are done at the same time. */
const PLACES = 4;

/** Programs of a tenant that run at the same time: one that never ends does not hold up the others. */
const PROGRAMS_PER_TENANT = 2;

/** Processes that wait for a task while there are any, and for how long after the last one. */
const SPARE = 2;
const IDLE_MS = 60_000;

/** A process with more memory than this is not used again: what it took it does not give back. Bytes. */
const GROWN = 384 * 1024 * 1024;

/** The way from a Worker's process to bounded processes. */
export interface BoundedSocket {
  /** The path of a Unix socket, which takes tasks (`src/contract/bounded-tasks.ts`). */
  path: string;
  /** Names the folder of the bundle with which processes start from now on. */
  use(bundle: string): void;
}

export class BoundedProcesses implements BoundedSocket, AsyncDisposable {
  readonly path: string;
  readonly #folder: ProcessFolder;
  readonly #log: { format: LogFormat; say(line: string): void };
  readonly #bounds: BoundsOfTasks;
  readonly #turns = { file: new TaskTurns(PLACES), program: new TaskTurns(PLACES, PROGRAMS_PER_TENANT) };
  readonly #server = createServer((request, response) => {
    this.#answer(request, response).catch(() => response.destroy());
  });
  /** All processes that have started, those of them that wait for a task, and those that are starting to wait for one. */
  readonly #all = new Set<BoundedProcess>();
  #ready: BoundedProcess[] = [];
  #starting: Promise<BoundedProcess>[] = [];
  #started = 0;
  #bundle = "";
  /** The file with the configuration for that bundle, once a process has needed it. */
  #config: Promise<string> | undefined;
  #idle: NodeJS.Timeout | undefined;
  #isStopping = false;

  private constructor(
    folder: ProcessFolder,
    log: { format: LogFormat; say(line: string): void },
    bounds: BoundsOfTasks,
  ) {
    this.#folder = folder;
    this.#log = log;
    this.#bounds = bounds;
    this.path = join(folder.path, "tasks");
  }

  /** Takes tasks from now on. No process starts before the first one. */
  static async start(log: { format: LogFormat; say(line: string): void }, bounds = BOUNDS): Promise<BoundedProcesses> {
    const processes = new BoundedProcesses(await makeProcessFolder(), log, bounds);
    // A task waits for its turn without a bound of its own.
    processes.#server.requestTimeout = 0;
    processes.#server.listen(processes.path);
    await once(processes.#server, "listening");
    processes.#server.unref();
    return processes;
  }

  use(bundle: string): void {
    this.#bundle = bundle;
    // Starts that have waited for it open it before.
    this.#config?.then((file) => rmSync(file, { force: true })).catch(() => {});
    this.#config = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#idle);
    this.#server.close();
    this.#server.closeAllConnections();
    for (const bounded of this.#all) bounded.kill();
    await Promise.allSettled(this.#starting);
    await Promise.allSettled([...this.#all].map(({ ended }) => ended));
    this.#folder.remove();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const left = new AbortController();
    response.on("close", () => left.abort());
    response.on("error", () => {});
    // A connection that ends while it is idle could be that of the next task.
    response.setHeader("connection", "close");
    const { [TASK_HEADER]: header } = request.headers;
    const { type, tenant } = taskOf(String(header));
    using _turn = await this.#turns[type].next(tenant);
    if (left.signal.aborted || this.#isStopping) return;
    clearTimeout(this.#idle);
    try {
      const task = { type, header: String(header), bytes: await buffer(request) };
      const taken = await this.#take();
      const isWhole = await this.#do(taken, task, response, left.signal);
      if (isWhole) await this.#giveBack(taken);
      else taken.kill();
    } catch (error) {
      this.#tell(
        "error",
        `No process starts that reads files or runs programs (${error instanceof Error ? error.message : error}).`,
      );
      response.writeHead(503).end();
    } finally {
      clearTimeout(this.#idle);
      this.#idle = setTimeout(() => this.#endReady(), IDLE_MS).unref();
    }
  }

  /** A process for one task. If none is left then, another one starts: the next tenant should not wait for it. */
  async #take(): Promise<BoundedProcess> {
    const taken = await (this.#ready.pop() ?? this.#starting.shift() ?? this.#start());
    if (this.#ready.length + this.#starting.length === 0) this.#prepare();
    return taken;
  }

  #prepare(): void {
    const started = this.#start();
    this.#starting.push(started);
    const isUntaken = () => {
      const { length } = this.#starting;
      this.#starting = this.#starting.filter((each) => each !== started);
      return this.#starting.length < length;
    };
    started.then((bounded) => isUntaken() && this.#ready.push(bounded), isUntaken);
  }

  async #start(): Promise<BoundedProcess> {
    this.#started += 1;
    const socket = join(this.#folder.path, `bounded-${this.#started}.socket`);
    const bounded = await startProcess(await this.#encoded(), socket, this.#log);
    this.#all.add(bounded);
    const forget = () => {
      this.#all.delete(bounded);
      this.#ready = this.#ready.filter((each) => each !== bounded);
    };
    bounded.ended.then(forget, forget);
    if (this.#isStopping) bounded.kill();
    return bounded;
  }

  /** The file with the configuration. Its first use encodes it, which takes as long as the start of a process. */
  #encoded(): Promise<string> {
    if (this.#config) return this.#config;
    const file = join(this.#folder.path, `config-${this.#started}`);
    const made = encodeConfig(boundedConfig(this.#bundle), file, this.#log).then(() => file);
    this.#config = made;
    made.catch(() => {
      // Another bundle may have come meanwhile.
      if (this.#config === made) this.#config = undefined;
    });
    return made;
  }

  async #giveBack(bounded: BoundedProcess): Promise<void> {
    const { memory = 0 } = await bounded.used();
    if (this.#ready.length >= SPARE || memory > GROWN || this.#isStopping) bounded.kill();
    else this.#ready.push(bounded);
  }

  #endReady(): void {
    for (const bounded of this.#ready) bounded.kill();
    this.#ready = [];
  }

  /** Has a process do a task. False if it is not to be used again: its task did not come to an end. */
  async #do(
    bounded: BoundedProcess,
    { type, header, bytes }: { type: BoundedTask["type"]; header: string; bytes: Buffer },
    response: ServerResponse,
    left: AbortSignal,
  ): Promise<boolean> {
    const over = new AbortController();
    let passed: PassedBound | undefined;
    const asked = bounded.ask({ [TASK_HEADER]: header });
    const watched = untilBound(bounded, this.#bounds[type], over.signal).then((bound) => {
      passed = bound;
      // Its answer breaks off.
      if (bound) bounded.kill();
    });
    const stop = () => asked.destroy();
    left.addEventListener("abort", stop);
    try {
      // Once its process is gone, both fail.
      asked.on("error", () => {});
      // Whole: workerd has been seen to close connections on which a short body came in two writes.
      asked.end(bytes);
      const [answer] = (await once(asked, "response")) as [IncomingMessage];
      if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
      for await (const lines of wholeLines(answer)) {
        if (!response.write(lines)) await once(response, "drain", { signal: left });
      }
      response.end();
      return true;
    } catch {
      over.abort();
      await watched;
      if (!left.aborted) this.#fail(response, { type, pid: bounded.pid, passed });
      return false;
    } finally {
      over.abort();
      left.removeEventListener("abort", stop);
    }
  }

  #fail(
    response: ServerResponse,
    { type, pid, passed }: { type: BoundedTask["type"]; pid: number; passed: PassedBound | undefined },
  ): void {
    const line: LastLine = passed ? { passed } : { died: true };
    response.end(`${JSON.stringify(line)}\n`);
    const why = passed
      ? `A ${type} takes too much ${passed}, and fails`
      : `A process has died in the middle of a ${type}`;
    this.#tell("warn", `${why}.`, {
      event: "bounded_process_ended",
      task: type,
      process: pid,
      reason: passed ?? "died",
    });
  }

  #tell(level: "warn" | "error", message: string, fields?: object): void {
    this.#log.say(ownLine(level, message, this.#log.format, fields));
  }
}

const LINE_BREAK = 0x0a;

/** The bytes of an answer up to its last line break so far: the end of an answer that breaks off is no line. */
async function* wholeLines(answer: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let begun: Buffer[] = [];
  for await (const chunk of answer) {
    const end = chunk.lastIndexOf(LINE_BREAK) + 1;
    if (end > 0) {
      yield Buffer.concat([...begun, chunk.subarray(0, end)]);
      begun = [];
    }
    begun.push(chunk.subarray(end));
  }
}
