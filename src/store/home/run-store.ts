import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { responseId } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { isJsonObject } from "@responses-edge/responses-api/json";
import { type CacheDiagnosis, initialResponse } from "@responses-edge/responses-api/response";
import type { Model } from "@responses-edge/turn/contract/engine";
import type { Affinity } from "../../assembly/affinity.ts";
import type { Sender } from "../../assembly/flow.ts";
import type { AgentIdentity } from "../../contract/agent-runs.ts";
import type { GivenFile } from "../../contract/container-files.ts";
import type { Policy } from "../../contract/grants.ts";
import type { KeptTrace } from "../../telemetry/telemetry.ts";
import type { RunReservation } from "../limits/run-quota.ts";
import { fromCells, type StoredCell, toCells } from "../objects/row-pieces.ts";
import type { StoredResponse } from "./stored-response.ts";
import type { Tables } from "./tables.ts";

/** Background runs that are not settled yet, with everything that is needed to resume one. */

/** The beginning of a branch. */
export interface Fork {
  turn: string;
  /** The sequence number, or the id of an item or call, up to which the turn is kept. Nothing of its output is by default. */
  at?: number | string;
  /** Another output of the call in `at`. */
  output?: string;
}

/** A run as it was accepted. */
export interface RunSpec {
  home: string;
  turn: string;
  parent: string | null;
  /** Unix milliseconds. */
  createdAt: number;
  request: CreateRequest;
  /** This turn's input, with references resolved and ids. */
  input: Item[];
  model: Model;
  cacheSalt: string;
  affinity: Affinity;
  /** The key that has asked, and its share of saturated model servers; undefined in runs of earlier versions. */
  sender?: Sender;
  /** The comparison with an earlier prompt, if the request asked for it. */
  diagnosis?: CacheDiagnosis;
  /** The files that the request gives to its container. */
  givenFiles?: readonly GivenFile[];
  tenant: string;
  /** Labels of MCP servers that cannot be reached after a restart, because their credentials are not stored. */
  withheld?: string[];
  inConversation: boolean;
  /** The turn of the same home of which it is a branch, which gives it its input and its beginning. */
  fork?: Fork;
  /** The last position of its conversation that a branch sees, which is not in the conversation itself. */
  base?: number | null;
  /** The answer to a hosted call that was changed in a branch. */
  givenOutput?: { item: string; output: string };
  /** The agent whose task it is. */
  agent?: AgentIdentity;
  /** How long it has waited for its conversation, in milliseconds. */
  waitedMs?: number;
  /**
   * The policy of its caller's key, and its reservation in the caller's limits. Without limits there is neither.
   */
  policy?: Policy;
  reservation?: RunReservation;
  /** The key that has asked. */
  keyId: string;
  /** The key that its bytes are counted for, if they are counted. */
  owner?: string;
  /** The trace of the run, and its own span, if there are traces. */
  trace?: KeptTrace;
}

/** Tells whether a run's response is kept for a short time only, so that its client can read it. */
export function isUnstored({ request }: RunSpec): boolean {
  return request.store === false;
}

/** A run from its rows; `spec` is undefined if they are unreadable. */
export interface NotedRun {
  turn: string;
  spec: RunSpec | undefined;
  /** Unix milliseconds. */
  createdAt: number;
  attempts: number;
}

function readSpec(cells: StoredCell[]): RunSpec | undefined {
  try {
    const spec = JSON.parse(fromCells(cells)) as Partial<RunSpec> | null;
    const isWhole = isJsonObject(spec?.request) && isJsonObject(spec.model) && Array.isArray(spec.input);
    return isWhole ? (spec as RunSpec) : undefined;
  } catch {
    return undefined;
  }
}

export class RunStore {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  insert(spec: RunSpec): void {
    const insert = "INSERT INTO runs (turn, part, created_at, attempts, body) VALUES (?, ?, ?, 0, ?)";
    for (const [part, body] of toCells(JSON.stringify(spec)).entries()) {
      this.#tables.write("runs", insert, spec.turn, part, spec.createdAt, body);
    }
  }

  /** Stores a run again, with another model. */
  replace(spec: RunSpec): void {
    this.delete(spec.turn);
    this.insert(spec);
  }

  /** The turns of all unsettled runs, oldest first. */
  turns(): string[] {
    const oldestFirst = "SELECT turn FROM runs WHERE part = 0 ORDER BY created_at";
    return this.#tables.rows<{ turn: string }>("runs", oldestFirst).map(({ turn }) => turn);
  }

  /** True if there is an unsettled run of a turn. */
  has(turn: string): boolean {
    return this.#tables.rows("runs", "SELECT 1 FROM runs WHERE turn = ? AND part = 0", turn).length > 0;
  }

  /** Reads a run. Undefined if it is settled. */
  find(turn: string): NotedRun | undefined {
    const rows = this.#tables.rows<{ created_at: number; attempts: number; body: StoredCell }>(
      "runs",
      "SELECT created_at, attempts, body FROM runs WHERE turn = ? ORDER BY part",
      turn,
    );
    const [first] = rows;
    if (!first) return undefined;
    const spec = readSpec(rows.map(({ body }) => body));
    return { turn, spec, createdAt: first.created_at, attempts: first.attempts };
  }

  /** Reads a run and counts one more attempt to resume it. Undefined if it is settled. */
  readToResume(turn: string): NotedRun | undefined {
    const run = this.find(turn);
    if (!run) return undefined;
    this.#tables.rows("runs", "UPDATE runs SET attempts = attempts + 1 WHERE turn = ? AND part = 0", turn);
    return { ...run, attempts: run.attempts + 1 };
  }

  /** Resets the number of attempts to resume a run. */
  forgive(turn: string): void {
    this.#tables.rows("runs", "UPDATE runs SET attempts = 0 WHERE turn = ? AND part = 0", turn);
  }

  delete(turn: string): void {
    this.#tables.rows("runs", "DELETE FROM runs WHERE turn = ?", turn);
  }
}

/** The response of an unsettled run. It has no output yet, because none of it is final. */
export function runningBody(spec: RunSpec, status: "queued" | "in_progress"): StoredResponse {
  const identity = { id: responseId(spec), model: spec.model.name, createdAt: Math.floor(spec.createdAt / 1000) };
  const { output, ...head } = initialResponse(spec.request, identity);
  return { head: JSON.stringify({ ...head, status }), output: JSON.stringify(output), keptTiming: null };
}
