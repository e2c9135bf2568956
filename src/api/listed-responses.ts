import type { ListedResponse } from "@responses-edge/responses-api/platform/listed-response";
import { costOf } from "@responses-edge/usage-limits";
import type { z } from "zod";
import type { Config } from "../config/index.ts";
import type { Env } from "../env.ts";
import { unknownCursor } from "../store/home/item-store.ts";
import { tagOf } from "../store/tenant/response-index/entry.ts";
import { page } from "./keys.ts";
import type { responsesQuery } from "./queries.ts";

/** The stored responses of a tenant, as its index has them. */

/** A page of the responses that match all filters, by their time of creation. Throws the 400 of an `after` that is not listed. */
export async function listResponses(
  { tenant, config }: { tenant: string; config: Config },
  indexes: Env["RESPONSE_INDEXES"],
  {
    limit,
    order,
    after,
    id,
    model,
    status,
    conversation,
    metadata = {},
    query: text,
    ...times
  }: z.output<typeof responsesQuery>,
) {
  const found = await indexes.getByName(tenant).list({
    limit: limit + 1,
    order,
    after,
    id,
    text,
    tags: [
      ...(model === undefined ? [] : [tagOf("model", model)]),
      ...(status === undefined ? [] : [tagOf("status", status)]),
      ...(conversation === undefined ? [] : [tagOf("conversation", conversation)]),
      ...Object.entries(metadata).map(([key, value]) => tagOf("metadata", key, value)),
    ],
    from: (times["created_at[gte]"] ?? 0) * 1000,
    until: (times["created_at[lt]"] ?? Number.POSITIVE_INFINITY) * 1000,
  });
  if (!found) throw unknownCursor(after ?? "");
  return page(
    found.map((body) => shown(JSON.parse(body) as Omit<ListedResponse, "cost_usd">, config)),
    limit,
  );
}

function shown(response: Omit<ListedResponse, "cost_usd">, { keys: { prices } }: Config): ListedResponse {
  const { model, usage } = response;
  const tokens = usage && {
    input: usage.input_tokens,
    cached: usage.input_tokens_details.cached_tokens,
    output: usage.output_tokens,
  };
  return { ...response, cost_usd: tokens && costOf(model, tokens, prices) / 1e6 };
}
