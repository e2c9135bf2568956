import { ApiError } from "@responses-edge/responses-api/errors";
import { askOthers, type OtherWorker } from "../store/objects/workers.ts";

/** The foreground turns of this process, for the operator: never their content. */

interface LiveTurn {
  tenant: string;
  model: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** The name of its model server. */
  server: () => string;
  abort: AbortController;
}

/** By the id of the response. The code that begins a turn adds it, and removes it at its end. */
export const foregroundTurns = new Map<string, LiveTurn>();

/** Selects turns: all, those of a tenant, those with ids after `after`, or the one with this id. */
export interface TurnQuery {
  tenant?: string | undefined;
  after?: string | undefined;
  id?: string | undefined;
}

/** A turn of this process, as other workers are told of it. */
export interface TurnFacts extends Pick<LiveTurn, "tenant" | "model" | "createdAt"> {
  id: string;
  server: string;
}

/** The turns of this process. */
export function liveTurns({ tenant, after = "", id: only }: TurnQuery): TurnFacts[] {
  return [...foregroundTurns]
    .filter(([id, turn]) => id > after && id === (only ?? id) && turn.tenant === (tenant ?? turn.tenant))
    .map(([id, { tenant, model, createdAt, server }]) => ({ id, tenant, model, createdAt, server: server() }));
}

/** Another worker, whose turns the operator asks for. */
interface OtherTurns extends OtherWorker {
  turns(query: TurnQuery): Promise<TurnFacts[]>;
  endTurn(id: string): Promise<void>;
}

/** The turns of all workers of this machine. */
export async function allLiveTurns(query: TurnQuery): Promise<TurnFacts[]> {
  const others = await askOthers((worker: OtherTurns) => worker.turns(query));
  return [...liveTurns(query), ...others.flat()];
}

const CODE = "cancelled_by_operator";

/** Ends a turn of this process. Its client gets the output so far. */
export function endTurn(id: string): void {
  const message = "The operator has ended the response.";
  foregroundTurns.get(id)?.abort.abort(new ApiError({ status: 499, message, code: CODE }));
}

/** Ends a turn of any worker. */
export async function endTurnAnywhere(id: string): Promise<void> {
  endTurn(id);
  await askOthers((worker: OtherTurns) => worker.endTurn(id));
}

/** True if the operator has ended a turn. Its client is still there. */
export function isEndedByOperator({ aborted, reason }: AbortSignal): boolean {
  return aborted && reason instanceof ApiError && reason.code === CODE;
}
