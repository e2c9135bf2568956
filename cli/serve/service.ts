import { existsSync } from "node:fs";
import type { TextVariables } from "../../src/config/index.ts";
import type { Configuration } from "../configuration/configuration.ts";
import type { Environment } from "../configuration/environment.ts";
import { endWithClients, handOver, retire } from "../reload/hand-over.ts";
import { installedReplacement, startWorker, version } from "../reload/replacement.ts";
import { quarantine } from "../tools/alarm-lists.ts";
import type { BoundedSocket } from "./bounded-processes.ts";
import type { DataFolder } from "./data-folder.ts";
import type { LauncherState } from "./free-disk.ts";
import type { Listening } from "./listening.ts";
import { ownLine } from "./log-lines.ts";
import { EXIT, Refusal } from "./refusal.ts";
import { link, type WorkerOptions, type WorkerProcess } from "./worker-process.ts";
import { linkOf, type Share } from "./workerd.ts";

/** A serving Worker, and its predecessors while they still have clients. */

/** Most predecessors: each has the memory of a process. */
const MAX_PREDECESSORS = 8;

export interface ServiceOptions {
  environment: Environment;
  folder: DataFolder;
  listening: Listening;
  /** Its share of the objects; undefined for an instance of a cluster. */
  share?: Share | undefined;
  /** The way to the processes that read files. */
  boundedProcesses: BoundedSocket;
  /** The launcher's state, for the metrics. */
  state: LauncherState;
  say(line: string): void;
  /** Aborted when this program is told to stop. */
  signal: AbortSignal;
}

export class Service {
  readonly #options: ServiceOptions;
  #configuration: Configuration;
  #worker: WorkerProcess;
  /** With the ends of each, oldest first. */
  readonly #predecessors = new Map<WorkerProcess, Promise<unknown>>();
  #replacing: Promise<unknown> = Promise.resolve();
  #ended = Promise.withResolvers<void>();

  private constructor(options: ServiceOptions, configuration: Configuration, worker: WorkerProcess) {
    this.#options = options;
    this.#configuration = configuration;
    this.#worker = worker;
    this.#serve(worker);
  }

  static async start(options: ServiceOptions, configuration: Configuration): Promise<Service> {
    return new Service(options, configuration, await startWorker(optionsOf(options, configuration)));
  }

  /** Resolves when the serving process has ended, not when a replaced one does. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Makes a process the Worker: other processes find it by the link. */
  #serve(worker: WorkerProcess): void {
    this.#worker = worker;
    const { share } = this.#options;
    if (share) link(worker.folder, linkOf(share.links, share.worker));
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
   * Starts a Worker that replaces the serving one, and stops the old one once its clients have gone. No request fails, and
   * none waits longer than a process takes to start. Resolves when the old one accepts no more connections. The
   * configuration is read again (also the environment's files), and the installed version is started. Needed for changes
   * of a Worker's bindings, which a running Worker cannot change. Simultaneous calls wait for each other. `reason` is for the log. HOST, PORT, WORKERS and STATE_DIRECTORY keep their
   * values. Rejects with a Refusal if the configuration is wrong or the new Worker does not start. The serving one then
   * continues.
   * With `quarantines` the files of damaged objects go into quarantine while neither process has them open.
   * Gives the configuration of the new Worker.
   */
  replaceWorker(reason: string, quarantines = false): Promise<Configuration> {
    return this.#afterOthers(() => this.#replace(reason, quarantines));
  }

  /** Replaces or starts the Worker when earlier calls have ended. */
  #afterOthers<Result>(act: () => Promise<Result>): Promise<Result> {
    const done = this.#replacing.then(act);
    this.#replacing = done.catch(() => {});
    return done;
  }

  async #replace(reason: string, quarantines: boolean): Promise<Configuration> {
    const { folder } = this.#options;
    const began = performance.now();
    const next = await installedReplacement();
    const before = this.#configuration;
    const configuration = await next.readConfiguration(this.#options.environment);
    const { settings, warnings } = configuration;
    if (settings.cluster) {
      throw new Refusal(EXIT.failed, "An instance of a cluster hands over by a restart (docs/kubernetes.md).");
    }
    for (const warning of warnings) this.#tell("warn", warning);
    const worker = this.#worker;
    if (this.#predecessors.size >= MAX_PREDECESSORS) await this.#endOldest();
    this.#options.signal.throwIfAborted();
    next.markDataFolder(folder.path);
    const { port: _, ...others } = optionsOf(this.#options, configuration);
    const start = (predecessorCloses: () => Promise<void>) =>
      next.startWorker({ ...others, port: worker.port, predecessorCloses });
    const successor = await handOver(worker, start, settings.handOverTimeoutMs, () => {
      if (quarantines) this.#quarantine(worker.damagedFiles);
    });
    this.#serve(successor);
    const { file } = this.#configuration;
    this.#configuration = configuration;
    // The successor has not read a file that was applied meanwhile.
    if (file && file !== before.file) await this.configure(file);
    await this.#retire(worker, settings.handOverTimeoutMs);
    const ms = Math.round(performance.now() - began);
    this.#tell("info", `Another process serves (${reason}). The previous one ends its running work.`, {
      ...{ version: next.version, after_ms: ms, ...(this.#isOfSeveral && { worker: this.#options.share?.worker }) },
      ...(next.version !== version && { before: version }),
    });
    return configuration;
  }

  /**
   * Makes a predecessor call its successor, and accept no more connections. It ends when its clients have gone, or after
   * `ms`.
   */
  async #retire(worker: WorkerProcess, ms: number): Promise<void> {
    let leftMs = ms;
    try {
      await worker.tell("moved");
      await retire(worker);
    } catch {
      // It does not answer.
      leftMs = 0;
    }
    const ended = endWithClients(worker, leftMs).then((isWhole) => {
      this.#predecessors.delete(worker);
      if (isWhole) this.#tell("info", "The previous process has ended.");
      else this.#tell("warn", "The previous process was stopped with unfinished work.");
    });
    this.#predecessors.set(worker, ended);
  }

  async #endOldest(): Promise<void> {
    const [oldest] = this.#predecessors.keys();
    await oldest?.stop(this.#configuration.settings.stopTimeoutMs);
  }

  /** Moves damaged files, which no process has open, into quarantine. */
  #quarantine(files: Iterable<string>): void {
    for (const file of files) {
      if (!existsSync(file)) continue;
      const place = quarantine(file);
      this.#tell("warn", `${file} was moved to ${place}.`, { event: "object_quarantined", file, quarantined: place });
    }
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
    const dead = this.#worker;
    await this.#afterOthers(async () => {
      const { port: _, ...others } = optionsOf(this.#options, this.#configuration);
      // A replacement that was nearly complete may have taken its place.
      const worker = this.#worker === dead ? await startWorker({ ...others, port: dead.port }) : this.#worker;
      this.#ended = Promise.withResolvers();
      this.#serve(worker);
    });
  }

  /**
   * Lets the Worker refuse new requests, and waits until no foreground turn runs, and the predecessors have ended. Rejects
   * if the Worker does not answer.
   */
  async drain(): Promise<void> {
    const drained = this.#worker.drain();
    // A replacement that has begun is completed, or given up.
    await Promise.allSettled([drained, this.#replacing]);
    await Promise.all([this.#worker.drain(), ...this.#predecessors.values()]);
  }

  /**
   * Ends the Worker, as `WorkerProcess.stop` does. The signal of the options has been aborted, so that no replacement
   * begins. May be called again with less time.
   */
  async stop(graceMs: number): Promise<boolean> {
    const began = performance.now();
    const stopAll = (ms: number) =>
      Promise.all([
        ...[...this.#predecessors.keys()].map((worker) => worker.stop(ms)),
        this.#isOfSeveral ? endWithClients(this.#worker, ms) : this.#worker.stop(ms),
      ]);
    const worker = this.#worker;
    const stopped = await stopAll(graceMs);
    await this.#replacing;
    // A replacement may have become complete, as in `drain`.
    if (this.#worker !== worker) stopped.push(...(await stopAll(Math.max(0, graceMs - (performance.now() - began)))));
    return !stopped.includes(false);
  }

  /** Workers call each other over connections that never end by themselves. */
  get #isOfSeveral(): boolean {
    return (this.#options.share?.storages.length ?? 1) > 1;
  }

  #tell(level: "info" | "warn", message: string, fields?: object): void {
    this.#options.say(ownLine(level, message, this.#configuration.settings.logFormat, fields));
  }
}

function optionsOf(options: ServiceOptions, { settings, variables, file }: Configuration): WorkerOptions {
  const { environment, folder, listening, boundedProcesses, say, signal, share, state } = options;
  const { host, port, keyPair, minFreeDisk, stopTimeoutMs, logFormat, cluster } = settings;
  return {
    ...{ host, port, keyPair, minFreeDisk, variables, file, boundedProcesses, environment, say, signal, state },
    listening: listening.ofWorkers[share?.worker ?? 0],
    storage: share?.storages[share.worker] ?? folder.path,
    share,
    // The first half of the time is for foreground turns, and the Worker must have ended before it is killed.
    cluster: cluster && { ...cluster, stopTimeoutMs: Math.floor(stopTimeoutMs * 0.45) },
    format: logFormat,
  };
}
