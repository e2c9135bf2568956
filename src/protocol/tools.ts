import * as z from "zod";

/** Tools and tool choice of a request: those of client-side functions; hosted tools are refused by name. */

const FUNCTION_NAME = /^[a-zA-Z0-9_-]+$/;

const functionTool = z
  .object({
    type: z.literal("function"),
    name: z.string().regex(FUNCTION_NAME).max(128),
    description: z.string().nullish(),
    parameters: z.record(z.string(), z.unknown()).nullish(),
    strict: z.boolean().nullish(),
  })
  // Echoed with every key present, as OpenAI and the Open Responses schema do.
  .transform((tool) => ({
    type: tool.type,
    name: tool.name,
    description: tool.description ?? null,
    parameters: tool.parameters ?? null,
    strict: tool.strict ?? null,
  }));

export type FunctionTool = z.output<typeof functionTool>;

function refuseHostedTool(value: unknown, context: z.RefinementCtx): unknown {
  if (typeof value === "object" && value !== null && "type" in value && typeof value.type === "string") {
    if (value.type !== "function") {
      context.addIssue({
        code: "custom",
        path: ["type"],
        message: `The tool type '${value.type}' is not supported by this server. Supported values are: 'function'.`,
        params: { code: "unsupported_parameter" },
      });
      return z.NEVER;
    }
  }
  return value;
}

export const tools = z.array(z.preprocess(refuseHostedTool, functionTool)).max(1024);

const namedFunction = z.object({ type: z.literal("function"), name: z.string().min(1) });

const allowedTools = z.object({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: z.array(namedFunction).min(1),
});

/** The choices that name a hosted tool: valid in OpenAI's API, refused here. */
const UNSERVED_CHOICES = new Set([
  "apply_patch",
  "code_interpreter",
  "computer",
  "computer_use",
  "computer_use_preview",
  "custom",
  "file_search",
  "image_generation",
  "mcp",
  "programmatic_tool_calling",
  "shell",
  "web_search_preview",
  "web_search_preview_2025_03_11",
]);

/** Accepts also chat completions' nested `{type:"function", function:{name}}`, which some clients send here. */
function normaliseChoice(value: unknown, context: z.RefinementCtx): unknown {
  if (typeof value !== "object" || value === null || !("type" in value)) return value;
  if (typeof value.type === "string" && UNSERVED_CHOICES.has(value.type)) {
    context.addIssue({
      code: "custom",
      path: ["type"],
      message: `The tool choice '${value.type}' is not supported by this server.`,
      params: { code: "unsupported_parameter" },
    });
    return z.NEVER;
  }
  if (value.type === "function" && !("name" in value) && "function" in value) {
    const nested = value.function;
    if (typeof nested === "object" && nested !== null && "name" in nested)
      return { type: "function", name: nested.name };
  }
  return value;
}

export const toolChoice = z.preprocess(
  normaliseChoice,
  z.union([z.enum(["none", "auto", "required"]), z.discriminatedUnion("type", [namedFunction, allowedTools])]),
);

export type ToolChoice = z.output<typeof toolChoice>;
