import type { ListedResponse } from "@responses-edge/responses-api/platform/listed-response";
import { costOf } from "@responses-edge/usage-limits";
import type { z } from "zod";
import type { Config } from "../config/index.ts";
import type { Env } from "../env.ts";
import { unknownCursor } from "../store/home/item-store.ts";
import { tagOf } from "../store/tenant/response-index/entry.ts";
import type { ListedTree } from "../store/tenant/response-index/tree-list.ts";
import { page } from "./keys.ts";
import type { responsesQuery } from "./queries.ts";

/** The stored responses of a tenant, as its index has them. */

type Summary = Omit<ListedResponse, "cost_usd" | "tree">;

/**
 * A page of the responses that match all filters, by their time of creation; or of the trees of which a response does, by that of their
 * newest response. Throws the 400 of an `after` that is not listed.
 */
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
    group_by: group,
    ...times
  }: z.output<typeof responsesQuery>,
) {
  const index = indexes.getByName(tenant);
  const asked = {
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
  };
  const found =
    group === "tree" ? (await index.listTrees(asked))?.map(treeOf) : (await index.list(asked))?.map(summaryOf);
  if (!found) throw unknownCursor(after ?? "");
  return page(
    found.map((response) => ({ ...response, cost_usd: costOfResponse(response, config) })),
    limit,
  );
}

const summaryOf = (body: string) => JSON.parse(body) as Summary;

function treeOf({ newest, root, responses }: ListedTree): Omit<ListedResponse, "cost_usd"> {
  const { id, input, metadata, created_at } = summaryOf(root);
  return { ...summaryOf(newest), tree: { root_id: id, input, metadata, created_at, responses } };
}

function costOfResponse(
  { model, usage }: Pick<Summary, "model" | "usage">,
  { keys: { prices } }: Config,
): number | null {
  const tokens = usage && {
    input: usage.input_tokens,
    cached: usage.input_tokens_details.cached_tokens,
    output: usage.output_tokens,
  };
  return tokens && costOf(model, tokens, prices) / 1e6;
}
