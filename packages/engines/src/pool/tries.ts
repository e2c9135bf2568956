import type { ApiError } from "@responses-edge/responses-api/errors";
import { type Blame, blameFor, unknownModel } from "../blame.ts";
import { serves } from "../model-names.ts";
import { answeredStatus, type ModelServer } from "../model-server.ts";

/** How many servers get a request, and the fault that its client gets if none answers. */

/** Most servers that get the same request. */
export const MAX_TRIES = 3;

/** The same for a fault that may not be the server's own: the prompt may be the cause. */
const MAX_TRIES_AT_FAILURE = 2;

/** The total number of servers that may get a request which has failed with this fault. */
export function triesAfter(
  fault: ApiError,
  blame: Blame,
  servers: readonly ModelServer[],
  model: string | undefined,
): number {
  // If all lists lack the model, no server has it.
  if (blame === "model") return servers.some((each) => serves(each, model ?? "") !== false) ? MAX_TRIES : 1;
  return answeredStatus(fault) === 500 && fault.code === "upstream_error" ? MAX_TRIES_AT_FAILURE : MAX_TRIES;
}

/**
 * The fault that the client gets, among those of the servers. A name that all lists lack is unknown, whichever server
 * was asked and whether it was reachable: the answer must not depend on the choice.
 */
export function verdict(fault: ApiError, servers: readonly ModelServer[], model: string | undefined): ApiError {
  const blame = blameFor(fault);
  if (blame === "model") return unknownModel(model, fault.status);
  const isUnlisted = model !== undefined && servers.every((server) => serves(server, model) === false);
  return isUnlisted && blame === "server" ? unknownModel(model) : fault;
}
