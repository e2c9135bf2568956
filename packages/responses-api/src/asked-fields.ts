import type { ResponseObject } from "./response.ts";

/** Fields of a response that tell of its result, or of what it continues, rather than repeat its request. */
const NOT_ASKED: ReadonlySet<string> = new Set(
  [
    "id object created_at completed_at status background error incomplete_details output usage",
    "previous_response_id conversation moderation prompt access_programs billing tool_usage cut_items recovery",
    "input_messages output_messages input_transformations prompt_cache_options prompt_cache_diagnostics",
    "kv_transfer_params",
  ]
    .join(" ")
    .split(" "),
);

/**
 * The fields of a request that a response repeats, as far as they were set: all but its input and what it continues. Fields that no response
 * shows, such as `seed` and `stop`, are not among them.
 */
export function askedFields(head: Omit<ResponseObject, "output">): Record<string, unknown> {
  return Object.fromEntries(Object.entries(head).filter(([field, value]) => !NOT_ASKED.has(field) && value !== null));
}
