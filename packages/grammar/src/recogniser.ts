import type { Rules } from "./lark-rules.ts";
import { MAX_STATES, type Network, networkOf } from "./network.ts";

/**
 * Tells whether a text matches rules while it is being written: Earley's method over a network of states for each rule.
 * It never backtracks, and always ends: memory is at worst linear in the text, and `MAX_STEPS` bounds the work. A
 * grammar whose repetitions come to more than `MAX_STATES` is not read, nor is a text beyond the work: then every text
 * counts as valid unless it is known to be invalid.
 */

/**
 * The maximum of steps in one text, each of which enters a state. An ordinary grammar takes about twenty for each
 * character.
 */
const MAX_STEPS = 2_000_000;

/** The possible states at a position of the text. */
export interface Place {
  index: number;
  /** States that wait for a character, with the positions where their rules began. */
  waiting: { next: number; ranges: readonly number[]; origin: Place }[];
  /** The continuation after a text of a rule that begins here. */
  callers: Map<number, { next: number; origin: Place }[]>;
  /** Rules that match the empty text here. */
  empty: Set<number> | undefined;
}

/** A state, and the position where its rule began. */
export interface Entry {
  state: number;
  origin: Place;
}

export class Recogniser {
  readonly #network: Network | undefined;
  readonly #maxSteps: number;
  readonly #first: Place;
  #place: Place;
  #steps = 0;
  #accepts = false;
  #isBroken = false;
  /** Half a character at the end of the text so far. */
  #half = "";
  #read = 0;

  /** Reads with at most so many steps. */
  constructor(rules: Rules, maxSteps = MAX_STEPS) {
    this.#maxSteps = maxSteps;
    this.#network = networkOf(rules);
    this.#first = newPlace(0);
    this.#place = this.#first;
    if (this.#network)
      this.#enter(this.#first, [{ state: this.#network.begins[this.#network.start] ?? 0, origin: this.#first }]);
  }

  /** Reads on. False as soon as no text of the grammar begins with the text so far. */
  push(text: string): boolean {
    if (this.#isBroken) return false;
    let all = this.#half + text;
    const last = all.charCodeAt(all.length - 1);
    this.#half = last >= 0xd800 && last < 0xdc00 ? all.slice(-1) : "";
    if (this.#half !== "") all = all.slice(0, -1);
    for (const character of all) {
      if (this.isUnread) return true;
      if (!this.#step(character.codePointAt(0) ?? 0)) {
        this.#isBroken = true;
        return false;
      }
      this.#read += character.length;
    }
    return true;
  }

  /** Tells whether the text so far is a complete text of the grammar. */
  get accepts(): boolean {
    return this.isUnread || (!this.#isBroken && this.#accepts && this.#half === "");
  }

  /** The length of the text's beginning that may begin a text of the grammar, in UTF-16 units. */
  get read(): number {
    return this.#read;
  }

  /** The sets of characters, each as first and last of its ranges, that may follow. */
  get following(): readonly (readonly number[])[] {
    return this.#place.waiting.map(({ ranges }) => ranges);
  }

  /** The states that one more character would enter first; the text is not read on. */
  entriesAfter(code: number): Entry[] {
    if (this.#isBroken || this.#half !== "") return [];
    const reached = this.#place.waiting.filter(({ ranges }) => isIn(ranges, code));
    return reached.map(({ next, origin }) => ({ state: next, origin }));
  }

  /** The number of its states: making them is work, too. */
  get size(): number {
    return this.#network?.states.length ?? MAX_STATES;
  }

  /** Steps taken so far. */
  get steps(): number {
    return this.#steps;
  }

  /** The grammar or the text is too large: nothing is known. */
  get isUnread(): boolean {
    return this.#network === undefined || this.#steps > this.#maxSteps;
  }

  #step(code: number): boolean {
    const begun: Entry[] = [];
    for (const { ranges, next, origin } of this.#place.waiting) {
      if (isIn(ranges, code)) begun.push({ state: next, origin });
    }
    this.#place = newPlace(this.#place.index + 1);
    this.#accepts = false;
    if (begun.length === 0) return false;
    this.#enter(this.#place, begun);
    return this.#accepts || this.#place.waiting.length > 0;
  }

  /** Enters some states at a position, and all states that follow from them without a character. */
  #enter(place: Place, agenda: Entry[]): void {
    const network = this.#network;
    if (!network) return;
    const seen = new Set<number>();
    for (let entry = agenda.pop(); entry; entry = agenda.pop()) {
      // A step to an already entered state is work, too.
      this.#steps += 1;
      if (this.isUnread) return;
      const { state: at, origin } = entry;
      const key = at + origin.index * MAX_STATES;
      if (seen.has(key)) continue;
      seen.add(key);
      const state = network.states[at];
      if (state?.kind === "chars") place.waiting.push({ next: state.next, ranges: state.ranges, origin });
      else if (state?.kind === "fork") for (const next of state.next) agenda.push({ state: next, origin });
      else if (state?.kind === "call") {
        const callers = place.callers.get(state.rule);
        if (callers) callers.push({ next: state.next, origin });
        else {
          place.callers.set(state.rule, [{ next: state.next, origin }]);
          agenda.push({ state: network.begins[state.rule] ?? 0, origin: place });
        }
        if (place.empty?.has(state.rule)) agenda.push({ state: state.next, origin });
      } else if (state?.kind === "end") {
        if (origin === place) {
          place.empty ??= new Set();
          place.empty.add(state.rule);
        }
        if (origin === this.#first && state.rule === network.start) this.#accepts = true;
        for (const caller of origin.callers.get(state.rule) ?? [])
          agenda.push({ state: caller.next, origin: caller.origin });
      }
    }
  }
}

function newPlace(index: number): Place {
  return { index, waiting: [], callers: new Map(), empty: undefined };
}

/** Tells whether a code point is in a set, written as first and last of each range. */
function isIn(ranges: readonly number[], code: number): boolean {
  for (let at = 0; at < ranges.length; at += 2) {
    if (code < (ranges[at] ?? 0)) return false;
    if (code <= (ranges[at + 1] ?? 0)) return true;
  }
  return false;
}
