/**
 * The size of grammars with their counted repetitions written out, as grammar compilers may do: `((a{99}){99}){99}` has
 * 17 characters and expands to a million.
 */

/** The maximum of expanded elements of a request's grammars: the maximum length of its grammars. */
export const MAX_EXPANSION = 131_072;

/** A regular expression; Lark's language; or EBNF of xgrammar and llama.cpp. */
export type Syntax = "regex" | "lark" | "ebnf";

const REGEX_COUNT = /\{(\d*)(?:,(\d*))?\}/y;
const LARK_COUNT = /~\s*(\d+)(?:\s*\.\.\s*(\d+))?|\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}/y;
const WORD = /[%\w][\w.-]*/y;
const STRING = /"(?:[^"\\]|\\[\s\S])*"/y;
const CLASS = /\[\^?\]?(?:[^\]\\]|\\[\s\S])*\]/y;
const SLASHED = /\/((?:[^/\\\n]|\\[\s\S])+)\//y;
const COMMENT = /(?:\/\/|#)[^\n]*/y;

/** The expansion of open brackets: all of it, and its last part, which a following count repeats. */
interface Bracket {
  size: number;
  last: number;
}

/**
 * The number of elements of a grammar with its counted repetitions written out: characters, classes and names of rules.
 * A rule is written out once, however often it is named. Linear in the text, which need not be a grammar. Infinite if
 * it exceeds all numbers.
 */
export function expansionOf(text: string, syntax: Syntax): number {
  const open: Bracket[] = [];
  let bracket: Bracket = { size: 0, last: 0 };
  const add = (size: number) => {
    bracket.size += size;
    bracket.last = size;
  };
  let at = 0;
  const take = (expression: RegExp): RegExpExecArray | undefined => {
    expression.lastIndex = at;
    const found = expression.exec(text) ?? undefined;
    if (found) at = expression.lastIndex;
    return found;
  };
  /** The start of an element without an end: elements from there up to the end have none either. */
  const endless = new Map<RegExp, number>();
  const takeClosed = (expression: RegExp, end: string): RegExpExecArray | undefined => {
    if (at < (endless.get(expression) ?? 0)) return undefined;
    const found = take(expression);
    const next = found || end === "" ? -1 : text.indexOf(end, at);
    if (!found) endless.set(expression, next === -1 ? text.length : next);
    return found;
  };
  const isRegex = syntax === "regex";
  const countedBy = isRegex ? REGEX_COUNT : LARK_COUNT;
  const opens = syntax === "lark" ? "([" : "(";
  const closes = syntax === "lark" ? ")]" : ")";
  while (at < text.length) {
    const character = text.charAt(at);
    if (character === "{" || (!isRegex && character === "~")) {
      const counts = take(countedBy)
        ?.slice(1)
        .filter((count) => count !== undefined && count !== "");
      if (counts && counts.length > 0) {
        const times = Math.max(1, ...counts.map(Number));
        bracket.size += bracket.last * (times - 1);
        bracket.last *= times;
        continue;
      }
    }
    if (opens.includes(character)) {
      open.push(bracket);
      bracket = { size: 0, last: 0 };
      at += 1;
    } else if (closes.includes(character)) {
      const { size } = bracket;
      bracket = open.pop() ?? { size: 0, last: 0 };
      add(size);
      at += 1;
    } else if ("*+?|".includes(character) || (!isRegex && /\s/.test(character))) {
      at += 1;
    } else if (isRegex && character === "\\") {
      at += 2;
      add(1);
    } else if (character === "[" && takeClosed(CLASS, "")) {
      add(1);
    } else if (!isRegex && "/#".includes(character) && take(COMMENT)) {
      // It is no part of the grammar.
    } else {
      const string = !isRegex && character === '"' ? takeClosed(STRING, "") : undefined;
      const slashed = syntax === "lark" && character === "/" ? takeClosed(SLASHED, "\n") : undefined;
      if (string) add(Math.max(1, string[0].length - 2));
      else if (slashed) add(expansionOf(slashed[1] ?? "", "regex"));
      else if (!isRegex && take(WORD)) add(1);
      else {
        at += 1;
        add(1);
      }
    }
  }
  // The end closes open brackets.
  return open.reduce((sum, { size }) => sum + size, bracket.size);
}
