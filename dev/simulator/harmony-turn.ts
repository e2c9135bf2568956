import type { HarmonyMessage } from "./harmony-prompt.ts";

/** The last user message and the messages after it. */
export type HarmonyTurn = {
  text: string;
  /** The full names of the tools that have answered, such as `functions.get_weather`. */
  results: { name: string; output: string }[];
  /** The number of messages of the model, or of tools in its place. */
  rounds: number;
};

/** Reads the model's present turn. */
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
