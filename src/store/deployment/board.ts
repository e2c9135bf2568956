import { env as ownEnv } from "cloudflare:workers";
import { randomUUID } from "node:crypto";
import { exchangeBy } from "@responses-edge/engines/pool/exchange";
import { type ServerDemand, type ServerShare, ServerShares } from "@responses-edge/engines/pool/shares";
import { askServers, type BoardReport } from "../../assembly/model-server.ts";
import { loadConfig, type Variables } from "../../config/index.ts";
import type { RequestSummary } from "../../contract/admin-objects.ts";
import type { Env, RawEnv } from "../../env.ts";
import { setAlarm } from "../objects/alarms.ts";
import { withObjects } from "../objects/objects.ts";
import { OwnedObject } from "../objects/owned-object.ts";
import { OBJECTS } from "../objects/registry.ts";
import { Schema } from "../objects/schema.ts";
import { WORKERS } from "../objects/workers.ts";
import { currentOverrides } from "./keys/live-config.ts";
import {
  REQUEST_TABLES,
  RequestLog,
  type RequestQuery,
  type RequestReport,
  type SumsQuery,
  type SumsRow,
} from "./request-log.ts";

/**
 * The board: one Durable Object that asks all model servers how they are, so that isolates need not each find out. It stops asking
 * while no isolate reads it. It divides the limits of servers among the isolates. If there is an operator, it also knows which runs are live.
 * It has the log of requests, where there is one (`RESPONSE_INDEX`). It stores only these and its alarm.
 */

/** Intervals without a reader after which the board stops asking. */
const IDLE_INTERVALS = 12;

export class Board extends OwnedObject {
  #report: BoardReport | undefined;
  #readAt = Number.NEGATIVE_INFINITY;
  readonly #runs: RunRegister;
  readonly #shares = new ServerShares();

  readonly #schema: Schema;
  readonly #requests: RequestLog;

  constructor(state: DurableObjectState, env: RawEnv) {
    super(state, env, "BOARD");
    this.#schema = new Schema(state.storage, [...RUN_TABLES, ...REQUEST_TABLES], OBJECTS.BOARD.migrations);
    this.#runs = new RunRegister(this.#schema);
    this.#requests = new RequestLog(this.#schema);
  }

  /** The last report; null if there is none yet. */
  async read(): Promise<BoardReport | null> {
    this.#readAt = Date.now();
    if ((await this.ctx.storage.getAlarm()) === null) await setAlarm(this.ctx.storage, Date.now());
    return this.#report ?? null;
  }

  /** Takes a process's requests to servers with a limit, and gives its shares of them. */
  share(process: string, demands: readonly ServerDemand[]): ServerShare[] {
    return this.#shares.exchange(process, demands, Date.now());
  }

  announceRun(run: AnnouncedRun): void {
    this.#runs.add(run, Date.now());
  }

  forgetRuns(ids: readonly string[]): void {
    this.#runs.remove(ids);
  }

  /** A run that was announced and has not been forgotten; it may have ended. */
  run(id: string): AnnouncedRun | null {
    return this.#runs.get(id);
  }

  runs(query: RunQuery): AnnouncedRun[] {
    return this.#runs.list(query);
  }

  /** Logs requests that have ended. */
  addRequests(report: RequestReport): void {
    const { usageRetentionMs } = loadConfig(this.env).keys;
    this.#schema.open();
    this.ctx.storage.transactionSync(() => this.#requests.add(report, Date.now(), usageRetentionMs));
  }

  /** Requests that have ended; null if there is none with the id `after`. */
  requests(query: RequestQuery): RequestSummary[] | null {
    return this.#requests.list(query);
  }

  /** The sums of requests in minutes or hours. */
  sums(query: SumsQuery): SumsRow[] {
    return this.#requests.sums(query);
  }

  /** Forgets the requests of a tenant. */
  eraseTenant(tenant: string): void {
    this.ctx.storage.transactionSync(() => this.#requests.eraseTenant(tenant));
  }

  protected override async ring(): Promise<void> {
    await currentOverrides(this.env);
    const config = loadConfig(this.env);
    const servers = await askServers(config);
    this.#report = { at: Date.now(), servers };
    const next = nextAsking(this.#readAt, Date.now(), config.boardMs);
    if (next !== undefined) await setAlarm(this.ctx.storage, next);
  }
}

let ownName: string | undefined;

exchangeBy(async (demands) => {
  // Only requests may draw random numbers.
  ownName ??= randomUUID();
  return withObjects(ownEnv as RawEnv)
    .BOARD.getByName()
    .share(ownName, demands);
}, WORKERS);

declare module "../objects/objects.ts" {
  interface ObjectClasses {
    BOARD: Board;
  }
}

/** When the servers are asked next, in Unix milliseconds; undefined if nobody reads the answers. */
export function nextAsking(readAt: number, now: number, everyMs: number): number | undefined {
  return everyMs > 0 && now - readAt <= IDLE_INTERVALS * everyMs ? now + everyMs : undefined;
}

/**
 * The register of live runs and their homes, for the operator, because objects cannot be listed. A home announces each
 * of its runs (`board.ts`), and answers all other questions about it.
 */

/** A run that was announced, by the id of its response. */
export interface AnnouncedRun {
  id: string;
  tenant: string;
}

/** A question to the register. */
export interface RunQuery {
  tenant?: string | undefined;
  /** Runs whose ids come after this one. */
  after?: string | undefined;
  limit: number;
}

export const RUN_TABLES = [
  "CREATE TABLE runs (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID",
];

/** Most runs that are known at the same time. */
const MAX_RUNS = 10_000;

/** If there are more, this many of the oldest are forgotten together, instead of one with each new run. */
const FORGOTTEN_TOGETHER = 1_000;

export class RunRegister {
  readonly #schema: Schema;
  readonly #maxRuns: number;
  #count: number | undefined;

  constructor(schema: Schema, maxRuns = MAX_RUNS) {
    this.#schema = schema;
    this.#maxRuns = maxRuns;
  }

  /** A repeated call is harmless. `now`: Unix milliseconds. */
  add({ id, tenant }: AnnouncedRun, now: number): void {
    this.#count ??= this.#schema.rows<{ count: number }>("SELECT COUNT(*) AS count FROM runs")[0]?.count ?? 0;
    const added = "INSERT OR IGNORE INTO runs (id, tenant, at) VALUES (?, ?, ?)";
    this.#count += this.#schema.write(added, id, tenant, now);
    if (this.#count <= this.#maxRuns) return;
    const oldest = "DELETE FROM runs WHERE id IN (SELECT id FROM runs ORDER BY at LIMIT ?)";
    this.#schema.write(oldest, Math.min(FORGOTTEN_TOGETHER, this.#maxRuns));
    this.#count = undefined;
  }

  /** Unknown ids are ignored. */
  remove(ids: readonly string[]): void {
    const ended = "DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?)) RETURNING id";
    const removed = this.#schema.rows(ended, JSON.stringify(ids)).length;
    if (this.#count !== undefined) this.#count -= removed;
  }

  /** The run of an id; null if none was announced, or it has ended. */
  get(id: string): AnnouncedRun | null {
    const [run] = this.#schema.rows<{ id: string; tenant: string }>("SELECT id, tenant FROM runs WHERE id = ?", id);
    return run ?? null;
  }

  /** Runs in the order of their ids. */
  list({ tenant, after = "", limit }: RunQuery): AnnouncedRun[] {
    const ofTenant = tenant === undefined ? "" : "AND tenant = ?";
    return this.#schema.rows<{ id: string; tenant: string }>(
      `SELECT id, tenant FROM runs WHERE id > ? ${ofTenant} ORDER BY id LIMIT ?`,
      ...[after, ...(tenant === undefined ? [] : [tenant]), limit],
    );
  }
}

/**
 * Announces live runs, if there is an operator to ask for them (`ADMIN_KEY`). Nothing waits for the announcement, and a
 * run continues if it fails.
 */

/** A run that ends earlier is not announced: nobody could look at it, and it would cost two calls. */
const ANNOUNCED_AFTER_MS = 1_000;

/** Milliseconds until another attempt, if the board could not be reached. */
const AGAIN_AFTER_MS = 30_000;

/** Announces a run from now on. Gives the function that announces its end. */
export function announceRun(
  run: AnnouncedRun,
  home: { env: Variables & Env; waitUntil(promise: Promise<unknown>): void },
): () => void {
  const { BOARD: boards } = home.env;
  if (!boards || !loadConfig(home.env).hasAdminApi) return () => {};
  const board = () => boards.getByName();
  let hasEnded = false;
  let said: Promise<void> | undefined;
  let timer = setTimeout(say, ANNOUNCED_AFTER_MS);
  return () => {
    hasEnded = true;
    clearTimeout(timer);
    if (said) home.waitUntil(said.then(takeBack));
  };

  function say(): void {
    said = board()
      .announceRun(run)
      .catch(() => {
        if (!hasEnded) timer = setTimeout(say, AGAIN_AFTER_MS);
      });
  }

  /** A failure is harmless: the home tells a reader that the run has ended. */
  async function takeBack(): Promise<void> {
    await board()
      .forgetRuns([run.id])
      .catch(() => {});
  }
}
