import type { Steps } from "@responses-edge/long-work";
import { z } from "zod";
import { bringsTools, type InputItem, inputItem } from "../items/registry.ts";
import { ClientTools, clientToolsIn, fullNameOf } from "./client-tools.ts";
import { readAhead } from "./collections.ts";
import { describedAs } from "./described-as.ts";
import { isJsonObject } from "./json.ts";
import { MAX_ITEMS, requestFields } from "./request-fields.ts";
import { type ChosenTool, chosenTools, hostedKey, type Tool, type ToolChoice } from "./tools.ts";

/** The bodies of `POST /v1/responses` and of the endpoints that take a create's fields, and what fields demand of each other. */

/** MCP servers of one request. Each is asked for its tools, over a session of its own, before the model is. */
const MAX_MCP_SERVERS = 32;

export const createRequest = describedAs(
  requestFields.superRefine((body, context) => {
    if (body.input == null) {
      const params = { code: "missing_required_parameter" };
      context.addIssue({ code: "custom", path: ["input"], message: "Missing required parameter: 'input'.", params });
    }
    checkTogether(body, context);
  }),
  () => requestFields.meta({ required: ["input"] }),
);

/** The body of `POST /v1/responses/input_tokens`: a create's, where what is continued may stand without an input. */
export const countRequest = requestFields
  .transform((body) => ({ ...body, input: body.input ?? [] }))
  .superRefine(checkTogether);

/**
 * The body of `POST /v1/responses/compact` as the create that it is: one that asks for a compaction of its input and of
 * what it continues, and keeps nothing.
 */
export const compactRequest = describedAs(
  requestFields
    .extend({ model: z.string().min(1).max(512).nullable() })
    .transform(({ input, conversation: _, ...body }) => ({
      ...body,
      input: [...toItems(input), { type: "compaction_trigger" as const }],
      background: false,
      stream: false,
      store: false,
    }))
    .superRefine((body, context) => {
      if (isOnlyPrepared(body)) {
        const params = { code: "invalid_value" };
        context.addIssue({ code: "custom", path: preparedBy(body), message: "A compaction is generated.", params });
      }
      if (body.input.length === 1 && !continuesSomething(body)) {
        const params = { code: "missing_required_parameter" };
        context.addIssue({ code: "custom", path: ["input"], message: "Missing required parameter: 'input'.", params });
      }
      checkTogether(body, context);
    }),
  () => requestFields.meta({ required: ["model"] }),
);

/** Reads the items of a long input, in steps: validating the body they are in then takes little at once. */
export function* readInputAhead(body: unknown): Steps<void> {
  if (isJsonObject(body) && Array.isArray(body.input)) yield* readAhead(inputItem, body.input, MAX_ITEMS);
}

/** The input of a request as items. */
export function toItems(input: string | InputItem[] | null | undefined): InputItem[] {
  if (typeof input !== "string") return input ?? [];
  return [{ type: "message", role: "user", status: "completed", content: [{ type: "input_text", text: input }] }];
}

/** Raises what fields are at fault together. */
function checkTogether(body: z.output<typeof requestFields>, context: z.RefinementCtx): void {
  const issue = (path: (string | number)[], message: string, code = "invalid_value") =>
    context.addIssue({ code: "custom", path, message, params: { code } });
  if (Array.isArray(body.input) && body.input.length === 0 && !continuesSomething(body)) {
    issue(["input"], "Expected at least one item.", "empty_array");
  }
  const trigger = Array.isArray(body.input) ? body.input.findIndex(({ type }) => type === "compaction_trigger") : -1;
  if (trigger !== -1 && trigger !== (body.input?.length ?? 0) - 1) {
    issue(["input", trigger], "A 'compaction_trigger' must be the last item of 'input'.");
  }
  if (body.background && body.store === false) {
    issue(["background"], "background can only be used when `store` is true");
  }
  if (body.background && isOnlyPrepared(body)) {
    issue(preparedBy(body), "A response that is only prepared cannot be made in the background.");
  }
  if (body.conversation != null && body.previous_response_id != null) {
    const message = "Mutually exclusive parameters: 'conversation' and 'previous_response_id'. Send one of them.";
    issue(["conversation"], message, "mutually_exclusive_parameters");
  }
  if (body.previous_input_messages != null && body.previous_response_id != null) {
    const message = "Only one of `previous_input_messages` and `previous_response_id` can be set.";
    issue(["previous_input_messages"], message, "mutually_exclusive_parameters");
  }
  if (body.previous_input_messages != null && body.conversation != null) {
    const message = "Only one of `previous_input_messages` and `conversation` can be set.";
    issue(["previous_input_messages"], message, "mutually_exclusive_parameters");
  }
  if (body.structured_outputs != null && body.text?.format != null && body.text.format.type !== "text") {
    issue(["structured_outputs"], "Cannot specify both structured_outputs and text.format");
  }
  const tools = body.tools ?? [];
  if (tools.filter(({ type }) => type === "mcp").length > MAX_MCP_SERVERS) {
    const index = tools.flatMap(({ type }, at) => (type === "mcp" ? [at] : []))[MAX_MCP_SERVERS] ?? 0;
    issue(["tools", index], `Expected at most ${MAX_MCP_SERVERS} MCP servers.`, "array_above_max_length");
    return;
  }
  const clash = clashingTools(tools);
  if (clash) {
    issue(["tools", ...clash.path], clash.message);
    return;
  }
  const mayLoad = continuesSomething(body) || (Array.isArray(body.input) && body.input.some(bringsTools));
  const wrong = mayLoad ? undefined : wrongChoice(body.tool_choice, tools);
  if (wrong !== undefined) issue(["tool_choice"], wrong);
}

/** Two tools that have, or would have for a model, the same name: the place of the second one, and what to say of it. */
export function clashingTools(tools: readonly Tool[]): { path: (string | number)[]; message: string } | undefined {
  const hosted = new Set<string>();
  for (const [index, tool] of tools.entries()) {
    const key = hostedKey(tool);
    if (key !== undefined && hosted.has(key)) {
      const field = tool.type === "mcp" ? "server_label" : "type";
      return { path: [index, field], message: `The tool ${field} '${key.replace(/^mcp:/, "")}' is used twice.` };
    }
    if (key !== undefined) hosted.add(key);
  }
  const known = new Map<string, string>();
  // A server's search is a function for models, too.
  if (hosted.has("tool_search")) known.set("tool_search", "tool_search");
  for (const tool of clientToolsIn(tools)) {
    const { flatName, path } = tool;
    const name = fullNameOf(tool);
    const other = known.get(flatName);
    if (other === name) return { path, message: `The tool ${path.at(-1)} '${name}' is used twice.` };
    if (other !== undefined) {
      return { path, message: `The tools '${other}' and '${name}' would both be '${flatName}' to the model.` };
    }
    known.set(flatName, name);
  }
  return undefined;
}

/** What is wrong with a choice of tools: it leaves none, or names one that is not there. */
export function wrongChoice(choice: ToolChoice | null | undefined, tools: readonly Tool[]): string | undefined {
  if (choice == null || choice === "auto" || choice === "none") return undefined;
  if (typeof choice === "string") {
    return tools.length === 0 ? "Tool choice 'required' must be specified with 'tools' parameter." : undefined;
  }
  const hosted = new Set(tools.map(hostedKey));
  const clients = ClientTools.of(tools);
  const isThere = (chosen: ChosenTool) => {
    const key = hostedKey(chosen);
    return (key !== undefined && hosted.has(key)) || clients.chosen(chosen).length > 0;
  };
  const missing = chosenTools(choice)?.find((chosen) => !isThere(chosen));
  if (!missing) return undefined;
  const name = "name" in missing && missing.type !== "mcp" ? missing.name : undefined;
  const label = missing.type === "mcp" ? missing.server_label : missing.type;
  return `Tool choice '${name ?? label}' not found in 'tools' parameter.`;
}

function continuesSomething(body: z.output<typeof requestFields>): boolean {
  return (
    body.previous_response_id != null || body.conversation != null || (body.previous_input_messages?.length ?? 0) > 0
  );
}

type Preparing = Pick<z.output<typeof requestFields>, "generate" | "prompt_cache_options">;

/** Whether a request is to be checked and kept, and the model to be asked nothing. */
export function isOnlyPrepared({ generate, prompt_cache_options: cache }: Preparing): boolean {
  return generate === false || cache?.prewarm === true;
}

/** The field by which it is that. */
export function preparedBy({ generate }: Preparing): string[] {
  return generate === false ? ["generate"] : ["prompt_cache_options", "prewarm"];
}

/** The id of the conversation that a request names, in either form. */
export function conversationOf(request: CreateRequest): string | undefined {
  return typeof request.conversation === "string" ? request.conversation : request.conversation?.id;
}

/** A validated create body. Past this type nothing is checked again. */
export type CreateRequest = z.output<typeof createRequest> & {
  /** Fields that only vLLM knows, as the client sent them (`VLLM_EXTRA_FIELDS`). */
  vllm_fields?: Record<string, unknown>;
};
