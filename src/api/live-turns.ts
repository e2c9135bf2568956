import { ApiError } from "@responses-edge/responses-api/errors";

/** The foreground turns of this process, for the operator: never what is said in them. */

interface LiveTurn {
  tenant: string;
  model: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** The name of the model server that it is at. */
  server: () => string;
  abort: AbortController;
}

/** By the ids of their responses. */
const turns = new Map<string, LiveTurn>();

/** Notes a turn until the promise has settled. */
export function noteTurn(id: string, turn: LiveTurn, ended: Promise<unknown>): void {
  turns.set(id, turn);
  const forget = () => turns.delete(id);
  ended.then(forget, forget);
}

/** Those of a tenant, or of all, with ids after `after`. */
export function liveTurns({ tenant, after = "" }: { tenant?: string | undefined; after?: string | undefined }) {
  return [...turns]
    .filter(([id, turn]) => id > after && (tenant === undefined || turn.tenant === tenant))
    .map(([id, turn]) => ({ id, tenant: turn.tenant, turn }));
}

const CODE = "cancelled_by_operator";

/** The turn of this id, if it is the tenant's, or where no tenant is named. */
export function liveTurn(id: string, tenant: string | undefined): LiveTurn | undefined {
  const turn = turns.get(id);
  return tenant === undefined || turn?.tenant === tenant ? turn : undefined;
}

/** Ends a turn, whose client gets what there is of it. */
export function endTurn({ abort }: LiveTurn): void {
  abort.abort(new ApiError({ status: 499, message: "The operator has ended the response.", code: CODE }));
}

/** True if the operator has ended a turn: its client is still there. */
export function isEndedByOperator({ aborted, reason }: AbortSignal): boolean {
  return aborted && reason instanceof ApiError && reason.code === CODE;
}
