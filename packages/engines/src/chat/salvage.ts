import { logLine } from "@responses-edge/bounded-io/json-text";

/** A fenced block of Markdown. */
const FENCE = /```[a-z]*[ \t]*\n([\s\S]*?)```/i;

/** Texts in which a model wraps JSON are shorter; longer ones are not searched. UTF-16 units. */
const MAX_LENGTH = 1_000_000;

/**
 * The JSON that a model has wrapped in something else, if it is accepted: in a fenced block, between other texts, or as a JSON
 * string. Undefined if there is none. Looks at three candidates at most.
 */
export function salvaged(text: string, accepts: (json: string) => boolean): string | undefined {
  if (text.length > MAX_LENGTH) return undefined;
  return candidatesIn(text).find((json) => json !== text && accepts(json));
}

function candidatesIn(text: string): string[] {
  const candidates: string[] = [];
  const fenced = FENCE.exec(text)?.[1]?.trim();
  if (fenced) candidates.push(fenced);
  const from = text.search(/[[{]/);
  const to = Math.max(text.lastIndexOf("}"), text.lastIndexOf("]"));
  if (from >= 0 && to > from) candidates.push(text.slice(from, to + 1));
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "string") candidates.push(value);
  } catch {
    // It is no JSON by itself.
  }
  return candidates;
}

/** Logs that JSON was taken out of what a model has wrapped it in. */
export function tellSalvaged(what: "answer" | "call", model: string): void {
  console.info(logLine({ level: "info", event: "json_unwrapped", what, model }));
}
