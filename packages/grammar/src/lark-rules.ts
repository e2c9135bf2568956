import { choice, type Expression, partsOf, repeat, sequence } from "./expression.ts";
import { GrammarFault, shortened } from "./faults.ts";

/** Makes rules of the definitions of a Lark grammar, and checks that they fit together. */

/** The start rule of a grammar. */
const START = "start";

/** Rules by name, terminals among them. */
export interface Rules {
  start: string;
  rules: ReadonlyMap<string, Expression>;
}

/** A name that a definition uses, and its position. */
export type Use = { name: string; at: number };

/** A definition while it is read, before the ignored patterns are known. */
export type Node =
  | { kind: "token"; expression: Expression }
  | { kind: "name"; use: Use; isTerminal: boolean }
  | { kind: "sequence" | "choice"; parts: Node[] }
  | { kind: "repeat"; part: Node; min: number; max: number };

export interface Definition {
  node: Node;
  isTerminal: boolean;
  at: number;
  uses: Use[];
}

export interface Definitions {
  byName: Map<string, Definition>;
  ignored: Node[];
  /** Names that `%ignore` uses. */
  uses: Use[];
}

/** The rules that the first one leads to. Throws {@link GrammarFault}. */
export function rulesOf(definitions: Definitions): Rules {
  check(definitions);
  const rules = reachable(expressions(definitions));
  checkEnds(rules, definitions.byName);
  return { start: START, rules };
}

/** Throws the fault of a grammar whose names do not fit together. */
function check({ byName, uses }: Definitions): void {
  if (!byName.has(START)) throw new GrammarFault(`there is no rule '${START}'`, 0);
  for (const { name, at } of [...uses, ...[...byName.values()].flatMap((definition) => definition.uses)]) {
    if (!byName.has(name)) throw new GrammarFault(`'${shortened(name)}' is not defined`, at);
  }
  checkTerminals(byName);
}

/** Throws the fault of a terminal that is made of itself. */
function checkTerminals(byName: ReadonlyMap<string, Definition>): void {
  const missing = new Map<string, number>();
  const users = new Map<string, string[]>();
  for (const [name, { isTerminal, uses }] of byName) {
    if (!isTerminal) continue;
    missing.set(name, uses.length);
    for (const use of uses) {
      const known = users.get(use.name);
      if (known) known.push(name);
      else users.set(use.name, [name]);
    }
  }
  const done = [...missing].filter(([, count]) => count === 0).map(([name]) => name);
  for (let name = done.pop(); name !== undefined; name = done.pop()) {
    missing.delete(name);
    for (const user of users.get(name) ?? []) {
      const count = (missing.get(user) ?? 0) - 1;
      missing.set(user, count);
      if (count === 0) done.push(user);
    }
  }
  const [first] = missing.keys();
  if (first !== undefined)
    throw new GrammarFault(`the terminal '${shortened(first)}' uses itself`, byName.get(first)?.at ?? 0);
}

/** The name of the rule for what may follow a token. Names of Lark's have no hyphen. */
const IGNORED = "ignored-1";

function expressions({ byName, ignored }: Definitions): ReadonlyMap<string, Expression> {
  const rules = new Map<string, Expression>();
  for (const [name, { node, isTerminal }] of byName) {
    rules.set(name, expressionOf(node, ignored.length > 0 && !isTerminal));
  }
  if (ignored.length > 0) {
    const any = choice(ignored.map((node) => expressionOf(node, false)));
    rules.set(IGNORED, repeat(any, 0, Number.POSITIVE_INFINITY));
  }
  return rules;
}

/** `isSpaced`: what is ignored may follow each token. */
function expressionOf(node: Node, isSpaced: boolean): Expression {
  const spaced = (token: Expression): Expression =>
    isSpaced ? { kind: "sequence", parts: [token, { kind: "rule", name: IGNORED }] } : token;
  switch (node.kind) {
    case "token":
      return spaced(node.expression);
    case "name": {
      const rule: Expression = { kind: "rule", name: node.use.name };
      return node.isTerminal ? spaced(rule) : rule;
    }
    case "sequence":
      return sequence(node.parts.map((part) => expressionOf(part, isSpaced)));
    case "choice":
      return choice(node.parts.map((part) => expressionOf(part, isSpaced)));
    case "repeat":
      return repeat(expressionOf(node.part, isSpaced), node.min, node.max);
  }
}

/** The rules that the first one leads to. */
function reachable(rules: ReadonlyMap<string, Expression>): ReadonlyMap<string, Expression> {
  const found = new Map<string, Expression>();
  const names = [START];
  const visit = (expression: Expression): void => {
    if (expression.kind === "rule") names.push(expression.name);
    for (const part of partsOf(expression)) visit(part);
  };
  // Names are added to it while it is gone through.
  for (const name of names) {
    const expression = rules.get(name);
    if (!expression || found.has(name)) continue;
    found.set(name, expression);
    visit(expression);
  }
  return found;
}

/**
 * Throws the fault of a rule that only refers to itself without an end (`a: "x" a`): a model that follows it never stops.
 * Counts, for each part of a rule, how many of its own parts have an end already.
 */
function checkEnds(rules: ReadonlyMap<string, Expression>, byName: ReadonlyMap<string, Definition>): void {
  type Counter = { missing: number; outer: Counter | string };
  const waiting = new Map<string, (Counter | string)[]>();
  const ended = new Set<string>();
  const done: (Counter | string)[] = [];
  const count = (expression: Expression, outer: Counter | string): void => {
    if (expression.kind === "rule") {
      const users = waiting.get(expression.name);
      if (users) users.push(outer);
      else waiting.set(expression.name, [outer]);
      return;
    }
    const parts = partsOf(expression);
    const isFree = parts.length === 0 || (expression.kind === "repeat" && expression.min === 0);
    const counter = { missing: isFree ? 0 : expression.kind === "choice" ? 1 : parts.length, outer };
    if (isFree) done.push(outer);
    for (const part of parts) count(part, counter);
  };
  for (const [name, expression] of rules) count(expression, name);
  for (let each = done.pop(); each !== undefined; each = done.pop()) {
    if (typeof each === "string") {
      if (ended.has(each)) continue;
      ended.add(each);
      for (const outer of waiting.get(each) ?? []) done.push(outer);
      continue;
    }
    each.missing -= 1;
    if (each.missing === 0) done.push(each.outer);
  }
  for (const name of rules.keys()) {
    if (!ended.has(name))
      throw new GrammarFault(`no text of '${shortened(name)}' has an end`, byName.get(name)?.at ?? 0);
  }
}
