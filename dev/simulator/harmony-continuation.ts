import { type Asked, answerHarmony, scriptOf } from "./harmony-answer.ts";
import { type HarmonyMessage, parseHarmony } from "./harmony-prompt.ts";
import {
  CALL,
  CHANNEL,
  END,
  type HarmonyTokenizer,
  isSpecial,
  MESSAGE,
  RETURN,
  type Segment,
  START,
} from "./harmony-tokenizer.ts";
import { admitsFormat, textUnder } from "./structural-format.ts";

/**
 * The model's output after a prompt. The prompt may already contain its beginning, even several messages of it. The
 * function takes each assistant message since the last message of another author as a possible beginning, the earliest
 * first. If it is one, the output is the rest.
 */
export function continueHarmony(ids: readonly number[], asked: Asked, tokenizer: HarmonyTokenizer): number[] {
  const { rest } = asked;
  if (rest === undefined) return goneOn(ids, asked, tokenizer);
  // The model has begun to write under another grammar: this one begins with the first generated token.
  const wanted = goneOn(ids, { ...asked, tag: undefined }, tokenizer);
  const stop = wanted.findIndex((id) => id === RETURN || id === CALL);
  const text = tokenizer.decode(stop < 0 ? wanted : wanted.slice(0, stop));
  return admitsFormat(rest, text) ? wanted : [...tokenizer.encode(textUnder(rest)), RETURN];
}

function goneOn(ids: readonly number[], asked: Asked, tokenizer: HarmonyTokenizer): number[] {
  const messages = parseHarmony(ids, tokenizer);
  const places = beginnings(messages, ids.length, asked);
  for (const variant of [asked, { ...asked, settings: { ...asked.settings, reasoning: false } }]) {
    for (const { context, at } of places) {
      const segments = [START, "assistant", ...saying(context, variant)];
      const whole = tokenizer.encodeSegments(asked.settings.letters ? segments.flatMap(lettersOf) : segments);
      const rest = restOf(whole, ids.slice(at), tokenizer);
      if (rest !== undefined) return rest;
    }
  }
  const context = messages.slice(0, -1);
  return tokenizer.encodeSegments(scriptOf(context, asked.settings) ?? goOn(messages, asked));
}

function lettersOf(segment: Segment): Segment[] {
  return typeof segment === "string" ? [...segment] : [segment];
}

type Place = { context: HarmonyMessage[]; at: number };

function beginnings(messages: readonly HarmonyMessage[], end: number, { settings }: Asked): Place[] {
  const scripted = settings.harmony !== undefined || settings.script !== undefined;
  const others = messages.findLastIndex(({ role }) => role !== "assistant" && role !== "");
  const places: Place[] = [];
  for (const [index, { role, at }] of messages.entries()) {
    // A script may contain messages of other authors.
    const own = index > others || (scripted && role === "assistant");
    if (own) places.push({ context: messages.slice(0, index), at });
  }
  if (messages.at(-1)?.state === "closed") places.push({ context: [...messages], at: end });
  return places;
}

function saying(context: readonly HarmonyMessage[], asked: Asked): Segment[] {
  return scriptOf(context, asked.settings) ?? answerHarmony(context, asked);
}

/** The rest of `whole` after `beginning`: compared by tokens, or else by text (text may be split into other tokens). */
function restOf(
  whole: readonly number[],
  beginning: readonly number[],
  tokenizer: HarmonyTokenizer,
): number[] | undefined {
  if (beginning.length < whole.length && beginning.every((id, index) => id === whole[index])) {
    return whole.slice(beginning.length);
  }
  const marks = whole.filter(isSpecial);
  if (beginning.filter(isSpecial).some((id, index) => id !== marks[index])) return undefined;
  const said = beginning.map((id) => spelling(id, tokenizer)).join("");
  let at = 0;
  let length = 0;
  for (; at < whole.length && length < said.length; at++) {
    const token = spelling(whole[at] ?? 0, tokenizer);
    const part = said.slice(length, length + token.length);
    if (!token.startsWith(part)) return undefined;
    if (part.length < token.length) return [...cutToken(token.slice(part.length), tokenizer), ...whole.slice(at + 1)];
    length += token.length;
  }
  return at < whole.length ? whole.slice(at) : undefined;
}

/** A token's bytes as characters. A special token is a character that is not a byte. */
function spelling(id: number, tokenizer: HarmonyTokenizer): string {
  return isSpecial(id) ? String.fromCharCode(id - 190_000) : String.fromCharCode(...tokenizer.bytes(id));
}

function cutToken(spelled: string, tokenizer: HarmonyTokenizer): number[] {
  const bytes = Uint8Array.from(spelled, (character) => character.charCodeAt(0));
  return tokenizer.encodeSegments([new TextDecoder().decode(bytes)]);
}

/** The model's continuation of a text that it would not have generated. */
function goOn(messages: readonly HarmonyMessage[], asked: Asked): Segment[] {
  const last = messages.at(-1);
  if (last?.role !== "assistant") return [" (continued)", END, START, "assistant", ...answerHarmony(messages, asked)];
  const middle: Segment[] =
    last.state === "header" ? (last.channel === undefined ? [CHANNEL, "final", MESSAGE] : [MESSAGE]) : [];
  const said: Segment[] = [...middle, " (continued)"];
  if (last.recipient !== undefined) return [...said, CALL];
  if (middle.length === 3 || last.channel === "final") return [...said, RETURN];
  const settings = { ...asked.settings, reasoning: false };
  return [...said, END, START, "assistant", ...answerHarmony(messages.slice(0, -1), { ...asked, settings })];
}
