import { type CharSet, type Expression, repeat } from "./expression.ts";
import type { Rules } from "./lark-rules.ts";

/** Rules as a network of states, which a text enters one after another. */

/** The maximum of states of all rules together: about one for each character and each of its repetitions. */
export const MAX_STATES = 50_000;

export type State =
  /** One character of a set leads on. */
  | { kind: "chars"; ranges: readonly number[]; next: number }
  /** A text of this rule leads on. */
  | { kind: "call"; rule: number; next: number }
  /** Each of these is reached at once. */
  | { kind: "fork"; next: number[] }
  /** The end of this rule. */
  | { kind: "end"; rule: number };

export interface Network {
  states: readonly State[];
  /** The first state of each rule. */
  begins: readonly number[];
  start: number;
}

/** The texts that lead from a state to the end of its rule: those of an expression, then those of another state. */
export interface Span {
  expression: Expression;
  next: number;
}

class TooManyStates extends Error {}

class NetworkMaker {
  readonly states: State[] = [];
  readonly #spans: Span[] | undefined;

  /** Fills `spans`, by the number of the state, where it is given. */
  constructor(spans?: Span[]) {
    this.#spans = spans;
  }

  add(state: State): number {
    if (this.states.length >= MAX_STATES) throw new TooManyStates();
    return this.states.push(state) - 1;
  }

  /** The state from which an expression leads to `next`. */
  make(expression: Expression, next: number, ruleOf: (name: string) => number): number {
    const from = this.#make(expression, next, ruleOf);
    this.#span(from, expression, next);
    return from;
  }

  /** Notes the longest expression that begins at a state: it is noted last. */
  #span(from: number, expression: Expression, next: number): void {
    if (this.#spans && from !== next) this.#spans[from] = { expression, next };
  }

  #make(expression: Expression, next: number, ruleOf: (name: string) => number): number {
    switch (expression.kind) {
      case "text": {
        const codes = [...expression.text].map((character) => character.codePointAt(0) ?? 0);
        return codes.reduceRight((after, code) => {
          const from = this.add({ kind: "chars", ranges: [code, code], next: after });
          this.#span(from, { kind: "text", text: String.fromCodePoint(code) }, after);
          return from;
        }, next);
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
          this.#span(from, repeat(part, 0, max), next);
          fork.next.push(this.make(part, from, ruleOf));
        }
        // Each optional one leads to the next one, or out.
        for (let count = min; count < max && max !== Number.POSITIVE_INFINITY; count += 1) {
          from = this.add({ kind: "fork", next: [this.make(part, from, ruleOf), next] });
          this.#span(from, repeat(part, 0, count + 1 - min), next);
        }
        for (let count = 1; count <= min; count += 1) {
          from = this.make(part, from, ruleOf);
          this.#span(from, repeat(part, count, max - min + count), next);
        }
        return from;
      }
    }
  }
}

function flat(set: CharSet): number[] {
  return set.flat();
}

/** The network of some rules; undefined beyond `MAX_STATES`. The same rules always get the same numbers. */
export function makeNetwork({ start, rules }: Rules, spans?: Span[]): Network | undefined {
  const names = [...rules.keys()];
  const numbers = new Map(names.map((name, index) => [name, index]));
  const ruleOf = (name: string) => numbers.get(name) ?? -1;
  const maker = new NetworkMaker(spans);
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

const networks = new WeakMap<Rules, Network | "too large">();

/** The network of some rules, made once. */
export function networkOf(rules: Rules): Network | undefined {
  const known = networks.get(rules) ?? makeNetwork(rules) ?? "too large";
  networks.set(rules, known);
  return known === "too large" ? undefined : known;
}
