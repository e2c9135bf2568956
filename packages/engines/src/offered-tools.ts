import { ClientTools } from "@responses-edge/responses-api/client-tools";
import type { FunctionTool } from "@responses-edge/responses-api/tools";
import { functionOf } from "@responses-edge/turn/client-functions";
import type { PluginTools, Prompt } from "@responses-edge/turn/engine";

/**
 * The tools that stand in a prompt, and those of them that the model may call. All of them stand in it, whatever
 * `tool_choice` leaves: the tools come first in a prompt, and a prompt without some of them shares no prefix with the others
 * of its conversation. Where the model server can hold the model only to what the prompt has, the others are left out
 * (`Prompt.onlyOffered`).
 */

type ToolPrompt = Pick<Prompt, "request"> & Partial<Pick<Prompt, "pluginTools" | "onlyOffered">>;

const NO_PLUGIN_TOOLS: PluginTools = { functions: [], namespaces: {}, builtinFunctions: [] };

/** Functions of the client, of MCP servers too; and all tools of this server. */
interface PromptTools {
  functions: FunctionTool[];
  plugins: PluginTools;
}

/** The tools that the model may call. */
export function offeredTools({ request, pluginTools = NO_PLUGIN_TOOLS }: ToolPrompt): PromptTools {
  const clients = ClientTools.of(request.tools).offered(request.tool_choice).map(functionOf);
  const { functions, namespaces, builtinFunctions, withheld } = pluginTools;
  if (!withheld || withheld.size === 0) return { functions: [...clients, ...functions], plugins: pluginTools };
  const isOffered = ({ name }: { name: string }) => !withheld.has(name);
  const plugins = {
    functions: functions.filter(isOffered),
    namespaces: Object.fromEntries(Object.entries(namespaces).filter(([, namespace]) => isOffered(namespace))),
    builtinFunctions: builtinFunctions.filter(isOffered),
  };
  return { functions: [...clients, ...plugins.functions], plugins };
}

/** The tools that stand in the prompt. */
export function shownTools(prompt: ToolPrompt): PromptTools {
  if (prompt.onlyOffered) return offeredTools(prompt);
  const { request, pluginTools: plugins = NO_PLUGIN_TOOLS } = prompt;
  return { functions: [...ClientTools.of(request.tools).all.map(functionOf), ...plugins.functions], plugins };
}

/** Tells whether tools stand in the prompt that the model may not call. */
export function withholdsTools(prompt: ToolPrompt): boolean {
  if (prompt.onlyOffered) return false;
  const clients = ClientTools.of(prompt.request.tools);
  const withheld = prompt.pluginTools?.withheld;
  return (withheld && withheld.size > 0) || clients.offered(prompt.request.tool_choice).length < clients.all.length;
}
