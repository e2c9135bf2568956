import { mayConform } from "@responses-edge/json-text";
import type { PluginTools, Prompt } from "../contract/engine.ts";
import { clientCallOf, type Item, isClientCall, isServerCall, type OutputItem } from "../items/registry.ts";
import { ClientTools } from "../protocol/client-tools.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { mustCall } from "../protocol/tools.ts";
import { roundItems, type TurnState, withoutSuperseded } from "./state.ts";

/** The comparison of what a turn has put out with its request. A model server may ignore a field, or answer beside it. */

/**
 * Says which field of the request the output of a turn that ends now does not keep to, in words for the client; undefined where it keeps to
 * all. `asked` is the turn's request, and `prompt` the one of its last round, with the tools that items have brought. Text that a stop string may have cut, and the client's own regular expressions, grammars and structural tags are not looked at.
 */
export function disregarded(
  { tool_choice: choice }: CreateRequest,
  { request, pluginTools }: Pick<Prompt, "request" | "pluginTools">,
  state: TurnState,
): string | undefined {
  const tools = ClientTools.of(request.tools);
  const items = withoutSuperseded(state, state.output);
  let called = false;
  const named = tools.named(choice);
  for (const item of items) {
    if (isClientCall(item)) {
      if (item.status === "incomplete") continue;
      const name = clientCallOf(item as Item)?.flatName ?? item.type;
      const tool = tools.get(name);
      if (!tool) return `'tools': it calls '${name}', which was not offered`;
      called ||= !named || tool === named;
    } else called ||= !named && (isServerCall(item) || item.type === "mcp_approval_request");
  }
  const hasTools = (pluginTools && hasAny(pluginTools)) || tools.offered(choice).length > 0;
  if (mustCall(choice) && hasTools && !called) {
    return `'tool_choice': it does not call ${named ? `the tool '${named.name}'` : "a tool"}`;
  }
  return brokenFormat(request, roundItems(state));
}

function hasAny({ functions, builtinFunctions, namespaces }: PluginTools): boolean {
  return functions.length + builtinFunctions.length + Object.keys(namespaces).length > 0;
}

/** The same for the text that a round ends with. One that ends in a call for the client to answer has no final text. */
function brokenFormat(request: CreateRequest, items: readonly OutputItem[]): string | undefined {
  const { text, structured_outputs: outputs, stop } = request;
  const format = text?.format;
  const isFree = (format?.type ?? "text") === "text" && outputs == null;
  if (isFree || stop != null || items.some((item) => isClientCall(item) || item.type === "mcp_approval_request"))
    return;
  const message = items.findLast((item) => item.type === "message" && item.phase !== "commentary");
  const parts = message?.type === "message" ? message.content : [];
  if (parts.some((part) => part.type === "refusal")) return;
  const answer = parts.map((part) => (part.type === "output_text" ? part.text : "")).join("");
  if (format?.type === "json_object" && !mayConform(answer, OBJECT)) return "'text.format': its text is no JSON object";
  if (format?.type === "json_schema" && !mayConform(answer, format.schema)) {
    return `'text.format': its text does not keep to the schema '${format.name}'`;
  }
  if (outputs == null || (format && format.type !== "text")) return;
  const { choice, json, json_object: isObject } = outputs;
  if (Array.isArray(choice) && !choice.includes(answer))
    return "'structured_outputs.choice': its text is none of these";
  if (isObject === true && !mayConform(answer, OBJECT)) return "'structured_outputs': its text is no JSON object";
  const schema = typeof json === "string" ? parsed(json) : json;
  if (schema != null && !mayConform(answer, schema)) return "'structured_outputs.json': its text does not keep to it";
  return undefined;
}

const OBJECT = { type: "object" };

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
