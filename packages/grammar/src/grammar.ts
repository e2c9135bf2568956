import { Beyond, GrammarFault } from "./faults.ts";
import { parseLark } from "./lark.ts";
import type { Rules } from "./lark-rules.ts";
import { parseRegex } from "./regex.ts";

/** The grammar of a custom tool's input, in the API's form. */
export interface GrammarFormat {
  syntax: "lark" | "regex";
  definition: string;
}

/** The reading of a grammar: rules that can be enforced, or the construct that cannot. */
export type Reading = Rules | { beyond: string };

/**
 * Reads a grammar. Throws {@link GrammarFault} for an invalid one. Linear in its length; the same object is read once.
 */
export function readGrammar(format: GrammarFormat): Reading {
  const known = READ.get(format);
  if (known) return known;
  const reading = format.syntax === "lark" ? parseLark(format.definition) : wholeRegex(format.definition);
  READ.set(format, reading);
  return reading;
}

const READ = new WeakMap<GrammarFormat, Reading>();

/** The rules of the texts that a regular expression matches; undefined for one that cannot be enforced. */
export function rulesOfRegex(pattern: string): Rules | undefined {
  const reading = wholeRegex(pattern);
  return "beyond" in reading ? undefined : reading;
}

function wholeRegex(pattern: string): Reading {
  const beyond = new Beyond();
  if (!pattern.isWellFormed()) throw new GrammarFault("half a surrogate pair", 0);
  const expression = parseRegex(pattern, { at: 0, isWhole: true, beyond });
  return beyond.what === undefined
    ? { start: "start", rules: new Map([["start", expression]]) }
    : { beyond: beyond.what };
}

/** A position in a definition, both counted from 1. */
export function placeOf(definition: string, at: number): { line: number; column: number } {
  const lines = definition.slice(0, at).split("\n");
  return { line: lines.length, column: [...(lines.at(-1) ?? "")].length + 1 };
}
