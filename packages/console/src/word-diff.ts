import { html, nothing } from "lit-html";

/** The differences of two texts, by words (Myers, "An O(ND) Difference Algorithm and Its Variations", 1986). */
export interface Part {
  kind: "same" | "removed" | "added";
  text: string;
}

/** Longer texts are compared up to this length. Characters. */
const MAX_LENGTH = 200_000;

/** If texts have more differences, one is shown as replaced by the other. */
const MAX_DIFFERENCES = 1_000;

/** A word, a space, or another single character. */
const WORDS = /\s+|[\p{L}\p{N}\p{M}_]+|[\s\S]/gu;

export function wordDiff(one: string, other: string): Part[] {
  const [before, after] = [wordsOf(one), wordsOf(other)];
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  const most = Math.min(before.length, after.length) - start;
  while (end < most && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const removed = before.slice(start, before.length - end);
  const added = after.slice(start, after.length - end);
  const parts: Part[] = [{ kind: "same", text: before.slice(0, start).join("") }];
  parts.push(...(differences(removed, added) ?? whole(removed, added)));
  parts.push({ kind: "same", text: before.slice(before.length - end).join("") });
  return joined(parts);
}

function wordsOf(text: string) {
  return text.slice(0, MAX_LENGTH).match(WORDS) ?? [];
}

function whole(removed: string[], added: string[]): Part[] {
  return [
    { kind: "removed", text: removed.join("") },
    { kind: "added", text: added.join("") },
  ];
}

/** The shortest edit from one list to the other. Undefined if it is too long. */
function differences(removed: string[], added: string[]): Part[] | undefined {
  const most = Math.min(MAX_DIFFERENCES, removed.length + added.length);
  // For each number of differences: the furthest point of each diagonal, from -d to d.
  const ways: Int32Array[] = [];
  const reached = (d: number, diagonal: number) => ways[d]?.[diagonal + d] ?? -1;
  for (let d = 0; d <= most; d += 1) {
    const way = new Int32Array(2 * d + 1);
    ways.push(way);
    for (let diagonal = -d; diagonal <= d; diagonal += 2) {
      let x = d === 0 ? 0 : fromAbove(d, diagonal) ? reached(d - 1, diagonal + 1) : reached(d - 1, diagonal - 1) + 1;
      while (x < removed.length && x - diagonal < added.length && removed[x] === added[x - diagonal]) x += 1;
      way[diagonal + d] = x;
      if (x >= removed.length && x - diagonal >= added.length) return wayBack(d);
    }
  }
  return undefined;

  /** True if the last step added a word. */
  function fromAbove(d: number, diagonal: number) {
    if (diagonal === -d) return true;
    return diagonal !== d && reached(d - 1, diagonal - 1) < reached(d - 1, diagonal + 1);
  }

  function wayBack(last: number): Part[] {
    const parts: Part[] = [];
    let x = removed.length;
    let diagonal = removed.length - added.length;
    for (let d = last; d > 0; d -= 1) {
      const isAdded = fromAbove(d, diagonal);
      const from = isAdded ? reached(d - 1, diagonal + 1) : reached(d - 1, diagonal - 1);
      const turned = isAdded ? from : from + 1;
      parts.push({ kind: "same", text: removed.slice(turned, x).join("") });
      parts.push(
        isAdded
          ? { kind: "added", text: added[from - diagonal - 1] ?? "" }
          : { kind: "removed", text: removed[from] ?? "" },
      );
      x = from;
      diagonal += isAdded ? 1 : -1;
    }
    parts.push({ kind: "same", text: removed.slice(0, x).join("") });
    return parts.reverse();
  }
}

/** Joins neighbours of one kind, and removes empty ones. */
function joined(parts: Part[]): Part[] {
  const list: Part[] = [];
  for (const { kind, text } of parts) {
    const last = list.at(-1);
    if (text === "") continue;
    if (last?.kind === kind) last.text += text;
    else list.push({ kind, text });
  }
  return list;
}

/** Two texts as one, with the removed and the added words. */
export function diffTemplate(one: string, other: string) {
  const parts = wordDiff(one, other);
  if (parts.every(({ kind }) => kind === "same")) return html`<p class="note">They say the same.</p>`;
  return html`<p class="word-diff" dir="auto">${parts.map(({ kind, text }) =>
    kind === "same"
      ? text
      : kind === "removed"
        ? html`<del><span class="unseen">removed: </span>${text}</del>`
        : html`<ins><span class="unseen">added: </span>${text}</ins>`,
  )}</p>${one.length > MAX_LENGTH || other.length > MAX_LENGTH ? html`<p class="note">What is longer is not compared.</p>` : nothing}`;
}
