import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import type { ItemType } from "./item-type.ts";
import {
  annotation,
  type InputPart,
  inputPart,
  inputText,
  itemId,
  itemStatus,
  logprob,
  MAX_TEXT_LENGTH,
  outputText,
  refusal,
  text,
} from "./parts.ts";
import { answered, COMPLETED, contentDelta, given, inContent, normal, status } from "./shapes.ts";

const givenText = z.object({
  type: z.literal("output_text"),
  text,
  annotations: z.array(z.unknown()).nullish(),
  logprobs: z.array(z.unknown()).nullish(),
});
const givenRefusal = z.object({ type: z.literal("refusal"), refusal: text });

type OutputTextPart = { type: "output_text"; text: string; annotations: unknown[]; logprobs: unknown[] };

function toOutputText(content: string): OutputTextPart {
  return { type: "output_text", text: content, annotations: [], logprobs: [] };
}

function toInputParts(content: string | InputPart[]): InputPart[] {
  return typeof content === "string" ? [{ type: "input_text", text: content }] : content;
}

function inputMessage<Role extends "user" | "system" | "developer", Part extends z.ZodType<InputPart>>(
  role: Role,
  part: Part,
) {
  return given("message", {
    role: z.literal(role),
    content: z.union([text, list(part)]).transform(toInputParts),
    id: itemId,
    status: itemStatus,
  }).transform(normal("type id role status content", {}, COMPLETED));
}

/** An assistant's earlier message; `input_text` in it counts as `output_text` (chat clients send that). */
const assistantMessage = given("message", {
  role: z.literal("assistant"),
  content: z
    .union([text, list(z.discriminatedUnion("type", [givenText, givenRefusal, inputText]))])
    .transform((content) =>
      typeof content === "string"
        ? [toOutputText(content)]
        : content.map((part) => (part.type === "refusal" ? part : toOutputText(part.text))),
    ),
  id: itemId,
  status: itemStatus,
  phase: z.enum(["commentary", "final_answer"]).nullish(),
}).transform(normal("type id role status phase content", COMPLETED));

/**
 * A message that has only a role and texts, as the schemas give it; undefined for every other value. Most items of a
 * resent conversation are such messages.
 */
export function plainMessage(value: unknown): z.output<(typeof message)["input"]> | undefined {
  if (!hasOnly(value, MESSAGE_FIELDS) || (value.type != null && value.type !== "message")) return undefined;
  const { role, content } = value;
  const texts = textsOf(content, role === "assistant" ? ASSISTANT_PARTS : GIVEN_PARTS);
  if (!texts) return undefined;
  switch (role) {
    case "user":
    case "system":
    case "developer":
      return {
        type: "message",
        role,
        ...COMPLETED,
        content: texts.map((each) => ({ type: "input_text", text: each })),
      };
    case "assistant":
      return { type: "message", role, ...COMPLETED, content: texts.map(toOutputText) };
    default:
      return undefined;
  }
}

const MESSAGE_FIELDS = ["type", "role", "content"];
const PART_FIELDS = ["type", "text"];
const GIVEN_PARTS = ["input_text"];
const ASSISTANT_PARTS = ["output_text", "input_text"];

/** The text, or those of all parts; undefined if there is anything else, or one is too long. */
function textsOf(content: unknown, types: readonly string[]): string[] | undefined {
  if (typeof content === "string") return content.length <= MAX_TEXT_LENGTH ? [content] : undefined;
  if (!Array.isArray(content)) return undefined;
  const texts: string[] = [];
  for (const part of content as unknown[]) {
    if (!hasOnly(part, PART_FIELDS)) return undefined;
    const { type, text: said } = part;
    if (typeof type !== "string" || !types.includes(type)) return undefined;
    if (typeof said !== "string" || said.length > MAX_TEXT_LENGTH) return undefined;
    texts.push(said);
  }
  return texts;
}

/** Tells whether a value is an object with only these fields. */
function hasOnly(value: unknown, names: readonly string[]): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false;
  for (const name in value) if (!names.includes(name)) return false;
  return true;
}

export const message = {
  prefix: "msg",
  kind: "message",
  input: z.discriminatedUnion("role", [
    inputMessage("user", inputPart),
    inputMessage("system", inputText),
    inputMessage("developer", inputText),
    assistantMessage,
  ]),
  output: () =>
    answered("message", {
      status: status(),
      role: z.literal("assistant"),
      content: z.array(z.discriminatedUnion("type", [outputText(), refusal()])),
      phase: z.enum(["commentary", "final_answer"]).nullish(),
    }),
  stored: () =>
    answered("message", {
      role: z.enum(["user", "system", "developer"]),
      status: status(),
      content: z.array(inputPart),
    }),
  events: {
    "response.output_text.delta": () => ({ ...contentDelta(), logprobs: z.array(logprob()) }),
    "response.output_text.done": () => ({ ...inContent(), text: z.string(), logprobs: z.array(logprob()) }),
    "response.output_text.annotation.added": () => ({
      ...inContent(),
      annotation_index: z.int().min(0),
      annotation: annotation(),
    }),
    "response.refusal.delta": contentDelta,
    "response.refusal.done": () => ({ ...inContent(), refusal: z.string() }),
  },
} as const satisfies ItemType;
