import { functionOf } from "../contract/client-functions.ts";
import type { Prompt } from "../contract/engine.ts";
import { ClientTools } from "../protocol/client-tools.ts";
import type { FunctionTool } from "../protocol/tools.ts";

/**
 * The functions that a model gets to see: the client's, none under `tool_choice: "none"` and only the chosen ones under
 * `allowed_tools` or a choice of a hosted tool, so that the choice holds whatever the model would like; and those of
 * MCP servers, which have been chosen before.
 */
export function offeredTools({ request, serverTools }: Pick<Prompt, "request"> & Partial<Prompt>): FunctionTool[] {
  return [...clientFunctions(request), ...(serverTools?.functions ?? [])];
}

/** Those of them that the client answers. */
export function clientFunctions({ tools, tool_choice: choice }: Prompt["request"]): FunctionTool[] {
  return ClientTools.of(tools).offered(choice).map(functionOf);
}
