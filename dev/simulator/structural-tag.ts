import { parseEbnf, type Rules } from "@responses-edge/grammar";
import { badField } from "./errors.ts";
import { isRefused } from "./grammar.ts";
import type { Hints } from "./hints.ts";
import { isObject, type Json, type JsonObject, parseJson } from "./json.ts";
import { fillSchema } from "./schema-filler.ts";
import { parseRegex, sampleText } from "./text-grammar.ts";

/** A tag that the output may begin with, and the required rest. */
export type Tag = { begin: string; content: Json | undefined };

/**
 * The output that a structural tag for Harmony accepts after free reasoning: calls of functions and of other tools, and
 * final answers.
 */
export type StructuralTag = { functions: Map<string, Tag[]>; others: Tag[]; finals: Tag[]; excludes: boolean };

/** A tag excludes special tokens from its texts only if it says so. */
const EXCLUDES = /"exclude(?:s|_tokens)":\[[^\]]/;

/** Reads `structured_outputs.structural_tag`. Throws a 400 for an invalid one. */
export function parseStructuralTag(given: Json): StructuralTag {
  const tag = typeof given === "string" ? parse(given) : given;
  const format = isObject(tag) && tag.type === "structural_tag" ? (tag.format ?? tag.structures) : undefined;
  if (format === undefined) throw invalid();
  const found: StructuralTag = {
    functions: new Map(),
    others: [],
    finals: [],
    excludes: EXCLUDES.test(JSON.stringify(tag)),
  };
  for (const entry of tags(format)) {
    const name = /(?:^|\s)to=functions\.([^\s<]+)/.exec(entry.begin)?.[1];
    if (name !== undefined) found.functions.set(name, [...(found.functions.get(name) ?? []), entry]);
    else if (entry.begin.includes("to=")) found.others.push(entry);
    else if (entry.begin.includes("<|channel|>final")) found.finals.push(entry);
  }
  return found;
}

/** The required text after the first of some tags, if all of them bind it. `undefined` for free text. */
export function boundText(tags: readonly Tag[], hints?: Hints): string | undefined {
  const texts = tags.map(({ content }) => textOf(content, hints));
  return texts.includes(undefined) ? undefined : texts[0];
}

function textOf(content: Json | undefined, hints: Hints | undefined): string | undefined {
  if (!isObject(content)) return undefined;
  switch (content.type) {
    case "json_schema":
      return JSON.stringify(fillSchema(content.json_schema ?? {}, hints));
    case "const_string":
      return typeof content.value === "string" ? content.value : undefined;
    case "or":
      return Array.isArray(content.elements) ? textOf(content.elements[0], hints) : undefined;
    case "grammar":
    case "regex":
      return sampleText(textGrammar(content));
    default:
      return undefined;
  }
}

/** The grammar of a format that has one. Throws a 400 for an invalid grammar. */
export function textGrammar({ type, grammar, pattern }: JsonObject): Rules {
  const source = type === "regex" ? pattern : grammar;
  const found = typeof source !== "string" ? undefined : type === "regex" ? parseRegex(source) : parseEbnf(source);
  if (found === undefined) throw invalid();
  return found;
}

function* tags(format: Json | undefined): Generator<Tag> {
  if (Array.isArray(format)) {
    for (const entry of format) yield* tags(entry);
  } else if (isObject(format)) {
    if (isRefused(format.type === "json_schema" ? (format.json_schema ?? {}) : {})) throw invalid();
    if (format.type === "grammar" || format.type === "regex") textGrammar(format);
    if (typeof format.begin === "string") yield* spelledOut(format.begin, format.content);
    for (const [key, value] of Object.entries(format)) if (key !== "json_schema") yield* tags(value);
  }
}

/** A tag once for each beginning that it accepts: constants at the start of its content belong to the beginning. */
function spelledOut(begin: string, content: Json | undefined): Tag[] {
  if (!isObject(content) || content.type !== "sequence" || !Array.isArray(content.elements))
    return [{ begin, content }];
  let begins = [begin];
  for (const element of content.elements) {
    const texts = constants(element);
    if (texts === undefined) return begins.map((each) => ({ begin: each, content: element }));
    begins = begins.flatMap((each) => texts.map((text) => each + text));
  }
  return begins.map((each) => ({ begin: each, content: undefined }));
}

function constants(format: Json): string[] | undefined {
  if (!isObject(format)) return undefined;
  if (format.type === "const_string" && typeof format.value === "string") return [format.value];
  if (format.type !== "or" || !Array.isArray(format.elements)) return undefined;
  const texts = format.elements.map(constants);
  return texts.every((each) => each !== undefined) ? texts.flat() : undefined;
}

function parse(text: string): Json {
  try {
    return parseJson(text);
  } catch {
    throw invalid();
  }
}

function invalid(): Error {
  return badField("Invalid structured_outputs structural_tag specification.", "structured_outputs");
}
