import { answerFormat } from "../contract/answer-format.ts";
import type { PluginTools, Prompt } from "../contract/engine.ts";
import { clientCallOf, type Item, isClientCall, isServerCall, type OutputItem } from "../items/registry.ts";
import { ClientTools } from "../protocol/client-tools.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { mustCall } from "../protocol/tools.ts";
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
  if (mustCall(choice) && !called && ((pluginTools && hasAny(pluginTools)) || tools.offered(choice).length > 0)) {
    return `'tool_choice': it does not call ${named ? `the tool '${named.name}'` : "a tool"}`;
  }
  return brokenText(request, roundItems(state));
}

function hasAny({ functions, builtinFunctions, namespaces }: PluginTools): boolean {
  return functions.length + builtinFunctions.length + Object.keys(namespaces).length > 0;
}

/** The same for the text that a round ends with. One that ends in a call for the client to answer has no final text. */
function brokenText(request: CreateRequest, items: readonly OutputItem[]): string | undefined {
  const hasLogprobs = request.include?.includes("message.output_text.logprobs") === true;
  const format = request.stop == null ? answerFormat(request) : undefined;
  if (!format && !hasLogprobs) return undefined;
  if (items.some((item) => isClientCall(item) || item.type === "mcp_approval_request")) return undefined;
  const message = items.findLast((item) => item.type === "message" && item.phase !== "commentary");
  const parts = message?.type === "message" ? message.content : [];
  if (parts.some((part) => part.type === "refusal")) return undefined;
  const texts = parts.filter((part) => part.type === "output_text");
  const answer = texts.map(({ text }) => text).join("");
  if (format && !format.mayAccept(answer)) return format.fault;
  const lacksLogprobs = hasLogprobs && answer !== "" && texts.every(({ logprobs }) => !logprobs?.length);
  return lacksLogprobs ? "'include': it has no log probabilities" : undefined;
}
