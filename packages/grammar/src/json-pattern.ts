import { Beyond, GrammarFault } from "./faults.ts";
import type { Rules } from "./lark-rules.ts";
import { parseRegex } from "./regex.ts";

/** Any text, in a regular expression. */
const ANY = "[\\s\\S]*";

/**
 * The rules of the texts in which the `pattern` of a JSON schema has a match: it may match anywhere, unless `^` and `$`
 * stand around it or around one of its alternatives. Undefined for a pattern that is invalid, or beyond what
 * `Recogniser` reads. Linear in its length.
 */
export function rulesOfPattern(pattern: string): Rules | undefined {
  const beyond = new Beyond();
  const whole = alternativesOf(pattern).map(whereverItStands).join("|");
  try {
    const expression = parseRegex(whole, { at: 0, isWhole: true, beyond });
    return beyond.what === undefined ? { start: "start", rules: new Map([["start", expression]]) } : undefined;
  } catch (error) {
    if (error instanceof GrammarFault) return undefined;
    throw error;
  }
}

function whereverItStands(alternative: string): string {
  const begins = alternative.startsWith("^");
  const ends = /(?:^|[^\\])(?:\\\\)*\$$/.test(alternative);
  const inner = alternative.slice(begins ? 1 : 0, ends ? -1 : undefined);
  return `${begins ? "" : ANY}(?:${inner})${ends ? "" : ANY}`;
}

/** What `|` separates, outside of groups and classes. */
function alternativesOf(pattern: string): string[] {
  const found: string[] = [];
  let depth = 0;
  let begin = 0;
  for (let at = 0; at < pattern.length; at += 1) {
    const character = pattern[at];
    if (character === "\\") at += 1;
    else if (character === "[") at = classEnd(pattern, at);
    else if (character === "(") depth += 1;
    else if (character === ")") depth -= 1;
    else if (character === "|" && depth === 0) {
      found.push(pattern.slice(begin, at));
      begin = at + 1;
    }
  }
  return [...found, pattern.slice(begin)];
}

/** The position of the `]` of a class. One that comes first is a member. */
function classEnd(pattern: string, begin: number): number {
  let at = begin + (pattern[begin + 1] === "^" ? 2 : 1);
  if (pattern[at] === "]") at += 1;
  while (at < pattern.length && pattern[at] !== "]") at += pattern[at] === "\\" ? 2 : 1;
  return at;
}
