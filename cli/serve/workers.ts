import { setTimeout as sleep } from "node:timers/promises";
import type { TextVariables } from "../../src/config/index.ts";
import type { Configuration } from "../configuration/configuration.ts";
import { ownLine } from "./log-lines.ts";
import { makeProcessFolder } from "./process-folder.ts";
import { EXIT, Refusal } from "./refusal.ts";
import { Service, type ServiceOptions } from "./service.ts";
import { shareFolder } from "./shares.ts";
import type { Share } from "./workerd.ts";

/** The workers of `serve`: one process of workerd, or several behind one port (docs/self-hosting.md). */

/** If this many workers die within this time, `serve` ends. Milliseconds. */
const MAX_DEATHS = 5;
const DEATHS_MS = 60_000;

type Options = Omit<ServiceOptions, "share">;

export class Workers {
  readonly #options: Options;
  readonly #configuration: Configuration;
  readonly #services: Service[] = [];
  #links = "";
  /** The times of workers' deaths, in milliseconds since this program's start. */
  #deaths: number[] = [];
  #isStopping = false;
  readonly #failed = Promise.withResolvers<never>();

  private constructor(options: Options, configuration: Configuration) {
    this.#options = options;
    this.#configuration = configuration;
    this.#failed.promise.catch(() => {});
  }

  /** Starts all workers. Throws a Refusal if one does not start; then none is left running. */
  static async start(options: Options, configuration: Configuration): Promise<Workers> {
    const workers = new Workers(options, configuration);
    await workers.#start();
    return workers;
  }

  async #start(): Promise<void> {
    // This program ends each process at its own end.
    process.setMaxListeners(0);
    const { workers, cluster } = this.#configuration.settings;
    if (!cluster) ({ path: this.#links } = await makeProcessFolder());
    const starts = await Promise.allSettled(Array.from({ length: workers }, (_, worker) => this.#startOne(worker)));
    const failed = starts.find((start) => start.status === "rejected");
    for (const start of starts) if (start.status === "fulfilled") this.#services.push(start.value);
    if (failed) {
      await this.stop(0);
      throw failed.reason;
    }
    for (const service of this.#services) this.#watch(service).catch(this.#failed.reject);
  }

  #startOne(worker: number): Promise<Service> {
    return Service.start({ ...this.#options, share: this.#shareOf(worker) }, this.#configuration);
  }

  get #isOne(): boolean {
    return this.#configuration.settings.workers === 1;
  }

  #shareOf(worker: number): Share | undefined {
    const { workers, cluster } = this.#configuration.settings;
    if (cluster) return undefined;
    const { path } = this.#options.folder;
    const storages = this.#isOne ? [path] : Array.from({ length: workers }, (_, each) => shareFolder(path, each));
    return { worker, links: this.#links, storages };
  }

  /** Rejects when `serve` cannot go on: its only worker has died, or workers die again and again. */
  get failed(): Promise<never> {
    return this.#failed.promise;
  }

  /**
   * Starts a worker again that has died. If it is the only one, then only after it has hung: its other deaths end this
   * program.
   */
  async #watch(service: Service): Promise<never> {
    for (;;) {
      await service.ended.catch(() => {});
      const { hasHung } = service.worker;
      if (this.#isStopping) return this.#failed.promise;
      if (this.#isOne && !hasHung()) throw new Refusal(EXIT.failed, "The Worker's process has ended.");
      const now = performance.now();
      this.#deaths = [...this.#deaths, now].filter((at) => at > now - DEATHS_MS);
      if (this.#deaths.length >= MAX_DEATHS) throw new Refusal(EXIT.failed, "Workers end again and again.");
      const which = this.#isOne ? "The Worker's process" : `The process of worker ${this.#services.indexOf(service)}`;
      const what = hasHung() ? "did not answer any more, and was killed" : "has ended";
      this.#tell("warn", `${which} ${what}. It starts again.`);
      await service.startAgain().catch((error: unknown) => {
        if (!this.#isStopping)
          this.#tell("warn", `${which} did not start (${error instanceof Error ? error.message : error}).`);
      });
    }
  }

  /** The port that all workers share. */
  get port(): number {
    return this.#services[0]?.worker.port ?? 0;
  }

  /** Replaces the process of each worker, one after another, as `Service.replaceWorker` does. Gives the last configuration. */
  async replaceWorkers(reason: string, quarantines = false): Promise<Configuration> {
    let configuration = this.#configuration;
    for (const service of this.#services) configuration = await service.replaceWorker(reason, quarantines);
    return configuration;
  }

  /** True if the log calls an object damaged. */
  get hasDamage(): boolean {
    return this.#services.some(({ worker }) => worker.damagedFiles.size > 0);
  }

  /** Applies the configuration file to all workers, as `Service.configure` does. */
  async configure(file: TextVariables): Promise<readonly string[]> {
    const mistakes = await Promise.all(this.#services.map((service) => service.configure(file)));
    return mistakes.find((found) => found.length > 0) ?? [];
  }

  /** Ends all of them at once. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop(0);
  }

  /** Ends all of them, as `Service.stop` does. */
  async stop(graceMs: number): Promise<boolean> {
    this.#isStopping = true;
    const began = performance.now();
    // A process's turn may need another process to store it. An instance of a cluster gives its objects up in time.
    if (graceMs > 0 && !this.#configuration.settings.cluster) {
      const drained = Promise.allSettled(this.#services.map((service) => service.drain()));
      await Promise.race([drained, sleep(graceMs, undefined, { ref: false })]);
    }
    const left = Math.max(0, graceMs - (performance.now() - began));
    const stopped = await Promise.all(this.#services.map((service) => service.stop(left)));
    return stopped.every((isWhole) => isWhole);
  }

  #tell(level: "info" | "warn", message: string): void {
    this.#options.say(ownLine(level, message, this.#configuration.settings.logFormat));
  }
}
