import { type ApiError, notFound } from "@responses-edge/responses-api/errors";
import { parseResponseId } from "@responses-edge/responses-api/ids";
import type { z } from "zod";
import type { RunObject } from "../contract/admin-objects.ts";
import type { Env } from "../env.ts";
import type { AnnouncedRun } from "../store/deployment/board.ts";
import { HomeClient } from "../store/home/home-client.ts";
import type { Stub } from "../store/objects/objects.ts";
import { type Administrator, page } from "./keys.ts";
import { allLiveTurns, endTurnAnywhere, type TurnFacts } from "./live-turns.ts";
import type { keysQuery } from "./queries.ts";

/**
 * Live runs of all tenants, for the administrator: never their content. The board knows the ids, and the home of each
 * run knows its state. Foreground turns are those of the process that answers and of the other workers of its machine:
 * other processes cannot be asked.
 */

export interface LiveRuns extends Administrator {
  homes: Env;
  boards: Env["BOARD"];
}

/** Homes that are asked at the same time. */
const CONCURRENT_HOMES = 16;

/** Runs by their ids. One that has ended since it was announced is left out, so that a page may have fewer than `limit`. */
export async function listLiveRuns(admin: LiveRuns, { limit, ...query }: z.output<typeof keysQuery>) {
  const board = admin.boards.getByName();
  const tenant = admin.tenant ?? query.tenant;
  const [runs, turns] = await Promise.all([
    board.runs({ ...query, tenant, limit: limit + 1 }),
    allLiveTurns({ tenant, after: query.after }),
  ]);
  const noted: Announced[] = [...runs, ...turns.map((turn) => ({ id: turn.id, tenant: turn.tenant, turn }))];
  const all = noted.toSorted((one, other) => (one.id < other.id ? -1 : 1));
  const { data: announced, last_id, has_more } = page(all.slice(0, limit + 1), limit);
  const shown: RunObject[] = [];
  const ended: string[] = [];
  for (let start = 0; start < announced.length; start += CONCURRENT_HOMES) {
    const asked = announced.slice(start, start + CONCURRENT_HOMES);
    const answers = await Promise.all(asked.map((run) => shownRun(admin, run)));
    for (const [index, run] of answers.entries()) {
      if (run) shown.push(run);
      else ended.push(asked[index]?.id ?? "");
    }
  }
  if (ended.length > 0) await board.forgetRuns(ended);
  // The next page begins after the last run that was looked at.
  return {
    object: "list",
    data: shown,
    first_id: shown[0]?.id ?? null,
    last_id: has_more ? last_id : (shown.at(-1)?.id ?? null),
    has_more,
  };
}

/** A run, or a foreground turn. */
type Announced = AnnouncedRun & { turn?: TurnFacts };

/** A run as the admin API shows it: `unknown` where its home does not answer. Null for one that has ended. */
async function shownRun(admin: LiveRuns, run: Announced): Promise<RunObject | null> {
  const { id, tenant, turn } = run;
  if (turn) {
    const { model, createdAt, server } = turn;
    const created_at = Math.floor(createdAt / 1000);
    const facts = { model, created_at, background: false, foreground: true, server, events: null };
    return { object: "run", id, tenant, status: "in_progress", ...facts };
  }
  const unknown = { model: null, created_at: null, background: null, server: null, events: null };
  try {
    const found = await ofHome(admin, run, (home, turn) => home.liveRun(turn));
    if (!found) return null;
    const { createdAt, isBackground: background, ...facts } = found;
    const created_at = Math.floor(createdAt / 1000);
    return { object: "run", id, tenant, status: "in_progress", created_at, background, ...facts };
  } catch {
    return { object: "run", id, tenant, status: "unknown", ...unknown };
  }
}

/**
 * Stops a run as its tenant could, and notes that in the audit log. Gives its final state, which it may have reached by
 * itself. Throws the 404 of a run that is not live.
 */
export async function cancelLiveRun(admin: LiveRuns, id: string) {
  const directory = admin.directories.getByName();
  const noted = (tenant: string) =>
    directory.note({ type: "response.cancelled", actor: admin.name, tenant, target: id }, "admin");
  const [turn] = await allLiveTurns({ id, tenant: admin.tenant });
  if (turn) {
    // Noted before the run is stopped: if it cannot be noted, it does not happen.
    await noted(turn.tenant);
    await endTurnAnywhere(id);
    return { object: "run", id, tenant: turn.tenant, status: "cancelled" };
  }
  const board = admin.boards.getByName();
  const run = parseResponseId(id) ? await board.run(id) : null;
  if (!run || run.tenant !== (admin.tenant ?? run.tenant)) throw runNotFound(id);
  const isLive = (await ofHome(admin, run, (home, turn) => home.liveRun(turn))) !== null;
  if (isLive) {
    const { tenant } = run;
    await noted(tenant);
    const status = await ofHome(admin, run, (home, turn) => home.cancelRun(turn));
    if (status !== null) return { object: "run", id, tenant, status };
  }
  await board.forgetRuns([id]);
  throw runNotFound(id);
}

async function ofHome<T>(
  { homes }: LiveRuns,
  { id, tenant }: AnnouncedRun,
  ask: (home: Stub<"HOME">, turn: string) => Promise<T | null>,
): Promise<T | null> {
  const address = parseResponseId(id);
  if (!address) throw new TypeError("Only responses are announced.");
  return new HomeClient(homes, tenant).ask(address.home, null, (home) => ask(home, address.turn));
}

function runNotFound(id: string): ApiError {
  return notFound("Run", id, "id", { where: " among the runs in progress" });
}
