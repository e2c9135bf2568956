import type { HarmonyMessage } from "./message.ts";

/** The parser's output: deltas, and calls of tools that no client runs. Such a call has no deltas. */
export type HarmonyDelta =
  | { kind: "reasoning"; text: string }
  /** `phase` distinguishes a preamble between calls from the answer. */
  | { kind: "text"; text: string; logprobs?: TokenLogprob[]; phase: "commentary" | "final_answer" }
  /** `index` distinguishes parallel calls; `name` comes with the first delta of an index. */
  | { kind: "tool_call"; index: number; name?: string; arguments: string }
  /** The generated item is complete. */
  | { kind: "item_done" }
  /**
   * A message as the model wrote it, once it is complete or cut off, after its deltas. `index` counts the messages of
   * the output; `itemKind` is the type of its item, if it has become one.
   */
  | { kind: "message"; index: number; itemKind?: "reasoning" | "message" | "call"; message: HarmonyMessage }
  | { kind: "unserved_call"; message: HarmonyMessage };

/** The destination of the parser's deltas, such as an array. */
export interface HarmonyOutput {
  push(...deltas: HarmonyDelta[]): unknown;
}

/** One token of a text with its logprob, in the form of OpenAI's `output_text.logprobs`. */
export interface TokenLogprob {
  token: string;
  logprob: number;
  bytes: number[];
  top_logprobs: { token: string; logprob: number; bytes: number[] }[];
}
