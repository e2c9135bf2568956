import { existsSync } from "node:fs";
import { basename } from "node:path";
import type { TextVariables } from "../../src/config/index.ts";
import type { Configuration } from "../configuration/configuration.ts";
import type { Environment } from "../configuration/environment.ts";
import { handOver, stopWhenIdle } from "../reload/hand-over.ts";
import { installedReplacement, startWorker, version } from "../reload/replacement.ts";
import { quarantine } from "../tools/alarm-lists.ts";
import type { DataFolder } from "./data-folder.ts";
import type { Listening } from "./listening.ts";
import { ownLine } from "./log-lines.ts";
import { EXIT, Refusal } from "./refusal.ts";
import type { WorkerOptions, WorkerProcess } from "./worker-process.ts";
import type { Share } from "./workerd.ts";

/** The serving Worker, and its predecessor while that still has work. */

export interface ServiceOptions {
  environment: Environment;
  folder: DataFolder;
  listening: Listening;
  /**
   * Its share if it is one of several workers, and a callback that gets the side on which the others reach it from now
   * on.
   */
  share?: { of(): Share; moved(side: number): Promise<void> } | undefined;
  say(line: string): void;
  /** Aborted when this program is told to stop. */
  signal: AbortSignal;
}

export class Service {
  readonly #options: ServiceOptions;
  #configuration: Configuration;
  #worker: WorkerProcess;
  #predecessor: { worker: WorkerProcess; retired: Promise<boolean>; endWithin(ms: number): void } | undefined;
  #replacing: Promise<unknown> = Promise.resolve();
  #ended = Promise.withResolvers<void>();

  private constructor(options: ServiceOptions, configuration: Configuration, worker: WorkerProcess) {
    this.#options = options;
    this.#configuration = configuration;
    this.#worker = worker;
    this.#watch(worker);
  }

  static async start(options: ServiceOptions, configuration: Configuration): Promise<Service> {
    return new Service(options, configuration, await startWorker(optionsOf(options, configuration)));
  }

  /** Resolves when the serving process has ended, not when a replaced one does. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  #watch(worker: WorkerProcess): void {
    const isCurrent = () => this.#worker === worker;
    worker.ended.then(
      () => isCurrent() && this.#ended.resolve(),
      (error) => isCurrent() && this.#ended.reject(error),
    );
  }

  /** The Worker that serves. */
  get worker(): WorkerProcess {
    return this.#worker;
  }

  /**
   * Starts a Worker that replaces the serving one, and stops the old one once it is idle. No request fails, and none
   * waits longer than a process takes to start. The configuration is read again (also the environment's files), and the
   * installed version is started. Needed for changes of a Worker's bindings, which a running Worker cannot change.
   * Simultaneous calls wait for each other. `reason` is for the log. HOST, PORT, WORKERS and STATE_DIRECTORY keep their
   * values. Rejects with a Refusal if the configuration is wrong or the new Worker does not start. The serving one then
   * continues.
   * With `quarantines` the files of damaged objects go into quarantine while neither process has them open.
   */
  replaceWorker(reason: string, quarantines = false): Promise<void> {
    return this.#afterOthers(() => this.#replace(reason, quarantines));
  }

  /** Replaces or starts the Worker when earlier calls have ended. */
  #afterOthers(act: () => Promise<void>): Promise<void> {
    const done = this.#replacing.then(act);
    this.#replacing = done.catch(() => {});
    return done;
  }

  async #replace(reason: string, quarantines: boolean): Promise<void> {
    const { folder } = this.#options;
    const began = performance.now();
    const next = await installedReplacement();
    const before = this.#configuration;
    const configuration = next.readConfiguration(this.#options.environment);
    const { settings, warnings } = configuration;
    if (settings.cluster) {
      throw new Refusal(EXIT.failed, "An instance of a cluster hands over by a restart (docs/kubernetes.md).");
    }
    for (const warning of warnings) this.#tell("warn", warning);
    // At most two processes share a folder.
    this.#predecessor?.endWithin(this.#configuration.settings.stopTimeoutMs);
    await this.#predecessor?.retired;
    this.#options.signal.throwIfAborted();
    next.markDataFolder(folder.path);
    const { port: _, ...others } = optionsOf(this.#options, configuration);
    const share = others.share && { ...others.share, side: 1 - others.share.side };
    const start = (predecessorGives: () => Promise<void>) =>
      next.startWorker({ ...others, share, port: this.#worker.port, predecessorGives });
    const worker = this.#worker;
    const { successor, retired, endWithin } = await handOver(worker, start, settings.handOverTimeoutMs, (kept) => {
      if (quarantines) this.#quarantine(worker.damagedFiles, kept);
    });
    this.#worker = successor;
    this.#watch(successor);
    const { file } = this.#configuration;
    this.#configuration = configuration;
    const predecessor = { worker, retired, endWithin };
    this.#predecessor = predecessor;
    if (share) await this.#options.share?.moved(share.side);
    const ms = Math.round(performance.now() - began);
    this.#tell("info", `Another process serves (${reason}). The previous one ends its running work.`, {
      ...{ version: next.version, after_ms: ms, ...(share && { worker: share.worker }) },
      ...(next.version !== version && { before: version }),
    });
    void retired.then((isWhole) => {
      if (this.#predecessor === predecessor) this.#predecessor = undefined;
      if (isWhole) this.#tell("info", "The previous process has ended.");
      else this.#tell("warn", "The previous process was stopped with unfinished work.");
    });
    // The successor has not read a file that was applied meanwhile.
    if (file && file !== before.file) await this.configure(file);
  }

  /** Moves damaged files that no process has open into quarantine. */
  #quarantine(files: Iterable<string>, kept: ReadonlySet<string>): void {
    for (const file of files) {
      if (kept.has(basename(file)) || !existsSync(file)) continue;
      const place = quarantine(file);
      this.#tell("warn", `${file} was moved to ${place}.`, { event: "object_quarantined", file, quarantined: place });
    }
  }

  /** Sends a command to its process, and to the predecessor. */
  async tell(path: string, body: unknown): Promise<void> {
    await Promise.all([this.#worker.tell(path, body), this.#predecessor?.worker.tell(path, body)]);
  }

  /** Applies the configuration file to the serving Worker, as `WorkerProcess.configure` does. */
  async configure(file: TextVariables): Promise<readonly string[]> {
    const worker = this.#worker;
    const mistakes = await worker.configure(file);
    if (worker !== this.#worker) return this.configure(file);
    if (mistakes.length === 0) this.#configuration = { ...this.#configuration, file };
    return mistakes;
  }

  /** Starts the Worker again after its death. */
  async startAgain(): Promise<void> {
    // Otherwise the runs that a predecessor still has would run twice. A replacement may be waiting for its end.
    await this.#predecessor?.worker.stop(0);
    const dead = this.#worker;
    await this.#afterOthers(() => this.#startAgain(dead));
  }

  async #startAgain(dead: WorkerProcess): Promise<void> {
    // A replacement that was nearly complete has taken its place.
    if (this.#worker === dead) {
      await this.#predecessor?.retired;
      const { port: _, ...others } = optionsOf(this.#options, this.#configuration);
      this.#worker = await startWorker({ ...others, port: dead.port });
    }
    this.#ended = Promise.withResolvers();
    this.#watch(this.#worker);
  }

  /**
   * Lets the Worker and its predecessor refuse new requests, and waits until no foreground turn runs. Rejects if the
   * Worker does not answer.
   */
  async drain(): Promise<void> {
    const drained = Promise.allSettled([this.#worker.drain(), this.#predecessor?.worker.drain()]);
    // A replacement that has begun may be waiting until its predecessor has ended its background runs.
    await Promise.race([this.#replacing, drained]);
    // One that was nearly complete has made its successor the Worker.
    await this.#worker.drain();
    await drained;
  }

  /**
   * Ends the Worker, as `WorkerProcess.stop` does. The signal of the options has been aborted, so that no replacement
   * begins. May be called again with less time.
   */
  async stop(graceMs: number): Promise<boolean> {
    const began = performance.now();
    const worker = this.#worker;
    const stopped = await Promise.all([this.#predecessor?.worker.stop(graceMs), this.#stopOne(worker, graceMs)]);
    await this.#replacing;
    // A replacement may have become complete, as in `drain`.
    const left = Math.max(0, graceMs - (performance.now() - began));
    if (this.#worker !== worker) stopped.push(await this.#stopOne(this.#worker, left));
    return !stopped.includes(false);
  }

  #stopOne(worker: WorkerProcess, graceMs: number): Promise<boolean> {
    return this.#options.share ? stopWhenIdle(worker, worker.port, graceMs) : worker.stop(graceMs);
  }

  #tell(level: "info" | "warn", message: string, fields?: object): void {
    this.#options.say(ownLine(level, message, this.#configuration.settings.logFormat, fields));
  }
}

function optionsOf(options: ServiceOptions, { settings, variables, file }: Configuration): WorkerOptions {
  const { environment, folder, listening, say, signal } = options;
  const share = options.share?.of();
  const { host, port, keyPair, minFreeDisk, stopTimeoutMs, logFormat, cluster } = settings;
  return {
    ...{ host, port, keyPair, minFreeDisk, variables, file, environment, say, signal },
    listening: listening.ofWorkers[share?.worker ?? 0],
    storage: share?.storages[share.worker] ?? folder.path,
    share,
    // The first half of the time is for foreground turns, and the Worker must have ended before it is killed.
    cluster: cluster && { ...cluster, stopTimeoutMs: Math.floor(stopTimeoutMs * 0.45) },
    format: logFormat,
  };
}
