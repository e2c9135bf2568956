import { ConfigError } from "../config.ts";
import { ApiError, internalError, objectUnreachable } from "../protocol/errors.ts";
import { isRetryable } from "../store/retryable.ts";

/** Where something unforeseen happened, for the log. */
export interface FaultPlace {
  requestId: string;
  path: string;
  /** What breaks off because its client has left is no fault. */
  hasClientLeft: boolean;
}

/** What the client gets to see of an error, whatever it is. One that nobody foresaw is logged. */
export function toShownError(error: unknown, place: FaultPlace): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof ConfigError) {
    const message = `This deployment is misconfigured. ${error.message}.`;
    return new ApiError({ status: 500, message, code: "server_misconfigured" });
  }
  if (!place.hasClientLeft) logUnexpected(error, place);
  return isRetryable(error) ? objectUnreachable() : internalError();
}

/** Logs where a fault happened. Its message stays out: it may quote a prompt or a key. */
function logUnexpected(error: unknown, { requestId, path }: FaultPlace): void {
  const { name, stack = "" } = error instanceof Error ? error : { name: typeof error };
  const at = stack.split("\n").filter((line) => /^\s*at /.test(line));
  console.error(JSON.stringify({ level: "error", request_id: requestId, path, error: name, at }));
}
