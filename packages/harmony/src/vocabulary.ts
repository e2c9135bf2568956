/**
 * The special tokens of `o200k_harmony`, gpt-oss's vocabulary (openai/harmony `src/tiktoken_ext/public_encodings.rs`).
 * Every id from `FIRST_SPECIAL_ID` on is special; those without a name here are reserved.
 */
export const SPECIAL_TOKENS = {
  "<|startoftext|>": 199998,
  "<|endoftext|>": 199999,
  "<|return|>": 200002,
  "<|constrain|>": 200003,
  "<|channel|>": 200005,
  "<|start|>": 200006,
  "<|end|>": 200007,
  "<|message|>": 200008,
  "<|call|>": 200012,
} as const;

export const ENDOFTEXT = SPECIAL_TOKENS["<|endoftext|>"];
export const RETURN = SPECIAL_TOKENS["<|return|>"];
export const CONSTRAIN = SPECIAL_TOKENS["<|constrain|>"];
export const CHANNEL = SPECIAL_TOKENS["<|channel|>"];
export const START = SPECIAL_TOKENS["<|start|>"];
export const END = SPECIAL_TOKENS["<|end|>"];
export const MESSAGE = SPECIAL_TOKENS["<|message|>"];
export const CALL = SPECIAL_TOKENS["<|call|>"];

export const FIRST_SPECIAL_ID = 199998;

/** The tokens that end a completion: the model has finished, or waits for a tool. `<|end|>` does not end it. */
export const STOP_TOKEN_IDS = [RETURN, CALL];

const NAMES = new Map<number, string>(Object.entries(SPECIAL_TOKENS).map(([name, id]) => [id, name]));

/** The literal of a special token id; reserved ids are `<|reserved_N|>`. */
export function specialTokenName(id: number): string {
  return NAMES.get(id) ?? `<|reserved_${id}|>`;
}
