import type { HttpAnswer } from "@responses-edge/outgoing-fetch/socket";
import { ApiError } from "@responses-edge/responses-api/errors";
import { answeredStatus } from "./model-server.ts";

/**
 * The kinds of things that a fault may be about, in the order in which a client should hear of several: the request (no other server would do
 * better), a model that the server lacks, the server itself, or its overload.
 */
export const BLAMES = ["request", "model", "server", "admission"] as const;
export type Blame = (typeof BLAMES)[number];

/** Classifies a fault. */
export function blameFor(fault: ApiError): Blame {
  const { status, code } = fault;
  if (code === "server_is_overloaded" || code === "rate_limit_exceeded") return "admission";
  if (code === "model_not_found") return "model";
  if (status < 500) return "request";
  const answered = answeredStatus(fault) ?? 500;
  // A route that one server lacks is missing at others of the same kind, too.
  const isCredentials = answered === 401 || answered === 403;
  return answered >= 400 && answered < 500 && !isCredentials ? "request" : "server";
}

/** An HTML page with a 200: the answer of a proxy without a server, or with a login. */
export function isPage({ headers }: HttpAnswer): boolean {
  return headers.get("content-type")?.startsWith("text/html") ?? false;
}

/**
 * The error of a model that no server has: 400, or the endpoint's own status. The server's text is not repeated: it
 * names the models of that server, while `/v1/models` names those that the key may use.
 */
export function unknownModel(model: string | undefined, status = 400): ApiError {
  const message = `The model '${model}' does not exist: no model server has it. GET /v1/models lists the models.`;
  return new ApiError({ status, message, param: "model", code: "model_not_found" });
}
