import { logLine } from "@responses-edge/bounded-io/json-text";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { DialectName } from "./dialects/dialect.ts";
import { parserFactsOf } from "./parser-facts.ts";

/**
 * Model servers that leave a model's thoughts or calls in its text, because they run without a parser of them. The
 * gateway reads this markup itself, less well than the server's own parser, which knows the tokens.
 */

export type ParserKind = "reasoning" | "tool_calls";

/** The parsers that a server lacks for a model, and the server's flags that give them. */
export interface MissingParsers {
  model: string;
  parsers: ParserKind[];
  flags: string[];
}

/** The flags of each kind of server. The name of a parser is that of the model's family. */
const FLAGS: Readonly<Partial<Record<DialectName, Readonly<Record<ParserKind, string>>>>> = {
  vllm: { reasoning: "--reasoning-parser NAME", tool_calls: "--enable-auto-tool-choice --tool-call-parser NAME" },
  sglang: { reasoning: "--reasoning-parser NAME", tool_calls: "--tool-call-parser NAME" },
  llamacpp: { reasoning: "--jinja --reasoning-format auto", tool_calls: "--jinja" },
};

/** The flags that give a kind of server its parsers; none if it has no such flags. */
export function parserFlags(dialect: DialectName | undefined, parsers: readonly ParserKind[]): string[] {
  const flags = dialect && FLAGS[dialect];
  return flags ? parsers.map((kind) => flags[kind]) : [];
}

/** The errors of vLLM and llama.cpp on a prompt with tools, if they run without a parser of calls. */
const REFUSES_CALLS = /enable-auto-tool-choice|tool-call-parser|requires? --jinja/i;

/** Tells whether a server refuses tools because it runs without a parser of calls, by the text of its error. */
export function lacksParserOfCalls(message: string): boolean {
  return REFUSES_CALLS.test(message);
}

/** The same by the error of a request. */
export function isWithoutParser(error: unknown): boolean {
  return error instanceof ApiError && error.status === 400 && lacksParserOfCalls(error.message);
}

/** Models of each server remember little: their names come from the operator's servers. */
const MAX_MODELS = 256;

/** Notes that a server lacks a parser for a model, and logs it once. `name`: the server's in the configuration. */
export function noteMissingParser(
  server: { baseUrl: string; name: string; dialect: DialectName | undefined },
  model: string,
  kind: ParserKind,
): void {
  const { baseUrl, name, dialect } = server;
  const { unparsed } = parserFactsOf(baseUrl);
  const known = unparsed.get(model) ?? new Set();
  if (known.has(kind) || (known.size === 0 && unparsed.size >= MAX_MODELS)) return;
  known.add(kind);
  unparsed.set(model, known);
  const flags = parserFlags(dialect, [kind]).join(" ");
  console.warn(logLine({ level: "warn", missing_parser: kind, server: name, model, ...(flags !== "" && { flags }) }));
}

/** The parsers that a server was seen to lack, by this isolate. */
export function missingParsersOf(baseUrl: string, dialect: DialectName | undefined): MissingParsers[] {
  return [...parserFactsOf(baseUrl).unparsed].map(([model, kinds]) => {
    const parsers = [...kinds].sort();
    return { model, parsers, flags: parserFlags(dialect, parsers) };
  });
}
