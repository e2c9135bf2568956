import type { ModelDelta, TokenLogprob } from "./engine.ts";

type TextDelta = Extract<ModelDelta, { kind: "text" }>;

/** Text that could not be at the end of a prompt, so that the model generates it again: its reader has it already. */
export class RepeatedText {
  #left: string;

  /** `repeated` may be empty. */
  constructor(repeated: string) {
    this.#left = repeated;
  }

  /** A delta of text without the part that repeats the text. */
  remove(delta: TextDelta): TextDelta {
    if (this.#left === "") return delta;
    const common = commonPrefix(this.#left, delta.text);
    // New words end the repetition, even if some of it is left.
    this.#left = common < delta.text.length ? "" : this.#left.slice(common);
    return { ...delta, text: delta.text.slice(common), logprobs: withoutFirst(delta.logprobs, common) };
  }
}

/** The logprobs without those of the tokens of the first characters. */
function withoutFirst(logprobs: TokenLogprob[] | undefined, characters: number): TokenLogprob[] | undefined {
  if (characters === 0) return logprobs;
  let rest = characters;
  return logprobs?.filter(({ token }) => {
    rest -= token.length;
    return rest < 0;
  });
}

function commonPrefix(a: string, b: string): number {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length += 1;
  return length;
}
