import type { TemplateFamily } from "./chat/template-families.ts";

/**
 * The facts about parsers, grammars and templates that answers of model servers have shown, by URL, as far as this isolate has
 * seen. Plain data that all its requests may read and write.
 */
interface ParserFacts {
  /** When it last refused `tool_choice: "auto"`, because it runs without a parser of calls. Unix milliseconds. */
  refusedAutoAt?: number;
  /** The parsers that it lacks (`missing-parsers.ts`), by model. */
  readonly unparsed: Map<string, Set<"reasoning" | "tool_calls">>;
  /** The models whose thoughts begin in the prompt, and end in the text. */
  readonly beginInThought: Set<string>;
  /** The families of models whose names show none, and when they were last asked for. Unix milliseconds. */
  readonly families: Map<string, { family: TemplateFamily | undefined; at: number }>;
  /** When it last refused the schemas of functions that are strict by default. Unix milliseconds. */
  refusedStrictAt?: number;
  /** When it last refused a budget of reasoning tokens, because it does not know where they end. Unix milliseconds. */
  refusedBudgetAt?: number;
  /** When a call of a strict function was last outside its schema: the server does not bind them. Unix milliseconds. */
  ignoredStrictAt?: number;
}

/** The facts of each server that has shown any. */
export const PARSER_FACTS = new Map<string, ParserFacts>();

/** The facts of a server, for one to be added. */
export function parserFactsOf(baseUrl: string): ParserFacts {
  const known = PARSER_FACTS.get(baseUrl);
  if (known) return known;
  const facts: ParserFacts = { unparsed: new Map(), beginInThought: new Set(), families: new Map() };
  PARSER_FACTS.set(baseUrl, facts);
  return facts;
}

/** How long a server is remembered to lack a parser, or to refuse or ignore schemas, in milliseconds. */
const REMEMBER_MS = 600_000;

/** Tells whether a fact is still believed, which was noted at `at`. */
export function isBelieved(at: number | undefined): boolean {
  return at !== undefined && Date.now() - at < REMEMBER_MS;
}
