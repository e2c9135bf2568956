import type { HarmonyMessage } from "./message.ts";

/**
 * A history without the thoughts that led to answers already given: every `analysis` message before the last of the
 * assistant's `final` ones, tools called from within those thoughts and their results included. Thoughts since then stay,
 * as the model is still in them.
 *
 * This is the rule of OpenAI's guide and of vLLM. The library's `auto_drop_analysis` looks at the first `final` instead,
 * and drops nothing while a tool is being called, so that old thoughts come back; that is not for imitation.
 */
export function dropAnalysis(messages: readonly HarmonyMessage[]): HarmonyMessage[] {
  const answer = messages.findLastIndex(({ role, channel }) => role === "assistant" && channel === "final");
  return messages.filter(({ channel }, index) => index > answer || channel !== "analysis");
}
