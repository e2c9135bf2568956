import { count } from "./format.ts";
import type { ApiObject } from "./json.ts";

/** The parts of a prompt, in words. */
const PARTS: Record<string, string> = {
  effort: "the reasoning effort",
  tool: "tool",
  format: "the format of the answer",
  input: "message",
};

/** The comparison of a response's prompt with an earlier one, in words; undefined if there is none. */
export function cacheInWords({ prompt_cache_diagnostics: found }: ApiObject) {
  if (!found) return undefined;
  if (found.type === "cache_hit") return "all of the compared prompt could be used again";
  if (found.type === "comparison_response_not_found") return "the compared response is not there";
  if (found.type !== "cache_miss") return "the model server does not tell";
  const { first_difference: first, cache_missed_tokens: missed } = found;
  const computed = `${count(missed)} tokens were computed again`;
  if (!first) return `${String(found.reason).replaceAll("_", " ")}: ${computed}`;
  const isCounted = first.part === "tool" || first.part === "input";
  const which = isCounted ? ` ${first.index + 1}${first.name ? ` (${first.name})` : ""}` : "";
  const why = first.by_template ? ", which the chat template renders otherwise" : "";
  return `differs from ${PARTS[first.part] ?? first.part}${which} on${why}: ${computed}`;
}
