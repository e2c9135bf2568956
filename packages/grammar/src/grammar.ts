import { Beyond, GrammarFault } from "./faults.ts";
import { parseLark, type Rules } from "./lark.ts";
import { parseRegex } from "./regex.ts";

/** The grammar of a custom tool's input, as the API has it. */
export interface GrammarFormat {
  syntax: "lark" | "regex";
  definition: string;
}

/** The reading of a grammar: rules that a model can be bound to, or what it has that is beyond them. */
export type Reading = Rules | { beyond: string };

/**
 * Reads a grammar. Throws {@link GrammarFault} for what is none. Linear in its length; the same object is read once.
 */
export function readGrammar(format: GrammarFormat): Reading {
  const known = READ.get(format);
  if (known) return known;
  const reading = format.syntax === "lark" ? parseLark(format.definition) : wholeRegex(format.definition);
  READ.set(format, reading);
  return reading;
}

const READ = new WeakMap<GrammarFormat, Reading>();

function wholeRegex(pattern: string): Reading {
  const beyond = new Beyond();
  if (!pattern.isWellFormed()) throw new GrammarFault("half a surrogate pair", 0);
  const expression = parseRegex(pattern, { at: 0, isWhole: true, beyond });
  return beyond.what === undefined
    ? { start: "start", rules: new Map([["start", expression]]) }
    : { beyond: beyond.what };
}

/** Where in a definition something is, both counted from 1. */
export function placeOf(definition: string, at: number): { line: number; column: number } {
  const lines = definition.slice(0, at).split("\n");
  return { line: lines.length, column: [...(lines.at(-1) ?? "")].length + 1 };
}
