import { type EbnfOptions, toEbnf } from "./ebnf.ts";
import { parseEbnf } from "./ebnf-reader.ts";
import { choice } from "./expression.ts";
import { GrammarFault, RemainderFault } from "./faults.ts";
import { type GrammarFormat, readGrammar } from "./grammar.ts";
import type { Rules } from "./lark-rules.ts";
import { Recogniser } from "./recogniser.ts";
import { restOf } from "./rest.ts";
import { conforms, mayConform } from "./schema-check.ts";
import { restOfSchema } from "./schema-rest.ts";
import { admitsCharacters } from "./trimmed.ts";

/** A bound of a text: the format of an answer, the parameters of a function, or the grammar of a custom tool's input. */
export type Bound =
  | { type: "json_schema"; schema: unknown }
  | { type: "json_object" }
  | { type: "regex"; pattern: string }
  | { type: "grammar"; syntax: "lark" | "ebnf"; definition: string }
  | { type: "choice"; choices: readonly string[] };

/** The texts that may follow a prefix: those of a grammar, or only the empty one. */
export type Remainder =
  | {
      /** EBNF as llama.cpp's `grammar`, SGLang's `ebnf` and vLLM's `structured_outputs.grammar` take it. */
      grammar: string;
      /** The same, for a caller that makes it a part of a larger grammar. */
      rules: Rules;
      /** Keywords of a JSON schema that the grammar does not enforce, or not wholly: `isValid` judges them. */
      unenforced: readonly string[];
      complete?: never;
    }
  | { complete: true; grammar?: never };

/** The maximum of characters of a remainder: twice those of a request's grammars. */
const MAX_GRAMMAR = 262_144;

/**
 * The grammar of what may follow a prefix of a bound text: exactly the texts `s` for which `prefix + s` is valid.
 * `options` are those of `toEbnf`: llama.cpp needs `hyphens`.
 *
 * Throws {@link RemainderFault}: `no_prefix` if no valid text begins so; `too_large` for a remainder of more than
 * `MAX_GRAMMAR` characters, and beyond the bounds of `Recogniser`; `unreadable` for a bound that is invalid, or that
 * this package cannot read. Time and memory grow with the bound and the prefix, as those of `Recogniser` do.
 */
export function remainderOf(bound: Bound, prefix: string, options: EbnfOptions = {}): Remainder {
  const { rules, unenforced } = restOfBound(bound, prefix);
  if (!admitsCharacters(rules)) return { complete: true };
  const grammar = toEbnf(rules, options);
  if (grammar.length > MAX_GRAMMAR) throw new RemainderFault("too_large");
  return { grammar, rules, unenforced };
}

function restOfBound(bound: Bound, prefix: string): { rules: Rules; unenforced: readonly string[] } {
  if (bound.type === "json_schema") return restOfSchema(bound.schema, prefix);
  if (bound.type === "json_object") return restOfSchema(OBJECT, prefix);
  return { rules: restOf(rulesOfBound(bound), prefix), unenforced: [] };
}

const OBJECT = { type: "object" };

/**
 * Tells whether a text is valid under a bound. Undefined where that is unknown: for a bound that this package cannot
 * read, and beyond the bounds of `Recogniser`.
 */
export function isValid(bound: Bound, text: string): boolean | undefined {
  if (bound.type === "choice") return bound.choices.includes(text);
  if (bound.type === "json_schema") return isValidJson(text, bound.schema);
  if (bound.type === "json_object") return isValidJson(text, OBJECT);
  try {
    const recogniser = new Recogniser(rulesOfBound(bound));
    recogniser.push(text);
    return recogniser.isUnread ? undefined : recogniser.accepts;
  } catch (error) {
    if (error instanceof RemainderFault) return undefined;
    throw error;
  }
}

function isValidJson(text: string, schema: unknown): boolean | undefined {
  if (!mayConform(text, schema)) return false;
  return conforms(text, schema) || undefined;
}

function rulesOfBound(bound: Exclude<Bound, { type: "json_schema" | "json_object" }>): Rules {
  switch (bound.type) {
    case "choice":
      return {
        start: "start",
        rules: new Map([["start", choice(bound.choices.map((text) => ({ kind: "text", text })))]]),
      };
    case "regex":
      return readable({ syntax: "regex", definition: bound.pattern });
    case "grammar": {
      if (bound.syntax === "lark") return readable({ syntax: "lark", definition: bound.definition });
      const rules = parseEbnf(bound.definition);
      if (!rules) throw new RemainderFault("unreadable");
      return rules;
    }
  }
}

/** The rules of a grammar. */
function readable(format: GrammarFormat): Rules {
  try {
    const reading = readGrammar(format);
    if ("beyond" in reading) throw new RemainderFault("unreadable");
    return reading;
  } catch (error) {
    if (error instanceof GrammarFault) throw new RemainderFault("unreadable");
    throw error;
  }
}
