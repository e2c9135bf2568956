import { functionOf } from "../contract/client-functions.ts";
import type { PluginTools, Prompt } from "../contract/engine.ts";
import { ClientTools } from "../protocol/client-tools.ts";
import type { FunctionTool } from "../protocol/tools.ts";

/**
 * The tools that stand in a prompt, and those of them that the model may call. All of them stand in it, whatever
 * `tool_choice` leaves: the tools come first in a prompt, and a prompt without some of them shares no prefix with the others
 * of its conversation. Where the model server can hold the model only to what the prompt has, the others are left out
 * (`Prompt.onlyOffered`).
 */

type ToolPrompt = Pick<Prompt, "request"> & Partial<Pick<Prompt, "pluginTools" | "onlyOffered">>;

const NO_PLUGIN_TOOLS: PluginTools = { functions: [], namespaces: {}, builtinFunctions: [] };

/** The functions that the model may call: the client's, and those of MCP servers. */
export function offeredTools({ request, pluginTools }: ToolPrompt): FunctionTool[] {
  const clients = ClientTools.of(request.tools).offered(request.tool_choice);
  return [...clients.map(functionOf), ...offeredPluginTools(pluginTools).functions];
}

/** The functions that stand in the prompt. */
export function shownTools(prompt: ToolPrompt): FunctionTool[] {
  if (prompt.onlyOffered) return offeredTools(prompt);
  return [...ClientTools.of(prompt.request.tools).all.map(functionOf), ...shownPluginTools(prompt).functions];
}

/** The tools of this server that stand in the prompt. */
export function shownPluginTools({ pluginTools = NO_PLUGIN_TOOLS, onlyOffered }: ToolPrompt): PluginTools {
  return onlyOffered ? offeredPluginTools(pluginTools) : pluginTools;
}

/** Those that the model may call. */
export function offeredPluginTools(pluginTools: PluginTools = NO_PLUGIN_TOOLS): PluginTools {
  const { functions, namespaces, builtinFunctions, withheld } = pluginTools;
  if (!withheld || withheld.size === 0) return pluginTools;
  const isOffered = ({ name }: { name: string }) => !withheld.has(name);
  return {
    functions: functions.filter(isOffered),
    namespaces: Object.fromEntries(Object.entries(namespaces).filter(([, namespace]) => isOffered(namespace))),
    builtinFunctions: builtinFunctions.filter(isOffered),
  };
}

/** Whether tools stand in the prompt that the model may not call. */
export function withholdsTools(prompt: ToolPrompt): boolean {
  if (prompt.onlyOffered) return false;
  const clients = ClientTools.of(prompt.request.tools);
  const { withheld } = shownPluginTools(prompt);
  return (withheld && withheld.size > 0) || clients.offered(prompt.request.tool_choice).length < clients.all.length;
}
