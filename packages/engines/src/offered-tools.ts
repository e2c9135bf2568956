import {
  expansionOf,
  GrammarFault,
  type GrammarFormat,
  MAX_EXPANSION,
  placeOf,
  type Reading,
  Recogniser,
  type Rules,
  readGrammar,
} from "@responses-edge/grammar";
import { refuseLargeFormats } from "@responses-edge/responses-api/bounded-formats";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { PROGRAM_TOOL } from "@responses-edge/responses-api/items/program";
import { bringsTools } from "@responses-edge/responses-api/items/registry";
import { isStrict } from "@responses-edge/responses-api/strict-functions";
import { type ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import type { FunctionTool, Tool } from "@responses-edge/responses-api/tools";
import { formatPath } from "@responses-edge/responses-api/validation-errors";
import { faultOf, functionOf, programCallables } from "@responses-edge/turn/contract/client-functions";
import { customInputOf } from "@responses-edge/turn/contract/custom-input";
import type { PluginTools, Prompt } from "@responses-edge/turn/contract/engine";

/**
 * The tools in a prompt, and those of them that the model may call. All are in it, whatever `tool_choice` excludes: the
 * tools come first in a prompt, and a prompt without some of them shares no prefix with the others of its conversation.
 * If the model server can only enforce the choice by the tools in the prompt, the others are left out
 * (`Prompt.onlyOffered`).
 */

type ToolPrompt = Pick<Prompt, "request"> & Partial<Pick<Prompt, "pluginTools" | "onlyOffered">>;

const NO_PLUGIN_TOOLS: PluginTools = { functions: [], namespaces: {}, builtinFunctions: [] };

/** Functions of the client and of MCP servers, and the built-in tools. */
interface PromptTools {
  functions: FunctionTool[];
  plugins: PluginTools;
}

/** The tools that stand in the prompt, or (`callable`) those that the model may call. */
export function toolsOf(prompt: ToolPrompt, which: "shown" | "callable"): PromptTools {
  const { request, pluginTools = NO_PLUGIN_TOOLS, onlyOffered } = prompt;
  const { functions, namespaces, builtinFunctions, withheld } = pluginTools;
  const own = ClientTools.of(request.tools);
  const takesPrograms = own.byName.has(PROGRAM_TOOL);
  const callable = takesPrograms ? programCallables(own, pluginTools.forPrograms ?? []) : [];
  const shown = (tool: ClientTool) => functionOf(tool, callable);
  if (which === "shown" && !onlyOffered) {
    return { functions: [...own.all.map(shown), ...functions], plugins: pluginTools };
  }
  const clients = own.offered(request.tool_choice).map(shown);
  if (!withheld || withheld.size === 0) return { functions: [...clients, ...functions], plugins: pluginTools };
  const isOffered = ({ name }: { name: string }) => !withheld.has(name);
  const plugins = {
    functions: functions.filter(isOffered),
    namespaces: Object.fromEntries(Object.entries(namespaces).filter(([, namespace]) => isOffered(namespace))),
    builtinFunctions: builtinFunctions.filter(isOffered),
  };
  return { functions: [...clients, ...plugins.functions], plugins };
}

/** Tells whether the prompt has tools that the model may not call. */
export function withholdsTools(prompt: ToolPrompt): boolean {
  if (prompt.onlyOffered) return false;
  const clients = ClientTools.of(prompt.request.tools);
  const withheld = prompt.pluginTools?.withheld;
  return (withheld && withheld.size > 0) || clients.offered(prompt.request.tool_choice).length < clients.all.length;
}

/**
 * Beyond this number of functions, only those whose requests say `strict` are bound to their schemas: the model server
 * compiles each schema in some fifty milliseconds.
 */
export const MAX_BOUND_BY_DEFAULT = 128;

/**
 * The flat names of the client's functions that are strict because their request does not say otherwise, and that the
 * model server is asked to bind. A server that refuses is asked without (`Prompt.freeInputs`): their arguments are
 * checked in any case (`callFaultOf`).
 */
export function strictByDefault({ request, freeInputs }: Pick<Prompt, "request" | "freeInputs">): ReadonlySet<string> {
  const { tools } = request;
  if (tools == null || freeInputs) return NO_NAMES;
  const known = namesByDefault.get(tools);
  if (known) return known;
  const { all } = ClientTools.of(tools);
  const names = new Set<string>();
  for (const { flatName, tool } of all.length <= MAX_BOUND_BY_DEFAULT ? all : []) {
    if (tool.type === "function" && tool.strict === null && isStrict(tool)) names.add(flatName);
  }
  namesByDefault.set(tools, names);
  return names;
}

const NO_NAMES: ReadonlySet<string> = new Set();
const namesByDefault = new WeakMap<readonly Tool[], ReadonlySet<string>>();

/** The grammars of a request's custom tools, and which of them constrain the model's output. */

/** Most characters of all grammars of a request: parsing takes more than a second per megabyte. */
const MAX_TOTAL_LENGTH = 131_072;

/**
 * Throws the 400 of a format or a grammar that expands too far; of an invalid grammar, naming its field, line and
 * column; and of grammars in `tools` that are too long together. Items may load tools repeatedly: their excess grammars
 * are not enforced, and not parsed.
 */
export function refuseBadFormats({ tools, input, text, structured_outputs: outputs }: CreateRequest): void {
  if (text?.format) refuseLargeFormats(text.format, ["text", "format"]);
  if (outputs) refuseLargeFormats(outputs, ["structured_outputs"]);
  if (tools) refuseLargeFormats(tools, ["tools"]);
  let length = 0;
  for (const { field, format } of tools ? grammarsIn(tools, ["tools"]) : []) {
    length += format.definition.length;
    if (length > MAX_TOTAL_LENGTH) {
      const message = `Invalid '${field}': the grammars of a request may have at most ${MAX_TOTAL_LENGTH} characters.`;
      throw invalidRequest(field, message, "string_above_max_length");
    }
    refuseBroken(field, format);
  }
  if (!Array.isArray(input)) return;
  for (const [index, item] of input.entries()) {
    if (!bringsTools(item) && item.type !== "mcp_list_tools") continue;
    refuseLargeFormats(item.tools, ["input", index, "tools"]);
    if (!bringsTools(item)) continue;
    for (const { field, format } of grammarsIn(item.tools, ["input", index, "tools"])) {
      length += format.definition.length;
      if (length > MAX_TOTAL_LENGTH) return;
      refuseBroken(field, format);
    }
  }
}

/** The grammars of a list of tools, by their fields. */
function* grammarsIn(
  tools: readonly Tool[],
  path: (string | number)[],
): Generator<{ field: string; format: GrammarFormat }> {
  for (const { tool, path: own } of ClientTools.of(tools).listed) {
    if (tool.type !== "custom" || tool.format.type !== "grammar") continue;
    yield { field: formatPath([...path, ...own.slice(0, -1), "format", "definition"]), format: tool.format };
  }
}

function refuseBroken(field: string, format: GrammarFormat): void {
  if (expansionOf(format.definition, format.syntax) > MAX_EXPANSION) {
    const why = `it expands to more than ${MAX_EXPANSION} elements`;
    throw invalidRequest(field, `Invalid '${field}': ${why}.`, "above_max_value");
  }
  try {
    readGrammar(format);
  } catch (error) {
    if (!(error instanceof GrammarFault)) throw error;
    const { line, column } = placeOf(format.definition, error.at);
    const language = format.syntax === "lark" ? "Lark grammar" : "regular expression";
    throw invalidRequest(
      field,
      `Invalid '${field}': this is no ${language}: ${error.message} (line ${line}, column ${column}).`,
    );
  }
}

/**
 * The rules that the inputs of a request's custom tools must match, by the tools' flat names; made once for each list.
 * The list may have tools of earlier turns: if they are too long together, the last ones are not enforced.
 */
export function boundRules({ tools }: CreateRequest): ReadonlyMap<string, Rules> {
  if (tools == null) return NONE;
  const known = made.get(tools);
  if (known) return known;
  const rules = new Map<string, Rules>();
  let length = 0;
  for (const { flatName, tool } of ClientTools.of(tools).listed) {
    if (tool.type !== "custom" || tool.format.type !== "grammar") continue;
    length += tool.format.definition.length;
    if (length > MAX_TOTAL_LENGTH) break;
    if (expansionOf(tool.format.definition, tool.format.syntax) > MAX_EXPANSION) continue;
    const reading = understood(tool.format);
    if (reading && !("beyond" in reading)) rules.set(flatName, reading);
  }
  made.set(tools, rules);
  return rules;
}

const NONE: ReadonlyMap<string, Rules> = new Map();
const made = new WeakMap<readonly Tool[], ReadonlyMap<string, Rules>>();

/**
 * A parsed grammar; undefined for an invalid one, of a tool from an earlier turn whose request this version did not
 * check.
 */
function understood(format: GrammarFormat): Reading | undefined {
  try {
    return readGrammar(format);
  } catch (error) {
    if (error instanceof GrammarFault) return undefined;
    throw error;
  }
}

/** Why an answer is no answer, in words for the model: it called an unknown tool, or none where the choice requires one. */
export const NO_SUCH_TOOL = "there is no tool of this name.";
export const NO_CALL = "text without the call that 'tool_choice' asks for.";

/**
 * Why a call of a client's tool is invalid, in words for the model that made it; undefined if it is valid. `text` is
 * the whole text of its arguments. `rules` are those of the grammars of custom tools, by flat name: inputs are checked,
 * because few model servers enforce every grammar, and some ignore all of them.
 */
export function callFaultOf(
  tool: ClientTool | undefined,
  text: string,
  rules: ReadonlyMap<string, Rules>,
): string | undefined {
  const fault = faultOf(tool, text);
  const own = tool && rules.get(tool.flatName);
  if (fault !== undefined || !own) return fault;
  const recogniser = new Recogniser(own);
  const input = customInputOf(text) ?? "";
  return recogniser.push(input) && recogniser.accepts ? undefined : grammarFaultOf(recogniser, input);
}

/** The fault of an input, which a recogniser has read as far as it matches the grammar. */
export function grammarFaultOf({ read }: Recogniser, input: string): string {
  const rest = input.slice(read, read + 40).toWellFormed();
  const where =
    rest === "" ? "it ends too early" : `after ${read} characters it cannot continue with ${JSON.stringify(rest)}`;
  return `the input does not match the tool's grammar: ${where}.`;
}
