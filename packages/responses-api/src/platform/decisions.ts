import { list } from "@responses-edge/bounded-io/schemas/collections";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { z } from "zod";
import { requestFields } from "../create-fields.ts";
import { inputPart } from "../items/parts.ts";
import { inputItem } from "../items/registry.ts";
import { isJsonObject } from "../json.ts";
import { refuse } from "../tool-fields.ts";

/**
 * The bodies of `POST /v1/decisions` (openai 7.59 `Decision`): questions about an input, answered with probabilities.
 */

const MAX_QUESTIONS = 400;
const MAX_CHOICES = 255;

/** OpenAI names no limit. A hundred levels are more than people distinguish. */
const MAX_LEVELS = 100;

const MAX_TEXT_LENGTH = 65_536;
const MAX_INSTRUCTION_PARTS = 64;

const text = z.string().max(MAX_TEXT_LENGTH);
const name = z.string().min(1).max(256).optional();

const instructionPart = z.discriminatedUnion("type", [
  z.object({ type: z.literal("input_text"), text }),
  z.object({
    type: z.literal("input_image"),
    image_url: z.string().min(1),
    detail: z.enum(["low", "high", "auto", "original"]).nullish(),
  }),
]);

const instructions = z.union([text.min(1), list(instructionPart, { min: 1, max: MAX_INSTRUCTION_PARTS })]);

const choice = z.object({ value: z.union([z.string().min(1).max(1_024), z.boolean()]), description: text.optional() });
const level = z.object({ label: z.string().min(1).max(1_024), description: text.optional() });

const question = z
  .discriminatedUnion("type", [
    z.object({ type: z.literal("predicate"), name, instructions }),
    z.object({ type: z.literal("choice"), name, instructions, choices: list(choice, { min: 2, max: MAX_CHOICES }) }),
    z.object({ type: z.literal("score"), name, instructions, levels: list(level, { min: 2, max: MAX_LEVELS }) }),
  ])
  .superRefine((asked, context) => {
    const values = asked.type === "choice" ? asked.choices.map(({ value }) => value) : [];
    const labels = asked.type === "score" ? asked.levels.map(({ label }) => label) : values;
    const seen = new Set<unknown>();
    for (const [index, value] of labels.entries()) {
      const path = asked.type === "choice" ? ["choices", index, "value"] : ["levels", index, "label"];
      if (seen.has(value)) refuse(context, path, `Duplicate value: '${String(value)}'.`, "invalid_value");
      seen.add(value);
    }
  });

export type Question = z.output<typeof question>;

/** The questions of a body. `decisionRequest` reads the other fields. */
export const decisionQuestions = z.object({ questions: list(question, { min: 1, max: MAX_QUESTIONS }) });

const INPUT_TYPES: readonly string[] = [
  "message",
  "function_call",
  "function_call_output",
  "custom_tool_call",
  "custom_tool_call_output",
];

const askedFields = requestFields
  .pick({ input: true, prompt_cache_key: true, prompt_cache_options: true, safety_identifier: true })
  .extend({ model: z.string().min(1).max(512) });

/**
 * A body as the create whose prompt every question is put to. It keeps nothing. A part of JSON is a part of text, as OpenAI documents it
 * (compact JSON).
 */
export const decisionRequest = z.preprocess(
  withJsonAsText,
  askedFields
    .superRefine(({ input }, context) => {
      if (input == null || input.length === 0)
        refuse(context, ["input"], "Missing required parameter: 'input'.", "missing_required_parameter");
      if (!Array.isArray(input)) return;
      const index = input.findIndex(({ type }) => !INPUT_TYPES.includes(type));
      const { type } = input[index] ?? {};
      if (type !== undefined)
        refuse(
          context,
          ["input", index, "type"],
          `Items of type '${type}' are not part of a decision.`,
          "invalid_value",
        );
    })
    .transform((body) => ({ ...body, store: false, stream: false, background: false })),
);

/** The whole body, for the API's description. */
export const createDecision = describedAs(z.unknown(), () => {
  const json = z.object({
    type: z.literal("input_json"),
    data: z.unknown().describe("An object, or an array of objects."),
  });
  const message = z.object({
    type: z.literal("message").optional(),
    role: z.literal("user"),
    content: z.array(z.union([inputPart, json])),
  });
  return askedFields.extend({
    input: z.union([z.string(), z.array(z.union([inputItem, message]))]),
    questions: list(question, { min: 1, max: MAX_QUESTIONS }),
  });
});

/** A body with text instead of `input_json` in its messages. Everything else is unchanged, so that the schema refuses it. */
function withJsonAsText(body: unknown): unknown {
  if (!isJsonObject(body) || !Array.isArray(body.input)) return body;
  return { ...body, input: body.input.map((item: unknown) => withTextParts(item)) };
}

function withTextParts(item: unknown): unknown {
  if (!isJsonObject(item) || !Array.isArray(item.content)) return item;
  return { ...item, content: item.content.map((part: unknown) => asText(part)) };
}

function asText(part: unknown): unknown {
  if (!isJsonObject(part) || part.type !== "input_json" || typeof part.data !== "object" || part.data === null)
    return part;
  return { type: "input_text", text: JSON.stringify(part.data) };
}

/** The answers, as openai 7.59 has them. */
export const decisionObject = () => {
  const probability = z.number().min(0).max(1);
  const answered = { name: z.string().nullable() };
  const value = z.union([z.string(), z.boolean()]);
  return z.object({
    model: z.string(),
    answers: z.array(
      z.discriminatedUnion("type", [
        z.object({ type: z.literal("predicate"), ...answered, probability }),
        z.object({
          type: z.literal("choice"),
          ...answered,
          choice: value,
          confidence: probability,
          probabilities: z.array(z.object({ value, probability })),
        }),
        z.object({
          type: z.literal("score"),
          ...answered,
          score: z.number(),
          confidence: probability,
          probabilities: z.array(z.object({ label: z.string(), value: z.number(), probability })),
        }),
        z.object({ type: z.literal("refusal"), ...answered }),
      ]),
    ),
    usage: z.object({
      input_tokens: z.int(),
      input_tokens_details: z.object({ cache_write_tokens: z.int(), cached_tokens: z.int() }),
      output_tokens: z.int(),
      output_tokens_details: z.object({ reasoning_tokens: z.int() }),
      total_tokens: z.int(),
    }),
  });
};

export type Decision = z.output<ReturnType<typeof decisionObject>>;
export type Answer = Decision["answers"][number];
