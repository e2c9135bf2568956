/** The markup in which model families write thoughts and calls, as it stands in the text of a server without parsers. */

/** A call that a model has written into its text. */
export interface MarkedCall {
  name: string;
  /** JSON, as the model wrote it where it wrote JSON. */
  arguments: string;
}

/** The marks of a thought. */
export const THOUGHTS: ReadonlyMap<string, string> = new Map([
  // Qwen, DeepSeek, GLM, Kimi, MiniMax, Nemotron, Granite and others.
  ["<think>", "</think>"],
  ["<seed:think>", "</seed:think>"],
  ["[THINK]", "[/THINK]"],
  ["◁think▷", "◁/think▷"],
  ["<|START_THINKING|>", "<|END_THINKING|>"],
  ["<|channel|>analysis<|message|>", "<|end|>"],
]);

/** The ends of thoughts that some chat templates begin in the prompt, so that no beginning is in the answer. */
export const LATE_ENDS: readonly string[] = ["</think>", "</seed:think>", "[/THINK]", "◁/think▷"];

/** The marks of a block of calls. A block may also end with the answer. */
export const CALLS: ReadonlyMap<string, readonly string[]> = new Map([
  // Hermes, Qwen, Qwen3-Coder, GLM, Granite.
  ["<tool_call>", ["</tool_call>"]],
  // MiniMax M1, Jamba, Hunyuan.
  ["<tool_calls>", ["</tool_calls>"]],
  ["<minimax:tool_call>", ["</minimax:tool_call>"]],
  ["<seed:tool_call>", ["</seed:tool_call>"]],
  ["<function_calls>", ["</function_calls>"]],
  ["<｜DSML｜function_calls>", ["</｜DSML｜function_calls>"]],
  ["<TOOLCALL>", ["</TOOLCALL>"]],
  ["<｜tool▁calls▁begin｜>", ["<｜tool▁calls▁end｜>"]],
  ["<|tool_calls_section_begin|>", ["<|tool_calls_section_end|>"]],
  ["<|tool_call|>", ["<|/tool_call|>"]],
  ["<|START_ACTION|>", ["<|END_ACTION|>"]],
  ["<|python_tag|>", ["<|eom_id|>", "<|eot_id|>"]],
  ["[TOOL_CALLS]", []],
  ["<|channel|>commentary to=", ["<|call|>"]],
]);

/** Llama and Qwen3-Coder without the tags around it: the name belongs to the mark. */
export const FUNCTION_TAG = "<function=";
export const FUNCTION_TAG_END = "</function>";

/** Marks of gpt-oss between its messages. They are no text where a thought of its form came before. */
export const HARMONY_MARKS: readonly string[] = [
  "<|start|>assistant",
  "<|channel|>final<|message|>",
  "<|channel|>commentary<|message|>",
  "<|end|>",
  "<|return|>",
];

/** The characters with which marks begin. */
export const MARK_BEGINNING = /[<[◁]/;

/** The same at the beginning of an answer, which may be a call in bare JSON. */
export const ANSWER_BEGINNING = /[<[◁{]/;

/** The first mark of any kind. Longer ones come before those that they begin with. */
export const MARKS = [...THOUGHTS.keys(), ...LATE_ENDS, ...CALLS.keys(), FUNCTION_TAG, ...HARMONY_MARKS].sort(
  (a, b) => b.length - a.length,
);

export const LONGEST_MARK = MARKS[0]?.length ?? 0;

/** Tells whether a mark is a token that only a model writes: people who write about models seldom quote it. */
export function isToken(mark: string): boolean {
  return /[|｜]/.test(mark) || mark === "[TOOL_CALLS]";
}

/** The first of some marks in a text from a position on, and its position. */
export function firstMark(text: string, marks: readonly string[], from = 0): [at: number, mark: string | undefined] {
  let first = -1;
  let found: string | undefined;
  for (const mark of marks) {
    const at = text.indexOf(mark, from);
    if (at < 0 || (first >= 0 && (at > first || (at === first && mark.length <= (found?.length ?? 0))))) continue;
    first = at;
    found = mark;
  }
  return [first, found];
}

/** The length of the end of a text with which one of some marks may begin. */
export function beginningLength(text: string, marks: readonly string[]): number {
  for (let at = Math.max(0, text.length - LONGEST_MARK); at < text.length; at += 1) {
    if (!MARK_BEGINNING.test(text[at] as string)) continue;
    const rest = text.slice(at);
    if (marks.some((mark) => mark.startsWith(rest))) return rest.length;
  }
  return 0;
}
