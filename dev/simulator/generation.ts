import type { Token } from "./engine.ts";
import { splitTokens, type Vocabulary } from "./tokenizer.ts";

/** A part of the model's output, in tokens. */
export type Said =
  | { kind: "reasoning" | "content" | "refusal"; tokens: readonly string[] }
  | { kind: "tool_call"; name: string; tokens: readonly string[] };

/** The output of a chat model, and vLLM's way to parse it. */
export type Speech = {
  /** All of the output. It may be endless. */
  tokens: Iterable<Token>;
  /** The model's own end. */
  eos: number;
  /** True if the stream begins in the model's reasoning, as the prompt says. */
  thinking: boolean;
  /** The same for an answer in one piece, and for the count of reasoning tokens. Neither depends on the prompt. */
  thinkingByRequest: boolean;
  /** True if the model refuses: its content is a refusal. */
  refuses: boolean;
};

const WORDS =
  " the quick brown fox jumps over a lazy dog while seven small wizards mix strong potions and quietly watch bright stars drift above old silver towers".match(
    / \w+/g,
  ) ?? [" word"];

/** The ends of an answer in the simulator's own vocabulary. */
export const END = "<|im_end|>";

/** Text as something said. */
export function say(kind: "reasoning" | "content" | "refusal", text: string): Said {
  return { kind, tokens: splitTokens(text) };
}

/** `count` tokens, a word each, always the same ones. After all words once, their order does not repeat itself. */
export function deterministicWords(count: number): string[] {
  let random = 1;
  const words = Array.from({ length: count }, (_, index) => {
    if (index < WORDS.length) return WORDS[index] ?? " word";
    random = (random * 48_271) % 2_147_483_647;
    return WORDS[random % WORDS.length] ?? " word";
  });
  if (count > 0) words[0] = words[0]?.trimStart() ?? "";
  return words;
}

/** The output as tokens, with a real model's marks of reasoning and calls, and its end token. */
export function speech(
  said: readonly Said[],
  vocabulary: Vocabulary,
  options: { continued: boolean; thinks: boolean; ignoreEos: boolean; letters?: boolean },
): Speech {
  const reasons = said[0]?.kind === "reasoning";
  return {
    tokens: tokensOf(said, vocabulary, options),
    eos: vocabulary.id(END),
    thinking: reasons,
    thinkingByRequest: reasons || (options.continued && options.thinks),
    refuses: said.some(({ kind }) => kind === "refusal"),
  };
}

const MARKS = /(<\/?think>|<\/?tool_call>)/;

/**
 * The whole output as one text, including the marks of reasoning and calls. The prompt may already contain its
 * beginning.
 */
export function rawSpeech(text: string, vocabulary: Vocabulary, already: string): Speech {
  const rest = text.startsWith(already) ? text.slice(already.length) : text;
  const names = rest.split(MARKS).flatMap((part) => (MARKS.test(part) ? [part] : splitTokens(part)));
  const thinking = rest.startsWith("<think>");
  const tokens = [...names, END].map((name) => ({ id: vocabulary.id(name), text: name === END ? "" : name, name }));
  return { tokens, eos: vocabulary.id(END), thinking, thinkingByRequest: thinking, refuses: false };
}

function* tokensOf(
  said: readonly Said[],
  vocabulary: Vocabulary,
  { continued, ignoreEos, letters = false }: { continued: boolean; ignoreEos: boolean; letters?: boolean },
): Generator<Token> {
  const token = (name: string): Token => ({ id: vocabulary.id(name), text: name, name });
  for (const [index, entry] of said.entries()) {
    if (entry.kind === "reasoning" && !(continued && index === 0)) yield token("<think>");
    if (entry.kind === "tool_call") {
      yield token("<tool_call>");
      for (const name of splitTokens(`{"name": ${JSON.stringify(entry.name)}, "arguments": `)) yield token(name);
    }
    for (const name of entry.tokens) {
      if (letters) for (const letter of name) yield token(letter);
      else yield token(name);
    }
    if (entry.kind === "tool_call") {
      yield token("}");
      yield token("</tool_call>");
    }
    if (entry.kind === "reasoning") yield token("</think>");
  }
  if (!ignoreEos) {
    yield { ...token(END), text: "" };
    return;
  }
  yield* endlessWords(vocabulary);
}

/** The output of a model that may not end. */
export function* endlessWords(vocabulary: Vocabulary): Generator<Token> {
  for (let index = 0; ; index++) {
    const name = WORDS[index % WORDS.length] ?? " word";
    yield { id: vocabulary.id(name), text: name, name };
  }
}
