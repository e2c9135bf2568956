import { list } from "@responses-edge/bounded-io/schemas/collections";
import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { z } from "zod";
import { HOSTED_SCHEMAS, type HostedType, hostedOf, typesOf } from "./hosted-tools.ts";
import {
  allowedCallers,
  callerFields,
  callerFieldsOf,
  jsonObject,
  MAX_LABEL_LENGTH,
  MAX_NAME_LENGTH,
  MAX_TOOLS,
  mcpToolName,
  refuse,
  toolName,
} from "./tool-fields.ts";
import { shortened } from "./validation-errors.ts";

/** Tools and tool choice of a request: client-side tools, and hosted ones, whose schemas are in `hosted-tools.ts`. */

/**
 * The maximum of a grammar. vLLM compiles it, and a model reads it with every prompt: Codex's own has a thousand
 * characters.
 */
const MAX_GRAMMAR_LENGTH = 65_536;

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

/** The model writes programs, which call the tools that have `programmatic` among their callers. */
const programmaticTool = z.object({ type: z.literal("programmatic_tool_calling") });

const toolSchemas = [
  functionTool,
  customTool,
  namespaceTool,
  toolSearchTool,
  localShellTool,
  shellTool,
  applyPatchTool,
  programmaticTool,
  ...HOSTED_SCHEMAS,
] as const;

/** One tool, in normal form. */
export const tool = z.discriminatedUnion("type", toolSchemas);

export type Tool = z.output<typeof tool>;
export type FunctionTool = Extract<Tool, { type: "function" }>;
export type CustomTool = Extract<Tool, { type: "custom" }>;
export type NamespaceTool = Extract<Tool, { type: "namespace" }>;

/** The known types of tools, and one name for each tool. */
const SERVED = new Set(toolSchemas.flatMap(typesOf));
const SERVED_NAMES = toolSchemas.map((schema) => typesOf(schema)[0]);

/** Tells whether this server has tools of a type. */
export function isServedType(type: string): boolean {
  return SERVED.has(type);
}

/** The issue of a tool whose type this server does not have. */
function unservedType(value: unknown): z.core.$ZodIssue | undefined {
  if (typeof value !== "object" || value === null || !("type" in value) || typeof value.type !== "string") return;
  if (SERVED.has(value.type)) return;
  const served = SERVED_NAMES.map((name) => `'${name}'`).join(", ");
  const message = `The tool type '${shortened(value.type)}' is not supported by this server. Supported values are: ${served}.`;
  return { code: "custom", path: ["type"], message, params: { code: "unsupported_parameter" } };
}

export const tools = list(tool, { max: MAX_TOOLS, members: "tools", explain: unservedType });

/** Tools that come in the middle of a conversation. */
export const loadedTools = describedAs(
  tools.superRefine((all, context) => {
    const index = all.findIndex(({ type }) => hostedOf(type)?.isOfRequestOnly);
    if (index < 0) return;
    refuse(
      context,
      [index, "type"],
      `A tool of type '${all[index]?.type}' is supported in the request's own 'tools' only.`,
    );
  }),
  () => z.array(tool).max(MAX_TOOLS),
);

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
const clientChoice = z.object({
  type: z.enum(["tool_search", "local_shell", "shell", "apply_patch", "programmatic_tool_calling"]),
});
const mcpChoice = z
  .object({
    type: z.literal("mcp"),
    server_label: z.string().min(1).max(MAX_LABEL_LENGTH),
    name: mcpToolName.nullish(),
  })
  .transform(({ name, ...choice }) => (name == null ? choice : { ...choice, name }));
const hostedTypes = HOSTED_SCHEMAS.flatMap(typesOf).filter((type) => type !== "mcp");
const hostedChoice = z.object({ type: z.enum(hostedTypes.sort() as Exclude<HostedType, "mcp">[]) });
const choices = [namedFunction, namedCustom, clientChoice, mcpChoice, hostedChoice] as const;
const oneTool = z.discriminatedUnion("type", [...choices, namedNamespace]);

const allowedTools = z.object({
  type: z.literal("allowed_tools"),
  mode: z.enum(["auto", "required"]),
  tools: list(oneTool, { min: 1, max: MAX_TOOLS }),
});

/** The choices that name a tool which this server does not have. */
const UNSERVED_CHOICES = new Set(["computer", "computer_use", "computer_use_preview"]);

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
  if (typeof value.type === "string" && UNSERVED_CHOICES.has(value.type) && !isServedType(value.type)) {
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

/** Tells whether the model must make a call. */
export function mustCall(choice: ToolChoice | null | undefined): boolean {
  if (choice == null || choice === "auto" || choice === "none") return false;
  return choice === "required" || choice.type !== "allowed_tools" || choice.mode === "required";
}

/** The address and credentials of an MCP server of a request, which no response shows and no storage keeps. */
export interface McpAccess {
  server_url: string;
  authorization?: string;
  headers?: Record<string, string>;
}

/** The addresses and credentials of a request's MCP servers, by label, which are kept apart from the request. */
export function accessOf({ tools }: { tools?: readonly Tool[] | null | undefined }): Record<string, McpAccess> {
  const entries: [label: string, access: McpAccess][] = [];
  for (const tool of tools ?? []) {
    if (tool.type !== "mcp" || tool.server_url === undefined) continue;
    const { server_label: label, server_url, authorization, headers } = tool;
    const access: McpAccess = {
      server_url,
      ...(authorization !== undefined && { authorization }),
      ...(headers !== undefined && { headers }),
    };
    entries.push([label, access]);
  }
  // Own properties, with any name.
  return Object.fromEntries(entries);
}

/**
 * The labels of MCP servers that cannot be reached with the stored form of a request's tools (`echoTool`), because it lacks their
 * credentials or a part of their URL. `access` is the request's (`accessOf`).
 */
export function withheldLabels(
  tools: readonly Tool[] | undefined,
  access: Readonly<Record<string, McpAccess>>,
): string[] {
  return Object.entries(access).flatMap(([label, { authorization, headers, server_url: url }]) => {
    const shown = tools?.find((tool) => tool.type === "mcp" && tool.server_label === label);
    const isWhole =
      shown?.type === "mcp" && shown.server_url === url && authorization === undefined && headers === undefined;
    return isWhole ? [] : [label];
  });
}
