import type { Expression, Rules } from "@responses-edge/grammar";

/**
 * Tells whether rules accept a whole text, by another method than the package's: it finds the possible ends of an
 * expression that begins at some position, and repeats recursive rules until nothing new is found.
 */
export function admits({ start, rules }: Rules, text: string): boolean {
  return new Oracle(rules, text).endsOf({ kind: "rule", name: start }).has(text.length);
}

class Oracle {
  readonly #rules: ReadonlyMap<string, Expression>;
  readonly #text: string;
  readonly #found = new Map<string, Set<number>>();
  #visited = new Set<string>();
  /** The ends that this pass has found. In the last pass no rule gets another one, so that these stay right. */
  #known = new Map<Expression, Map<number, Set<number>>>();
  #grew = true;

  constructor(rules: ReadonlyMap<string, Expression>, text: string) {
    this.#rules = rules;
    this.#text = text;
  }

  endsOf(start: Expression): Set<number> {
    let ends = new Set<number>();
    while (this.#grew) {
      this.#grew = false;
      this.#visited = new Set();
      this.#known = new Map();
      ends = this.#ends(start, 0);
    }
    return ends;
  }

  /** Each expression is looked at once at each place: nested repetitions would take for ever. */
  #ends(expression: Expression, at: number): Set<number> {
    const places = this.#known.get(expression) ?? new Map<number, Set<number>>();
    this.#known.set(expression, places);
    const ends = places.get(at) ?? this.#endsAnew(expression, at);
    places.set(at, ends);
    return ends;
  }

  #endsAnew(expression: Expression, at: number): Set<number> {
    switch (expression.kind) {
      case "text":
        return new Set(this.#text.startsWith(expression.text, at) ? [at + expression.text.length] : []);
      case "chars": {
        const code = this.#text.codePointAt(at);
        if (code === undefined || !expression.set.some(([first, last]) => first <= code && code <= last)) {
          return new Set();
        }
        return new Set([at + String.fromCodePoint(code).length]);
      }
      case "rule":
        return this.#rule(expression.name, at);
      case "sequence":
        return expression.parts.reduce((places, part) => this.#from(places, part), new Set([at]));
      case "choice":
        return new Set(expression.options.flatMap((option) => [...this.#ends(option, at)]));
      case "repeat":
        return this.#repeated(expression, at);
    }
  }

  #repeated({ part, min, max }: Expression & { kind: "repeat" }, at: number): Set<number> {
    let places = new Set([at]);
    for (let count = 0; count < min; count++) places = this.#from(places, part);
    const all = new Set(places);
    for (let count = min; count < max && places.size > 0; count++) {
      places = new Set([...this.#from(places, part)].filter((place) => !all.has(place)));
      for (const place of places) all.add(place);
    }
    return all;
  }

  #from(places: ReadonlySet<number>, part: Expression): Set<number> {
    const ends = new Set<number>();
    for (const place of places) for (const end of this.#ends(part, place)) ends.add(end);
    return ends;
  }

  #rule(name: string, at: number): Set<number> {
    const key = `${at} ${name}`;
    const known = this.#found.get(key) ?? new Set();
    this.#found.set(key, known);
    if (this.#visited.has(key)) return known;
    this.#visited.add(key);
    for (const end of this.#ends(this.#rules.get(name) ?? { kind: "choice", options: [] }, at)) {
      this.#grew ||= !known.has(end);
      known.add(end);
    }
    return known;
  }
}
