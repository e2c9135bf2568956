import { ApiError } from "@responses-edge/responses-api/errors";
import { answeredStatus } from "./model-server.ts";

/**
 * A fault is about one of these, in the order in which a client should hear of it: what was asked (and no other server would do
 * better), a model that the server does not have, the server itself, or its having too much to do.
 */
export const BLAMES = ["request", "model", "server", "admission"] as const;
export type Blame = (typeof BLAMES)[number];

/** The one that a fault is about. */
export function blameFor(fault: ApiError): Blame {
  const { status, code } = fault;
  if (code === "server_is_overloaded" || code === "rate_limit_exceeded") return "admission";
  if (code === "model_not_found") return "model";
  if (status < 500) return "request";
  const answered = answeredStatus(fault) ?? 500;
  // Routes that a server does not have, others of the same kind do not have, either.
  const isCredentials = answered === 401 || answered === 403;
  return answered >= 400 && answered < 500 && !isCredentials ? "request" : "server";
}

/** A page for people, with a 200: what a proxy says that has no server, or wants a login. */
export function isPage({ headers }: Response): boolean {
  return headers.get("content-type")?.startsWith("text/html") ?? false;
}

/**
 * The error of a model that no server has: 400, or the status that the endpoint gives it. A server's own words are not repeated: they
 * name the models of that server alone, and `/v1/models` names those that the key may use.
 */
export function unknownModel(model: string | undefined, status = 400): ApiError {
  const message = `The model '${model}' does not exist: no model server has it. GET /v1/models lists those there are.`;
  return new ApiError({ status, message, param: "model", code: "model_not_found" });
}
