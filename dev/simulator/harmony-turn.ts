import type { HarmonyMessage } from "./harmony-prompt.ts";

/** The last user message and what came after it. */
export type HarmonyTurn = {
  text: string;
  /** What tools have answered: their full names, such as `functions.get_weather`. */
  results: { name: string; output: string }[];
  /** How often the model has spoken, or a tool in its stead. */
  rounds: number;
};

/** Reads the turn that the model is in. */
export function turnOf(messages: readonly HarmonyMessage[]): HarmonyTurn {
  const at = messages.findLastIndex((message) => message.role === "user");
  const after = messages.slice(at + 1).filter(({ role }) => role === "assistant" || role === "tool");
  return {
    text: messages[at]?.content ?? "",
    results: after
      .filter((message) => message.role === "tool")
      .map((message) => ({ name: message.name ?? "tool", output: message.content })),
    rounds: after.filter(({ role }, index) => {
      const before = after[index - 1]?.role;
      return before === undefined || (role === "assistant" && before === "tool");
    }).length,
  };
}
