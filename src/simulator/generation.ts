import { splitTokens } from "./tokenizer.ts";

/** One stretch of what the model says, in tokens. A call's name is one delta of its own. */
export type Said =
  | { kind: "reasoning" | "content" | "refusal"; tokens: readonly string[] }
  | { kind: "tool_call"; name: string; tokens: readonly string[] };

/** What was generated in the end, and why it ended. */
export type Generation = {
  said: Said[];
  finish: "stop" | "length" | "tool_calls";
  stopReason: string | number | null;
  completionTokens: number;
  reasoningTokens: number;
};

const WORDS =
  " the quick brown fox jumps over a lazy dog while seven small wizards mix strong potions and quietly watch bright stars drift above old silver towers".match(
    / \w+/g,
  ) ?? [" word"];

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

/** How many tokens one stretch took. */
export function countTokens(said: Said): number {
  return said.tokens.length + (said.kind === "tool_call" ? splitTokens(said.name).length : 0);
}

/** Applies stop strings, the token limit and `ignore_eos` to what the model would say, as the engine does. */
export function generate(
  said: readonly Said[],
  finish: "stop" | "tool_calls",
  limits: { stop: readonly string[]; includeStop: boolean; maxTokens: number; ignoreEos: boolean },
): Generation {
  const stopped = limits.stop.length > 0 ? applyStop(said, limits.stop, limits.includeStop) : undefined;
  let kept = [...(stopped?.said ?? said)];
  let ending: Generation["finish"] = stopped === undefined ? finish : "stop";
  const wanted = total(kept);
  if (wanted > limits.maxTokens) {
    kept = cutAt(kept, limits.maxTokens);
    ending = "length";
  } else if (limits.ignoreEos && stopped === undefined) {
    kept.push({ kind: "content", tokens: deterministicWords(limits.maxTokens - wanted).map(withSpace) });
    ending = "length";
  }
  return {
    said: kept,
    finish: ending,
    stopReason: ending === "stop" ? (stopped?.reason ?? null) : null,
    completionTokens: total(kept),
    reasoningTokens: total(kept.filter((entry) => entry.kind === "reasoning")),
  };
}

function withSpace(token: string): string {
  return token.startsWith(" ") ? token : ` ${token}`;
}

function total(said: readonly Said[]): number {
  return said.reduce((sum, entry) => sum + countTokens(entry), 0);
}

function cutAt(said: readonly Said[], limit: number): Said[] {
  const kept: Said[] = [];
  let left = limit;
  for (const entry of said) {
    const name = countTokens(entry) - entry.tokens.length;
    if (left <= 0 || name > left) break;
    const tokens = entry.tokens.slice(0, left - name);
    kept.push({ ...entry, tokens });
    left -= name + tokens.length;
  }
  return kept;
}

function applyStop(
  said: readonly Said[],
  stop: readonly string[],
  include: boolean,
): { said: Said[]; reason: string } | undefined {
  for (const [index, entry] of said.entries()) {
    if (entry.kind === "tool_call") continue;
    const text = entry.tokens.join("");
    let first: { at: number; stop: string } | undefined;
    for (const candidate of stop) {
      const at = text.indexOf(candidate);
      if (at >= 0 && (first === undefined || at + candidate.length < first.at + first.stop.length)) {
        first = { at, stop: candidate };
      }
    }
    if (first === undefined) continue;
    const cut = text.slice(0, first.at + (include ? first.stop.length : 0));
    return { said: [...said.slice(0, index), say(entry.kind, cut)], reason: first.stop };
  }
  return undefined;
}
