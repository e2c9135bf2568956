import { COMMON_TERMINALS } from "./common-terminals.ts";
import { charSet, chars, choice, type Expression, NOTHING, partsOf, repeat, sequence } from "./expression.ts";
import { Beyond, GrammarFault, shortened } from "./faults.ts";
import { type LarkToken, tokenize } from "./lark-tokens.ts";
import { inAnyCase, MAX_REPEATS, parseRegex } from "./regex.ts";

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

/** The start rule of a grammar. */
const START = "start";

/** Rules by name, terminals among them. */
export interface Rules {
  start: string;
  rules: ReadonlyMap<string, Expression>;
}

/** The rules of a grammar, or a construct that cannot be enforced. Throws {@link GrammarFault}. */
export function parseLark(source: string): Rules | { beyond: string } {
  const parser = new LarkParser(tokenize(source));
  const definitions = parser.parse();
  const { beyond } = parser;
  check(definitions, beyond.what !== undefined);
  if (beyond.what !== undefined) return { beyond: beyond.what };
  const rules = reachable(expressions(definitions));
  checkEnds(rules, definitions.byName);
  return { start: START, rules };
}

/** A name that a definition uses, and its position. */
type Use = { name: string; at: number };

/** A definition while it is read, before the ignored patterns are known. */
type Node =
  | { kind: "token"; expression: Expression }
  | { kind: "name"; use: Use; isTerminal: boolean }
  | { kind: "sequence" | "choice"; parts: Node[] }
  | { kind: "repeat"; part: Node; min: number; max: number };

interface Definition {
  node: Node;
  isTerminal: boolean;
  at: number;
  uses: Use[];
}

interface Definitions {
  byName: Map<string, Definition>;
  ignored: Node[];
  /** Names that `%ignore` uses. */
  uses: Use[];
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

/** Throws the fault of a grammar whose names do not fit together. `isBeyond`: some names may be defined elsewhere. */
function check({ byName, uses }: Definitions, isBeyond: boolean): void {
  const start = byName.get(START);
  if (isBeyond) return;
  if (!start) throw new GrammarFault(`there is no rule '${START}'`, 0);
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
 * Throws the fault of a rule that every text of it would have no end of (`a: "x" a`): a model under it could never stop.
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
