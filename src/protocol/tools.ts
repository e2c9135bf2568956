import { z } from "zod";
import { list, map } from "./collections.ts";
import { canonicalHost } from "./public-url.ts";
import { shortened } from "./validation.ts";

/** Tools and tool choice of a request: client-side functions, and the hosted tools that this server runs. */

const FUNCTION_NAME = /^[a-zA-Z0-9_-]+$/;
const MAX_NAME_LENGTH = 128;
const MAX_LABEL_LENGTH = 64;

/** Tools of a request, and those that a choice names. */
const MAX_TOOLS = 1024;

/** The name of an MCP server's tool. */
const mcpToolName = z.string().min(1).max(256);

const functionTool = z
  .object({
    type: z.literal("function"),
    name: z.string().max(MAX_NAME_LENGTH, { abort: true }).regex(FUNCTION_NAME),
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
  })
  .transform((tool, context) => {
    for (const field of ["connector_id", "tunnel_id"] as const) {
      if (tool[field] == null) continue;
      context.addIssue({
        code: "custom",
        path: [field],
        message: `'${field}' is not supported by this server: name the MCP server by 'server_url'.`,
        params: { code: "unsupported_parameter" },
      });
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
  search_context_size: z.enum(["low", "medium", "high"]).optional(),
  user_location: z.looseObject({ type: z.literal("approximate").optional() }).nullish(),
});

const automaticContainer = z
  .object({ type: z.literal("auto"), file_ids: list(z.string()).nullish(), memory_limit: z.string().nullish() })
  .transform(({ type, file_ids: files }, context) => {
    if (files?.length) {
      context.addIssue({
        code: "custom",
        path: ["file_ids"],
        message: "'file_ids' is not supported by this server.",
        params: { code: "unsupported_parameter" },
      });
    }
    return { type };
  });

const codeInterpreterTool = z.object({
  type: z.literal("code_interpreter"),
  container: z.union([z.string().min(1).max(256), automaticContainer]).default({ type: "auto" as const }),
});

/** vLLM's: a shell, on the operator's tool server. */
const containerTool = z.object({ type: z.literal("container") });

const tool = z.discriminatedUnion("type", [
  functionTool,
  mcpServerTool,
  webSearchTool,
  codeInterpreterTool,
  containerTool,
]);

export type Tool = z.output<typeof tool>;
export type FunctionTool = Extract<Tool, { type: "function" }>;
export type McpServerTool = Extract<Tool, { type: "mcp" }>;
export type WebSearchTool = z.output<typeof webSearchTool>;
export type ToolFilter = z.output<typeof toolFilter>;

const SERVED = ["function", "mcp", "web_search", "code_interpreter", "container"];

function refuseUnservedTool(value: unknown, context: z.RefinementCtx): unknown {
  if (typeof value !== "object" || value === null || !("type" in value) || typeof value.type !== "string") return value;
  const { type } = value;
  if (SERVED.includes(type) || type.startsWith("web_search")) return value;
  context.addIssue({
    code: "custom",
    path: ["type"],
    message: `The tool type '${shortened(type)}' is not supported by this server. Supported values are: ${SERVED.map((name) => `'${name}'`).join(", ")}.`,
    params: { code: "unsupported_parameter" },
  });
  return z.NEVER;
}

export const tools = list(z.preprocess(refuseUnservedTool, tool), { max: MAX_TOOLS });

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

const namedFunction = z.object({ type: z.literal("function"), name: z.string().min(1).max(MAX_NAME_LENGTH) });
const mcpChoice = z
  .object({
    type: z.literal("mcp"),
    server_label: z.string().min(1).max(MAX_LABEL_LENGTH),
    name: mcpToolName.nullish(),
  })
  .transform(({ name, ...choice }) => (name == null ? choice : { ...choice, name }));
const hostedChoice = z.object({ type: z.enum(["code_interpreter", "container", ...WEB_SEARCH_TYPES]) });
const oneTool = z.discriminatedUnion("type", [namedFunction, mcpChoice, hostedChoice]);

const allowedTools = z.object({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: list(oneTool, { min: 1, max: MAX_TOOLS }),
});

/** The choices that name a tool which this server does not have. */
const UNSERVED_CHOICES = new Set([
  "apply_patch",
  "computer",
  "computer_use",
  "computer_use_preview",
  "custom",
  "file_search",
  "image_generation",
  "programmatic_tool_calling",
  "shell",
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
  z.union([
    z.enum(["none", "auto", "required"]),
    z.discriminatedUnion("type", [namedFunction, mcpChoice, hostedChoice, allowedTools]),
  ]),
);

export type ToolChoice = z.output<typeof toolChoice>;
/** One tool as a choice names it. */
export type ChosenTool = z.output<typeof oneTool>;

/** The tools that a choice leaves to the model, or undefined for all. */
export function chosenTools(choice: ToolChoice | null | undefined): readonly ChosenTool[] | undefined {
  if (choice == null || typeof choice === "string") return undefined;
  return choice.type === "allowed_tools" ? choice.tools : [choice];
}

/**
 * What tells a tool from the others of a request: the same for the tool itself and for a choice that names it, or, of an
 * MCP server, some of its tools.
 */
export function toolKey(tool: Tool | ChosenTool): string {
  switch (tool.type) {
    case "function":
      return `function:${tool.name}`;
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
