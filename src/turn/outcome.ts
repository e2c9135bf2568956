import type { FinishReason } from "../contract/engine.ts";
import { ApiError } from "../protocol/errors.ts";

/** How a turn ended. */
export type Outcome =
  | { status: "completed" }
  | { status: "incomplete"; reason: "max_output_tokens" | "content_filter" }
  | { status: "cancelled" }
  | { status: "failed"; error: ApiError };

/**
 * How a turn ends with a generation that has come to its end, compared with what was asked for: no answer is called
 * completed that is none. `finish` is why the model stopped. `broken` says what of the request the answer does not keep to, once
 * the model has been asked as often as may be; the engines tell it, which know what was asked of the model server.
 */
export function outcomeOf(finish: FinishReason | undefined, broken?: string): Outcome {
  if (finish === "length") return { status: "incomplete", reason: "max_output_tokens" };
  if (finish === "content_filter") return { status: "incomplete", reason: "content_filter" };
  if (broken === undefined) return { status: "completed" };
  const error = new ApiError({
    status: 502,
    message: `The model was asked again in vain: its answer is none that was asked for. It ends in ${broken}`,
    code: "upstream_malformed_response",
  });
  return { status: "failed", error };
}
