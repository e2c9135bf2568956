import type { CacheDiagnosis } from "@responses-edge/responses-api/response";
import type { PromptPart, RenderedPrompt } from "./contract/engine.ts";

/**
 * Compares the prompt of a turn with an earlier one that it continues: a model server's prefix cache has the earlier prompt, up to the
 * first part that is not the same.
 */

/** The first part of a prompt that the earlier prompt does not have there. */
export interface FirstDifference {
  part: PromptPart["kind"];
  /** Its position among the parts of its kind, from 0. */
  index: number;
  /** The role of a message; the name of a tool. */
  name?: string;
  /** The two are sent alike, and the model server's chat template renders them differently. */
  by_template?: true;
}

/** The first part that is not the same; undefined if `before` is the beginning of `now`. */
export function firstDifference(
  before: readonly PromptPart[],
  now: readonly PromptPart[],
): (FirstDifference & { at: number }) | undefined {
  const at = before.findIndex((part, index) => now[index]?.kind !== part.kind || now[index].text !== part.text);
  if (at < 0) return undefined;
  // A tool or a format that was added stands where a message was.
  const place = (part: PromptPart | undefined) => (part ? ORDER.indexOf(part.kind) : ORDER.length);
  const parts = place(now[at]) <= place(before[at]) ? now : before;
  return { ...named(parts, at), at };
}

/** The kinds in the order in which they stand in a prompt. */
const ORDER: readonly PromptPart["kind"][] = ["effort", "tool", "format", "input"];

/** A part by its kind, and its position among the parts of that kind. */
function named(parts: readonly PromptPart[], at: number): FirstDifference {
  const { kind = "input", name } = parts[at] ?? {};
  const index = parts.slice(0, at).filter((part) => part.kind === kind).length;
  return { part: kind, index, ...(name !== undefined && { name }) };
}

/** The length of the common beginning, in the unit of the two. Prompts in different units have none. */
export function commonLength(before: RenderedPrompt, now: RenderedPrompt): number {
  if (typeof before !== typeof now) return 0;
  const most = Math.min(before.length, now.length);
  let common = 0;
  while (common < most && before[common] === now[common]) common += 1;
  return common;
}

/** The reasons of OpenAI's diagnostics for a part that is not the same. */
const REASONS = {
  effort: "reasoning_effort_changed",
  tool: "tools_changed",
  format: "text_format_changed",
  input: "input_changed",
} as const satisfies Record<PromptPart["kind"], string>;

/** Two prompts as far as they are known. */
export interface Compared {
  before: { parts: readonly PromptPart[]; rendered: RenderedPrompt | undefined };
  now: { parts: readonly PromptPart[]; rendered: RenderedPrompt | undefined };
  /** The number of leading messages that are rendered within the first `common` units of the prompt (`RenderedPrompt`). */
  messagesWithin: (common: number) => Promise<number>;
  /** Estimates the tokens of texts. */
  estimate: (texts: string) => number;
}

/** Tells how far the earlier prompt could be used again, and where the two part. */
export async function compared({ before, now, messagesWithin, estimate }: Compared): Promise<CacheDiagnosis> {
  const differing = firstDifference(before.parts, now.parts);
  const rendered = bothOf(before.rendered, now.rendered);
  const common = rendered && commonLength(rendered.before, rendered.now);
  const isWhole = !differing && (!rendered || common === rendered.before.length);
  if (isWhole) return { type: "cache_hit" };
  const tokens = (prompt: RenderedPrompt) => (typeof prompt === "string" ? estimate(prompt) : prompt.length);
  const textFrom = (parts: readonly PromptPart[], from: number) => parts.slice(from).map(({ text }) => text);
  const missed = rendered
    ? tokens(rendered.now.slice(common))
    : estimate(textFrom(now.parts, differing?.at ?? 0).join(""));
  const reusable = rendered ? tokens(rendered.before) : estimate(textFrom(before.parts, 0).join(""));
  const { at: _, ...first } = differing ?? { at: 0, ...(await byTemplate(before.parts, messagesWithin, common ?? 0)) };
  return {
    type: "cache_miss",
    reason: REASONS[first.part],
    cache_missed_tokens: missed,
    comparison_reusable_tokens: reusable,
    first_difference: first,
  };
}

function bothOf(before: RenderedPrompt | undefined, now: RenderedPrompt | undefined) {
  return before === undefined || now === undefined ? undefined : { before, now };
}

async function byTemplate(
  parts: readonly PromptPart[],
  messagesWithin: Compared["messagesWithin"],
  common: number,
): Promise<FirstDifference> {
  const messages = parts.flatMap((part, at) => (part.kind === "input" ? [at] : []));
  const within = Math.min(await messagesWithin(common), messages.length - 1);
  return { ...named(parts, messages[Math.max(0, within)] ?? 0), by_template: true };
}

/** The most leading messages whose rendered length is within `common`, by bisection. */
export async function messagesWithin(
  common: number,
  most: number,
  render: (messages: number) => Promise<{ length: number } | undefined>,
): Promise<number> {
  let [low, high] = [0, most];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    const length = (await render(middle).catch(() => undefined))?.length ?? Number.POSITIVE_INFINITY;
    if (length <= common) low = middle;
    else high = middle - 1;
  }
  return low;
}
