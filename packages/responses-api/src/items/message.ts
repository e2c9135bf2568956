import { z } from "zod";
import { list } from "../collections.ts";
import type { ItemType } from "./item-type.ts";
import {
  annotation,
  type InputPart,
  inputPart,
  inputText,
  itemId,
  itemStatus,
  logprob,
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

/** An assistant's earlier message; `input_text` in it is read as `output_text` (chat clients send that). */
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
