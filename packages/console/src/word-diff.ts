import { diffArrays } from "diff";
import { html, nothing } from "lit-html";

/** The differences of two texts, by words. */
export interface Part {
  kind: "same" | "removed" | "added";
  text: string;
}

/** Longer texts are compared up to this length. Characters. */
const MAX_LENGTH = 200_000;

/** If texts have more differences, the middle of one is shown as replaced by that of the other. */
const MAX_DIFFERENCES = 1_000;

/** A word, a space, or another single character. */
const WORDS = /\s+|[\p{L}\p{N}\p{M}_]+|[\s\S]/gu;

export function wordDiff(one: string, other: string): Part[] {
  const [before, after] = [wordsOf(one), wordsOf(other)];
  const changes = diffArrays(before, after, { maxEditLength: MAX_DIFFERENCES });
  if (!changes) return replacedMiddle(before, after);
  return changes.map(({ added, removed, value }) => ({
    kind: added ? "added" : removed ? "removed" : "same",
    text: value.join(""),
  }));
}

function wordsOf(text: string): string[] {
  return text.slice(0, MAX_LENGTH).match(WORDS) ?? [];
}

function replacedMiddle(before: string[], after: string[]): Part[] {
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < most - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const parts: Part[] = [
    { kind: "same", text: before.slice(0, start).join("") },
    { kind: "removed", text: before.slice(start, before.length - end).join("") },
    { kind: "added", text: after.slice(start, after.length - end).join("") },
    { kind: "same", text: before.slice(before.length - end).join("") },
  ];
  return parts.filter(({ text }) => text !== "");
}

/** Two texts as one, with the removed and the added words. */
export function diffTemplate(one: string, other: string) {
  const parts = wordDiff(one, other);
  if (parts.every(({ kind }) => kind === "same")) return html`<p class="note">They say the same.</p>`;
  return html`<p class="word-diff whitespace-pre-wrap wrap-anywhere" dir="auto">${parts.map(({ kind, text }) =>
    kind === "same"
      ? text
      : kind === "removed"
        ? html`<del><span class="unseen">removed: </span>${text}</del>`
        : html`<ins><span class="unseen">added: </span>${text}</ins>`,
  )}</p>${one.length > MAX_LENGTH || other.length > MAX_LENGTH ? html`<p class="note">What is longer is not compared.</p>` : nothing}`;
}
