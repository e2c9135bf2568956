import type { z } from "zod";
import type { RequestSummary } from "../contract/admin-objects.ts";
import type { Env } from "../env.ts";
import { unknownCursor } from "../store/home/item-store.ts";
import { page } from "./keys.ts";
import type { requestsQuery } from "./queries.ts";

/** Requests that have ended, of all tenants or of one, as the board has logged them: never their content. */

export interface RequestsReader {
  boards: Env["BOARD"];
  /** The only tenant that the reader may see; undefined for an administrator of all. */
  tenant: string | undefined;
  /** The reader is an administrator: others do not see what model servers have said. */
  isAdministrator: boolean;
}

/** A page of the requests that match all filters, the last that ended first. Throws the 400 of an `after` that is not in the log. */
export async function listRequests(
  { boards, tenant, isAdministrator }: RequestsReader,
  { limit, after, api_key_id: key, min_duration_ms: minMs, ...query }: z.output<typeof requestsQuery>,
) {
  const { model, server, status, "created_at[gte]": from, "created_at[lt]": until } = query;
  const filters = { tenant: tenant ?? query.tenant, key, model, server, status, minMs, from, until };
  const found = await boards.getByName().requests({ ...filters, after, limit: limit + 1 });
  if (!found) throw unknownCursor(after ?? "");
  return page(isAdministrator ? found : found.map(withoutUpstream), limit);
}

function withoutUpstream(request: RequestSummary): RequestSummary {
  return { ...request, error: request.error && { ...request.error, upstream: null } };
}
