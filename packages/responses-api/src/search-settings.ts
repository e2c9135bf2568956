import { z } from "zod";
import { attributeFilter } from "./attribute-filter.ts";

/** The settings of a search in vector stores beside its queries, for the endpoint and for the tool `file_search`. */

/** OpenAI's limit of results. */
export const MAX_RESULTS = 50;

/** The relative weights of embeddings and words, in the form of the tool `file_search`. */
const hybridSearch = z
  .object({ embedding_weight: z.number().min(0).max(1_000), text_weight: z.number().min(0).max(1_000) })
  .refine(({ embedding_weight: one, text_weight: other }) => one + other > 0, "Expected a weight above 0.");

export const rankingOptions = z.object({
  ranker: z.enum(["none", "auto", "default-2024-11-15"]).nullish(),
  score_threshold: z.number().min(0).max(1).nullish(),
  hybrid_search: hybridSearch.nullish(),
});
export type RankingOptions = z.output<typeof rankingOptions>;

export const searchSettings = {
  filters: attributeFilter.nullish(),
  max_num_results: z.int().min(1).max(MAX_RESULTS).nullish(),
  ranking_options: rankingOptions.nullish(),
};
