import { invalidRequest, responseNotFound } from "@responses-edge/responses-api/errors";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import { upstreamErrorOf } from "@responses-edge/turn/timing";
import type { ResponseDetails } from "../contract/admin-objects.ts";
import type { Env } from "../env.ts";
import { HomeClient } from "../store/home/home-client.ts";
import { timingOf } from "../store/home/stored-response.ts";
import { responseAddress } from "./responses.ts";

/**
 * A stored response of a tenant, for its administrator: its times, and what a model server has said of a failure, never its content.
 * Throws the 400 of a missing tenant, and the 404 of a response that the tenant does not have.
 */
export async function responseDetailsOf(env: Env, tenant: string | undefined, id: string): Promise<ResponseDetails> {
  if (tenant === undefined)
    throw invalidRequest("tenant", "Name the tenant of the response.", "missing_required_parameter");
  const { home, turn } = responseAddress(id);
  const stored = await new HomeClient(env, tenant).ask(home, null, (stub) => stub.retrieve(turn));
  if (!stored) throw responseNotFound(id);
  const { created_at, status, model, error } = JSON.parse(stored.head) as ResponseObject;
  return {
    ...{ object: "response.details", id, tenant, created_at, status, model, error },
    timing: JSON.parse(timingOf(stored)) as ResponseDetails["timing"],
    upstream_error: (stored.keptTiming === null ? undefined : upstreamErrorOf(stored.keptTiming)) ?? null,
  };
}
