/**
 * Counts what a computation does to texts, so that "linear" can be asserted without a clock: characters that were looked
 * at one by one, searched through, copied, or matched.
 */

type TextMethod = (this: string, ...given: never[]) => unknown;

/** What a call of a string's method costs, in characters. */
const COSTS: Record<string, (text: string, given: unknown[], result: unknown) => number> = {
  charCodeAt: () => 1,
  codePointAt: () => 1,
  at: () => 1,
  startsWith: (_, [wanted]) => String(wanted).length,
  indexOf: (text, [, from = 0], result) => (result === -1 ? text.length : Number(result)) - Number(from) + 1,
  includes: (text, [wanted]) => (text.indexOf(String(wanted)) === -1 ? text.length : text.indexOf(String(wanted)) + 1),
  lastIndexOf: (text, [, from = text.length], result) => Number(from) - Math.max(0, Number(result)) + 1,
  // V8 makes a view of a slice, whatever its length.
  slice: () => 1,
  split: (text) => text.length,
  trim: (text) => text.length,
  toLowerCase: (text) => text.length,
  replace: (text) => text.length,
  replaceAll: (text) => text.length,
};

/** The same of a regular expression's. One that finds nothing has looked at all the rest, unless it is sticky. */
function costOfMatch(pattern: RegExp, from: number, text: string, found: RegExpExecArray | null): number {
  if (found) return found.index - from + found[0].length + 1;
  return pattern.sticky ? 1 : text.length - from + 1;
}

/** Runs `work` and gives the characters that it has touched. Only what runs meanwhile in this isolate is counted. */
export async function charactersTouched(work: () => unknown): Promise<number> {
  let touched = 0;
  const strings = String.prototype as unknown as Record<string, TextMethod>;
  const originals = new Map(Object.keys(COSTS).map((name) => [name, strings[name] as TextMethod]));
  const { exec, test } = RegExp.prototype;
  let counting = true;
  /** Counts `cost`, whose own use of these methods does not count. */
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
