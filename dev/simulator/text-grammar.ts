/** A grammar over characters, independent of its source format: it tests texts, and makes a text that it accepts. */
export type TextGrammar = { start: Node; rules: ReadonlyMap<string, Node> };

export type Node =
  | { kind: "text"; text: string }
  | { kind: "class"; ranges: readonly (readonly [number, number])[]; negated: boolean }
  /** Any text that contains none of these. */
  | { kind: "free"; excludes: readonly string[] }
  | { kind: "rule"; name: string }
  | { kind: "sequence" | "choice"; nodes: readonly Node[] }
  | { kind: "repeat"; node: Node; min: number; max: number };

/** True if the grammar accepts the whole text. */
export function admitsText(grammar: TextGrammar, text: string): boolean {
  return new Recogniser(grammar.rules, text).endsOf(grammar.start).has(text.length);
}

/**
 * Finds the possible ends of a node that begins at some position. Recursive rules are repeated until nothing new is
 * found.
 */
class Recogniser {
  readonly #rules: ReadonlyMap<string, Node>;
  readonly #text: string;
  readonly #found = new Map<string, Set<number>>();
  #visited = new Set<string>();
  #grew = true;

  constructor(rules: ReadonlyMap<string, Node>, text: string) {
    this.#rules = rules;
    this.#text = text;
  }

  endsOf(start: Node): Set<number> {
    let ends = new Set<number>();
    while (this.#grew) {
      this.#grew = false;
      this.#visited = new Set();
      ends = this.#ends(start, 0);
    }
    return ends;
  }

  #ends(node: Node, at: number): Set<number> {
    switch (node.kind) {
      case "text":
        return new Set(this.#text.startsWith(node.text, at) ? [at + node.text.length] : []);
      case "class": {
        const code = this.#text.codePointAt(at);
        if (code === undefined) return new Set();
        const isListed = node.ranges.some(([first, last]) => first <= code && code <= last);
        return new Set(isListed === node.negated ? [] : [at + String.fromCodePoint(code).length]);
      }
      case "free": {
        const firsts = node.excludes.map((each) => this.#text.indexOf(each, at) + each.length - 1);
        const last = Math.min(
          this.#text.length,
          ...firsts.filter((_, index) => this.#text.includes(node.excludes[index] ?? "", at)),
        );
        return new Set(Array.from({ length: last - at + 1 }, (_, index) => at + index));
      }
      case "rule":
        return this.#rule(node.name, at);
      case "sequence":
        return node.nodes.reduce((places, each) => this.#from(places, each), new Set([at]));
      case "choice":
        return new Set(node.nodes.flatMap((each) => [...this.#ends(each, at)]));
      case "repeat":
        return this.#repeated(node, at);
    }
  }

  #repeated({ node, min, max }: Node & { kind: "repeat" }, at: number): Set<number> {
    let places = new Set([at]);
    for (let count = 0; count < min; count++) places = this.#from(places, node);
    const all = new Set(places);
    for (let count = min; count < max && places.size > 0; count++) {
      places = new Set([...this.#from(places, node)].filter((place) => !all.has(place)));
      for (const place of places) all.add(place);
    }
    return all;
  }

  #from(places: ReadonlySet<number>, node: Node): Set<number> {
    const ends = new Set<number>();
    for (const place of places) for (const end of this.#ends(node, place)) ends.add(end);
    return ends;
  }

  #rule(name: string, at: number): Set<number> {
    const key = `${at} ${name}`;
    const known = this.#found.get(key) ?? new Set();
    this.#found.set(key, known);
    if (this.#visited.has(key)) return known;
    this.#visited.add(key);
    for (const end of this.#ends(this.#rules.get(name) ?? { kind: "choice", nodes: [] }, at)) {
      this.#grew ||= !known.has(end);
      known.add(end);
    }
    return known;
  }
}

/**
 * A text that the grammar accepts, always the same one: the first of every choice, one repetition even if none is
 * required, letters before other characters. A rule that contains itself takes its shortest end.
 */
export function sampleText({ start, rules }: TextGrammar): string {
  const shortest = shortestTexts(rules);
  const shortestOf = (node: Node): string | undefined => shortestText(node, shortest);
  const write = (node: Node, open: ReadonlySet<string>): string => {
    switch (node.kind) {
      case "text":
        return node.text;
      case "class":
        return characterOf(node);
      case "free":
        return "text";
      case "rule":
        if (open.has(node.name)) return shortest.get(node.name) ?? "";
        return write(rules.get(node.name) ?? { kind: "text", text: "" }, new Set([...open, node.name]));
      case "sequence":
        return node.nodes.map((each) => write(each, open)).join("");
      case "choice": {
        const possible = node.nodes.filter((each) => shortestOf(each) !== undefined);
        const first = possible.find((each) => !(each.kind === "rule" && open.has(each.name))) ?? possible[0];
        return first === undefined ? "" : write(first, open);
      }
      case "repeat": {
        const count = Math.min(Math.max(node.min, 1), node.max, LONGEST);
        return write(node.node, open).repeat(count);
      }
    }
  };
  return write(start, new Set());
}

/** The maximum number of repetitions in the text. */
const LONGEST = 10_000;

/** A short text for each rule that can end. */
function shortestTexts(rules: ReadonlyMap<string, Node>): Map<string, string> {
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

function shortestText(node: Node, known: ReadonlyMap<string, string>): string | undefined {
  switch (node.kind) {
    case "text":
      return node.text;
    case "class":
      return characterOf(node);
    case "free":
      return "";
    case "rule":
      return known.get(node.name);
    case "sequence": {
      const texts = node.nodes.map((each) => shortestText(each, known));
      return texts.includes(undefined) ? undefined : texts.join("");
    }
    case "choice": {
      const texts = node.nodes.map((each) => shortestText(each, known)).filter((text) => text !== undefined);
      return texts.toSorted((a, b) => a.length - b.length)[0];
    }
    case "repeat":
      return node.min === 0 ? "" : shortestText(node.node, known)?.repeat(Math.min(node.min, LONGEST));
  }
}

/** A character of a class: a letter or digit if the class has one. */
function characterOf({ ranges, negated }: Node & { kind: "class" }): string {
  const has = (code: number) => ranges.some(([first, last]) => first <= code && code <= last) !== negated;
  for (const character of "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ ") {
    if (has(character.codePointAt(0) ?? 0)) return character;
  }
  const first = negated ? 0x21 : (ranges[0]?.[0] ?? 0x21);
  for (let code = first; code < first + 0x10000; code++) if (has(code)) return String.fromCodePoint(code);
  return "";
}
