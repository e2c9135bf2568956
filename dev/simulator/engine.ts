/**
 * A token of the model's output: its id, the text that it adds, and its text in `logprobs`. An `inert` token ends
 * nothing.
 */
export type Token = { id: number; text: string; name: string; inert?: boolean };

/**
 * A generated token, and the text that was output with it. The text may be later than the token while a stop string may
 * begin in it.
 */
export type Step = { id: number; name: string; text: string };

/** The reason for the end of a generation. */
export type Ending = { finish: Finish; stopReason: string | number | null };
export type Finish = "stop" | "length" | "repetition";

/** Patterns of tokens that end a generation when they repeat (`repetition_detection`). */
export type Repetition = { maxSize: number; minSize: number; minCount: number };

/** The possible ends of a generation. */
export type Limits = {
  maxTokens: number;
  /** The model's own end token. It gives no `stop_reason`. */
  eos: number | undefined;
  /** Other end tokens, each with its `stop_reason`. */
  stopIds: ReadonlySet<number>;
  stop: readonly string[];
  includeStop: boolean;
  repetition: Repetition | undefined;
};

/**
 * Generates `tokens` until a stop token, a stop string or the limit, as vLLM's engine and detokenizer do: the end token
 * adds no text, and the detokenizer holds back one character less than the longest stop string has.
 */
export function* runEngine(tokens: Iterable<Token>, limits: Limits): Generator<Step, Ending> {
  const { stop, includeStop, maxTokens } = limits;
  const longest = Math.max(0, ...stop.map((text) => text.length));
  const kept = includeStop ? 0 : Math.max(0, longest - 1);
  let held = "";
  /** The end of all text so far, in which a stop string may have begun. */
  let recent = "";
  let count = 0;
  const ids: number[] = [];
  for (const { id, text, name, inert } of tokens) {
    count++;
    if (inert !== true && (id === limits.eos || limits.stopIds.has(id))) {
      yield { id, name, text: held + (includeStop ? text : "") };
      return { finish: "stop", stopReason: id === limits.eos ? null : id };
    }
    held += text;
    if (longest > 0 && text !== "") {
      recent = (longest > 1 ? recent.slice(1 - longest) : "") + text;
      const found = firstStop(recent, stop, text.length);
      if (found !== undefined) {
        // The rest of the text in that token is dropped with it.
        const surplus = recent.length - found.at - (includeStop ? found.text.length : 0);
        yield { id, name, text: held.slice(0, Math.max(0, held.length - surplus)) };
        return { finish: "stop", stopReason: found.text };
      }
    }
    const last = count >= maxTokens;
    const released = last ? held : held.slice(0, Math.max(0, held.length - kept));
    held = held.slice(released.length);
    yield { id, name, text: released };
    if (last) break;
    if (!limits.repetition) continue;
    ids.push(id);
    if (repeats(ids, limits.repetition)) return { finish: "repetition", stopReason: "repetition_detected" };
  }
  return { finish: "length", stopReason: null };
}

/** Tells whether the last tokens are a pattern that has come often enough, as vLLM's `check_sequence_repetition` does. */
function repeats(ids: readonly number[], { maxSize, minSize, minCount }: Repetition): boolean {
  for (let size = Math.max(1, minSize); size <= maxSize && size * minCount <= ids.length; size++) {
    const from = ids.length - size * (minCount - 1);
    if (ids.slice(from).every((id, index) => id === ids[from + index - size])) return true;
  }
  return false;
}

/** The same in one piece. */
export function generateAll(tokens: Iterable<Token>, limits: Limits): { steps: Step[]; ending: Ending } {
  const steps: Step[] = [];
  const engine = runEngine(tokens, limits);
  let next = engine.next();
  for (; next.done !== true; next = engine.next()) steps.push(next.value);
  return { steps, ending: next.value };
}

/** The stop string that ends first, of those that the new characters complete. */
function firstStop(text: string, stop: readonly string[], added: number): { at: number; text: string } | undefined {
  let best: { at: number; text: string } | undefined;
  for (const candidate of stop) {
    const at = text.indexOf(candidate, Math.max(0, text.length - added - candidate.length + 1));
    if (at < 0) continue;
    if (best === undefined || at + candidate.length < best.at + best.text.length) best = { at, text: candidate };
  }
  return best;
}
