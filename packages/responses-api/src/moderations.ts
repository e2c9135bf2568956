import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import { once } from "./items/shapes.ts";

/** `moderation` of a create, and the bodies of `/v1/moderations` (openai 7.59). */

const modelName = z.string().min(1).max(1_024);

const side = z.object({ mode: z.enum(["score", "block"]) }).nullish();

/** The judged sides of a turn, and their guard. */
export const moderationField = z.object({
  model: modelName,
  policy: z.object({ input: side, output: side }).nullish(),
});

/** The maximum of texts of one request. Each is judged separately. */
const MAX_TEXTS = 128;

/** UTF-16 units of one text. */
const MAX_TEXT_LENGTH = 1_048_576;

const text = z.string().max(MAX_TEXT_LENGTH);

const part = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text"), text }),
  z.object({ type: z.literal("image_url"), image_url: z.object({ url: z.string().min(1) }) }),
]);

export const moderationRequest = z.object({
  input: z.union([text, list(text, { min: 1, max: MAX_TEXTS }), list(part, { min: 1, max: MAX_TEXTS })]),
  model: modelName.nullish(),
});

/** Makes the schemas of judgements. They only describe. */
export const moderationSchemas = once(() => {
  const fields = {
    flagged: z.boolean(),
    categories: z.record(z.string(), z.boolean()),
    category_scores: z.record(z.string(), z.number().min(0).max(1)),
    category_applied_input_types: z.record(z.string(), z.array(z.enum(["text", "image"]))),
  };
  const Result = z.discriminatedUnion("type", [
    z.object({ type: z.literal("moderation_result"), model: z.string(), ...fields }),
    z.object({ type: z.literal("error"), code: z.string(), message: z.string() }),
  ]);
  const ResponseModeration = z.object({ input: Result, output: Result });
  const Moderation = z.object({ id: z.string(), model: z.string(), results: z.array(z.object(fields)) });
  return { ResponseModeration, Moderation };
});

export type Moderation = z.output<ReturnType<typeof moderationSchemas>["Moderation"]>;
