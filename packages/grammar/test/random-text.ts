import type { Expression, Rules } from "@responses-edge/grammar";

/** A text that rules accept, chosen by a seed. It is short: nested choices take the shortest option in the end. */
export function randomText({ start, rules }: Rules, seed: number): string {
  const random = mulberry32(seed);
  const heights = heightsOf(rules);
  const heightOf = (expression: Expression): number => height(expression, heights);
  let budget = 60;
  const write = (expression: Expression): string => {
    budget -= 1;
    switch (expression.kind) {
      case "text":
        return expression.text;
      case "chars": {
        const [first, last] = expression.set[Math.floor(random() * expression.set.length)] ?? [0x61, 0x61];
        return String.fromCodePoint(first + Math.floor(random() * Math.min(last - first + 1, 90)));
      }
      case "rule":
        return write(rules.get(expression.name) ?? { kind: "text", text: "" });
      case "sequence":
        return expression.parts.map(write).join("");
      case "choice": {
        const finite = expression.options.filter((option) => Number.isFinite(heightOf(option)));
        const shortest = finite.toSorted((a, b) => heightOf(a) - heightOf(b))[0];
        const chosen = budget > 0 ? finite[Math.floor(random() * finite.length)] : shortest;
        return chosen ? write(chosen) : "";
      }
      case "repeat": {
        const { part, min, max } = expression;
        const more = budget > 0 && Number.isFinite(heightOf(part)) ? Math.floor(random() * 4) : 0;
        return Array.from({ length: Math.min(min + more, max) }, () => write(part)).join("");
      }
    }
  };
  return write({ kind: "rule", name: start });
}

/** The depth of the shallowest text of each rule. */
function heightsOf(rules: Rules["rules"]): Map<string, number> {
  const heights = new Map<string, number>();
  for (let grew = true; grew; ) {
    grew = false;
    for (const [name, rule] of rules) {
      const found = 1 + height(rule, heights);
      if (found >= (heights.get(name) ?? Number.POSITIVE_INFINITY)) continue;
      heights.set(name, found);
      grew = true;
    }
  }
  return heights;
}

function height(expression: Expression, known: ReadonlyMap<string, number>): number {
  switch (expression.kind) {
    case "text":
    case "chars":
      return 0;
    case "rule":
      return known.get(expression.name) ?? Number.POSITIVE_INFINITY;
    case "sequence":
      return Math.max(0, ...expression.parts.map((part) => height(part, known)));
    case "choice":
      return Math.min(...expression.options.map((option) => height(option, known)));
    case "repeat":
      return expression.min === 0 ? 0 : height(expression.part, known);
  }
}

/** Numbers from 0 up to 1, the same for the same seed. */
export function mulberry32(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
