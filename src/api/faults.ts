import { logLine } from "@responses-edge/bounded-io/json-text";
import { ApiError, internalError } from "@responses-edge/responses-api/errors";
import { ConfigError } from "../config/index.ts";
import { isOfStorage } from "../store/objects/damage.ts";
import { insufficientStorage, objectUnreachable, processState } from "../store/objects/process-state.ts";
import { isRetryable } from "../store/objects/rpc.ts";

/** Where an unexpected error happened, for the log. */
export interface FaultPlace {
  requestId: string;
  path: string;
  /** A request that was cut off because its client left is no fault. */
  hasClientLeft: boolean;
}

/** The error as the client sees it. Logs an unexpected error. */
export function toShownError(error: unknown, place: FaultPlace): ApiError {
  const isExpected = error instanceof ApiError || error instanceof ConfigError;
  if (!isExpected && !place.hasClientLeft) logUnexpected(error, place);
  return shownError(error);
}

/** The error as the client sees it. */
export function shownError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof ConfigError) {
    const message = `This deployment is misconfigured. ${error.message}.`;
    return new ApiError({ status: 500, message, code: "server_misconfigured" });
  }
  if (isRetryable(error)) return objectUnreachable();
  if (!isOfStorage(error)) return internalError();
  return processState.isDiskClosed ? insufficientStorage() : storageError();
}

/** Faults of a model server that is gone, or overloaded without saying for how long. It may be back soon. */
const AWAY = new Set([
  ...["upstream_unreachable", "upstream_connection_lost", "upstream_engine_dead", "upstream_aborted"],
  ...["server_is_overloaded", "no_model", "model_server_unknown"],
]);

/** The headers of an error as the client gets them, with `Retry-After` for a model server that is gone. */
export function shownHeaders({ code, headers }: ApiError): Record<string, string> {
  return { ...(AWAY.has(code) && { "retry-after": "2" }), ...headers };
}

function storageError(): ApiError {
  const message = "This server's storage could not be read or written. Please try again later.";
  return new ApiError({ status: 500, message, code: "storage_error" });
}

/** Logs where a fault happened. Its message stays out: it may quote a prompt or a key. */
function logUnexpected(error: unknown, { requestId, path }: FaultPlace): void {
  const { name, stack = "" } = error instanceof Error ? error : { name: typeof error };
  const at = stack.split("\n").filter((line) => /^\s*at /.test(line));
  console.error(logLine({ level: "error", request_id: requestId, path, error: name, at }));
}
