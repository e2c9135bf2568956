import type { CharSet, Expression } from "./expression.ts";
import type { Rules } from "./lark-rules.ts";

/**
 * Tells whether a text matches rules while it is being written: Earley's method over a network of states for each rule.
 * It never backtracks, and always ends: memory is at worst linear in the text, and `MAX_STEPS` bounds the work. A
 * grammar whose repetitions come to more than `MAX_STATES` is not read, nor is a text beyond the work: then every text
 * counts as valid unless it is known to be invalid.
 */

/** The maximum of states of all rules together: about one for each character and each of its repetitions. */
const MAX_STATES = 50_000;

/**
 * The maximum of steps in one text, each of which enters a state. An ordinary grammar takes about twenty for each
 * character.
 */
const MAX_STEPS = 2_000_000;

type State =
  /** One character of a set leads on. */
  | { kind: "chars"; ranges: readonly number[]; next: number }
  /** A text of this rule leads on. */
  | { kind: "call"; rule: number; next: number }
  /** Each of these is reached at once. */
  | { kind: "fork"; next: number[] }
  /** The end of this rule. */
  | { kind: "end"; rule: number };

interface Network {
  states: readonly State[];
  /** The first state of each rule. */
  begins: readonly number[];
  start: number;
}

class TooManyStates extends Error {}

class NetworkMaker {
  readonly states: State[] = [];

  add(state: State): number {
    if (this.states.length >= MAX_STATES) throw new TooManyStates();
    return this.states.push(state) - 1;
  }

  /** The state from which an expression leads to `next`. */
  make(expression: Expression, next: number, ruleOf: (name: string) => number): number {
    switch (expression.kind) {
      case "text": {
        const codes = [...expression.text].map((character) => character.codePointAt(0) ?? 0);
        return codes.reduceRight((after, code) => this.add({ kind: "chars", ranges: [code, code], next: after }), next);
      }
      case "chars":
        return this.add({ kind: "chars", ranges: flat(expression.set), next });
      case "rule":
        return this.add({ kind: "call", rule: ruleOf(expression.name), next });
      case "sequence":
        return expression.parts.reduceRight((after, part) => this.make(part, after, ruleOf), next);
      case "choice": {
        const options = expression.options.map((option) => this.make(option, next, ruleOf));
        return this.add({ kind: "fork", next: options });
      }
      case "repeat": {
        const { part, min, max } = expression;
        let from = next;
        if (max === Number.POSITIVE_INFINITY) {
          const fork = { kind: "fork" as const, next: [next] };
          from = this.add(fork);
          fork.next.push(this.make(part, from, ruleOf));
        }
        // Each optional one leads to the next one, or out.
        for (let count = min; count < max && max !== Number.POSITIVE_INFINITY; count += 1) {
          from = this.add({ kind: "fork", next: [this.make(part, from, ruleOf), next] });
        }
        for (let count = 0; count < min; count += 1) from = this.make(part, from, ruleOf);
        return from;
      }
    }
  }
}

function flat(set: CharSet): number[] {
  return set.flat();
}

function makeNetwork({ start, rules }: Rules): Network | undefined {
  const names = [...rules.keys()];
  const numbers = new Map(names.map((name, index) => [name, index]));
  const ruleOf = (name: string) => numbers.get(name) ?? -1;
  const maker = new NetworkMaker();
  try {
    const begins = names.map((name, rule) => {
      const expression = rules.get(name);
      const end = maker.add({ kind: "end", rule });
      return expression ? maker.make(expression, end, ruleOf) : end;
    });
    return { states: maker.states, begins, start: ruleOf(start) };
  } catch (error) {
    if (error instanceof TooManyStates) return undefined;
    throw error;
  }
}

/** The possible states at a position of the text. */
interface Place {
  index: number;
  /** States that wait for a character, with the positions where their rules began. */
  waiting: { next: number; ranges: readonly number[]; origin: Place }[];
  /** The continuation after a text of a rule that begins here. */
  callers: Map<number, { next: number; origin: Place }[]>;
  /** Rules that match the empty text here. */
  empty: Set<number> | undefined;
}

const networks = new WeakMap<Rules, Network | "too large">();

function networkOf(rules: Rules): Network | undefined {
  const known = networks.get(rules) ?? makeNetwork(rules) ?? "too large";
  networks.set(rules, known);
  return known === "too large" ? undefined : known;
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
    const begun: { state: number; origin: Place }[] = [];
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
  #enter(place: Place, agenda: { state: number; origin: Place }[]): void {
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
