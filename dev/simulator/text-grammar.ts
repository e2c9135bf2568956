import {
  type CharSet,
  type Expression,
  GrammarFault,
  Recogniser,
  type Rules,
  readGrammar,
} from "@responses-edge/grammar";

/** Reads a regular expression. `undefined` for an invalid one, and for one that xgrammar refuses. */
export function parseRegex(definition: string): Rules | undefined {
  try {
    const reading = readGrammar({ syntax: "regex", definition });
    return "beyond" in reading ? undefined : reading;
  } catch (error) {
    if (error instanceof GrammarFault) return undefined;
    throw error;
  }
}

/** True if the grammar accepts the whole text. */
export function admitsText(rules: Rules, text: string): boolean {
  const recogniser = new Recogniser(rules);
  return recogniser.push(text) && recogniser.accepts;
}

/**
 * A text that the grammar accepts, always the same one: the first of every choice, one repetition even if none is
 * required, letters before other characters. A rule that contains itself takes its shortest end.
 */
export function sampleText({ start, rules }: Rules): string {
  const shortest = shortestTexts(rules);
  const shortestOf = (node: Expression): string | undefined => shortestText(node, shortest);
  const write = (node: Expression, open: ReadonlySet<string>): string => {
    switch (node.kind) {
      case "text":
        return node.text;
      case "chars":
        return characterOf(node.set);
      case "rule":
        if (open.has(node.name)) return shortest.get(node.name) ?? "";
        return write(rules.get(node.name) ?? { kind: "text", text: "" }, new Set([...open, node.name]));
      case "sequence":
        return node.parts.map((each) => write(each, open)).join("");
      case "choice": {
        const possible = node.options.filter((each) => shortestOf(each) !== undefined);
        const first = possible.find((each) => !(each.kind === "rule" && open.has(each.name))) ?? possible[0];
        return first === undefined ? "" : write(first, open);
      }
      case "repeat": {
        const count = Math.min(Math.max(node.min, 1), node.max, LONGEST);
        return write(node.part, open).repeat(count);
      }
    }
  };
  return write({ kind: "rule", name: start }, new Set());
}

/** The maximum number of repetitions in the text. */
const LONGEST = 10_000;

/** A short text for each rule that can end. */
function shortestTexts(rules: ReadonlyMap<string, Expression>): Map<string, string> {
  const texts = new Map<string, string>();
  for (let grew = true; grew; ) {
    grew = false;
    for (const [name, node] of rules) {
      const text = shortestText(node, texts);
      if (text === undefined || text.length >= (texts.get(name)?.length ?? Number.POSITIVE_INFINITY)) continue;
      texts.set(name, text);
      grew = true;
    }
  }
  return texts;
}

function shortestText(node: Expression, known: ReadonlyMap<string, string>): string | undefined {
  switch (node.kind) {
    case "text":
      return node.text;
    case "chars":
      return characterOf(node.set);
    case "rule":
      return known.get(node.name);
    case "sequence": {
      const texts = node.parts.map((each) => shortestText(each, known));
      return texts.includes(undefined) ? undefined : texts.join("");
    }
    case "choice": {
      const texts = node.options.map((each) => shortestText(each, known)).filter((text) => text !== undefined);
      return texts.toSorted((a, b) => a.length - b.length)[0];
    }
    case "repeat":
      return node.min === 0 ? "" : shortestText(node.part, known)?.repeat(Math.min(node.min, LONGEST));
  }
}

/** A character of a set: a letter or digit if the set has one. */
function characterOf(set: CharSet): string {
  const has = (character: string) => {
    const code = character.codePointAt(0) ?? 0;
    return set.some(([first, last]) => first <= code && code <= last);
  };
  const known = [..."abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ !"].find(has);
  return known ?? String.fromCodePoint(set[0]?.[0] ?? 0x21);
}
