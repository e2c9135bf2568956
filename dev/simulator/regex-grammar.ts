import type { Node, TextGrammar } from "./text-grammar.ts";

/**
 * Reads a regular expression as a grammar over characters, as far as xgrammar does. `undefined` if xgrammar refuses it.
 */
export function parseRegexGrammar(pattern: string): TextGrammar | undefined {
  const reader = new RegexReader(pattern.replace(/^\^/, "").replace(/(?<!\\)\$$/, ""));
  const start = reader.whole();
  return start && { start, rules: new Map() };
}

class Mistake extends Error {}

type Ranges = readonly (readonly [number, number])[];

const SETS: Record<string, Ranges> = {
  d: [[0x30, 0x39]],
  w: [
    [0x30, 0x39],
    [0x41, 0x5a],
    [0x5f, 0x5f],
    [0x61, 0x7a],
  ],
  s: [
    [0x09, 0x0d],
    [0x20, 0x20],
  ],
};
const CONTROLS: Record<string, string> = { n: "\n", r: "\r", t: "\t", f: "\f", v: "\v", "0": "\0" };

class RegexReader {
  readonly #pattern: string;
  #at = 0;

  constructor(pattern: string) {
    this.#pattern = pattern;
  }

  whole(): Node | undefined {
    try {
      const node = this.#choice();
      return this.#at === this.#pattern.length ? node : undefined;
    } catch (error) {
      if (error instanceof Mistake) return undefined;
      throw error;
    }
  }

  #choice(): Node {
    const nodes = [this.#sequence()];
    while (this.#take(/\|/y)) nodes.push(this.#sequence());
    return nodes.length === 1 && nodes[0] !== undefined ? nodes[0] : { kind: "choice", nodes };
  }

  #sequence(): Node {
    const nodes: Node[] = [];
    while (this.#at < this.#pattern.length && !/[|)]/.test(this.#pattern[this.#at] ?? "")) nodes.push(this.#counted());
    return { kind: "sequence", nodes };
  }

  #counted(): Node {
    const node = this.#atom();
    const count = this.#take(/([*+?])\??|\{(\d+)(,?)(\d*)\}\??/y);
    if (!count) return node;
    const [, sign, least, comma, most] = count;
    const { POSITIVE_INFINITY: endless } = Number;
    if (sign !== undefined) {
      return { kind: "repeat", node, min: sign === "+" ? 1 : 0, max: sign === "?" ? 1 : endless };
    }
    const min = Number(least);
    return { kind: "repeat", node, min, max: comma === "" ? min : most === "" ? endless : Number(most) };
  }

  #atom(): Node {
    if (this.#take(/\((?:\?:|\?P?<\w+>|(?!\?))/y)) {
      const inner = this.#choice();
      if (!this.#take(/\)/y)) throw new Mistake();
      return inner;
    }
    if (this.#take(/\[/y)) return this.#class();
    if (this.#take(/\./y)) return { kind: "class", ranges: [[0x0a, 0x0a]], negated: true };
    if (this.#take(/\\/y)) {
      const set = this.#set();
      return set ?? { kind: "text", text: this.#escaped() };
    }
    const [character] = this.#take(/[^*+?()[\]{}|^$]|[\]{}]/uy) ?? [];
    if (character === undefined) throw new Mistake();
    return { kind: "text", text: character };
  }

  #set(): (Node & { kind: "class" }) | undefined {
    const letter = this.#take(/[dDwWsS]/y)?.[0];
    const ranges = SETS[letter?.toLowerCase() ?? ""];
    return ranges && { kind: "class", ranges, negated: letter !== letter?.toLowerCase() };
  }

  #escaped(): string {
    const hex = this.#take(/x([\da-fA-F]{2})|u([\da-fA-F]{4})/y);
    if (hex) return String.fromCodePoint(Number.parseInt(hex[1] ?? hex[2] ?? "", 16));
    const [character = ""] = this.#take(/[nrtfv0]|[^A-Za-z\d]/uy) ?? [];
    if (character === "") throw new Mistake();
    return CONTROLS[character] ?? character;
  }

  #class(): Node {
    const negated = this.#take(/\^/y) !== undefined;
    const ranges: (readonly [number, number])[] = [];
    while (!this.#take(/\]/y)) {
      const set = this.#pattern[this.#at] === "\\" && /[dws]/.test(this.#pattern[this.#at + 1] ?? "");
      if (set) {
        this.#at += 1;
        ranges.push(...(this.#set()?.ranges ?? []));
        continue;
      }
      const low = this.#member();
      const high = this.#take(/-(?!\])/y) ? this.#member() : low;
      if (low > high) throw new Mistake();
      ranges.push([low, high]);
    }
    return { kind: "class", ranges, negated };
  }

  #member(): number {
    const character = this.#take(/\\/y) ? this.#escaped() : this.#take(/[^\]]/uy)?.[0];
    if (character === undefined) throw new Mistake();
    return character.codePointAt(0) ?? 0;
  }

  #take(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#pattern) ?? undefined;
    if (match) this.#at += match[0].length;
    return match;
  }
}
