import { z } from "zod";

/** The settings of the output in a request, and in an item in the middle of a conversation. */

export const reasoningEffort = z.enum(["none", "minimal", "low", "medium", "high", "xhigh", "max"]);

const jsonSchemaFormat = z
  .object({
    type: z.literal("json_schema"),
    name: z
      .string()
      .min(1)
      .max(64, { abort: true })
      .regex(/^[a-zA-Z0-9_-]+$/),
    schema: z.record(z.string(), z.unknown()),
    description: z.string().nullish(),
    strict: z.boolean().nullish(),
  })
  .transform((format) => ({
    type: format.type,
    name: format.name,
    schema: format.schema,
    ...(format.description != null && { description: format.description }),
    strict: format.strict ?? false,
  }));

/** The format of the final text. */
export const textFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  jsonSchemaFormat,
]);
