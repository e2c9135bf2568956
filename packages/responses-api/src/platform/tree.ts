import { z } from "zod";
import { once } from "../items/shapes.ts";
import { responseSchemas } from "../response.ts";

/** The tree that continuations form, in the API. OpenAI has no such thing. */

const text = z.string();
const count = z.int().min(0);

/** The beginning of a message: one line, with `…` at its end if there is more; empty for an item without text. */
const preview = z.object({ type: text, text }).nullable();

/** A response as a node. Its continuations name it. */
export const treeNode = once(() =>
  z.object({
    id: text,
    object: z.literal("response.node"),
    previous_response_id: text.nullable().describe("The node that it continues, which may have been deleted."),
    position: count
      .nullable()
      .describe("Its position in the conversation, from 1; null outside of one. Not every position has a response."),
    continues_position: count.nullable().describe("The last position of the conversation that the turn saw."),
    created_at: count.describe("Unix seconds."),
    status: responseSchemas().ResponseObject.shape.status,
    background: z.boolean(),
    model: text,
    usage: z.object({ input_tokens: count, output_tokens: count, total_tokens: count }).nullable(),
    input: preview,
    output: preview,
  }),
);

export type TreeNode = z.output<ReturnType<typeof treeNode>>;
export type Preview = NonNullable<z.output<typeof preview>>;
