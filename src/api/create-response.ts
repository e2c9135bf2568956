import { checkCreation } from "./creation.ts";
import { runForeground } from "./foreground.ts";
import { RequestScope } from "./request-scope.ts";
import { answerRun, createOnce, startRun } from "./runs.ts";
import type { Caller, ClientSink, Created, SlowAnswer } from "./transport.ts";

export interface CreateOptions<Sink extends ClientSink> {
  idempotencyKey?: string | undefined;
  /** The session that an earlier answer gave the client to send again. Requests with the same one share a prefix. */
  turnState?: string | undefined;
  /**
   * Makes the sink for the events of a foreground turn with `stream`, which makes the response `id`. `onLeft` is to be
   * called when nobody reads them any more. A sink that has been made is always ended or abandoned.
   */
  openSink: (onLeft: () => void, id: string) => Sink;
  /** Keeps the client of a foreground turn without `stream` while the model answers. */
  slowAnswer?: SlowAnswer | undefined;
}

/**
 * Creates a response. `body` is the request's, as parsed JSON. A foreground turn runs here, and stops with its client;
 * a background run, or one with an idempotency key, lives in its home.
 * Throws ApiError: for all that refuses the request before its turn has begun, and, where the request neither streams
 * nor runs in the background, for a turn that fails before `slowAnswer` has begun.
 */
export async function createResponse<Sink extends ClientSink>(
  caller: Caller,
  body: unknown,
  { idempotencyKey, turnState, openSink, slowAnswer }: CreateOptions<Sink>,
): Promise<Created<Sink>> {
  using scope = RequestScope.open(caller);
  const kind = idempotencyKey === undefined ? undefined : "run";
  const creation = await checkCreation(scope, caller, body, { turnState, kind });
  if (idempotencyKey !== undefined) return await createOnce(creation, idempotencyKey, body);
  if (creation.request.background) return await answerRun(creation, await startRun(creation));
  return await runForeground(creation, openSink, slowAnswer);
}
