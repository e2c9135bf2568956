import { z } from "zod";
import { list, map } from "./collections.ts";
import { describedAs } from "./described-as.ts";
import { canonicalHost } from "./public-url.ts";
import { shortened } from "./validation.ts";

/** Tools and tool choice of a request: those that the client runs, and the hosted ones that this server runs. */

const FUNCTION_NAME = /^[a-zA-Z0-9_-]+$/;
const MAX_NAME_LENGTH = 128;
const MAX_LABEL_LENGTH = 64;

/** Tools of a request, those in namespaces included, and those that a choice names. */
export const MAX_TOOLS = 1024;

/** A grammar. vLLM compiles it, and a model reads it with every prompt: Codex's own has a thousand characters. */
const MAX_GRAMMAR_LENGTH = 65_536;

/** The name of an MCP server's tool. */
const mcpToolName = z.string().min(1).max(256);

/** Raises the issue that `field` of a tool asks for what this server does not do. */
function refuse(context: z.RefinementCtx, path: string[], message: string): void {
  context.addIssue({ code: "custom", path, message, params: { code: "unsupported_parameter" } });
}

/** Who may call a tool. Models call tools directly; no program of theirs runs here, so a list must have `direct`. */
const callers = list(z.enum(["direct", "programmatic"]), { max: 2 });
const allowedCallers = describedAs(
  callers.superRefine((given, context) => {
    if (given.includes("direct")) return;
    const message = "Programmatic tool calling is not supported by this server: 'allowed_callers' must have 'direct'.";
    refuse(context, [], message);
  }),
  () => z.array(z.enum(["direct", "programmatic"])).max(2),
).nullish();

/** Whether outputs may come later than with the next response. They may not. */
export const notAsync = z
  .boolean()
  .superRefine((isAsync, context) => {
    if (isAsync) refuse(context, [], "Asynchronous calls are not supported by this server: 'async' must be false.");
  })
  .nullish();

/** What clients say of a tool beside what it is. */
const callerFields = { defer_loading: z.boolean().nullish(), allowed_callers: allowedCallers, async: notAsync };

type CallerFields = { [Name in keyof typeof callerFields]?: z.output<(typeof callerFields)[Name]> };

function callerFieldsOf({ defer_loading, allowed_callers, async }: CallerFields) {
  return {
    ...(defer_loading != null && { defer_loading }),
    ...(allowed_callers != null && { allowed_callers }),
    ...(async != null && { async }),
  };
}

const toolName = z.string().max(MAX_NAME_LENGTH, { abort: true }).regex(FUNCTION_NAME);
const jsonObject = z.record(z.string(), z.unknown());

const functionTool = z
  .object({
    type: z.literal("function"),
    name: toolName,
    description: z.string().nullish(),
    parameters: jsonObject.nullish(),
    strict: z.boolean().nullish(),
    output_schema: jsonObject.nullish(),
    ...callerFields,
  })
  // Echoed with every key present, as OpenAI and the Open Responses schema do.
  .transform((tool) => ({
    type: tool.type,
    name: tool.name,
    description: tool.description ?? null,
    parameters: tool.parameters ?? null,
    strict: tool.strict ?? null,
    ...(tool.output_schema != null && { output_schema: tool.output_schema }),
    ...callerFieldsOf(tool),
  }));

const customFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({
    type: z.literal("grammar"),
    syntax: z.enum(["lark", "regex"]),
    definition: z.string().min(1).max(MAX_GRAMMAR_LENGTH),
  }),
]);

const customTool = z
  .object({
    type: z.literal("custom"),
    name: toolName,
    description: z.string().nullish(),
    format: customFormat.nullish(),
    ...callerFields,
  })
  .transform((tool) => ({
    type: tool.type,
    name: tool.name,
    ...(tool.description != null && { description: tool.description }),
    format: tool.format ?? { type: "text" as const },
    ...callerFieldsOf(tool),
  }));

const namespaceTool = z
  .object({
    type: z.literal("namespace"),
    name: toolName,
    description: z.string().nullish(),
    tools: list(z.discriminatedUnion("type", [functionTool, customTool]), { max: MAX_TOOLS }),
  })
  .transform((tool) => ({ ...tool, description: tool.description ?? "" }));

/** OpenAI's default is that the server searches. */
const toolSearchTool = z
  .object({
    type: z.literal("tool_search"),
    execution: z.enum(["server", "client"]).nullish(),
    description: z.string().nullish(),
    parameters: jsonObject.nullish(),
  })
  .transform(({ type, execution, description, parameters }) => ({
    type,
    execution: execution ?? ("server" as const),
    ...(description != null && { description }),
    ...(parameters != null && { parameters }),
  }));

const localShellTool = z.object({ type: z.literal("local_shell") });

const skill = z.object({
  name: z.string().max(256),
  description: z.string().max(10_000),
  path: z.string().max(4096),
});

const shellTool = z
  .object({
    type: z.literal("shell"),
    environment: z
      .object({
        type: z.enum(["local", "container_auto", "container_reference"]),
        skills: list(z.unknown(), { max: 200 }).nullish(),
      })
      .nullish(),
    allowed_callers: allowedCallers,
  })
  .transform(({ type, environment, allowed_callers }, context) => {
    const skills = list(skill).safeParse(environment?.skills ?? []);
    if (environment != null && environment.type !== "local") {
      const message = "Only the environment 'local' is supported by this server: the client runs the commands.";
      refuse(context, ["environment", "type"], message);
    } else if (!skills.success) {
      for (const issue of skills.error.issues) {
        context.addIssue({ ...issue, path: ["environment", "skills", ...issue.path] } as z.core.$ZodRawIssue);
      }
    }
    const known = skills.success && skills.data.length > 0 ? { skills: skills.data } : {};
    return {
      type,
      ...(environment != null && { environment: { type: "local" as const, ...known } }),
      ...(allowed_callers != null && { allowed_callers }),
    };
  });

const applyPatchTool = z
  .object({ type: z.literal("apply_patch"), allowed_callers: allowedCallers })
  .transform(({ type, allowed_callers }) => ({ type, ...(allowed_callers != null && { allowed_callers }) }));

/** Some of a server's tools: by name, or those that only read. */
const toolFilter = z.object({
  tool_names: list(mcpToolName, { max: MAX_TOOLS }).optional(),
  read_only: z.boolean().optional(),
});

/** `null` is the default, which is OpenAI's: every call needs approval. */
const approvalFilter = z.object({ always: toolFilter.optional(), never: toolFilter.optional() });

const mcpServerTool = z
  .object({
    type: z.literal("mcp"),
    server_label: z.string().max(MAX_LABEL_LENGTH, { abort: true }).regex(FUNCTION_NAME),
    server_url: z.string().min(1).max(4096).nullish(),
    connector_id: z.string().nullish(),
    tunnel_id: z.string().nullish(),
    server_description: z.string().max(10_000).nullish(),
    authorization: z.string().max(16_384).nullish(),
    headers: map(z.string().max(256), z.string().max(16_384), { max: 100 }).nullish(),
    allowed_tools: z.union([list(mcpToolName, { max: MAX_TOOLS }), toolFilter]).nullish(),
    require_approval: z.union([z.enum(["always", "never"]), approvalFilter]).nullish(),
    defer_loading: z.boolean().nullish(),
    allowed_callers: allowedCallers,
  })
  .transform((tool, context) => {
    for (const field of ["connector_id", "tunnel_id"] as const) {
      if (tool[field] == null) continue;
      refuse(context, [field], `'${field}' is not supported by this server: name the MCP server by 'server_url'.`);
    }
    if (tool.defer_loading) {
      const message =
        "'defer_loading' of an MCP server is not supported by this server. Name the tools to offer in 'allowed_tools'.";
      refuse(context, ["defer_loading"], message);
    }
    return {
      type: tool.type,
      server_label: tool.server_label,
      ...(tool.server_url != null && { server_url: tool.server_url }),
      ...(tool.server_description != null && { server_description: tool.server_description }),
      ...(tool.authorization != null && { authorization: tool.authorization }),
      ...(tool.headers != null && { headers: tool.headers }),
      ...(tool.allowed_tools != null && { allowed_tools: tool.allowed_tools }),
      require_approval: tool.require_approval ?? ("always" as const),
      ...callerFieldsOf(tool),
    };
  });

/**
 * The host of a domain in a filter, as {@link canonicalHost} writes it, and whether `*.` stands before it. No host where
 * there is none, or where a `*` stands elsewhere.
 */
export function parseDomain(pattern: string): { host: string | undefined; isWildcard: boolean } {
  const isWildcard = pattern.startsWith("*.");
  const name = isWildcard ? pattern.slice(2) : pattern;
  return { host: /[*:]/.test(name) ? undefined : canonicalHost(name), isWildcard };
}

/** Hosts, whose subdomains are meant, too; `*.example.com` means these only. */
const domains = list(
  z
    .string()
    .max(256, { abort: true })
    .refine(
      (domain) => parseDomain(domain).host !== undefined,
      "Expected a domain such as 'example.com' or '*.example.com', without a scheme, a port or a path.",
    ),
  { max: 100 },
).nullish();

export const WEB_SEARCH_TYPES = [
  "web_search",
  "web_search_2025_08_26",
  "web_search_preview",
  "web_search_preview_2025_03_11",
] as const;

const webSearchTool = z.object({
  type: z.enum(WEB_SEARCH_TYPES),
  filters: z.object({ allowed_domains: domains, blocked_domains: domains }).nullish(),
  // Hints that no search provider here knows: echoed.
  search_context_size: z.enum(["low", "medium", "high"]).nullish(),
  user_location: z.looseObject({ type: z.literal("approximate").optional() }).nullish(),
  search_content_types: list(z.string().max(64), { max: 16 }).nullish(),
  image_settings: jsonObject.nullish(),
  /** False: no page is fetched, and only the search provider is asked. */
  external_web_access: z.boolean().nullish(),
});

/** What a container has and may is its operator's: the tool server gives every one the same, and is told nothing of a request. */
const automaticContainer = z
  .object({
    type: z.literal("auto"),
    file_ids: list(z.string()).nullish(),
    memory_limit: z.unknown().optional(),
    network_policy: z.unknown().optional(),
  })
  .transform(({ type, file_ids: files, ...asked }, context) => {
    if (files?.length) refuse(context, ["file_ids"], "'file_ids' is not supported by this server.");
    for (const field of ["memory_limit", "network_policy"] as const) {
      if (asked[field] == null) continue;
      refuse(context, [field], `'${field}' is not supported by this server: its operator sets what a container may.`);
    }
    return { type };
  });

const codeInterpreterTool = z
  .object({
    type: z.literal("code_interpreter"),
    container: z.union([z.string().min(1).max(256), automaticContainer]).default({ type: "auto" as const }),
    allowed_callers: allowedCallers,
  })
  .transform(({ type, container, allowed_callers }) => ({
    type,
    container,
    ...(allowed_callers != null && { allowed_callers }),
  }));

/** vLLM's: a shell, on the operator's tool server. */
const containerTool = z.object({ type: z.literal("container") });

/** One tool, in normal form. */
export const tool = z.discriminatedUnion("type", [
  functionTool,
  customTool,
  namespaceTool,
  toolSearchTool,
  localShellTool,
  shellTool,
  applyPatchTool,
  mcpServerTool,
  webSearchTool,
  codeInterpreterTool,
  containerTool,
]);

export type Tool = z.output<typeof tool>;
export type FunctionTool = Extract<Tool, { type: "function" }>;
export type CustomTool = Extract<Tool, { type: "custom" }>;
export type NamespaceTool = Extract<Tool, { type: "namespace" }>;
export type McpServerTool = Extract<Tool, { type: "mcp" }>;
export type WebSearchTool = z.output<typeof webSearchTool>;
export type ToolFilter = z.output<typeof toolFilter>;

const SERVED = [
  "function",
  "custom",
  "namespace",
  "tool_search",
  "local_shell",
  "shell",
  "apply_patch",
  "mcp",
  "web_search",
  "code_interpreter",
  "container",
];

/** Whether this server has tools of a type, under whatever name. */
export function isServedType(type: string): boolean {
  return SERVED.includes(type) || type.startsWith("web_search");
}

function refuseUnservedTool(value: unknown, context: z.RefinementCtx): unknown {
  if (typeof value !== "object" || value === null || !("type" in value) || typeof value.type !== "string") return value;
  const { type } = value;
  if (isServedType(type)) return value;
  const served = SERVED.map((name) => `'${name}'`).join(", ");
  const message = `The tool type '${shortened(type)}' is not supported by this server. Supported values are: ${served}.`;
  refuse(context, ["type"], message);
  return z.NEVER;
}

export const tools = z.preprocess(refuseTooMany, list(z.preprocess(refuseUnservedTool, tool), { max: MAX_TOOLS }));

/** Counts the tools of namespaces before any is looked at. */
function refuseTooMany(value: unknown, context: z.RefinementCtx): unknown {
  if (!Array.isArray(value) || value.length > MAX_TOOLS) return value;
  let count = 0;
  for (const each of value as unknown[]) {
    const isNamespace = typeof each === "object" && each !== null && "tools" in each && Array.isArray(each.tools);
    count += isNamespace ? (each.tools as unknown[]).length : 1;
  }
  if (count <= MAX_TOOLS) return value;
  context.addIssue({ code: "too_big", origin: "array", maximum: MAX_TOOLS, inclusive: true, input: value });
  return z.NEVER;
}

/** Tools that come in the middle of a conversation. Servers of credentials are none of them: items are stored. */
export const loadedTools = tools.superRefine((all, context) => {
  const index = all.findIndex(({ type }) => type === "mcp" || type === "container");
  if (index < 0) return;
  context.addIssue({
    code: "custom",
    path: [index, "type"],
    message: `A tool of type '${all[index]?.type}' is supported in the request's own 'tools' only.`,
    params: { code: "unsupported_parameter" },
  });
});

/**
 * A tool as a response shows it: without the credentials of an MCP server, which may also be in the query of its URL.
 */
export function echoTool(tool: Tool): Tool {
  if (tool.type !== "mcp") return tool;
  const { authorization: _authorization, headers: _headers, ...shown } = tool;
  const { server_url: url } = shown;
  if (url === undefined || !URL.canParse(url)) return shown;
  const { origin, pathname } = new URL(url);
  return { ...shown, server_url: origin + pathname };
}

/** `namespace` is where the tool is; without it, one of the name anywhere is meant. */
const namedFields = {
  name: z
    .string()
    .min(1)
    .max(2 * MAX_NAME_LENGTH),
  namespace: toolName.optional(),
};
const namedFunction = z.object({ type: z.literal("function"), ...namedFields });
const namedCustom = z.object({ type: z.literal("custom"), ...namedFields });
const namedNamespace = z.object({ type: z.literal("namespace"), name: namedFields.name });
const clientChoice = z.object({ type: z.enum(["tool_search", "local_shell", "shell", "apply_patch"]) });
const mcpChoice = z
  .object({
    type: z.literal("mcp"),
    server_label: z.string().min(1).max(MAX_LABEL_LENGTH),
    name: mcpToolName.nullish(),
  })
  .transform(({ name, ...choice }) => (name == null ? choice : { ...choice, name }));
const hostedChoice = z.object({ type: z.enum(["code_interpreter", "container", ...WEB_SEARCH_TYPES]) });
const choices = [namedFunction, namedCustom, clientChoice, mcpChoice, hostedChoice] as const;
const oneTool = z.discriminatedUnion("type", [...choices, namedNamespace]);

const allowedTools = z.object({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: list(oneTool, { min: 1, max: MAX_TOOLS }),
});

/** The choices that name a tool which this server does not have. */
const UNSERVED_CHOICES = new Set([
  "computer",
  "computer_use",
  "computer_use_preview",
  "file_search",
  "image_generation",
  "programmatic_tool_calling",
]);

/** A choice of certain tools, and any choice, in their normal form. */
export const namedChoice = z.discriminatedUnion("type", [...choices, allowedTools]);
export const normalChoice = z.union([z.enum(["none", "auto", "required"]), namedChoice]);

const nested = z.object({ name: namedFields.name });

/** Chat completions' form of a choice. */
export const nestedChoice = z.discriminatedUnion("type", [
  z.object({ type: z.literal("function"), function: nested }),
  z.object({ type: z.literal("custom"), custom: nested }),
]);

/** Accepts also chat completions' nested `{type:"function", function:{name}}` (and `custom`), which some clients send. */
function normaliseChoice(value: unknown, context: z.RefinementCtx): unknown {
  if (typeof value !== "object" || value === null || !("type" in value)) return value;
  if (typeof value.type === "string" && UNSERVED_CHOICES.has(value.type)) {
    refuse(context, ["type"], `The tool choice '${value.type}' is not supported by this server.`);
    return z.NEVER;
  }
  if ((value.type === "function" || value.type === "custom") && !("name" in value) && value.type in value) {
    const nested: unknown = Reflect.get(value, value.type);
    if (typeof nested === "object" && nested !== null && "name" in nested) {
      return { type: value.type, name: nested.name };
    }
  }
  return value;
}

export const toolChoice = describedAs(z.preprocess(normaliseChoice, normalChoice), () =>
  z.union([normalChoice, nestedChoice]),
);

export type ToolChoice = z.output<typeof toolChoice>;
/** One tool as a choice names it. */
export type ChosenTool = z.output<typeof oneTool>;

/** The tools that a choice leaves to the model, or undefined for all. */
export function chosenTools(choice: ToolChoice | null | undefined): readonly ChosenTool[] | undefined {
  if (choice == null || typeof choice === "string") return undefined;
  return choice.type === "allowed_tools" ? choice.tools : [choice];
}

/** The type that a choice or a tool has among hosted ones; undefined for a tool that the client runs. */
export function hostedKey(tool: Tool | ChosenTool): string | undefined {
  switch (tool.type) {
    case "function":
    case "custom":
    case "namespace":
    case "local_shell":
    case "shell":
    case "apply_patch":
      return undefined;
    case "tool_search":
      return "execution" in tool && tool.execution === "client" ? undefined : tool.type;
    case "mcp":
      return `mcp:${tool.server_label}`;
    case "code_interpreter":
    case "container":
      return tool.type;
    default:
      return "web_search";
  }
}

/** Whether the model must call something. */
export function mustCall(choice: ToolChoice | null | undefined): boolean {
  if (choice == null || choice === "auto" || choice === "none") return false;
  return choice === "required" || choice.type !== "allowed_tools" || choice.mode === "required";
}
