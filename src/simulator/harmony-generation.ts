import type { CompletionRequest } from "./completion-request.ts";
import { deterministicWords } from "./generation.ts";
import { CALL, Detokenizer, ENDOFTEXT, type HarmonyTokenizer, RETURN } from "./harmony-tokenizer.ts";
import type { Settings } from "./settings.ts";

/** What was generated: token ids, what each adds to the text, and why it ended. */
export type HarmonyGeneration = {
  ids: number[];
  texts: string[];
  finish: "stop" | "length";
  stopReason: string | number | null;
};

/** What ends a gpt-oss's output besides `<|return|>`, by its `generation_config.json`. */
const OTHER_ENDS = [ENDOFTEXT, CALL];

/** Lets the model say `wanted` until a stop token, a stop string or the token limit ends it, as the engine does. */
export function generateHarmony(
  wanted: readonly number[],
  request: CompletionRequest,
  maxTokens: number,
  settings: Settings,
  tokenizer: HarmonyTokenizer,
): HarmonyGeneration {
  const detokenizer = new Detokenizer(tokenizer, request.skipSpecialTokens);
  const ends = request.ignoreEos ? [] : [RETURN, ...OTHER_ENDS];
  const stops = new Set<number>([...ends, ...request.stopTokenIds]);
  const longest = Math.max(0, ...request.stop.map((stop) => stop.length));
  const ids: number[] = [];
  const texts: string[] = [];
  let tail = "";
  const all = request.ignoreEos ? goOn(wanted, maxTokens, tokenizer) : wanted;
  for (const [index, id] of all.entries()) {
    if (ids.length === maxTokens) break;
    ids.push(id);
    if (stops.has(id) && (settings.stops || index === all.length - 1)) {
      texts.push(request.includeStop ? detokenizer.add(id) : "");
      return { ids, texts, finish: "stop", stopReason: id === RETURN && !request.ignoreEos ? null : id };
    }
    const text = detokenizer.add(id);
    texts.push(text);
    if (longest === 0) continue;
    tail += text;
    const stop = firstStop(tail, request.stop);
    if (stop !== undefined) {
      dropEnd(texts, tail.length - stop.at - (request.includeStop ? stop.text.length : 0));
      return { ids, texts, finish: "stop", stopReason: stop.text };
    }
    tail = tail.slice(-longest);
  }
  return { ids, texts, finish: "length", stopReason: null };
}

function goOn(wanted: readonly number[], maxTokens: number, tokenizer: HarmonyTokenizer): number[] {
  const missing = Math.max(0, maxTokens - wanted.length);
  return [...wanted, ...tokenizer.encodeSegments([` ${deterministicWords(missing).join("")}`])];
}

/** The stop string that is complete first. */
function firstStop(text: string, stops: readonly string[]): { at: number; text: string } | undefined {
  const found = stops.map((stop) => ({ at: text.indexOf(stop), text: stop })).filter(({ at }) => at >= 0);
  return found.sort((one, two) => one.at + one.text.length - (two.at + two.text.length))[0];
}

function dropEnd(texts: string[], length: number): void {
  let left = length;
  for (let at = texts.length - 1; at >= 0 && left > 0; at--) {
    const text = texts[at] ?? "";
    texts[at] = text.slice(0, Math.max(0, text.length - left));
    left -= text.length - (texts[at]?.length ?? 0);
  }
}
