import { LongWork } from "@responses-edge/bounded-io/long-work";
import { readAhead } from "@responses-edge/bounded-io/schemas/collections";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { withOptionalFields } from "@responses-edge/bounded-io/schemas/optional-fields";
import { z } from "zod";
import { MAX_ITEMS, requestFields } from "./create-fields.ts";
import { invalidRequest } from "./errors.ts";
import { bringsTools, type InputItem, inputItem, isTextOnly } from "./items/registry.ts";
import { isJsonObject, type JsonObject } from "./json.ts";
import { refuse } from "./tool-fields.ts";
import { clashingTools, uncallableTool, wrongChoice } from "./tool-names.ts";
import { isServedType } from "./tools.ts";
import { firstFault } from "./validation-errors.ts";

/** The bodies of `POST /v1/responses` and of the endpoints with a create's fields, and the rules between fields. */

/**
 * The maximum of MCP servers of one request. Each lists its tools in a session of its own before the model is asked.
 */
const MAX_MCP_SERVERS = 32;

export const createRequest = describedAs(withOptionalFields(requestFields.superRefine(checkTogether)), () =>
  requestFields.meta({ required: ["input"] }),
);

/** The body of `POST /v1/responses/input_tokens`: a create's, which may continue without an input. */
export const countRequest = requestFields
  .transform((body) => ({ ...body, input: body.input ?? [] }))
  .superRefine(checkTogether);

/** The body of `POST /v1/responses/compact` as a create that compacts its input and its history, and stores nothing. */
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
        refuse(context, preparedBy(body), "A compaction is generated.", "invalid_value");
      }
      if (body.input.length === 1 && !continuesSomething(body)) {
        refuse(context, ["input"], "Missing required parameter: 'input'.", "missing_required_parameter");
      }
      checkTogether(body, context);
    }),
  () => requestFields.meta({ required: ["model"] }),
);

/** The input of a request as items. */
function toItems(input: string | InputItem[] | null | undefined): InputItem[] {
  if (typeof input !== "string") return input ?? [];
  return [{ type: "message", role: "user", status: "completed", content: [{ type: "input_text", text: input }] }];
}

/** Raises the faults of several fields together. */
function checkTogether(body: z.output<typeof requestFields>, context: z.RefinementCtx): void {
  const issue = (path: (string | number)[], message: string, code = "invalid_value") =>
    refuse(context, path, message, code);
  if (body.input == null) issue(["input"], "Missing required parameter: 'input'.", "missing_required_parameter");
  if (Array.isArray(body.input) && body.input.length === 0 && !continuesSomething(body)) {
    issue(["input"], "Expected at least one item.", "empty_array");
  }
  const trigger = Array.isArray(body.input) ? body.input.findIndex(({ type }) => type === "compaction_trigger") : -1;
  if (trigger !== -1 && trigger !== (body.input?.length ?? 0) - 1) {
    issue(["input", trigger], "A 'compaction_trigger' must be the last item of 'input'.");
  }
  const window = body.background_options?.completion_window;
  if (window != null && window !== "soonest") {
    const { service_tier: tier } = body;
    const needs = (wanted: string) =>
      issue(["background_options", "completion_window"], `The completion window '${window}' needs ${wanted}.`);
    if (!body.background) needs("'background: true'");
    else if (body.stream) needs("'stream: false'");
    else if (tier != null && tier !== "auto" && tier !== "default") needs("the service tier 'default'");
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
  let servers = 0;
  for (const [index, { type }] of tools.entries()) {
    if (type === "mcp") servers += 1;
    if (servers <= MAX_MCP_SERVERS) continue;
    issue(["tools", index], `Expected at most ${MAX_MCP_SERVERS} MCP servers.`, "array_above_max_length");
    return;
  }
  const clash = tools.length > 0 ? clashingTools(tools) : undefined;
  if (clash) {
    issue(["tools", ...clash.path], clash.message);
    return;
  }
  const uncallable = tools.length > 0 ? uncallableTool(tools) : -1;
  if (uncallable >= 0) {
    const message = "A tool that only programs may call needs the tool 'programmatic_tool_calling'.";
    issue(["tools", uncallable, "allowed_callers"], message);
    return;
  }
  if (body.tool_choice == null) return;
  const mayLoad = continuesSomething(body) || (Array.isArray(body.input) && body.input.some(bringsTools));
  const wrong = mayLoad ? undefined : wrongChoice(body.tool_choice, tools);
  if (wrong !== undefined) issue(["tool_choice"], wrong);
}

function continuesSomething(body: z.output<typeof requestFields>): boolean {
  return (
    body.previous_response_id != null || body.conversation != null || (body.previous_input_messages?.length ?? 0) > 0
  );
}

type Preparing = Pick<z.output<typeof requestFields>, "generate" | "prompt_cache_options">;

/** Tells whether a request is only checked and stored (`generate: false`), without asking the model. */
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

/** How a body is read. */
interface BodyReading {
  /** Checks the body, and makes a create of it. */
  schema: z.ZodType<CreateRequest>;
  /** Tells whether tools of a type that this server does not have are left out (`UNKNOWN_TOOLS`). Else they are refused. */
  dropsUnknownTools: boolean;
  /** Types of tools that this deployment does not have. */
  absentTools?: readonly string[];
  /** Fields that go to vLLM as they are (`VLLM_EXTRA_FIELDS`). */
  vllmExtraFields: readonly string[];
  /** A long body is read in slices of this tenant's work. */
  tenant: string;
}

interface CreateBody {
  request: CreateRequest;
  /** The request's own input, references not resolved. */
  input: InputItem[];
  /** Tells whether the input is messages with text only. */
  isText: boolean;
  /** The id of the conversation that the request names. */
  conversation: string | undefined;
  /** Types of the tools that were left out, each once. */
  dropped: readonly string[];
}

/** Reads a body. Throws the 400s of one that is no create. */
export async function readCreateBody(sent: unknown, reading: BodyReading): Promise<CreateBody> {
  const isUnknown = (tool: unknown) => isToolWithout(tool, reading.absentTools ?? []);
  const dropped = reading.dropsUnknownTools ? unknownToolTypes(sent, isUnknown) : [];
  const body = dropped.length > 0 && isJsonObject(sent) ? withoutUnknownTools(sent, isUnknown) : sent;
  const items = (body as { input?: unknown } | null)?.input;
  // Validating the body then takes little at once.
  if (Array.isArray(items)) await new LongWork(reading.tenant).run(readAhead(inputItem, items, MAX_ITEMS));
  const { schema, vllmExtraFields } = reading;
  const parsed = schema.safeParse(body);
  if (!parsed.success) throw firstFault(parsed.error, body);
  const request = vllmExtraFields.length === 0 ? parsed.data : withExtraFields(parsed.data, body, vllmExtraFields);
  const input = toItems(request.input);
  const isText = typeof request.input === "string" || isTextOnly(input);
  return { request, input, isText, conversation: conversationOf(request), dropped };
}

/** Types of the body's tools that are not served, each once. */
function unknownToolTypes(body: unknown, isUnknown: (tool: unknown) => boolean): string[] {
  const types = new Set<string>();
  for (const tools of toolLists(body))
    for (const tool of tools) if (isUnknown(tool)) types.add((tool as { type: string }).type);
  return [...types];
}

/** The body without them. */
function withoutUnknownTools(body: JsonObject, isUnknown: (tool: unknown) => boolean): JsonObject {
  const { tools, input } = body;
  const known = (list: readonly unknown[]) => list.filter((tool) => !isUnknown(tool));
  return {
    ...body,
    ...(Array.isArray(tools) && { tools: known(tools) }),
    ...(Array.isArray(input) && {
      input: input.map((item: unknown) => (hasTools(item) ? { ...item, tools: known(item.tools) } : item)),
    }),
  };
}

function* toolLists(body: unknown): Generator<unknown[]> {
  if (!isJsonObject(body)) return;
  if (Array.isArray(body.tools)) yield body.tools;
  if (Array.isArray(body.input)) for (const item of body.input) if (hasTools(item)) yield item.tools;
}

function hasTools(item: unknown): item is JsonObject & { tools: unknown[] } {
  return isJsonObject(item) && bringsTools({ type: item.type }) && Array.isArray(item.tools);
}

/** Tells whether a value is a tool by its looks, but of no type that is known here, or of one of those that are absent. */
function isToolWithout(tool: unknown, absent: readonly string[]): boolean {
  if (!isJsonObject(tool) || typeof tool.type !== "string") return false;
  return !isServedType(tool.type) || absent.includes(tool.type);
}

/** Values, and characters of names and texts, in all extra fields of a request; and how deep they may lie. */
const MAX_EXTRA_SIZE = 65_536;
const MAX_EXTRA_DEPTH = 32;

/**
 * The request with the fields of its body that the operator lets through to vLLM, as they are. Throws the 400 of those that are too
 * large or too deep, before all of them has been looked at.
 */
function withExtraFields(request: CreateRequest, body: unknown, names: readonly string[]): CreateRequest {
  if (typeof body !== "object" || body === null) return request;
  const fields = names
    .filter((name) => Object.hasOwn(body, name))
    .map((name) => [name, Reflect.get(body, name)] as const);
  const kept = fields.filter(([, value]) => value !== null);
  if (kept.length === 0) return request;
  let left = MAX_EXTRA_SIZE;
  for (const [name, value] of kept) left = measured(name, value, left);
  return { ...request, vllm_fields: Object.fromEntries(kept) };
}

/** Subtracts the size of a field's value from `size`. Throws the 400 of a value that is larger, or too deep. */
function measured(name: string, whole: unknown, size: number): number {
  let left = size;
  const open: { value: unknown; depth: number }[] = [{ value: whole, depth: 0 }];
  for (let next = open.pop(); next; next = open.pop()) {
    const { value, depth } = next;
    left -= typeof value === "string" ? value.length + 1 : 1;
    if (typeof value === "object" && value !== null) {
      for (const key in value) {
        left -= Array.isArray(value) ? 0 : key.length;
        open.push({ value: Reflect.get(value, key), depth: depth + 1 });
        if (open.length > left) break;
      }
    }
    if (depth > MAX_EXTRA_DEPTH || left < open.length) {
      throw invalidRequest(
        name,
        `Expected at most ${MAX_EXTRA_SIZE} characters and values, ${MAX_EXTRA_DEPTH} levels deep.`,
      );
    }
  }
  return left;
}
