import { choice, type Expression, partsOf, repeat, sequence } from "./expression.ts";
import type { Rules } from "./lark-rules.ts";

/**
 * The same rules without what no text comes from: options and rules that never end, and rules that the first one does
 * not lead to. Undefined for rules that admit no text at all.
 */
export function trimmed({ start, rules }: Rules): Rules | undefined {
  const ending = endingRules(rules);
  if (!ending.has(start)) return undefined;
  const kept = new Map<string, Expression>();
  const open = [start];
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    const rule = rules.get(name);
    if (kept.has(name) || !rule) continue;
    const rest = endingPart(rule, ending);
    if (!rest) continue;
    kept.set(name, rest);
    open.push(...namesIn(rest));
  }
  return { start, rules: kept };
}

/** Tells whether trimmed rules admit a text that has a character. */
export function admitsCharacters({ rules }: Rules): boolean {
  const hasCharacter = (expression: Expression): boolean =>
    expression.kind === "chars" ||
    (expression.kind === "text" ? expression.text !== "" : partsOf(expression).some(hasCharacter));
  return [...rules.values()].some(hasCharacter);
}

/** The names of the rules that come to an end. */
function endingRules(rules: Rules["rules"]): Set<string> {
  const users = new Map<string, string[]>();
  for (const [name, rule] of rules) {
    for (const used of new Set(namesIn(rule))) {
      const known = users.get(used);
      if (known) known.push(name);
      else users.set(used, [name]);
    }
  }
  const ending = new Set<string>();
  const open = [...rules.keys()];
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    const rule = rules.get(name);
    if (ending.has(name) || !rule || !ends(rule, ending)) continue;
    ending.add(name);
    for (const user of users.get(name) ?? []) open.push(user);
  }
  return ending;
}

function ends(expression: Expression, ending: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case "text":
      return true;
    case "chars":
      return expression.set.length > 0;
    case "rule":
      return ending.has(expression.name);
    case "sequence":
      return expression.parts.every((part) => ends(part, ending));
    case "choice":
      return expression.options.some((option) => ends(option, ending));
    case "repeat":
      return expression.min === 0 || ends(expression.part, ending);
  }
}

function endingPart(expression: Expression, ending: ReadonlySet<string>): Expression | undefined {
  if (!ends(expression, ending)) return undefined;
  switch (expression.kind) {
    case "sequence":
      return sequence(expression.parts.map((part) => endingPart(part, ending) ?? part));
    case "choice":
      return choice(expression.options.flatMap((option) => endingPart(option, ending) ?? []));
    case "repeat": {
      const part = endingPart(expression.part, ending);
      return part ? repeat(part, expression.min, expression.max) : sequence([]);
    }
    default:
      return expression;
  }
}

function* namesIn(expression: Expression): Generator<string> {
  if (expression.kind === "rule") yield expression.name;
  for (const part of partsOf(expression)) yield* namesIn(part);
}
