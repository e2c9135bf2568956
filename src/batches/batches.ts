import { logLine } from "@responses-edge/bounded-io/json-text";
import { unixSeconds } from "@responses-edge/responses-api/response";
import { callerWith } from "../api/caller.ts";
import type { Caller } from "../api/transport.ts";
import { type Config, loadConfig } from "../config/index.ts";
import type { RawEnv } from "../env.ts";
import { setAlarm } from "../store/objects/alarms.ts";
import { Deaths } from "../store/objects/deaths.ts";
import { Outbox } from "../store/objects/outbox.ts";
import { OwnedObject } from "../store/objects/owned-object.ts";
import { pendingBatches } from "../store/objects/pending-work.ts";
import { processState } from "../store/objects/process-state.ts";
import { OBJECTS } from "../store/objects/registry.ts";
import { Schema } from "../store/objects/schema.ts";
import { announce, noticeOf } from "../store/tenant/webhooks/announcing.ts";
import type { WebhookNotice } from "../store/tenant/webhooks/sending.ts";
import { AnalyticsWriter } from "../telemetry/analytics.ts";
import { BatchJob, lineKey } from "./batch-job.ts";
import { BATCH_TABLES, type BatchRecord, BatchTable, type Counts, type EndStatus, type Tokens } from "./batch-table.ts";

/**
 * The longest work of one alarm, after which it waits for requests in progress. The platform ends an alarm that runs
 * too long. Milliseconds.
 */
const WORK_MS = 120_000;

/** Milliseconds after its beginning at which the work of a dead process is resumed. */
const RESUMED_AFTER_MS = 30_000;

/** Milliseconds after which the next process continues the batches of one that ends. */
const NEXT_PROCESS_MS = 1_000;

/** A batch as it is shown. */
export interface ShownBatch extends BatchRecord {
  counts: Counts;
  usage: Tokens;
}

/**
 * The batches of a tenant: one Durable Object, named as the tenant. Its alarm works on them concurrently, with at most
 * `BATCH_CONCURRENCY` requests in progress.
 */
export class Batches extends OwnedObject {
  readonly #schema: Schema;
  readonly #table: BatchTable;
  /** The ends of batches, to the tenant's webhooks. */
  readonly #outbox: Outbox<{ webhook: WebhookNotice }>;
  protected override readonly deaths: Deaths;
  readonly #jobs = new Map<string, BatchJob>();
  #working: Promise<void> | undefined;
  #active = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "BATCHES");
    this.#schema = new Schema(state.storage, BATCH_TABLES, OBJECTS.BATCHES.migrations);
    this.#table = new BatchTable(this.#schema);
    this.deaths = new Deaths(this.#schema);
    this.#outbox = new Outbox({
      sql: this.#schema,
      deliver: { webhook: (notice) => announce(this.env, state.id.name ?? "", notice) },
      // The work in progress delivers them; its alarm is set in case it dies.
      wake: () => {},
    });
  }

  /** Null if the tenant has as many unfinished batches as it may. A repeated call is harmless. */
  async create(batch: BatchRecord): Promise<ShownBatch | null> {
    const known = this.#table.find(batch.id);
    if (known) return this.#shown(known);
    if (this.#open().length >= loadConfig(this.env).batches.maxActive) return null;
    this.#change(() => this.#table.add(batch));
    await this.#workSoon();
    return this.#shown(batch);
  }

  async get(id: string): Promise<ShownBatch | null> {
    // A full disk takes no alarm, and does not keep anybody from reading.
    await this.#workSoon().catch(() => {});
    const batch = this.#table.find(id);
    return batch && this.#shown(batch);
  }

  /** Newest first; null if `after` is no batch. */
  list(after: string | undefined, limit: number): ShownBatch[] | null {
    return this.#table.page(after, limit)?.map((batch) => this.#shown(batch)) ?? null;
  }

  /** Cancels a batch. Null if it does not exist; a finished one stays as it is. */
  async cancel(id: string): Promise<ShownBatch | null> {
    const batch = this.#table.find(id);
    if (!batch) return null;
    const isToEnd = batch.status === "validating" || batch.status === "in_progress";
    if (!isToEnd || batch.isCancelled) return this.#shown(batch);
    const cancelled = { ...batch, isCancelled: true, at: { ...batch.at, cancelling: unixSeconds() } };
    // A running job holds its own record.
    const job = this.#jobs.get(id);
    if (job) job.cancel();
    else this.#change(() => this.#table.write(cancelled));
    await this.#workSoon();
    return this.#shown(cancelled);
  }

  /** Removes everything. The directory removes the files. */
  async erase(): Promise<void> {
    for (const job of this.#jobs.values()) job.cancel();
    await this.#working?.catch(() => {});
    await this.#outbox.forget();
    await this.ctx.storage.deleteAlarm();
    await this.ctx.storage.deleteAll();
    this.#schema.forget();
    this.#table.forgetTallies();
  }

  protected override async ring(): Promise<void> {
    this.#working ??= this.#workAll().finally(() => {
      this.#working = undefined;
    });
    await this.#working;
  }

  async #workAll(): Promise<void> {
    const end = Date.now() + WORK_MS;
    // Should this process die, another one resumes.
    await setAlarm(this.ctx.storage, Date.now() + RESUMED_AFTER_MS);
    const renewing = setInterval(
      () => void setAlarm(this.ctx.storage, Date.now() + RESUMED_AFTER_MS),
      RESUMED_AFTER_MS / 2,
    );
    this.#change(() => this.deaths.begin(loadConfig(this.env).batches.concurrency, (limit) => this.#first(limit)));
    await this.ctx.storage.sync();
    const { analytics: dataset } = loadConfig(this.env).telemetry;
    const analytics = dataset && new AnalyticsWriter(dataset);
    try {
      const under = new Map<string, Promise<void>>();
      for (;;) {
        // Batches that were created in the meantime are begun, too.
        for (const batch of this.#open()) {
          if (under.has(batch.id) || Date.now() >= end || processState.isEnding) continue;
          under.set(
            batch.id,
            this.#work(batch, end, analytics).finally(() => under.delete(batch.id)),
          );
        }
        this.waitUntil(this.#outbox.deliver());
        if (under.size === 0) break;
        await Promise.race([...under.values(), scheduler.wait(1_000)]);
        if (Date.now() >= end) await Promise.allSettled(under.values());
      }
    } finally {
      clearInterval(renewing);
      analytics?.end();
      this.deaths.end();
    }
    await this.#outbox.deliver();
    const soon = Date.now() + (processState.isEnding ? NEXT_PROCESS_MS : 0);
    const next = this.#open().length > 0 ? soon : this.#outbox.nextDue();
    if (next === null) await this.ctx.storage.deleteAlarm();
    else await setAlarm(this.ctx.storage, next);
  }

  /** The first work of each batch: lines without an answer, at most `limit`, or the batch itself while it is checked or written. */
  #first(limit: number): string[] {
    return this.#table.open().flatMap((batch) => {
      if (batch.status !== "in_progress") return [batch.id];
      return this.#table.unanswered(batch, limit).map((no) => lineKey(batch.id, no));
    });
  }

  #open(): BatchRecord[] {
    const open = this.#table.open();
    pendingBatches.note(this.ctx.id.name ?? "", open.length);
    return open;
  }

  async #work(batch: BatchRecord, end: number, analytics: AnalyticsWriter | undefined): Promise<void> {
    const job = new BatchJob(
      {
        table: this.#table,
        callerOf: (of, length, signal) => this.#callerOf(of, length, signal),
        permit: (signal) => this.#permit(signal),
        deaths: this.deaths,
        analytics,
        change: (body) => this.#change(body),
        noteEnd: ({ id, status, at }) => {
          const notice = noticeOf(id, `batch.${status as EndStatus}`, at[status] ?? unixSeconds());
          this.#outbox.add("webhook", notice.id, notice);
        },
      },
      batch,
    );
    this.#jobs.set(batch.id, job);
    try {
      await job.run(end);
    } catch (error) {
      const name = error instanceof Error ? error.name : typeof error;
      console.error(logLine({ level: "error", batch: batch.id, error: name }));
      // The failure may be a server's outage, so it is tried again.
      await scheduler.wait(Math.max(0, Math.min(5_000, end - Date.now())));
    } finally {
      this.#jobs.delete(batch.id);
    }
  }

  #callerOf({ owner }: BatchRecord, length: number, signal: AbortSignal): Caller {
    return callerWith(this.env, belowInteractive(loadConfig(this.env)), owner, {
      counting: { isDone: false },
      bodyLength: length,
      signal,
      waitUntil: (promise) => this.waitUntil(promise),
    });
  }

  /** Waits for a permit among the requests of all batches. Gives the function that returns it. */
  async #permit(signal: AbortSignal): Promise<() => void> {
    const { concurrency } = loadConfig(this.env).batches;
    while (this.#active >= (this.deaths.isAlone ? 1 : concurrency)) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
      if (!signal.aborted) continue;
      // Passes the permit on.
      this.#waiting.shift()?.();
      throw signal.reason;
    }
    this.#active += 1;
    return () => {
      this.#active -= 1;
      this.#waiting.shift()?.();
    };
  }

  #shown(batch: BatchRecord): ShownBatch {
    const isEnding = batch.isCancelled && (batch.status === "validating" || batch.status === "in_progress");
    const status = isEnding ? "cancelling" : batch.status;
    return { ...batch, status, counts: this.#table.counts(batch), usage: this.#table.usage(batch) };
  }

  /** Sets the alarm if a batch has work and no job runs. */
  async #workSoon(): Promise<void> {
    if (this.#working || this.#table.open().length === 0) return;
    await setAlarm(this.ctx.storage, Date.now());
  }

  #change<T>(body: () => T): T {
    this.#schema.open();
    try {
      return this.ctx.storage.transactionSync(body);
    } catch (error) {
      this.#table.forgetTallies();
      throw error;
    }
  }
}

declare module "../store/objects/objects.ts" {
  interface ObjectClasses {
    BATCHES: Batches;
  }
}

const configs = new WeakMap<Config, Config>();

/** The configuration of requests of batches: every priority is that of a batch: behind all interactive requests. */
function belowInteractive(config: Config): Config {
  let made = configs.get(config);
  if (!made) {
    const { priorities } = config;
    const later = priorities.batch ?? priorities.background ?? 0;
    const entries = Object.entries(priorities).map(([tier, priority]) => [tier, priority + later] as const);
    made = { ...config, priorities: Object.fromEntries(entries), sendsBatches: true };
    configs.set(config, made);
  }
  return made;
}

declare module "../store/tenant/webhooks/announcing.ts" {
  interface WebhookSenders {
    BATCHES: `batch.${EndStatus}`;
  }
}
