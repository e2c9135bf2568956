import { COMMON_TERMINALS } from "./common-terminals.ts";
import { charSet, chars, type Expression, NOTHING } from "./expression.ts";
import { Beyond, GrammarFault, shortened } from "./faults.ts";
import { type Definition, type Definitions, type Node, type Rules, rulesOf, type Use } from "./lark-rules.ts";
import { type LarkToken, tokenize } from "./lark-tokens.ts";
import { MAX_REPEATS, parseRegex } from "./regex.ts";
import { inAnyCase } from "./regex-sets.ts";

/**
 * Reads a grammar in Lark's language (https://lark-parser.readthedocs.io/en/latest/grammar.html) as rules over characters. Linear in its
 * length.
 *
 * It is read without a lexer: which of several tokens one would choose (the longest, that of the highest priority, as little as a lazy
 * quantifier takes) is not looked at, and so a text may be split otherwise than Lark would. A pattern named by `%ignore` may follow every
 * token, as at OpenAI and in xgrammar; Lark allows it before the first one, too. Modifiers, aliases and priorities shape trees, and change
 * nothing here. Templates, `%declare`, `%override`, `%extend` and libraries other than `common` are beyond what is bound.
 */

/** The maximum of nested brackets: the parser is recursive. */
const MAX_NESTING = 32;

/** The rules of a grammar, or a construct that cannot be enforced. Throws {@link GrammarFault}. */
export function parseLark(source: string): Rules | { beyond: string } {
  const parser = new LarkParser(tokenize(source));
  const definitions = parser.parse();
  const { beyond } = parser;
  return beyond.what === undefined ? rulesOf(definitions) : { beyond: beyond.what };
}

class LarkParser {
  readonly beyond = new Beyond();
  readonly #tokens: readonly LarkToken[];
  readonly #byName = new Map<string, Definition>();
  readonly #ignored: Node[] = [];
  readonly #ignoredUses: Use[] = [];
  #index = 0;
  /** Names in the definition that is being read. */
  #uses: Use[] = [];
  #isTerminal = false;
  #depth = 0;

  constructor(tokens: readonly LarkToken[]) {
    this.#tokens = tokens;
  }

  parse(): Definitions {
    for (;;) {
      const token = this.#token;
      if (token.kind === "newline") this.#index += 1;
      else if (token.kind === "end") break;
      else if (token.kind === "directive") this.#directive(token.text);
      else this.#definition((name, definition, at) => this.#define(name, definition, at));
    }
    return { byName: this.#byName, ignored: this.#ignored, uses: this.#ignoredUses };
  }

  #define(name: string, definition: Definition, at: number): void {
    if (this.#byName.has(name)) throw new GrammarFault(`'${shortened(name)}' is defined more than once`, at);
    this.#byName.set(name, definition);
  }

  #definition(add: (name: string, definition: Definition, at: number) => void): void {
    while (this.#isSymbol("!") || this.#isSymbol("?")) this.#index += 1;
    const name = this.#token;
    if (name.kind !== "rule" && name.kind !== "terminal") throw this.#unexpected("a rule, a terminal or a directive");
    this.#index += 1;
    if (this.#take("{")) {
      this.beyond.note("templates");
      do this.#name();
      while (this.#take(","));
      this.#expect("}");
    }
    if (this.#take(".")) this.#number();
    this.#expect(":");
    this.#isTerminal = name.kind === "terminal";
    this.#uses = [];
    const node = this.#expansions();
    this.#endLine();
    add(name.text, { node, isTerminal: this.#isTerminal, at: name.at, uses: this.#uses }, name.at);
  }

  #directive(name: string): void {
    this.#index += 1;
    switch (name) {
      case "%import":
        this.#import();
        break;
      case "%ignore":
        this.#isTerminal = true;
        this.#uses = this.#ignoredUses;
        this.#ignored.push(this.#expansions());
        break;
      case "%declare":
        this.beyond.note("%declare");
        do this.#name();
        while (this.#token.kind !== "newline");
        break;
      case "%override":
      case "%extend":
        this.beyond.note(name);
        this.#definition(() => undefined);
        return;
      default:
        this.#index -= 1;
        throw this.#unexpected("a rule, a terminal or a directive");
    }
    this.#endLine();
  }

  #import(): void {
    const isRelative = this.#take(".");
    const path = [this.#name()];
    while (this.#take(".")) path.push(this.#name());
    const imported: { from: Use; as: Use }[] = [];
    if (this.#take("(")) {
      do {
        const from = this.#name();
        imported.push({ from, as: from });
      } while (this.#take(","));
      this.#expect(")");
    } else {
      const from = path.pop();
      if (!from || path.length === 0) throw this.#unexpected("'.'");
      imported.push({ from, as: this.#take("->") ? this.#name() : from });
    }
    if (isRelative || path.length !== 1 || path[0]?.name !== "common") {
      this.beyond.note("libraries other than 'common'");
      for (const { as } of imported) this.#define(as.name, placeholder(as), as.at);
      return;
    }
    for (const { from, as } of imported) {
      const pattern = Object.hasOwn(COMMON_TERMINALS, from.name) ? COMMON_TERMINALS[from.name] : undefined;
      if (pattern === undefined)
        throw new GrammarFault(`the library 'common' has no '${shortened(from.name)}'`, from.at);
      const expression = parseRegex(pattern, { at: from.at, isWhole: false, beyond: this.beyond });
      this.#define(as.name, { ...placeholder(as), node: { kind: "token", expression } }, as.at);
    }
  }

  /** Alternatives, each with its alias. */
  #expansions(): Node {
    const options: Node[] = [];
    do {
      options.push(this.#expansion());
      if (this.#take("->")) this.#name();
    } while (this.#takeBar());
    return { kind: "choice", parts: options };
  }

  #expansion(): Node {
    const parts: Node[] = [];
    for (;;) {
      this.#skipLinesInBrackets();
      const atom = this.#atom();
      if (!atom) break;
      parts.push(this.#repeated(atom));
    }
    return { kind: "sequence", parts };
  }

  #repeated(part: Node): Node {
    if (this.#take("?")) return { kind: "repeat", part, min: 0, max: 1 };
    if (this.#take("*")) return { kind: "repeat", part, min: 0, max: Number.POSITIVE_INFINITY };
    if (this.#take("+")) return { kind: "repeat", part, min: 1, max: Number.POSITIVE_INFINITY };
    const { at } = this.#token;
    if (this.#take("~")) {
      const min = this.#number();
      return this.#counted(part, min, this.#take("..") ? this.#number() : min, at);
    }
    if (!this.#isSymbol("{")) return part;
    this.#index += 1;
    // llguidance's `{2,4}` beside Lark's templates.
    if (this.#token.kind !== "number" && !this.#isSymbol(",")) {
      this.beyond.note("templates");
      do this.#atom();
      while (this.#take(","));
      this.#expect("}");
      return part;
    }
    const min = this.#isSymbol(",") ? 0 : this.#number();
    const hasMax = !this.#take(",") || this.#token.kind === "number";
    const max = !hasMax ? Number.POSITIVE_INFINITY : this.#token.kind === "number" ? this.#number() : min;
    this.#expect("}");
    return this.#counted(part, min, max, at);
  }

  #counted(part: Node, min: number, max: number, at: number): Node {
    if (min < 0 || max < min) throw new GrammarFault("a repetition whose maximum is below its minimum", at);
    const most = max === Number.POSITIVE_INFINITY ? min : max;
    if (most > MAX_REPEATS) this.beyond.note(`more than ${MAX_REPEATS} repetitions`);
    return { kind: "repeat", part, min, max };
  }

  /** One value, or what stands in brackets; undefined where neither begins. */
  #atom(): Node | undefined {
    const token = this.#token;
    switch (token.kind) {
      case "rule":
      case "terminal": {
        if (token.kind === "rule" && this.#isTerminal) throw new GrammarFault("a terminal cannot use a rule", token.at);
        this.#index += 1;
        const use = { name: token.text, at: token.at };
        this.#uses.push(use);
        return { kind: "name", use, isTerminal: token.kind === "terminal" };
      }
      case "string":
        this.#index += 1;
        return { kind: "token", expression: this.#take("..") ? this.#range(token) : this.#string(token) };
      case "regex": {
        this.#index += 1;
        if (/x/.test(token.flags)) this.beyond.note("the flag 'x' of regular expressions");
        const { text, flags, at } = token;
        const options = { at: at + 1, flags, isWhole: false, beyond: this.beyond };
        return { kind: "token", expression: parseRegex(text, options) };
      }
      case "symbol":
        if (token.text === "(") return this.#bracketed("(", ")");
        if (token.text === "[") return { kind: "repeat", part: this.#bracketed("[", "]"), min: 0, max: 1 };
        return undefined;
      default:
        return undefined;
    }
  }

  #bracketed(open: string, close: string): Node {
    this.#expect(open);
    this.#depth += 1;
    if (this.#depth > MAX_NESTING) throw this.#fault(`brackets are nested more than ${MAX_NESTING} deep`);
    const node = this.#expansions();
    this.#skipLinesInBrackets();
    this.#expect(close);
    this.#depth -= 1;
    return node;
  }

  #string({ text, ignoresCase, at }: LarkToken & { kind: "string" }): Expression {
    if (!text.isWellFormed()) throw new GrammarFault("half a surrogate pair", at);
    if (text.includes("\0")) this.beyond.note("characters that no model can write");
    return ignoresCase ? inAnyCase(text) : { kind: "text", text };
  }

  #range(first: LarkToken & { kind: "string" }): Expression {
    const last = this.#token;
    if (last.kind !== "string") throw this.#unexpected("the end of a range");
    this.#index += 1;
    const [low, high] = [first, last].map(({ text }) => ([...text].length === 1 ? text.codePointAt(0) : undefined));
    if (low === undefined || high === undefined || first.ignoresCase || last.ignoresCase) {
      throw new GrammarFault("the ends of a range are single characters, without a flag", first.at);
    }
    if (low > high) throw new GrammarFault("a range whose end is before its beginning", first.at);
    return chars(charSet([[low, high]]));
  }

  get #token(): LarkToken {
    return this.#tokens[this.#index] ?? { kind: "end", at: 0 };
  }

  #isSymbol(text: string): boolean {
    const token = this.#token;
    return token.kind === "symbol" && token.text === text;
  }

  #take(text: string): boolean {
    const found = this.#isSymbol(text);
    if (found) this.#index += 1;
    return found;
  }

  /** Takes a `|`, also at the beginning of the next line. */
  #takeBar(): boolean {
    const next = this.#tokens[this.#index + 1];
    if (this.#token.kind === "newline" && next?.kind === "symbol" && next.text === "|") this.#index += 1;
    return this.#take("|");
  }

  #skipLinesInBrackets(): void {
    while (this.#depth > 0 && this.#token.kind === "newline") this.#index += 1;
  }

  #expect(text: string): void {
    if (!this.#take(text)) throw this.#unexpected(`'${text}'`);
  }

  #endLine(): void {
    if (this.#token.kind !== "newline") throw this.#unexpected("the end of the line");
    this.#index += 1;
  }

  #name(): Use {
    const token = this.#token;
    if (token.kind !== "rule" && token.kind !== "terminal") throw this.#unexpected("a name");
    this.#index += 1;
    return { name: token.text, at: token.at };
  }

  #number(): number {
    const token = this.#token;
    if (token.kind !== "number") throw this.#unexpected("a number");
    this.#index += 1;
    return Number(token.text);
  }

  #unexpected(wanted: string): GrammarFault {
    return this.#fault(`expected ${wanted}, found ${described(this.#token)}`);
  }

  #fault(message: string): GrammarFault {
    return new GrammarFault(message, this.#token.at);
  }
}

function described(token: LarkToken): string {
  switch (token.kind) {
    case "newline":
      return "the end of the line";
    case "end":
      return "the end of the grammar";
    case "regex":
      return "a regular expression";
    case "string":
      return "a string";
    default:
      return `'${shortened(token.text)}'`;
  }
}

/** The definition of what is imported. */
function placeholder({ at, name }: Use): Definition {
  return { node: { kind: "token", expression: NOTHING }, isTerminal: /[A-Z]/.test(name), at, uses: [] };
}
