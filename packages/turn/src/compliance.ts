import { ClientTools } from "@responses-edge/responses-api/client-tools";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import {
  clientCallOf,
  type Item,
  isClientCall,
  isServerCall,
  type OutputItem,
} from "@responses-edge/responses-api/items/registry";
import { mustCall } from "@responses-edge/responses-api/tools";
import { answerFormat } from "./answer-format.ts";
import type { Prompt } from "./engine.ts";
import { roundItems, type TurnState, withoutSuperseded } from "./state.ts";

/** The comparison of what a turn has put out with its request. A model server may ignore a field, or answer beside it. */

/**
 * Says which field of the request the output of a turn that ends now does not keep to, in words for the client; undefined
 * where it keeps to all. The turn's own request has the choice; the prompt of its last round has the tools that items have
 * brought. Text that a stop string may have cut, and the client's own regular expressions, grammars and structural tags are
 * not looked at.
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
  const plugins = pluginTools?.functions ?? [];
  const { builtinFunctions = [], namespaces = {} } = pluginTools ?? {};
  const hasPlugins = plugins.length + builtinFunctions.length + Object.keys(namespaces).length > 0;
  if (mustCall(choice) && !called && (hasPlugins || tools.offered(choice).length > 0)) {
    return `'tool_choice': it does not call ${named ? `the tool '${named.name}'` : "a tool"}`;
  }
  const final = finalText(roundItems(state));
  if (!final) return undefined;
  const { text, hasLogprobs } = final;
  // Where nothing may be called, such a text is what the model has to say.
  const [, unread = ""] = (choice !== "none" && UNREAD_CALL.exec(text)) || [];
  if (unread !== "" && (tools.get(unread) || plugins.some(({ name }) => name === unread))) {
    return `'tools': its call of '${unread}' is text, because the model server reads no calls`;
  }
  const format = request.stop == null ? answerFormat(request) : undefined;
  if (format && !format.mayAccept(text)) return format.fault;
  const lacksLogprobs = text !== "" && !hasLogprobs && request.include?.includes("message.output_text.logprobs");
  return lacksLogprobs ? "'include': it has no log probabilities" : undefined;
}

/** A call as Hermes, Qwen and the models trained like them write it; the group is the name of its tool. */
const UNREAD_CALL = /^\s*<tool_call>\s*(?:\{\s*"name"\s*:\s*"|<function=)([\w.-]+)/;

/** The text that a round ends with; undefined where it ends in a refusal, or in a call for the client to answer. */
function finalText(items: readonly OutputItem[]): { text: string; hasLogprobs: boolean } | undefined {
  let message: Extract<OutputItem, { type: "message" }> | undefined;
  for (const item of items) {
    if (isClientCall(item) || item.type === "mcp_approval_request") return undefined;
    if (item.type === "message" && item.phase !== "commentary") message = item;
  }
  let text = "";
  let hasLogprobs = false;
  for (const part of message?.content ?? []) {
    if (part.type === "refusal") return undefined;
    if (part.type !== "output_text") continue;
    text += part.text;
    hasLogprobs ||= (part.logprobs?.length ?? 0) > 0;
  }
  return { text, hasLogprobs };
}
