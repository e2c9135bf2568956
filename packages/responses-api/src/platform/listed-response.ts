import { z } from "zod";
import { once } from "../items/shapes.ts";
import { responseSchemas } from "../response.ts";

/** A response in the list of responses. OpenAI has such a list in its dashboard only. */
export const listedResponse = once(() => {
  const preview = z.object({ type: z.string(), text: z.string() }).nullable();
  const { ResponseObject } = responseSchemas();
  return ResponseObject.pick({
    id: true,
    created_at: true,
    completed_at: true,
    status: true,
    background: true,
    model: true,
    previous_response_id: true,
    conversation: true,
    metadata: true,
    usage: true,
    error: true,
    incomplete_details: true,
  }).extend({
    object: z.literal("response.summary"),
    duration_ms: z.int().min(0).nullable().describe("From the request to the end; null while it runs."),
    server: z.string().nullable().describe("The model server that was asked last; null while it runs."),
    waited_ms: z.int().min(0).nullable().describe("How long it waited for its conversation."),
    first_token_ms: z.int().min(0).nullable().describe("From the request to the first token."),
    attempts: z.int().min(0).nullable().describe("HTTP requests to model servers for its answer."),
    cost_usd: z.number().min(0).nullable().describe("By MODEL_PRICES; null while no usage is known."),
    input: preview.describe("The beginning of the user's last message."),
    output: preview.describe("The beginning of the model's last text, or its last call."),
    tree: z
      .object({
        root_id: z
          .string()
          .describe("The first response of the tree; if that was deleted or has expired, the oldest that is left."),
        input: preview.describe("The beginning of the root's message."),
        metadata: ResponseObject.shape.metadata.describe("The root's metadata."),
        created_at: z.int().describe("When the root was created, Unix seconds."),
        responses: z.int().min(1).describe("How many stored responses the tree has."),
      })
      .optional()
      .describe("Only with `group_by=tree`, where the response is the newest of its tree."),
  });
});
export type ListedResponse = z.output<ReturnType<typeof listedResponse>>;
