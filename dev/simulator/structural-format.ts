import { admits } from "./grammar.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";
import { fillSchema } from "./schema-filler.ts";
import { textGrammar } from "./structural-tag.ts";
import { admitsText, sampleText } from "./text-grammar.ts";

/** The formats of structural tags as languages: whether one accepts a text, and a text that it accepts. */

/** The literals of special tokens that end a text, or begin another. */
const MARK = /<\|(?:end|start|channel|message)\|>/g;

/** Tells whether a format accepts the whole text. An unknown format accepts any. */
export function admitsFormat(format: Json, text: string): boolean {
  return endsOf(format, text, 0).has(text.length);
}

/** Where a text of the format may end that begins at a position. */
function endsOf(format: Json | undefined, text: string, from: number): Set<number> {
  if (!isObject(format)) return new Set(bodyEnds(text, from));
  switch (format.type) {
    case "const_string":
      return text.startsWith(String(format.value), from) ? new Set([from + String(format.value).length]) : new Set();
    case "sequence":
      return endsAfter(list(format.elements), text, from);
    case "or":
      return new Set(list(format.elements).flatMap((element) => [...endsOf(element, text, from)]));
    case "tag":
      return endsAfter([constant(format.begin), format.content ?? null, endOf(format)], text, from);
    default:
      return new Set(bodyEnds(text, from).filter((end) => isBody(format, text.slice(from, end))));
  }
}

function endsAfter(formats: readonly Json[], text: string, from: number): Set<number> {
  let ends = new Set([from]);
  for (const format of formats) ends = new Set([...ends].flatMap((start) => [...endsOf(format, text, start)]));
  return ends;
}

/** Where the text of a message may end: at a mark, or at the end. */
function bodyEnds(text: string, from: number): number[] {
  const marks = [...text.matchAll(MARK)].map(({ index }) => index).filter((index) => index >= from);
  return [...marks, text.length];
}

function isBody(format: JsonObject, text: string): boolean {
  switch (format.type) {
    case "json_schema":
      return admits(format.json_schema ?? {}, text);
    case "grammar":
    case "regex":
      return admitsText(textGrammar(format), text);
    case "any_text":
      return text.search(MARK) < 0;
    default:
      return true;
  }
}

/** A text that the format accepts, always the same one: the first of every choice. */
export function textUnder(format: Json | undefined): string {
  if (!isObject(format)) return "";
  switch (format.type) {
    case "const_string":
      return String(format.value);
    case "sequence":
      return list(format.elements).map(textUnder).join("");
    case "or":
      return textUnder(list(format.elements)[0]);
    case "tag":
      return String(format.begin) + textUnder(format.content) + textUnder(endOf(format));
    case "json_schema":
      return JSON.stringify(fillSchema(format.json_schema ?? {}));
    case "grammar":
    case "regex":
      return sampleText(textGrammar(format));
    default:
      return "";
  }
}

function endOf({ end }: JsonObject): Json {
  return { type: "or", elements: (Array.isArray(end) ? end : [end ?? ""]).map(constant) };
}

function constant(value: Json | undefined): Json {
  return { type: "const_string", value: String(value ?? "") };
}

function list(value: Json | undefined): Json[] {
  return Array.isArray(value) ? value : [];
}
