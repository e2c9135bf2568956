import type { HarmonyTokenizer } from "./harmony-tokenizer.ts";

export const IM_START = 201_000;
export const IM_END = 201_001;
export const THINK = 201_078;
export const THINK_END = 201_079;
export const TOOL_CALL = 201_080;

const NAMES = new Map<number, string>([
  [IM_START, "<|im_start|>"],
  [IM_END, "<|im_end|>"],
  [THINK, "<think>"],
  [THINK_END, "</think>"],
  [TOOL_CALL, "<tool_call>"],
  [201_081, "</tool_call>"],
  [201_082, "<tool_response>"],
  [201_083, "</tool_response>"],
]);
const IDS = new Map([...NAMES].map(([id, name]) => [name, id]));
const LITERAL = /<\|im_(?:start|end)\|>|<\/?(?:think|tool_call|tool_response)>/g;
/** Qwen3's marks of reasoning and calls are ordinary tokens: they are part of the text. */
const FIRST_ORDINARY = THINK;

/** The vocabulary of `tiny-qwen3`: gpt-oss's, with Qwen3's marks in the place of reserved tokens. */
export class ChatmlTokenizer {
  #base: HarmonyTokenizer;

  constructor(base: HarmonyTokenizer) {
    this.#base = base;
  }

  /** Text to token ids. Literals of marks become the marks' ids. */
  encode(text: string): number[] {
    const ids: number[] = [];
    let from = 0;
    for (const { 0: literal, index } of text.matchAll(LITERAL)) {
      for (const id of this.#base.encode(text.slice(from, index))) ids.push(id);
      ids.push(IDS.get(literal) ?? 0);
      from = index + literal.length;
    }
    for (const id of this.#base.encode(text.slice(from))) ids.push(id);
    return ids;
  }

  /** Token ids to text. Invalid UTF-8 becomes U+FFFD. */
  decode(ids: readonly number[]): string {
    let text = "";
    let from = 0;
    for (const [at, id] of ids.entries()) {
      const name = NAMES.get(id);
      if (name === undefined) continue;
      text += this.#base.decode(ids.slice(from, at)) + name;
      from = at + 1;
    }
    return text + this.#base.decode(ids.slice(from));
  }

  /** The text of one token. */
  token(id: number): string {
    return NAMES.get(id) ?? this.#base.token(id);
  }

  /** True if `skip_special_tokens` leaves the token out of the text. */
  isSpecial(id: number): boolean {
    return id >= 199_998 && !(id >= FIRST_ORDINARY && NAMES.has(id));
  }
}
