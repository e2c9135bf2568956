import { type Segment, specialId } from "./harmony-tokenizer.ts";

const SEPARATOR = "\u001e";
const IN_SETTING = /(\\?)(<\|[^|<>\s]+\|>)/g;
const IN_USER_TEXT = /(\\?)(‹\|[^|‹›\s]+\|›)/g;

/** The script of one round, from the setting `harmony`. `<|…|>` in it is a special token. */
export function settingScript(text: string, round: number): Segment[] | undefined {
  return script(text, round, IN_SETTING);
}

/** The script of one round, from the user's text. `‹|…|›` in it is a special token. */
export function userScript(text: string, round: number): Segment[] | undefined {
  return script(text, round, IN_USER_TEXT);
}

function script(text: string, round: number, marker: RegExp): Segment[] | undefined {
  const own = text.split(SEPARATOR)[round];
  if (own === undefined) return undefined;
  const segments: Segment[] = [];
  let plain = "";
  let from = 0;
  for (const { 0: whole, 1: escaped, 2: literal = "", index } of own.matchAll(marker)) {
    const id = escaped === "" ? tokenId(literal) : undefined;
    plain += own.slice(from, index) + (id === undefined ? literal : "");
    from = index + whole.length;
    if (id === undefined) continue;
    if (plain !== "") segments.push(plain);
    segments.push(id);
    plain = "";
  }
  plain += own.slice(from);
  return plain === "" ? segments : [...segments, plain];
}

/** `<|end|>` and the like. `<|9552|>` is the token with that id. */
function tokenId(literal: string): number | undefined {
  const name = literal.slice(2, -2);
  return /^\d{1,6}$/.test(name) ? Number(name) : specialId(`<|${name}|>`);
}
