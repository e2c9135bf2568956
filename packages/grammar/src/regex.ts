import {
  type CharSet,
  chars,
  choice,
  complement,
  type Expression,
  intersection,
  isWritable,
  MAX_CODE_POINT,
  NOTHING,
  repeat,
  sequence,
  sizeOf,
  union,
} from "./expression.ts";
import { type Beyond, GrammarFault, shortened } from "./faults.ts";
import * as named from "./regex-sets.ts";

/**
 * Reads a regular expression as what it matches from beginning to end. The language is what Rust's and Python's have in
 * common, as OpenAI's grammars do. Linear in the length of the pattern.
 *
 * `\d`, `\w` and `\s` mean ASCII, and lazy quantifiers are read as others: as a whole they match the same. Look-arounds,
 * back references, word boundaries, Unicode properties and the like are beyond what can be bound.
 */

/** The maximum of nested groups: the parser is recursive. */
const MAX_NESTING = 32;

/** The maximum of repetitions: model servers may write them out. */
export const MAX_REPEATS = 10_000;

export interface RegexOptions {
  /** The position of the pattern in the definition. */
  at: number;
  /** `i` and `s`; others have no effect here. */
  flags?: string;
  /** True if the pattern is the whole output, with `^` and `$` at its ends. */
  isWhole: boolean;
  beyond: Beyond;
}

/** Throws {@link GrammarFault} for an invalid regular expression. */
export function parseRegex(pattern: string, options: RegexOptions): Expression {
  return new RegexParser(pattern, options).parse();
}

/** An expression, and whether it is at the beginning or the end of the match. */
interface Part {
  expression: Expression;
  isAtStart: boolean;
  isAtEnd: boolean;
}

interface Modes {
  ignoreCase: boolean;
  dotAll: boolean;
}

class RegexParser {
  readonly #pattern: string;
  readonly #options: RegexOptions;
  #at = 0;
  #modes: Modes;

  constructor(pattern: string, options: RegexOptions) {
    this.#pattern = pattern;
    this.#options = options;
    const flags = options.flags ?? "";
    this.#modes = { ignoreCase: flags.includes("i"), dotAll: flags.includes("s") };
  }

  parse(): Expression {
    const { expression } = this.#choice(0, true);
    if (this.#at < this.#pattern.length) throw this.#fault("unmatched ')'");
    return expression;
  }

  /** Options up to the end of their group. `isFirst`: nothing can come before them. */
  #choice(depth: number, isFirst: boolean): Part {
    if (depth > MAX_NESTING) throw this.#fault(`groups are nested more than ${MAX_NESTING} deep`);
    const outer = this.#modes;
    const options: Part[] = [this.#sequence(depth, isFirst)];
    while (this.#take("|")) options.push(this.#sequence(depth, isFirst));
    this.#modes = outer;
    return {
      expression: choice(options.map(({ expression }) => expression)),
      isAtStart: options.some(({ isAtStart }) => isAtStart),
      isAtEnd: options.some(({ isAtEnd }) => isAtEnd),
    };
  }

  #sequence(depth: number, isFirst: boolean): Part {
    const parts: Expression[] = [];
    let isAtStart = false;
    let isAtEnd = false;
    while (this.#at < this.#pattern.length && !"|)".includes(this.#next())) {
      const part = this.#quantified(depth, isFirst && parts.length === 0);
      // Nothing can stand after an end.
      if (isAtEnd && part.expression !== NOTHING) this.#beyond("an anchor in the middle of a regular expression");
      isAtStart ||= part.isAtStart;
      isAtEnd ||= part.isAtEnd;
      if (part.expression !== NOTHING) parts.push(part.expression);
    }
    return { expression: sequence(parts), isAtStart, isAtEnd };
  }

  #quantified(depth: number, isFirst: boolean): Part {
    const begin = this.#at;
    const part = this.#atom(depth, isFirst);
    const count = this.#quantifier();
    if (!count) return part;
    if (part.isAtStart || part.isAtEnd) this.#beyond("an anchor that is repeated");
    const [min, max] = count;
    if (max < min) throw this.#fault("a repetition whose maximum is below its minimum", begin);
    if (min > MAX_REPEATS || (max > MAX_REPEATS && max !== Number.POSITIVE_INFINITY)) {
      this.#beyond(`more than ${MAX_REPEATS} repetitions`);
    }
    if (this.#take("+")) this.#beyond("possessive quantifiers");
    else this.#take("?");
    if (this.#quantifier()) throw this.#fault("a repetition of a repetition", begin);
    return { ...part, expression: repeat(part.expression, min, max) };
  }

  #quantifier(): readonly [number, number] | undefined {
    if (this.#take("*")) return [0, Number.POSITIVE_INFINITY];
    if (this.#take("+")) return [1, Number.POSITIVE_INFINITY];
    if (this.#take("?")) return [0, 1];
    const count = this.#match(named.COUNT);
    if (!count) return undefined;
    const [all, min = "", comma = "", max = ""] = count;
    if (min === "" && max === "") {
      // `{}` and `{,}` are text.
      this.#at -= all.length;
      return undefined;
    }
    const least = Number(min);
    if (comma === "") return [least, least];
    return [least, max === "" ? Number.POSITIVE_INFINITY : Number(max)];
  }

  #atom(depth: number, isFirst: boolean): Part {
    const begin = this.#at;
    const character = this.#character();
    switch (character) {
      case "(":
        return this.#group(depth, isFirst, begin);
      case "[":
        return inner(chars(this.#class(begin)));
      case ".":
        return inner(chars(this.#modes.dotAll ? named.ANYTHING : complement(named.NEWLINE)));
      case "^":
        return this.#anchor("start", isFirst);
      case "$":
        return this.#anchor("end", isFirst);
      case "\\":
        return this.#escape(begin, isFirst);
      case "*":
      case "+":
      case "?":
        throw this.#fault("nothing to repeat", begin);
      default:
        return inner(this.#literal(character));
    }
  }

  #anchor(edge: "start" | "end", isFirst: boolean): Part {
    if (!this.#options.isWhole) this.#beyond("anchors in a terminal");
    else if (edge === "start" && !isFirst) this.#beyond("an anchor in the middle of a regular expression");
    return { expression: NOTHING, isAtStart: edge === "start", isAtEnd: edge === "end" };
  }

  #group(depth: number, isFirst: boolean, begin: number): Part {
    const outer = this.#modes;
    if (this.#take("?")) {
      if (this.#take("#")) {
        const end = this.#pattern.indexOf(")", this.#at);
        if (end < 0) throw this.#fault("a comment without its ')'", begin);
        this.#at = end + 1;
        return inner(NOTHING);
      }
      if (this.#takeAny(["=", "!", "<=", "<!"])) this.#beyond("look-arounds");
      else if (this.#take(">")) this.#beyond("atomic groups");
      else if (this.#take("P=") || this.#take("(") || this.#take("P>") || this.#take("&") || this.#take("R")) {
        this.#beyond("references to groups");
        const end = this.#pattern.indexOf(")", this.#at);
        if (end < 0) throw this.#fault("a group without its ')'", begin);
        this.#at = end + 1;
        return inner(NOTHING);
      } else if (!this.#match(named.GROUP_NAME)) {
        const isOpen = this.#flags(begin);
        // Flags without a group apply up to the end of the enclosing group.
        if (!isOpen) return inner(NOTHING);
      }
    }
    const part = this.#choice(depth + 1, isFirst);
    if (!this.#take(")")) throw this.#fault("a group without its ')'", begin);
    this.#modes = outer;
    return part;
  }

  /** Reads flags, and tells whether a group follows to which they apply. */
  #flags(begin: number): boolean {
    const found = this.#match(named.FLAGS);
    if (!found) throw this.#fault("unknown extension of a group", begin);
    const [, on = "", off = "", end] = found;
    this.#modes = { ...this.#modes };
    for (const flag of on) this.#setFlag(flag, true, begin);
    for (const flag of off.slice(1)) this.#setFlag(flag, false, begin);
    return end === ":";
  }

  #setFlag(flag: string, isOn: boolean, begin: number): void {
    switch (flag) {
      case "i":
        this.#modes.ignoreCase = isOn;
        return;
      case "s":
        this.#modes.dotAll = isOn;
        return;
      // Greediness, Unicode and locale do not change the matches here.
      case "U":
      case "u":
      case "a":
      case "L":
        return;
      case "m":
      case "x":
      case "R":
        if (isOn) this.#beyond(`the flag '${flag}' of regular expressions`);
        return;
      default:
        throw this.#fault(`unknown flag '${flag}'`, begin);
    }
  }

  /** Reads what follows a backslash, outside of a class. */
  #escape(begin: number, isFirst: boolean): Part {
    const character = this.#character();
    const set = Object.hasOwn(named.SETS, character) ? named.SETS[character] : undefined;
    if (set) return inner(chars(set));
    switch (character) {
      case "A":
        return this.#anchor("start", isFirst);
      case "z":
      case "Z":
        return this.#anchor("end", isFirst);
      case "b":
      case "B":
      case "G":
        this.#beyond("word boundaries");
        return inner(NOTHING);
      case "p":
      case "P":
        this.#property(begin);
        return inner(NOTHING);
      case "k":
        if (!this.#match(named.REFERENCE)) throw this.#fault("'\\k' without a name", begin);
        this.#beyond("references to groups");
        return inner(NOTHING);
    }
    if (/[1-9]/.test(character)) {
      this.#beyond("references to groups");
      return inner(NOTHING);
    }
    return inner(this.#literal(this.#escaped(character, begin)));
  }

  #property(begin: number): void {
    if (!this.#match(named.PROPERTY)) throw this.#fault("a Unicode property without a name", begin);
    this.#beyond("Unicode properties");
  }

  /** The character that an escape stands for. */
  #escaped(character: string, begin: number): string {
    const control = Object.hasOwn(named.CONTROLS, character) ? named.CONTROLS[character] : undefined;
    if (control !== undefined) return control;
    if (character === "0") return "\0";
    if (character === "x" || character === "u" || character === "U") {
      const digits = this.#match(named.HEX_IN_BRACES)?.[1] ?? this.#match(named.HEX[character])?.[0];
      const code = Number.parseInt(digits ?? "", 16);
      if (!(code <= MAX_CODE_POINT)) throw this.#fault(`'\\${character}' without the number of a character`, begin);
      return String.fromCodePoint(code);
    }
    if (character === "" || /[A-Za-z]/.test(character)) throw this.#fault(`unknown escape '\\${character}'`, begin);
    return character;
  }

  #literal(character: string): Expression {
    const code = character.codePointAt(0) ?? 0;
    if (!isWritable(code)) this.#beyond("characters that no model can write");
    return chars(this.#modes.ignoreCase ? named.withOtherCase([[code, code]]) : [[code, code]]);
  }

  /** Reads the characters of a class, up to its `]`. */
  #class(begin: number): CharSet {
    const isNegated = this.#take("^");
    const sets: CharSet[] = [];
    for (let isFirst = true; ; isFirst = false) {
      if (this.#at >= this.#pattern.length) throw this.#fault("a class without its ']'", begin);
      if (!isFirst && this.#take("]")) break;
      if (this.#takeAny(["&&", "~~", "||"])) this.#beyond("operations on classes");
      const first = this.#member();
      if (typeof first !== "string" || this.#next() !== "-" || "]".includes(this.#pattern[this.#at + 1] ?? "")) {
        sets.push(typeof first === "string" ? named.one(first) : first);
        continue;
      }
      this.#at += 1;
      if (this.#next() === "-") this.#beyond("operations on classes");
      const last = this.#member();
      if (typeof last !== "string") throw this.#fault("a range whose end is no character", begin);
      const [low, high] = [first.codePointAt(0) ?? 0, last.codePointAt(0) ?? 0];
      if (low > high) throw this.#fault("a range whose end is before its beginning", begin);
      sets.push([[low, high]]);
    }
    const set = this.#modes.ignoreCase ? this.#folded(union(sets)) : union(sets);
    const result = isNegated ? complement(set) : set;
    if (result.length === 0) this.#beyond("classes without a character that a model can write");
    return result;
  }

  /** One member of a class: a character, or a set that has a name. */
  #member(): string | CharSet {
    const begin = this.#at;
    const posix = this.#match(named.POSIX_NAME);
    if (posix) {
      const [, negated, name = ""] = posix;
      const set = Object.hasOwn(named.POSIX, name) ? named.POSIX[name] : undefined;
      if (!set) throw this.#fault(`unknown class '${shortened(name)}'`, begin);
      return negated ? complement(set) : set;
    }
    const character = this.#character();
    // To Python it is a character, to Rust a class within a class.
    if (character === "[") this.#beyond("'[' in a class without a backslash before it");
    if (character !== "\\") return character;
    const letter = this.#character();
    const set = Object.hasOwn(named.SETS, letter) ? named.SETS[letter] : undefined;
    if (set) return set;
    if (letter === "b") return "\b";
    if (letter === "p" || letter === "P") {
      this.#property(begin);
      return [];
    }
    return this.#escaped(letter, begin);
  }

  /** A set with the other cases of its letters. */
  #folded(set: CharSet): CharSet {
    const others = intersection(set, named.BEYOND_ASCII);
    const isExact = others.every(([first, last]) => first === last) || sizeOf(others) === sizeOf(named.BEYOND_ASCII);
    if (!isExact) this.#beyond("ranges of letters beyond ASCII, in either case");
    return named.withOtherCase(set);
  }

  /** The next character, or "" at the end. */
  #next(): string {
    return this.#pattern[this.#at] ?? "";
  }

  #character(): string {
    const code = this.#pattern.codePointAt(this.#at);
    if (code === undefined) return "";
    const character = String.fromCodePoint(code);
    this.#at += character.length;
    return character;
  }

  #take(text: string): boolean {
    const found = this.#pattern.startsWith(text, this.#at);
    if (found) this.#at += text.length;
    return found;
  }

  #takeAny(texts: readonly string[]): boolean {
    return texts.some((text) => this.#take(text));
  }

  #match(expression: RegExp): RegExpExecArray | undefined {
    expression.lastIndex = this.#at;
    const found = expression.exec(this.#pattern) ?? undefined;
    if (found) this.#at += found[0].length;
    return found;
  }

  #beyond(what: string): void {
    this.#options.beyond.note(what);
  }

  #fault(message: string, at = this.#at): GrammarFault {
    return new GrammarFault(`invalid regular expression: ${message}`, this.#options.at + at);
  }
}

function inner(expression: Expression): Part {
  return { expression, isAtStart: false, isAtEnd: false };
}
