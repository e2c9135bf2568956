import { logLine } from "@responses-edge/bounded-io/json-text";
import type { RequestSummary } from "../../contract/admin-objects.ts";
import type { Env } from "../../env.ts";
import { clientsAreToLeave } from "../objects/process-state.ts";

/** The requests that have ended in this isolate, until the board has them in its log. They are reported together, beside requests. */

/** The wait for others that end, and the number that are reported at once. */
const REPORT_AFTER_MS = 1_000;
const MOST_TOGETHER = 1_000;

/** Most requests that wait while the board does not answer. Later ones are dropped. */
const MAX_WAITING = 10_000;

/** The board that takes the reports, and how the isolate is kept alive for them. */
export interface ReportTarget {
  boards: Env["BOARD"];
  waitUntil: (promise: Promise<unknown>) => void;
}

let waiting: RequestSummary[] = [];
let dropped = 0;

/** When the next report is due, Unix milliseconds; undefined if none is. */
let due: number | undefined;

/** The reports that are under way. */
const underWay = new Set<Promise<void>>();

/** Has a request reported soon. `isBrief`: at once, because waiting costs. */
export function noteRequest(request: RequestSummary, target: ReportTarget, isBrief: boolean): void {
  if (waiting.length < MAX_WAITING) waiting.push(request);
  else dropped += 1;
  const wait = isBrief || clientsAreToLeave() || waiting.length === MOST_TOGETHER ? 0 : REPORT_AFTER_MS;
  const at = Date.now() + wait;
  // A timer whose request was ended by the platform never fires.
  if (due !== undefined && due <= at && due + REPORT_AFTER_MS > Date.now()) return;
  due = at;
  target.waitUntil(reportAfter(wait, at, target));
}

async function reportAfter(wait: number, at: number, { boards }: ReportTarget): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, wait));
  // Another report is due earlier, or has been made.
  if (due === at) await report(boards);
}

/** Reports what is not reported. Resolves when that, and what is under way, was tried; never rejects. */
export async function reportRequests(boards: Env["BOARD"]): Promise<void> {
  await Promise.all([...underWay, report(boards)]);
}

async function report(boards: Env["BOARD"]): Promise<void> {
  due = undefined;
  if (waiting.length === 0) return;
  const taken = waiting;
  waiting = [];
  const told = tell(taken, boards);
  underWay.add(told);
  await told.finally(() => underWay.delete(told));
}

async function tell(taken: readonly RequestSummary[], boards: Env["BOARD"]): Promise<void> {
  try {
    await boards.getByName().noteRequests(taken);
  } catch (error) {
    // The next request reports them again.
    const free = MAX_WAITING - waiting.length;
    waiting = [...taken.slice(0, free), ...waiting];
    dropped += Math.max(0, taken.length - free);
    const name = error instanceof Error ? error.name : typeof error;
    console.error(logLine({ level: "error", requests_not_reported: waiting.length, dropped, error: name }));
  }
}
