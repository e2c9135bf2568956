import { FIRST_SPECIAL_ID, MESSAGE, PieceReader, type Tokenizer } from "@responses-edge/harmony";

/** Samples without the end of their last message. */

/**
 * The ids without those of the last message's text after the characters that are kept (`lengths`: of the text after each token), and without anything after that
 * message. A token that has other characters, too, is left out. All ids if there is no message.
 */
export function cutIds(
  ids: readonly number[],
  kept: (text: string, lengths: readonly number[]) => number,
  tokenizer: Tokenizer,
): number[] {
  const from = ids.lastIndexOf(MESSAGE) + 1;
  if (from === 0) return [...ids];
  const special = ids.findIndex((id, index) => index >= from && id >= FIRST_SPECIAL_ID);
  const end = special < 0 ? ids.length : special;
  const reader = new PieceReader();
  reader.useTokenizer(tokenizer);
  let text = "";
  /** The length of the text after each token. */
  const lengths: number[] = [];
  for (const id of ids.slice(from, end)) {
    for (const piece of reader.read({ text: "", ids: [id] }) ?? []) if (typeof piece === "string") text += piece;
    lengths.push(text.length);
  }
  const length = kept(text, lengths);
  if (length >= text.length) return ids.slice(0, end);
  // Not the first bytes of the next character, which add no text.
  const most = Math.max(0, ...lengths.filter((each) => each <= length));
  return ids.slice(0, from + (most === 0 ? 0 : lengths.indexOf(most) + 1));
}

const MESSAGE_LITERAL = "<|message|>";

/** The same for samples as text, with special tokens as literals. */
export function cutText(sampled: string, kept: (text: string) => number): string {
  const at = sampled.lastIndexOf(MESSAGE_LITERAL);
  if (at < 0) return sampled;
  const from = at + MESSAGE_LITERAL.length;
  const special = sampled.indexOf("<|", from);
  const text = sampled.slice(from, special < 0 ? undefined : special);
  return sampled.slice(0, from + kept(text));
}
