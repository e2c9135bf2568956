import { violationOf } from "@responses-edge/grammar";
import { patchOperation } from "@responses-edge/responses-api/items/apply-patch";
import { MAX_CODE_LENGTH } from "@responses-edge/responses-api/items/program";
import { isJsonObject, type JsonObject, parseArguments } from "@responses-edge/responses-api/json";
import type { ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import type { CustomTool, FunctionTool, Tool } from "@responses-edge/responses-api/tools";
import { z } from "zod";
import { customInputOf } from "./custom-input.ts";
import { type ProgramCallable, programFunction } from "./program-tool.ts";

/** The client's tools as functions, the only form that models know; and the content of their calls. */

/** A tool as a model sees it, under its flat name. `callable`: the tools that programs may call. */
export function functionOf({ flatName: name, tool }: ClientTool, callable: readonly ProgramCallable[]): FunctionTool {
  switch (tool.type) {
    case "function":
      return tool.name === name ? tool : { ...tool, name };
    case "custom":
      return toFunction(name, customDescription(tool), customParameters());
    case "tool_search":
      return toFunction(name, tool.description ?? SEARCH_DESCRIPTION, tool.parameters ?? SEARCH_PARAMETERS);
    case "local_shell":
      return toFunction(name, LOCAL_SHELL_DESCRIPTION, LOCAL_SHELL_PARAMETERS);
    case "shell":
      return toFunction(name, shellDescription(tool), SHELL_PARAMETERS);
    case "apply_patch":
      return toFunction(name, PATCH_DESCRIPTION, PATCH_PARAMETERS);
    case "programmatic_tool_calling":
      return programFunction(callable);
  }
}

/** The tools that programs may call; `hosted` are functions of hosted tools. */
export function programCallables({ forPrograms }: ClientTools, hosted: readonly FunctionTool[]): ProgramCallable[] {
  const clients = forPrograms.map((client): ProgramCallable => {
    const { tool } = client;
    const output = tool.type === "function" ? (tool.output_schema ?? undefined) : undefined;
    return { tool: functionOf(client, []), output, takesText: tool.type === "custom" };
  });
  return [...clients, ...hosted.map((tool) => ({ tool }))];
}

function toFunction(name: string, description: string, parameters: JsonObject): FunctionTool {
  return { type: "function", name, description, parameters, strict: null };
}

/** The parameters of a custom tool, as a function of one text; with the pattern that the text must match. */
export function customParameters(pattern?: string): JsonObject {
  const input = { type: "string", description: "The whole input of the tool, as plain text." };
  return {
    type: "object",
    properties: { input: pattern === undefined ? input : { ...input, pattern } },
    required: ["input"],
    additionalProperties: false,
  };
}

/**
 * Describes a custom tool and its format to a model. A model that is bound to the schema is bound to the format, too.
 */
function customDescription({ description, format }: CustomTool): string {
  if (format.type === "text") return description ?? "";
  const kind = format.syntax === "lark" ? "this Lark grammar" : "this regular expression";
  const rule = `The input must match ${kind}:\n${format.definition}`;
  return description ? `${description}\n\n${rule}` : rule;
}

const SEARCH_DESCRIPTION =
  "Searches for tools by what they are for. The tools that are found can be called afterwards.";
const SEARCH_PARAMETERS = {
  type: "object",
  properties: {
    query: { type: "string", description: "What the tools are to do, in a few words." },
    limit: { type: "integer", description: "How many tools to find at most." },
  },
  required: ["query"],
  additionalProperties: false,
};

const LOCAL_SHELL_DESCRIPTION = "Runs a command on the user's machine and returns its output.";
const LOCAL_SHELL_PARAMETERS = {
  type: "object",
  properties: {
    command: {
      type: "array",
      items: { type: "string" },
      description: 'The program and its arguments, such as ["bash", "-lc", "ls"].',
    },
    working_directory: { type: "string" },
    timeout_ms: { type: "integer" },
    env: { type: "object", additionalProperties: { type: "string" } },
  },
  required: ["command"],
};

const SHELL_PARAMETERS = {
  type: "object",
  properties: {
    commands: { type: "array", items: { type: "string" }, description: "Shell commands, each run by itself." },
    timeout_ms: { type: "integer", description: "How long each may take, in milliseconds." },
    max_output_length: { type: "integer", description: "Characters of output to keep." },
  },
  required: ["commands"],
};

function shellDescription({ environment }: Extract<Tool, { type: "shell" }>): string {
  const about = "Runs shell commands in the user's environment and returns what they print, and their exit codes.";
  const skills = environment?.skills ?? [];
  if (skills.length === 0) return about;
  const lines = skills.map(({ name, description, path }) => `- ${name} (${path}): ${description}`);
  return `${about}\n\nSkills, whose instructions are in files there:\n${lines.join("\n")}`;
}

const PATCH_DESCRIPTION = `Creates, updates or deletes one file.
\`diff\` is a V4A diff without the lines that name the file: for \`create_file\` every line of the new file begins with \`+\`;
for \`update_file\` each change begins with a line \`@@\` (and what tells the place, such as \`@@ def f():\`), followed by lines of context
that begin with a space, lines to remove that begin with \`-\`, and lines to add that begin with \`+\`.`;
const PATCH_PARAMETERS = {
  type: "object",
  properties: {
    type: { type: "string", enum: ["create_file", "update_file", "delete_file"] },
    path: { type: "string", description: "The file, relative to the workspace." },
    diff: { type: "string", description: "Not for delete_file." },
  },
  required: ["type", "path"],
};

/** The tools whose calls are shown only once they are complete. */
export type WholeTool = Exclude<ClientTool["tool"], FunctionTool | CustomTool>;

/** Tells whether a call of a tool is shown only once it is complete. */
export function isShownWhole(tool: ClientTool["tool"]): tool is WholeTool {
  return tool.type !== "function" && tool.type !== "custom";
}

const NO_OBJECT = "the arguments are not a valid JSON object.";

/** The fault of arguments that cannot be read. */
const FAULTS: Readonly<Record<WholeTool["type"], string>> = {
  tool_search: NO_OBJECT,
  local_shell: "expected a JSON object with 'command', a list of strings.",
  shell: "expected a JSON object with 'commands', a list of strings.",
  programmatic_tool_calling: "expected a JSON object with 'code', a JavaScript program.",
  apply_patch: "expected a JSON object with 'type', 'path' and, but for a deletion, 'diff'.",
};

/** Why a call cannot be made, in words for the model that made it; undefined if it can. */
export function faultOf(called: ClientTool | undefined, text: string): string | undefined {
  const tool = called?.tool;
  if (tool?.type === "custom") {
    return customInputOf(text) === undefined ? "the input has broken off, or is not a JSON string." : undefined;
  }
  if (tool && isShownWhole(tool) && !readCall(tool, text)) return FAULTS[tool.type];
  const args = parseArguments(text);
  if (args === undefined) return NO_OBJECT;
  const schema = tool && schemaOf(tool);
  const violation = schema && violationOf(args, schema);
  return violation && `the arguments do not match the tool's schema: ${violation}.`;
}

/** The client's schema of a tool's arguments; undefined if they may be any JSON object. */
function schemaOf(tool: ClientTool["tool"]): JsonObject | undefined {
  if (tool.type === "tool_search") return tool.parameters;
  // OpenAI's default is a strict function.
  return tool.type === "function" && tool.strict !== false ? (tool.parameters ?? undefined) : undefined;
}

/** The fields of a call's item that its arguments give; undefined where the tool cannot be called with them. */
export function readCall(tool: WholeTool, text: string) {
  switch (tool.type) {
    case "tool_search": {
      const args = parseArguments(text);
      return args && { execution: "client" as const, arguments: args };
    }
    case "local_shell": {
      const action = readLocalShell(text);
      return action && { action };
    }
    case "shell": {
      const action = readShell(text);
      return action && { action, environment: tool.environment ? { type: "local" as const } : null };
    }
    case "apply_patch": {
      const operation = readPatch(text);
      return operation && { operation };
    }
    case "programmatic_tool_calling": {
      const code = parseArguments(text)?.code;
      return typeof code === "string" && code.length <= MAX_CODE_LENGTH ? { code } : undefined;
    }
  }
}

const texts = z.array(z.string()).min(1);
const number = z.number().min(0).transform(Math.round).nullish().catch(null);
const optionalText = z.string().nullish().catch(null);

const shellArguments = z.object({
  commands: z.union([texts, z.string().transform((command) => [command])]),
  timeout_ms: number,
  max_output_length: number,
});

const localShellArguments = z.object({
  command: z.union([texts, z.string().transform((command) => ["bash", "-lc", command])]),
  working_directory: optionalText,
  timeout_ms: number,
  env: z.record(z.string(), z.string()).nullish().catch(null),
});

/** The action of a `shell_call`. */
function readShell(text: string) {
  const read = shellArguments.safeParse(parseArguments(text));
  if (!read.success) return undefined;
  const { commands, timeout_ms: timeout, max_output_length: length } = read.data;
  return { commands, timeout_ms: timeout ?? null, max_output_length: length ?? null };
}

/** The action of a `local_shell_call`. */
function readLocalShell(text: string) {
  const read = localShellArguments.safeParse(parseArguments(text));
  if (!read.success) return undefined;
  const { command, working_directory: directory, timeout_ms: timeout, env } = read.data;
  return {
    type: "exec" as const,
    command,
    env: env ?? {},
    ...(timeout != null && { timeout_ms: timeout }),
    ...(directory != null && { working_directory: directory }),
  };
}

/** The operation of an `apply_patch_call`. */
function readPatch(text: string): z.output<typeof patchOperation> | undefined {
  const written = parseArguments(text);
  const read = patchOperation.safeParse(isJsonObject(written?.operation) ? written.operation : written);
  return read.success ? read.data : undefined;
}
