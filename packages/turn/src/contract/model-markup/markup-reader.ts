import {
  beginningLength,
  CALLS,
  FUNCTION_TAG,
  FUNCTION_TAG_END,
  firstMark,
  HARMONY_MARKS,
  isToken,
  LATE_ENDS,
  LONGEST_MARK,
  MARK_BEGINNING,
  MARKS,
  type MarkedCall,
  THOUGHTS,
} from "./families.ts";
import { bareBeginning, bareCallsIn, callsIn, type MarkedTools } from "./marked-calls.ts";
import { TextPlace } from "./text-place.ts";

/**
 * Splits the text of a model server without parsers into thoughts, text and calls, while it is written.
 *
 * A mark counts outside of code only: not in a block between fences, and not between backticks. A thought begins a line.
 * At the beginning of the answer it is given while it is written; later only once its end has come, because a text
 * about models may quote its beginning. A block of calls is held until its end: it is calls if all of it can be read
 * and names tools of the prompt, otherwise text.
 */

export type Piece =
  | { kind: "text"; text: string }
  | { kind: "thought"; text: string }
  | ({ kind: "call" } & MarkedCall);

/** Markup that stays in the text, although it was meant. */
export type Unread = "thought" | "call";

export interface MarkupOptions {
  /** The tools whose calls are to be found; none if the model may not call any. */
  tools: MarkedTools;
  /** An answer that is nothing but calls may have them without a mark. True if absent. */
  hasBareCalls?: boolean;
  /** The model's template begins its thought in the prompt: the answer may begin within it. */
  beginsInThought: boolean;
  /** The answer continues a text: nothing is at its beginning, and the text before may have begun a thought. */
  continues?: boolean;
}

/** The longest block of calls, in characters. A longer one is text. */
const MAX_BLOCK = 262_144;

/** The beginning of a block in which the name of its tool is searched, in characters. */
const MAX_HEAD = 256;

/** Blocks that are no calls, and thoughts without an end, are text. After so many nothing is searched any more. */
const MAX_FAILED = 16;

/** The beginning of a block of calls whose mark is a tag that people quote. */
const CALL_BEGINNING =
  /^\s*(?:\[?\s*\{\s*"(?:name|tool_name|function)"\s*:|<function=|<invoke name=|[\w.-]+\s*<arg_key>)/;

/** The marks that show whether an answer began within a thought. */
const EDGES = [...THOUGHTS.keys(), ...LATE_ENDS];

/** How what is held is read. */
type Mode =
  | { kind: "text" }
  /** A thought whose beginning is certain, up to this end. */
  | { kind: "thought"; end: string }
  /** A thought, if its end comes. */
  | { kind: "possible_thought"; mark: string; end: string }
  /** The beginning of an answer that may be within a thought. */
  | { kind: "beginning" }
  /** Calls without a tag, if the whole answer is calls. */
  | { kind: "bare_calls" }
  | { kind: "calls"; mark: string; within: "text" | "thought"; end: string };

const TEXT: Mode = { kind: "text" };

export class MarkupReader {
  readonly #tools: MarkedTools;
  readonly #hasBareCalls: boolean;
  #mode: Mode = TEXT;
  #held = "";
  /** Up to here, what is held has been searched without success. */
  #searched = 0;
  /** Where in the text the next mark stands. */
  readonly #place = new TextPlace();
  /** Text that is no white space has been given since the beginning, or since the last thought or call. */
  #hasWords: boolean;
  #failed = 0;
  /** Beginnings of thoughts that the text quotes: their ends are quotes, too. */
  #quoted = 0;
  #isHarmony = false;
  #isTruncated = false;
  /** The kinds of markup that were found. */
  readonly found = { thoughts: false, calls: false };
  /** Markup that the text still has, the first of it. */
  unread: Unread | undefined;
  /** The answer began within a thought. */
  endedThought = false;
  #hasThoughts: boolean;

  /** `before` is the text of the answer so far. */
  constructor({ tools, hasBareCalls = true, beginsInThought, continues = false }: MarkupOptions, before = "") {
    this.#tools = tools;
    this.#hasBareCalls = hasBareCalls;
    this.#place.add(before);
    this.#hasWords = continues || before.trim() !== "";
    this.#hasThoughts = !continues;
    if (beginsInThought && before === "") this.#mode = { kind: "beginning" };
  }

  /** Takes the next text. Gives what is certain of it. */
  push(text: string): Piece[] {
    const { kind } = this.#mode;
    const isGiven = kind === "thought" || (kind === "text" && this.#hasWords);
    const isPlain = isGiven && this.#held === "" && !MARK_BEGINNING.test(text);
    this.#held += text;
    if (!isPlain) return this.#read(false);
    const out: Piece[] = [];
    this.#give(kind, text.length, out);
    return out;
  }

  /** Takes thoughts in the text for quotes from now on. Gives what is then certain. */
  ignoreThoughts(): Piece[] {
    this.#hasThoughts = false;
    if (this.#mode.kind === "beginning" || this.#mode.kind === "possible_thought") this.#mode = TEXT;
    return this.#read(false);
  }

  /** Ends the answer. Gives the rest. `isTruncated`: the model had not finished. */
  end(isTruncated = false): Piece[] {
    this.#isTruncated = isTruncated;
    return this.#read(true);
  }

  #read(isEnd: boolean): Piece[] {
    const out: Piece[] = [];
    while (this.#held !== "" && this.#step(out, isEnd));
    return out;
  }

  /** Reads some of what is held. False if more must come first. */
  #step(out: Piece[], isEnd: boolean): boolean {
    const mode = this.#mode;
    switch (mode.kind) {
      case "text":
        return this.#readText(out, isEnd);
      case "thought":
        return this.#readThought(mode.end, out, isEnd);
      case "possible_thought":
        return this.#readPossibleThought(mode, out, isEnd);
      case "beginning":
        return this.#readBeginning(out, isEnd);
      case "bare_calls":
        return this.#readBareCalls(out, isEnd);
      case "calls":
        return this.#readCalls(mode, out, isEnd);
    }
  }

  #readText(out: Piece[], isEnd: boolean): boolean {
    if (this.#failed >= MAX_FAILED) return this.#give("text", this.#held.length, out);
    const mayBeBare = this.#hasBareCalls && !this.#hasWords && this.#failed === 0;
    const bare = mayBeBare ? bareBeginning(this.#held, this.#tools) : "none";
    if (bare === "possible" && !isEnd) return false;
    if (bare === "certain") {
      this.#mode = { kind: "bare_calls" };
      return true;
    }
    const [at, mark] = firstMark(this.#held, MARKS);
    if (mark === undefined) {
      const kept = isEnd ? 0 : beginningLength(this.#held, MARKS);
      this.#give("text", this.#held.length - kept, out);
      return false;
    }
    if (at > 0) this.#give("text", at, out);
    const { isInCode, isLineStart } = this.#place.look();
    const thought = THOUGHTS.get(mark);
    const isThought = thought !== undefined || LATE_ENDS.includes(mark);
    if (isInCode || (isThought && !this.#hasThoughts)) return this.#give("text", mark.length, out);
    if (thought !== undefined) {
      if (!isLineStart) return this.#quote(mark, out);
      this.#isHarmony ||= thought === "<|end|>";
      if (this.#hasWords) this.#mode = { kind: "possible_thought", mark, end: thought };
      else {
        this.#drop(mark.length);
        this.#mode = { kind: "thought", end: thought };
      }
      return true;
    }
    if (this.#isHarmony && HARMONY_MARKS.includes(mark)) return this.#drop(mark.length);
    if (LATE_ENDS.includes(mark)) {
      const after = this.#held.slice(mark.length);
      if (after === "" && !isEnd) return false;
      if (this.#quoted > 0) this.#quoted -= 1;
      else if (isLineStart || /^\s*(?:\n|$)/.test(after)) this.unread ??= "thought";
      return this.#give("text", mark.length, out);
    }
    if (!this.#isCall(mark)) return this.#give("text", mark.length, out);
    this.#mode = { kind: "calls", mark, within: "text", end: "" };
    return true;
  }

  /** Calls without a tag are the whole answer, or none. */
  #readBareCalls(out: Piece[], isEnd: boolean): boolean {
    if (!isEnd && this.#held.length <= MAX_BLOCK) return false;
    const calls = isEnd ? bareCallsIn(this.#held, this.#tools, this.#isTruncated) : undefined;
    this.#mode = TEXT;
    this.#failed += 1;
    if (!calls) return true;
    for (const call of calls) out.push({ kind: "call", ...call });
    this.found.calls = true;
    return this.#drop(this.#held.length);
  }

  /** Tells whether a mark begins calls that may be found. */
  #isCall(mark: string): boolean {
    return this.#tools.size > 0 && (mark === FUNCTION_TAG || CALLS.has(mark));
  }

  /** A thought ends at its end, or where a call begins that can be read: some models forget the end. */
  #readThought(end: string, out: Piece[], isEnd: boolean): boolean {
    const marks = [end, ...(this.#tools.size > 0 && this.#failed < MAX_FAILED ? [...CALLS.keys(), FUNCTION_TAG] : [])];
    const [at, mark] = firstMark(this.#held, marks);
    if (mark === undefined) {
      const kept = isEnd ? 0 : beginningLength(this.#held, marks);
      this.#give("thought", this.#held.length - kept, out);
      return false;
    }
    if (at > 0) this.#give("thought", at, out);
    if (mark === end) {
      this.#drop(end.length);
      this.#endThought();
      this.#mode = TEXT;
      return true;
    }
    this.#mode = { kind: "calls", mark, within: "thought", end };
    return true;
  }

  #readPossibleThought(
    { mark, end }: Extract<Mode, { kind: "possible_thought" }>,
    out: Piece[],
    isEnd: boolean,
  ): boolean {
    const at = this.#held.indexOf(end, this.#searchFrom(mark.length));
    if (at < 0) {
      this.#searched = this.#held.length;
      if (!isEnd && this.#held.length <= MAX_BLOCK) return false;
      this.#failed += 1;
      this.#mode = TEXT;
      return this.#quote(mark, out);
    }
    this.#drop(mark.length);
    this.#give("thought", at - mark.length, out);
    this.#drop(end.length);
    this.#endThought();
    this.#mode = TEXT;
    return true;
  }

  /** Nothing of such an answer is given before it is known whether it begins within a thought. */
  #readBeginning(out: Piece[], isEnd: boolean): boolean {
    const [at, mark] = firstMark(this.#held, EDGES, this.#searchFrom(0));
    const isLate = mark !== undefined && LATE_ENDS.includes(mark);
    if (isLate) {
      this.endedThought = true;
      this.#give("thought", at, out);
      this.#drop(mark.length);
      this.#endThought();
    } else if (mark === undefined && !isEnd && this.#held.length <= MAX_BLOCK) {
      this.#searched = this.#held.length;
      return false;
    }
    this.#mode = TEXT;
    return true;
  }

  #readCalls({ mark, within, end: thought }: Extract<Mode, { kind: "calls" }>, out: Piece[], isEnd: boolean): boolean {
    if (within === "thought") {
      // Only a thought without an end is ended by a call: a thought may also be about calls.
      const isOver = this.#held.indexOf(thought, this.#searchFrom(0)) >= 0 || this.#held.length > MAX_BLOCK;
      this.#searched = this.#held.length;
      if (!isOver && !isEnd) return false;
      if (isOver) {
        this.#failed += 1;
        this.#mode = { kind: "thought", end: thought };
        return this.#give("thought", mark.length, out);
      }
    }
    const from = mark.length;
    const ends = mark === FUNCTION_TAG ? [FUNCTION_TAG_END] : (CALLS.get(mark) ?? []);
    const [at, end = ""] = firstMark(this.#held, ends, within === "thought" ? from : this.#searchFrom(from));
    const isWhole = end !== "";
    if (!isWhole && !isEnd && this.#held.length <= MAX_BLOCK) {
      this.#searched = this.#held.length;
      return false;
    }
    const inside = this.#held.slice(from, isWhole ? at : undefined);
    const block = mark === FUNCTION_TAG ? mark + inside + end : inside;
    const calls = block.length <= MAX_BLOCK ? callsIn(block, this.#tools) : undefined;
    if (!calls) {
      this.#failed += 1;
      this.#mode = within === "text" ? TEXT : { kind: "thought", end: thought };
      const name = this.#meantTool(mark, block);
      if (name === undefined || within === "thought" || this.#isTruncated) return this.#give(within, mark.length, out);
      // With arguments that are no JSON: whoever judges calls tells the model.
      out.push({ kind: "call", name, arguments: mark + block });
      this.found.calls = true;
      return this.#drop(isWhole ? at + end.length : this.#held.length);
    }
    for (const call of calls) out.push({ kind: "call", ...call });
    this.found.calls = true;
    this.#drop(isWhole ? at + end.length : this.#held.length);
    if (within === "thought") this.found.thoughts = true;
    this.#begin();
    this.#mode = TEXT;
    return true;
  }

  /** The tool that a block means, although it cannot be read. A token of a model at the beginning of a line is meant, too. */
  #meantTool(mark: string, block: string): string | undefined {
    const { isLineStart } = this.#place.look();
    const isMeant = isToken(mark) || (isLineStart && (mark === FUNCTION_TAG || CALL_BEGINNING.test(block)));
    if (!isMeant) return undefined;
    const beginning = block.slice(0, MAX_HEAD);
    const name = [...this.#tools.keys()].find((each) => beginning.includes(each));
    if (name === undefined && isToken(mark) && isLineStart) this.unread ??= "call";
    return name;
  }

  /** Gives the beginning of a thought as text. */
  #quote(mark: string, out: Piece[]): true {
    this.#quoted += 1;
    return this.#give("text", mark.length, out);
  }

  /** Gives some of what is held. Always true. */
  #give(kind: "text" | "thought", length: number, out: Piece[]): true {
    if (length === 0) return true;
    const text = this.#held.slice(0, length);
    this.#drop(length);
    if (kind === "thought") this.found.thoughts = true;
    else {
      this.#place.add(text);
      this.#hasWords ||= text.trim() !== "";
    }
    const last = out.at(-1);
    if (last && last.kind !== "call" && last.kind === kind) last.text += text;
    else out.push({ kind, text });
    return true;
  }

  /** Leaves out some of what is held. Always true. */
  #drop(length: number): true {
    this.#held = this.#held.slice(length);
    this.#searched = 0;
    return true;
  }

  /** Where a search goes on: a mark may have begun before. */
  #searchFrom(least: number): number {
    return Math.max(least, this.#searched - LONGEST_MARK);
  }

  #endThought(): void {
    this.found.thoughts = true;
    this.#begin();
  }

  /** The text that follows stands at the beginning again. */
  #begin(): void {
    this.#place.reset();
    this.#hasWords = false;
  }
}
