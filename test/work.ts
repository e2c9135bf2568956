/**
 * Counts a computation's work on texts, so that "linear" can be asserted without a clock: characters that it reads one
 * by one, searches, copies, or matches.
 */

type TextMethod = (this: string, ...given: never[]) => unknown;

/** The cost of a call of a string's method, in characters. */
const COSTS: Record<string, (text: string, given: unknown[], result: unknown) => number> = {
  charCodeAt: () => 1,
  codePointAt: () => 1,
  at: () => 1,
  startsWith: (_, [wanted]) => String(wanted).length,
  indexOf: (text, [, from = 0], result) => (result === -1 ? text.length : Number(result)) - Number(from) + 1,
  includes: (text, [wanted]) => (text.indexOf(String(wanted)) === -1 ? text.length : text.indexOf(String(wanted)) + 1),
  lastIndexOf: (text, [, from = text.length], result) => Number(from) - Math.max(0, Number(result)) + 1,
  // V8 makes a view for a slice of any length.
  slice: () => 1,
  split: (text) => text.length,
  trim: (text) => text.length,
  toLowerCase: (text) => text.length,
  replace: (text) => text.length,
  replaceAll: (text) => text.length,
};

/**
 * The cost of a call of a regular expression's method. Without a match it has read the whole rest, unless it is sticky.
 */
function costOfMatch(pattern: RegExp, from: number, text: string, found: RegExpExecArray | null): number {
  if (found) return found.index - from + found[0].length + 1;
  return pattern.sticky ? 1 : text.length - from + 1;
}

/**
 * Runs `work` and gives the number of characters that it has touched. Counts everything that runs meanwhile in this
 * isolate.
 */
export async function charactersTouched(work: () => unknown): Promise<number> {
  let touched = 0;
  const strings = String.prototype as unknown as Record<string, TextMethod>;
  const originals = new Map(Object.keys(COSTS).map((name) => [name, strings[name] as TextMethod]));
  const { exec, test } = RegExp.prototype;
  let counting = true;
  /** Counts `cost`. Its own use of these methods does not count. */
  const count = (cost: () => number) => {
    if (!counting) return;
    counting = false;
    touched += cost();
    counting = true;
  };
  for (const [name, original] of originals) {
    strings[name] = function (...given: never[]) {
      const result = original.apply(this, given);
      count(() => COSTS[name]?.(this, given, result) ?? 0);
      return result;
    };
  }
  RegExp.prototype.exec = function (text: string) {
    const from = this.global || this.sticky ? this.lastIndex : 0;
    const found = exec.call(this, text);
    count(() => costOfMatch(this, from, text, found));
    return found;
  };
  RegExp.prototype.test = function (text: string) {
    return this.exec(text) !== null;
  };
  try {
    await work();
  } finally {
    for (const [name, original] of originals) strings[name] = original;
    Object.assign(RegExp.prototype, { exec, test });
  }
  return touched;
}
