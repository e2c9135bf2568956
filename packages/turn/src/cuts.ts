import type { Item, OutputItem } from "@responses-edge/responses-api/items/registry";
import type { Sampled } from "./contract/engine.ts";
import type { Cut, CutReason } from "./records.ts";
import { lengthWithoutRepetition, type RepeatedKind } from "./repetition.ts";

/**
 * Cuts: places where this server has broken a generation off, because it repeated itself, or because a thought was
 * longer than its budget. The model goes on without the repetitions, which stay in the items.
 */

/** The place of a cut at the end of a round's items: in the last one, if it has a text of that kind. */
export function placeOfCut(
  items: readonly OutputItem[],
  kind: RepeatedKind,
  reason: CutReason,
): Pick<Cut, "item" | "part" | "from" | "to"> {
  const last = items.at(-1);
  const type = kind === "thought" ? "reasoning" : "message";
  if (last?.type !== type) return { item: null, part: 0, from: 0, to: 0 };
  const texts = textsOf(last);
  const text = texts.at(-1) ?? "";
  const from = reason === "repetition" ? lengthWithoutRepetition(text) : text.length;
  return { item: last.id, part: Math.max(0, texts.length - 1), from, to: text.length };
}

/** The items without what was cut out of them, as prompts have them. */
export function withoutCuts<T extends Item | OutputItem>(cuts: readonly Cut[], items: readonly T[]): T[] {
  if (cuts.length === 0) return [...items];
  return items.map((item) => {
    const own = cuts.filter((cut) => cut.item !== null && cut.item === item.id && cut.from < cut.to);
    return own.length === 0 ? item : withTexts(item, own);
  });
}

function textsOf(item: OutputItem): string[] {
  if (item.type === "reasoning") return (item.content?.length ? item.content : item.summary).map(({ text }) => text);
  return item.type === "message" ? item.content.map((part) => ("text" in part ? part.text : "")) : [];
}

function withTexts<T extends Item | OutputItem>(item: T, cuts: readonly Cut[]): T {
  const cutPart = <Part extends object>(part: Part, index: number): Part => {
    if (!("text" in part) || typeof part.text !== "string") return part;
    let text: string = part.text;
    // From the last one, so that the places of the others stay the same.
    for (const { part: at, from, to } of cuts.toReversed()) {
      if (at === index) text = text.slice(0, from) + text.slice(to);
    }
    return { ...part, text };
  };
  if (item.type === "reasoning") {
    if (item.content?.length) return { ...item, content: item.content.map(cutPart) };
    return { ...item, summary: item.summary.map(cutPart) };
  }
  if (item.type !== "message") return item;
  return { ...item, content: (item.content as object[]).map(cutPart) };
}

/**
 * The tokens that a cut drops: exactly where there are ids of the samples, `before` the cut and from then on, and
 * otherwise a share of those of its item.
 */
export function droppedTokens(
  { from, to, sampled }: Pick<Cut, "from" | "to" | "sampled">,
  before: Sampled | undefined,
  ofItem: number,
): number {
  if (sampled && "ids" in sampled && before && "ids" in before) {
    const { ids } = before;
    const end = sampled.ids.findIndex((id, index) => id !== ids[index]);
    return ids.length - (end < 0 ? sampled.ids.length : end);
  }
  return to === 0 ? 0 : Math.round((ofItem * (to - from)) / to);
}
