import { logLine } from "@responses-edge/bounded-io/json-text";
import { hashOf, hashText } from "@responses-edge/engines/hash";
import { estimateTokens } from "@responses-edge/responses-api/estimate";
import { responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import type { Engine, Model, Prompt, PromptPart, RenderedPrompt } from "@responses-edge/turn/contract/engine";
import { compared, messagesWithin } from "@responses-edge/turn/prompt-drift";
import type { Config } from "../config/index.ts";
import { firstUserText } from "./affinity.ts";

/**
 * Compares the prompts of a sample of conversations turn by turn, and logs the first part that is not as it was: the model server
 * must compute it and all that follows again. It runs beside the answer, and keeps no text.
 */

/** The last prompt of a conversation. */
interface LastPrompt {
  /** With hashes in the place of texts. */
  parts: readonly PromptPart[];
  rendered: RenderedPrompt | undefined;
}

/** The last prompts of the watched conversations of this isolate, the latest last. */
const watched = new Map<string, LastPrompt>();
const MAX_WATCHED = 16;

/** Longer prompts are not watched: parts, their length in UTF-16 units, and units of `RenderedPrompt`. */
const MAX_PARTS = 4_000;
const MAX_LENGTH = 1_000_000;
const MAX_RENDERED = 200_000;

/** The part of the first message that identifies a conversation, in UTF-16 units. */
const MAX_FIRST = 1_024;

/** The longest time for rendering a prompt, in milliseconds. */
const RENDER_MS = 5_000;

/** The function that watches the prompts of a turn; undefined if none is watched. */
export function watchOf(
  { tenant, model, ...address }: TurnAddress & { tenant: string; model: Model },
  engine: Engine,
  { config, waitUntil }: { config: Pick<Config, "promptCacheSample">; waitUntil: (promise: Promise<unknown>) => void },
): ((prompt: Prompt) => void) | undefined {
  const { promptCacheSample: share } = config;
  if (share === 0) return undefined;
  return (prompt) => {
    const key = `${tenant}\n${model.upstream}\n${firstUserText(prompt.items).slice(0, MAX_FIRST)}`;
    if ((hashOf(key).low >>> 0) / 2 ** 32 >= share) return;
    const told = { tenant, model: model.upstream, response: responseId(address) };
    // A fault of the model server is the turn's own affair.
    waitUntil(watch(hashText(key), prompt, engine, told).catch(() => {}));
  };
}

async function watch(key: string, prompt: Prompt, engine: Engine, told: object): Promise<void> {
  const signal = AbortSignal.timeout(RENDER_MS);
  const whole = await engine.parts(prompt, signal);
  const before = watched.get(key);
  watched.delete(key);
  const length = whole.reduce((sum, { text }) => sum + text.length, 0);
  if (whole.length > MAX_PARTS || length > MAX_LENGTH) return;
  const parts = whole.map((part) => ({ ...part, text: hashText(part.text) }));
  const now: LastPrompt = { parts, rendered: undefined };
  watched.set(key, now);
  for (const oldest of watched.keys()) {
    if (watched.size <= MAX_WATCHED) break;
    watched.delete(oldest);
  }
  const rendered = await engine.rendered(prompt, signal).catch(() => undefined);
  if (rendered !== undefined && rendered.length <= MAX_RENDERED) now.rendered = rendered;
  if (!before || !continues(before.parts, parts)) return;
  const render = (messages: number) => engine.rendered(prompt, signal, messages);
  const found = await compared({
    before,
    now,
    messagesWithin: (common) => messagesWithin(common, parts.length, render),
    estimate: estimateTokens,
  });
  if (found.type !== "cache_miss") return;
  console.warn(logLine({ level: "warn", event: "prompt_drift", ...told, ...found.first_difference }));
}

/** Tells whether a prompt has the last message of the earlier one, so that it continues the same conversation. */
function continues(before: readonly PromptPart[], now: readonly PromptPart[]): boolean {
  const last = before.at(-1)?.text;
  return now.some(({ text }) => text === last);
}
