import { type CharSet, choice, type Expression, intersection, NOTHING, sequence } from "./expression.ts";
import { RemainderFault } from "./faults.ts";
import type { Rules } from "./lark-rules.ts";
import { makeNetwork, type Network, type Span } from "./network.ts";
import { type Entry, type Place, Recogniser } from "./recogniser.ts";
import { trimmed } from "./trimmed.ts";

/**
 * The rules of the texts that may follow a prefix: Brzozowski's derivative, for grammars. Earley's table has the
 * rules that are open after the prefix. Each open rule has a rest, the part of its expression from its state on, and goes on
 * with the rests of the rules that use it where it began. Rests of rules that have one user are written into one
 * another, so that a list of a thousand elements leaves as much as a list of one.
 */
export class Derivative {
  readonly #rules: Rules;
  readonly #recogniser: Recogniser;
  readonly #network: Network;
  readonly #spans: readonly Span[];

  /**
   * Reads a prefix, in steps that `Recogniser` bounds. Throws {@link RemainderFault} beyond them, and for half a
   * surrogate pair at its end.
   */
  constructor(rules: Rules, prefix: string) {
    const spans: Span[] = [];
    const network = makeNetwork(rules, spans);
    this.#recogniser = new Recogniser(rules);
    if (!network || this.#recogniser.isUnread) throw new RemainderFault("too_large");
    this.#rules = rules;
    this.#network = network;
    this.#spans = spans;
    const isPrefix = this.#recogniser.push(prefix);
    if (this.#recogniser.isUnread) throw new RemainderFault("too_large");
    if (!isPrefix) throw new RemainderFault("no_prefix");
  }

  /** Tells whether the prefix is a text of the rules. */
  get accepts(): boolean {
    return this.#recogniser.accepts;
  }

  /**
   * Splits a set into the characters that may follow: each part is one after which the same texts follow. A character
   * that is in none of them cannot follow.
   */
  parts(set: CharSet): CharSet[] {
    const sets = new Map(this.#recogniser.following.map((ranges) => [ranges.join(), ranges]));
    const groups = new Map<string, [number, number][]>();
    const ends = new Set<number>();
    for (const ranges of sets.values()) {
      for (let at = 0; at < ranges.length; at += 2) ends.add(ranges[at] ?? 0).add((ranges[at + 1] ?? 0) + 1);
    }
    if (ends.size * sets.size > MAX_ENDED) throw new RemainderFault("too_large");
    const sorted = [...ends].sort((a, b) => a - b);
    for (const [index, first] of sorted.slice(0, -1).entries()) {
      const last = (sorted[index + 1] ?? 0) - 1;
      const has = (ranges: readonly number[]) =>
        ranges.some((low, at) => at % 2 === 0 && low <= first && first <= (ranges[at + 1] ?? 0));
      const key = [...sets].flatMap(([name, ranges]) => (has(ranges) ? name : [])).join(";");
      if (key === "") continue;
      const known = groups.get(key);
      if (known) known.push([first, last]);
      else groups.set(key, [[first, last]]);
    }
    return [...groups.values()].map((group) => intersection(group, set)).filter((part) => part.length > 0);
  }

  /** The rules of the texts that follow the prefix and one more character; undefined if that cannot follow. */
  after(code: number): Rules | undefined {
    const entries = this.#recogniser.entriesAfter(code);
    return entries.length === 0 ? undefined : new Rests(this.#rules, this.#network, this.#spans).of(entries);
  }
}

/**
 * The rules of the texts that follow a prefix, without rules that none of them needs. Throws {@link RemainderFault} if
 * the prefix begins no text of the rules, and beyond the bounds of {@link Derivative}.
 */
export function restOf(rules: Rules, prefix: string): Rules {
  if (!prefix.isWellFormed()) throw new RemainderFault("no_prefix");
  const last = [...prefix.slice(-2)].at(-1);
  const before = last === undefined ? undefined : new Derivative(rules, prefix.slice(0, -last.length));
  const rest = before ? before.after(last?.codePointAt(0) ?? 0) : rules;
  const kept = rest && trimmed(rest);
  if (!kept) throw new RemainderFault("no_prefix");
  return kept;
}

/** The maximum of parts of a remainder: a text nested as deep leaves one for each level. */
const MAX_PARTS = 20_000;

/** The maximum of rules that are left at their ends on the way to those parts. */
const MAX_ENDED = 200_000;

class Rests {
  readonly #network: Network;
  readonly #spans: readonly Span[];
  /** The first state of each rule's block of states: its end. */
  readonly #blocks: readonly number[];
  readonly #made: Map<string, Expression>;
  /** Names of what follows a rule that began at a place. */
  readonly #nameOf = new Map<string, string>();
  readonly #open: { name: string; rule: number; origin: Place }[] = [];
  #parts = 0;
  #ended = 0;

  constructor(rules: Rules, network: Network, spans: readonly Span[]) {
    this.#network = network;
    this.#spans = spans;
    this.#blocks = network.states.flatMap((state, at) => (state.kind === "end" ? at : []));
    this.#made = new Map(rules.rules);
  }

  of(entries: readonly Entry[]): Rules {
    const start = this.#nameFor(NOTHING);
    this.#made.set(start, this.#choice(entries, false));
    for (let next = this.#open.pop(); next; next = this.#open.pop()) {
      this.#made.set(next.name, this.#choice(callersOf(next).map(entryOf), this.#isWhole(next)));
    }
    return { start, rules: this.#made };
  }

  /** The rest from some states on, each up to the end of the text. `isWhole`: the text may end here, too. */
  #choice(entries: readonly Entry[], isWhole: boolean): Expression {
    const different = new Map(entries.map((entry) => [`${entry.state} ${entry.origin.index}`, entry]));
    const options = [...different.values()].map((entry) => this.#rest(entry));
    return choice(isWhole ? [...options, NOTHING] : options);
  }

  #rest({ state, origin }: Entry): Expression {
    const parts: Expression[] = [];
    const passed = new Set<string>();
    let at: Entry = { state, origin };
    for (;;) {
      parts.push(...this.#partsFrom(at.state));
      const rule = this.#ruleOf(at.state);
      const from = { rule, origin: at.origin };
      const [only, other] = callersOf(from);
      if (!only) return sequence(parts);
      const key = `${rule} ${at.origin.index}`;
      if (other || this.#isWhole(from) || passed.has(key)) {
        return sequence([...parts, { kind: "rule", name: this.#afterName(key, from) }]);
      }
      passed.add(key);
      this.#ended += 1;
      if (this.#ended > MAX_ENDED) throw new RemainderFault("too_large");
      at = entryOf(only);
    }
  }

  /** The expressions from a state to the end of its rule. */
  #partsFrom(state: number): Expression[] {
    const parts: Expression[] = [];
    for (let span = this.#spans[state]; span; span = this.#spans[span.next]) parts.push(span.expression);
    this.#parts += parts.length;
    if (this.#parts > MAX_PARTS) throw new RemainderFault("too_large");
    return parts;
  }

  #afterName(key: string, { rule, origin }: { rule: number; origin: Place }): string {
    const known = this.#nameOf.get(key);
    if (known !== undefined) return known;
    // It is filled later: it may lead to itself.
    const name = this.#nameFor(NOTHING);
    this.#nameOf.set(key, name);
    this.#open.push({ name, rule, origin });
    return name;
  }

  #nameFor(rule: Expression): string {
    let name = `rest_${this.#made.size}`;
    while (this.#made.has(name)) name += "_";
    this.#made.set(name, rule);
    return name;
  }

  /** Tells whether the whole text may end with a rule that began at a place. */
  #isWhole({ rule, origin }: { rule: number; origin: Place }): boolean {
    return rule === this.#network.start && origin.index === 0;
  }

  #ruleOf(state: number): number {
    let [low, high] = [0, this.#blocks.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((this.#blocks[middle] ?? 0) <= state) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

function entryOf({ next, origin }: { next: number; origin: Place }): Entry {
  return { state: next, origin };
}

function callersOf({ rule, origin }: { rule: number; origin: Place }): { next: number; origin: Place }[] {
  return origin.callers.get(rule) ?? [];
}
