import { z } from "zod";
import { once } from "../items/shapes.ts";
import { responseSchemas } from "../response.ts";

/** The prompt of a stored response. OpenAI has no such thing. */
export const responsePrompt = once(() =>
  z.object({
    object: z.literal("response.prompt"),
    server: z.string().nullable().describe("The model server that was asked last."),
    model: z.string().describe("The model's name there."),
    messages: z
      .array(z.looseObject({}))
      .nullable()
      .describe("As the model server was sent them in the first round; null if the history was deleted."),
    tools: z
      .array(z.looseObject({}))
      .describe("As the model server was sent them; without messages those of the request."),
    parameters: responseSchemas()
      .ResponseObject.pick({
        temperature: true,
        top_p: true,
        presence_penalty: true,
        frequency_penalty: true,
        top_logprobs: true,
        max_output_tokens: true,
        max_tool_calls: true,
        parallel_tool_calls: true,
        tool_choice: true,
        text: true,
        reasoning: true,
        truncation: true,
      })
      .extend({ chat_template_kwargs: z.looseObject({}).optional() }),
    rendered: z.string().nullable().describe("The prompt as the model gets it; null if nobody can render it now."),
    rendered_by: z
      .string()
      .nullable()
      .describe("The model server by whose chat template; `gateway` for prompts of gpt-oss, which are rendered here."),
    raw: z.boolean().describe("The messages are the raw ones that `enable_response_messages` has kept."),
  }),
);
export type ResponsePrompt = z.output<ReturnType<typeof responsePrompt>>;
