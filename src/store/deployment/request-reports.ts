import { logLine } from "@responses-edge/bounded-io/json-text";
import { OneAtATime, ReportTimer, type RequestOutcome } from "@responses-edge/usage-limits";
import { type ServerState, serverStates } from "../../assembly/model-server.ts";
import type { Config } from "../../config/index.ts";
import type { RequestSummary } from "../../contract/admin-objects.ts";
import type { Env } from "../../env.ts";
import type { EndedRequest } from "../../telemetry/telemetry.ts";
import { turnsUnderWay } from "../limits/permits.ts";
import { clientsAreToLeave, processState } from "../objects/process-state.ts";
import { workerName } from "../objects/workers.ts";
import {
  addPeaks,
  addSums,
  countInSums,
  MINUTE,
  noSums,
  type Peaks,
  type RequestReport,
  type Sums,
} from "./request-log.ts";
import { isSummarised, type SummaryConfig, statusOf, summaryOf } from "./request-summary.ts";

/**
 * The requests that have ended in this isolate, until the board has them in its log. They are added up here, and reported together,
 * beside requests: a busy isolate ends thousands in a second.
 */

/** Most requests without an error of one report that have a row, the slowest ones. All are in the sums. */
const MAX_ROWS = 200;

/** The number of requests with an error that are reported at once. */
const ERRORS_TOGETHER = 1_000;

/** Most requests with an error that have a row while the board does not answer. */
const MAX_ERRORS = 10_000;

/** The board that takes the reports, and how the isolate is kept alive for them. */
export interface ReportTarget {
  boards: Env["BOARD"];
  waitUntil: (promise: Promise<unknown>) => void;
}

/** Requests that have ended, added up for a report. */
export class EndedSums {
  readonly #minutes = new Map<number, Sums>();
  /** Those that have a row, in the order in which they ended. */
  #rows: RequestSummary[] = [];
  #errors = 0;
  #others = 0;
  /** Requests without an error that took no longer have no row. Milliseconds. */
  #tooFast = Number.NEGATIVE_INFINITY;
  /** The number of requests with an error that have no row, because there are too many. */
  dropped = 0;

  get isEmpty(): boolean {
    return this.#minutes.size === 0;
  }

  /** The number of requests with an error that have a row. */
  get errors(): number {
    return this.#errors;
  }

  /** Adds a request. `outcome` is how it counts. */
  add(ended: EndedRequest, outcome: RequestOutcome, config: SummaryConfig): void {
    const { event } = ended;
    const second = Math.floor(ended.begunAt / 1000);
    const tokens = { input: event.input_tokens ?? 0, output: event.output_tokens ?? 0 };
    countInSums(this.#sumsOf(second - (second % MINUTE)), statusOf(event), outcome, tokens);
    if (this.#hasRow(event.error !== undefined, outcome.ms)) this.#addRow(summaryOf(ended, config));
  }

  /** Adds the state of this process. `at`: Unix milliseconds. */
  addPeaks(at: number, peaks: Peaks): void {
    const second = Math.floor(at / 1000);
    addPeaks(this.#sumsOf(second - (second % MINUTE)).peaks, peaks);
  }

  /** Adds a report that the board did not get, which is older. */
  putBack({ rows, minutes }: RequestReport): void {
    for (const { start, sums } of minutes) addSums(this.#sumsOf(start), sums);
    const newer = this.#rows;
    [this.#rows, this.#errors, this.#others] = [[], 0, 0];
    for (const row of [...rows, ...newer]) {
      if (this.#hasRow(row.error !== null, row.duration_ms)) this.#addRow(row);
    }
  }

  /** All that was added. */
  report(): RequestReport {
    this.#keepSlowest();
    return { rows: this.#rows, minutes: [...this.#minutes].map(([start, sums]) => ({ start, sums })) };
  }

  #sumsOf(start: number): Sums {
    let sums = this.#minutes.get(start);
    if (!sums) {
      sums = noSums();
      this.#minutes.set(start, sums);
    }
    return sums;
  }

  /** Tells whether a request has a row. `ms`: its duration. */
  #hasRow(isError: boolean, ms: number): boolean {
    if (!isError) return ms > this.#tooFast;
    if (this.#errors < MAX_ERRORS) return true;
    this.dropped += 1;
    return false;
  }

  #addRow(row: RequestSummary): void {
    this.#rows.push(row);
    if (row.error !== null) this.#errors += 1;
    else this.#others += 1;
    // Twice the number at least: a choice costs the reading of all.
    if (this.#others === 2 * MAX_ROWS) this.#keepSlowest();
  }

  #keepSlowest(): void {
    if (this.#others <= MAX_ROWS) return;
    const slowest = this.#rows
      .filter(({ error }) => error === null)
      .toSorted((one, other) => other.duration_ms - one.duration_ms)
      .slice(0, MAX_ROWS);
    const kept = new Set(slowest);
    this.#rows = this.#rows.filter((row) => row.error !== null || kept.has(row));
    this.#others = MAX_ROWS;
    this.#tooFast = slowest.at(-1)?.duration_ms ?? this.#tooFast;
  }
}

let waiting = new EndedSums();

/** The board of this deployment, and its configuration, since the first request has ended. */
let known: { boards: Env["BOARD"]; config: Config } | undefined;

const timer = new ReportTimer(report);

const telling = new OneAtATime<EndedSums>((told) => {
  waiting.putBack(told.report());
  waiting.dropped += told.dropped;
});

/** Has a request reported soon, if the log has such ones. `isBrief`: at once, because waiting costs. */
export function noteRequest(
  ended: EndedRequest,
  outcome: RequestOutcome,
  { config, ...target }: ReportTarget & { config: Config },
  isBrief: boolean,
): void {
  if (!isSummarised(ended.event)) return;
  known = { boards: target.boards, config };
  waiting.add(ended, outcome, config);
  const isNow = isBrief || clientsAreToLeave() || waiting.errors === ERRORS_TOGETHER;
  timer.start(target.waitUntil, isNow ? 0 : undefined);
}

/** Reports what is not reported. Resolves when that, and what is under way, was tried; never rejects. */
export async function reportRequests(): Promise<void> {
  await telling.untilOver();
  await report();
}

/** False if the board does not answer, or is being told. */
async function report(): Promise<boolean> {
  if (telling.isUnderWay) return false;
  timer.take();
  return telling.run(async () => {
    if (waiting.isEmpty || !known) return true;
    const told = waiting;
    waiting = new EndedSums();
    told.addPeaks(Date.now(), peaksNow(known.config));
    return tell(told, known.boards);
  });
}

/** The model servers and the disk as this process knows them. */
function peaksNow(config: Config): Peaks {
  const servers = serverStates(config, turnsUnderWay());
  const sum = (of: (server: ServerState) => number) => servers.reduce((total, server) => total + of(server), 0);
  return {
    load: { [workerName ?? ""]: [sum(({ inFlight }) => inFlight), sum((server) => server.waiting)] },
    down: servers.filter(({ isUp, isEjected }) => !isUp || isEjected).map(({ name }) => name),
    freeDisk: processState.measures.freeDisk,
  };
}

async function tell(told: EndedSums, board: Env["BOARD"]): Promise<boolean> {
  const made = told.report();
  try {
    await telling.tell(told, () => board.getByName().addRequests(made));
    return true;
  } catch (error) {
    const requests = made.minutes.reduce((sum, { sums }) => sum + sums.requests, 0);
    const name = error instanceof Error ? error.name : typeof error;
    console.error(logLine({ level: "error", requests_not_reported: requests, dropped: told.dropped, error: name }));
    return false;
  }
}
