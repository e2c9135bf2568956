import type { Prompt } from "../contract/engine.ts";
import { chosenTools, type FunctionTool, toolKey } from "../protocol/tools.ts";

/**
 * The functions that a model gets to see: the client's, none under `tool_choice: "none"` and only the chosen ones under
 * `allowed_tools` or a choice of a hosted tool, so that the choice holds whatever the model would like; and those of
 * MCP servers, which have been chosen before.
 */
export function offeredTools({ request, serverTools }: Pick<Prompt, "request"> & Partial<Prompt>): FunctionTool[] {
  return [...clientTools(request), ...(serverTools?.functions ?? [])];
}

function clientTools({ tools, tool_choice: choice }: Prompt["request"]): FunctionTool[] {
  if (choice === "none") return [];
  const functions = (tools ?? []).filter((tool) => tool.type === "function");
  // A named function stands beside the others: the model may see them, but not call them.
  const chosen = typeof choice === "object" && choice?.type === "function" ? undefined : chosenTools(choice);
  if (!chosen) return functions;
  const keys = new Set(chosen.map(toolKey));
  return functions.filter((tool) => keys.has(toolKey(tool)));
}
