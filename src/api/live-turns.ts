import { ApiError, previousResponseNotFound } from "@responses-edge/responses-api/errors";
import { responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { askOthers, type OtherWorker } from "../store/objects/workers.ts";

/** The foreground turns of this process, for the operator and for requests that continue them: never their content. */

interface LiveTurn {
  tenant: string;
  model: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** The response will be stored when it has ended. */
  isStored: boolean;
  /** The name of its model server. */
  server: () => string;
  abort: AbortController;
}

/** By the id of the response. The platform may end a request or an object without the code that removes its turns. */
const turns = new Map<string, WeakRef<LiveTurn>>();

/** Adds a turn, which lives as long as its code has the returned function. That removes it. */
export function addTurn(id: string, turn: LiveTurn): () => void {
  turns.set(id, new WeakRef(turn));
  return () => {
    if (turns.get(id)?.deref() === turn) turns.delete(id);
  };
}

/** Selects turns: all, those of a tenant, those with ids after `after`, or the one with this id. */
export interface TurnQuery {
  tenant?: string | undefined;
  after?: string | undefined;
  id?: string | undefined;
}

/** A turn of this process, as other workers are told of it. */
export interface TurnFacts extends Pick<LiveTurn, "tenant" | "model" | "createdAt" | "isStored"> {
  id: string;
  server: string;
}

/** The turns of this process. */
export function liveTurns({ tenant, after = "", id: only }: TurnQuery): TurnFacts[] {
  const found: TurnFacts[] = [];
  for (const [id, reference] of turns) {
    const turn = reference.deref();
    if (!turn) turns.delete(id);
    else if (id > after && id === (only ?? id) && turn.tenant === (tenant ?? turn.tenant)) {
      const { abort: _, server, ...facts } = turn;
      found.push({ id, ...facts, server: server() });
    }
  }
  return found;
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

/**
 * The error of a request that continues `previous`: if that is not stored yet, because a foreground turn of this machine
 * is still making it, the 400 says so. Any other error stays as it is.
 */
export async function withLiveTurn(error: unknown, previous: TurnAddress | null, tenant: string): Promise<unknown> {
  if (!previous || !(error instanceof ApiError) || error.code !== "previous_response_not_found") return error;
  const id = responseId(previous);
  const turns = await allLiveTurns({ id, tenant });
  return turns.some(({ isStored }) => isStored) ? previousResponseNotFound(id, "in_progress") : error;
}

const CODE = "cancelled_by_operator";

/** Ends a turn of this process. Its client gets the output so far. */
export function endTurn(id: string): void {
  const message = "The operator has ended the response.";
  turns
    .get(id)
    ?.deref()
    ?.abort.abort(new ApiError({ status: 499, message, code: CODE }));
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
