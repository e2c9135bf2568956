import type { HarmonyMessage } from "./message.ts";

/**
 * A history without the reasoning behind answers already given: it drops every `analysis` message before the last
 * `final` one of the assistant, including tool calls within that reasoning and their results. Later reasoning stays,
 * because the model is still in it. This is the rule of OpenAI's guide and of vLLM. The library's `auto_drop_analysis`
 * uses the first `final` instead, and drops nothing while a tool is being called, so that old reasoning returns; this
 * function differs on purpose.
 */
export function dropAnalysis(messages: readonly HarmonyMessage[]): HarmonyMessage[] {
  const answer = messages.findLastIndex(({ role, channel }) => role === "assistant" && channel === "final");
  return messages.filter(({ channel }, index) => index > answer || channel !== "analysis");
}
