/**
 * Finds a model that repeats itself: the end of a thought or an answer consists of the same characters, over and over.
 * Only exact repetitions count, so a text that counts on, or varies a word, is none.
 *
 * The end of the text is searched once for each `STRIDE` characters, so a delta costs an addition to a string.
 */

/** The texts in which repetition is looked for (`REPETITION_GUARD`). */
export const REPETITION_GUARDS = ["off", "thoughts", "on"] as const;
export type RepetitionGuardMode = (typeof REPETITION_GUARDS)[number];

/** A text's end that repeats the same `period` characters, over `length` characters. */
export interface Repetition {
  period: number;
  length: number;
}

/** Characters of the end that are searched: a period of `WINDOW / least.count` characters can be found. */
const WINDOW = 16_384;

/** Characters between two searches. */
const STRIDE = 1_024;

/** Characters at the end whose earlier occurrences tell the possible periods. */
const PROBE = 64;

/** Most periods that are tried. The end of a period may itself occur several times in it. */
const MAX_PERIODS = 16;

/** The least repetition: its count, and its characters. */
interface Least {
  count: number;
  length: number;
}

/** The repetition at the end of a text that is at least that long; undefined if there is none. */
export function repetitionAtEnd(text: string, least: Least): Repetition | undefined {
  const from = text.length - PROBE;
  if (from < 1) return undefined;
  const probe = text.slice(from);
  // Finding the first occurrence is much faster than finding the last one. A longer period could not repeat often enough.
  if (text.indexOf(probe, Math.max(0, from - Math.floor(text.length / least.count))) === from) return undefined;
  let at = from;
  for (let tried = 0; tried < MAX_PERIODS && at > 0; tried += 1) {
    at = text.lastIndexOf(probe, at - 1);
    if (at < 0) return undefined;
    const period = from - at;
    if (period * least.count > text.length) return undefined;
    let index = from - 1;
    while (index >= period && text.charCodeAt(index) === text.charCodeAt(index - period)) index -= 1;
    const length = text.length - 1 - index + period;
    if (length >= least.length && length >= period * least.count) return { period, length };
  }
  return undefined;
}

/** The kinds of text in which a model may repeat itself. */
export type RepeatedKind = "thought" | "answer";

/**
 * The least repetition that no human would write or accept. Words repeat in refrains, and in lines that a user has asked
 * for; other characters also in rulers, matrices and dumps. White space is the usual end of a model under a grammar.
 */
const LEAST: Record<RepeatedKind, Record<"words" | "others" | "blanks", Least>> = {
  thought: {
    words: { count: 4, length: 1_536 },
    others: { count: 4, length: 6_144 },
    blanks: { count: 4, length: 4_096 },
  },
  answer: {
    words: { count: 6, length: 4_096 },
    others: { count: 6, length: 12_288 },
    blanks: { count: 6, length: 4_096 },
  },
};

/** Words have at least so many different letters: fewer are a ruler, or the zeros of a picture in base64. */
const LEAST_LETTERS = 3;

/** The least repetition at the end of a text that is known to have one. */
const KNOWN: Least = { count: 2, length: 2 };

/** The end of a line or a sentence, with the space after it. */
const BOUNDARY = /\n|[.!?。！？]\s/;

/**
 * The number of a text's characters without the repetitions at its end: up to the end of the first one, and of the line
 * or sentence in which that is. All of them if there are none.
 */
export function lengthWithoutRepetition(text: string): number {
  const tail = text.slice(-WINDOW);
  const found = repetitionAtEnd(tail, { count: 3, length: PROBE }) ?? repetitionAtEnd(tail, KNOWN);
  if (!found) return text.length;
  const end = text.length - found.length + found.period;
  if (BOUNDARY.test(text.slice(Math.max(0, end - 2), end + 1))) return end;
  const boundary = BOUNDARY.exec(text.slice(end, end + found.period));
  return boundary ? end + boundary.index + boundary[0].length : end;
}

/** A line that begins or ends a fenced block of code, perhaps within a list or a quotation. */
const FENCE = /^[\s>*+-]*(?:\d+\.\s*)?(?:```|~~~)/;

/** Longest beginning of a line that shows whether the line is a fence. */
const LINE_BEGINNING = 64;

/** Watches the text of a generation. Blocks of code and tables are left alone: only white space is too much in them. */
export class RepetitionWatch {
  readonly #isPlain: boolean;
  #kind: RepeatedKind | undefined;
  /** The end of the text, as of the last search. */
  #tail = "";
  /** The text since then. */
  #fresh = "";
  /** The beginning of the unfinished line, as of the last search. */
  #line = "";
  #isInCode = false;

  /** `isPlain`: the answer is text for a reader, not in a format for programs. */
  constructor(isPlain: boolean) {
    this.#isPlain = isPlain;
  }

  /** Begins a new text. */
  reset(): void {
    this.#kind = undefined;
    this.#tail = "";
    this.#fresh = "";
    this.#line = "";
    this.#isInCode = false;
  }

  /** Reads the next text. True if its end repeats. */
  read(kind: RepeatedKind, text: string): boolean {
    if (kind !== this.#kind) {
      this.reset();
      this.#kind = kind;
    }
    this.#fresh += text;
    return this.#fresh.length >= STRIDE && this.#search(kind);
  }

  #search(kind: RepeatedKind): boolean {
    const fresh = this.#fresh;
    this.#fresh = "";
    this.#readFences(fresh);
    this.#tail = (this.#tail + fresh).slice(-WINDOW);
    const least = LEAST[kind];
    const found = repetitionAtEnd(this.#tail, least.words);
    if (!found) return false;
    const { period, length } = found;
    const unit = this.#tail.slice(-period);
    if (!/\S/.test(unit)) return length >= least.blanks.length;
    if (kind === "answer" && !this.#isPlain) return false;
    if (this.#isInCode && !/```|~~~/.test(unit)) return false;
    if (isOfTable(this.#tail.slice(-2 * period))) return false;
    const letters = new Set(unit.match(/\p{L}/gu));
    const { count, length: enough } = letters.size >= LEAST_LETTERS ? least.words : least.others;
    return length >= enough && length >= period * count;
  }

  /** Follows the beginnings and ends of blocks of code, in whole lines. */
  #readFences(fresh: string): void {
    const end = fresh.lastIndexOf("\n");
    if (end < 0) {
      if (this.#line.length < LINE_BEGINNING) this.#line = (this.#line + fresh).slice(0, LINE_BEGINNING);
      return;
    }
    const lines = this.#line + fresh.slice(0, end);
    this.#line = fresh.slice(end + 1, end + 1 + LINE_BEGINNING);
    if (!lines.includes("```") && !lines.includes("~~~")) return;
    for (const line of lines.split("\n")) if (FENCE.test(line)) this.#isInCode = !this.#isInCode;
  }
}

/** Tells whether a text consists of rows of a table, apart from incomplete lines at its ends. */
function isOfTable(text: string): boolean {
  const rows = text.split("\n").slice(1, -1);
  return rows.length > 0 && rows.every((row) => /^\s*\|/.test(row));
}
