import type { Token } from "./engine.ts";
import { splitTokens, type Vocabulary } from "./tokenizer.ts";

/** One stretch of what the model says, in tokens. */
export type Said =
  | { kind: "reasoning" | "content" | "refusal"; tokens: readonly string[] }
  | { kind: "tool_call"; name: string; tokens: readonly string[] };

/** What the model of a chat says, and how vLLM's parsers read it. */
export type Speech = {
  /** All of it; there may be no end to it. */
  tokens: Iterable<Token>;
  /** The model's own end. */
  eos: number;
  /** Whether the stream begins in the model's thoughts, as the prompt has it. */
  thinking: boolean;
  /** The same for an answer in one piece, and for the count of reasoning tokens: neither looks at the prompt. */
  thinkingByRequest: boolean;
  /** The model refuses: its content is a refusal. */
  refuses: boolean;
};

const WORDS =
  " the quick brown fox jumps over a lazy dog while seven small wizards mix strong potions and quietly watch bright stars drift above old silver towers".match(
    / \w+/g,
  ) ?? [" word"];

/** What ends an answer in the simulator's own vocabulary. */
export const END = "<|im_end|>";

/** Text as something said. */
export function say(kind: "reasoning" | "content" | "refusal", text: string): Said {
  return { kind, tokens: splitTokens(text) };
}

/** `count` tokens, a word each, always the same ones. */
export function deterministicWords(count: number): string[] {
  const words = Array.from({ length: count }, (_, index) => WORDS[index % WORDS.length] ?? " word");
  if (count > 0) words[0] = words[0]?.trimStart() ?? "";
  return words;
}

/** What is said as tokens, with the marks of thoughts and calls that a real model writes, and its end. */
export function speech(
  said: readonly Said[],
  vocabulary: Vocabulary,
  options: { continued: boolean; thinks: boolean; ignoreEos: boolean },
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

/** A text that stands for all that a model says, marks of thoughts and calls among it. A beginning of it may be there already. */
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
  { continued, ignoreEos }: { continued: boolean; ignoreEos: boolean },
): Generator<Token> {
  const token = (name: string): Token => ({ id: vocabulary.id(name), text: name, name });
  for (const [index, entry] of said.entries()) {
    if (entry.kind === "reasoning" && !(continued && index === 0)) yield token("<think>");
    if (entry.kind === "tool_call") {
      yield token("<tool_call>");
      for (const name of splitTokens(`{"name": ${JSON.stringify(entry.name)}, "arguments": `)) yield token(name);
    }
    for (const name of entry.tokens) yield token(name);
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

/** What a model says that may not end. */
export function* endlessWords(vocabulary: Vocabulary): Generator<Token> {
  for (let index = 0; ; index++) {
    const name = WORDS[index % WORDS.length] ?? " word";
    yield { id: vocabulary.id(name), text: name, name };
  }
}
