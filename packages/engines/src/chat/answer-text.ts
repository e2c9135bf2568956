import type { FinishReason, ModelDelta, TokenLogprob } from "@responses-edge/turn/contract/engine";
import type { StopStrings } from "../stop-strings.ts";

export interface AnswerTextOptions {
  /** The strings that end the answer, if there are any. */
  stop?: StopStrings | undefined;
  /** The prompt ends in an open message, so that white space at the beginning belongs to its text. */
  continues?: boolean;
}

/**
 * The text of an answer as its reader gets it: without the white space that templates put between reasoning and calls,
 * and up to a stop string.
 *
 * White space without a word since the last reasoning or call is held back, and delivered with the next word; if a call
 * or reasoning follows, it is dropped. An answer of only white space is delivered when the model ends it. vLLM finds
 * stop strings in all output. Here they apply only to the text from its first word on.
 */
export class AnswerText {
  readonly #stop: StopStrings | undefined;
  /** A word has come since the last reasoning or call. */
  #begun: boolean;
  /** The answer has more than reasoning and text. */
  #saysMore = false;
  /** Held-back text, with the tokens that begin in it and their positions. */
  #held = "";
  #tokens: { entry: TokenLogprob; start: number }[] = [];
  /** A stop string has ended the answer. Later output does not count. */
  stopped = false;

  constructor({ stop, continues = false }: AnswerTextOptions = {}) {
    this.#stop = stop;
    this.#begun = continues;
  }

  /**
   * Adds the deliverable part of the next text. `isBound`: false if no stop string may end in it yet (`min_tokens`).
   */
  push(text: string, logprobs: TokenLogprob[], out: ModelDelta[], isBound = true): void {
    let from = 0;
    if (!this.#begun) {
      from = text.length - text.trimStart().length;
      this.#begun = from < text.length;
    } else if (!this.#stop) {
      // The usual case: no copy.
      out.push(logprobs.length > 0 ? { kind: "text", text, logprobs } : { kind: "text", text });
      return;
    }
    const before = this.#held.length;
    this.#held += text;
    let start = before;
    for (const entry of logprobs) {
      this.#tokens.push({ entry, start: Math.min(start, this.#held.length - 1) });
      start += entry.token.length;
    }
    if (!this.#begun) return;
    const stop = this.#stop;
    if (!isBound) stop?.reset();
    const found = isBound ? stop?.push(text.slice(from)) : undefined;
    if (found !== undefined) {
      this.#deliver(before + from + found, out);
      this.#held = "";
      this.#tokens = [];
      this.stopped = true;
      return;
    }
    this.#deliver(this.#held.length - (stop?.buffered ?? 0), out);
  }

  /** Ends the text, because something else comes: white space before it is dropped, and later text is another text. */
  interrupt(by: "thought" | "call" | "refusal", out: ModelDelta[]): void {
    this.#saysMore ||= by !== "thought";
    if (this.#begun) {
      this.#deliver(this.#held.length, out);
      this.#begun = false;
      this.#stop?.reset();
    }
    this.#held = "";
    this.#tokens = [];
  }

  /** Ends the answer with the model's reason: adds the text that is still held back. */
  end(reason: FinishReason, out: ModelDelta[]): void {
    const isAnswer = this.#begun || (reason === "stop" && !this.#saysMore);
    if (isAnswer) this.#deliver(this.#held.length, out);
    this.#held = "";
    this.#tokens = [];
  }

  /** Delivers this many characters, and the tokens that begin in them. */
  #deliver(length: number, out: ModelDelta[]): void {
    if (length <= 0) return;
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    const next = this.#tokens.findIndex(({ start }) => start >= length);
    const taken = this.#tokens.splice(0, next < 0 ? this.#tokens.length : next);
    for (const token of this.#tokens) token.start -= length;
    const logprobs = taken.map(({ entry }) => entry);
    out.push(logprobs.length > 0 ? { kind: "text", text, logprobs } : { kind: "text", text });
  }
}
