import { type Bound, RemainderFault, type Rules, remainderOf, sequence } from "@responses-edge/grammar";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { ClientTool } from "@responses-edge/responses-api/tool-names";
import { functionOf } from "@responses-edge/turn/contract/client-functions";

/** The formats of answers and calls, and their rests after a beginning. */

/**
 * The format that binds the final text of an answer; undefined for free text, and for a structural tag, which also binds
 * the markup. As OpenAI's, `text.format` counts where vLLM's `structured_outputs` stands beside it.
 */
export function boundAnswer({ text, structured_outputs: outputs }: CreateRequest): Bound | undefined {
  const format = text?.format;
  if (format?.type === "json_schema") return { type: "json_schema", schema: format.schema };
  if (format?.type === "json_object") return { type: "json_object" };
  if (outputs == null || outputs.structural_tag != null) return undefined;
  const { json, json_object: isObject, regex, choice, grammar } = outputs;
  if (json != null) return { type: "json_schema", schema: typeof json === "string" ? parsed(json) : json };
  if (isObject === true) return { type: "json_object" };
  if (typeof regex === "string") return { type: "regex", pattern: regex };
  if (Array.isArray(choice)) return { type: "choice", choices: choice.map(String) };
  return typeof grammar === "string" ? grammarOf(grammar) : undefined;
}

/** A grammar of vLLM's `structured_outputs.grammar`, which takes two syntaxes. */
export function grammarOf(definition: string): Bound {
  return { type: "grammar", syntax: definition.includes("::=") ? "ebnf" : "lark", definition };
}

/** The format of the JSON that a model writes as the arguments of a client's tool. */
export function boundArguments(tool: ClientTool): Bound {
  const { parameters } = functionOf(tool, []);
  return { type: "json_schema", schema: parameters ?? { type: "object" } };
}

/** The format of the bare input of a custom tool; undefined if it may be any text. */
export function boundInput({ tool }: ClientTool): Bound | undefined {
  if (tool.type !== "custom" || tool.format.type !== "grammar") return undefined;
  const { syntax, definition } = tool.format;
  return syntax === "regex" ? { type: "regex", pattern: definition } : { type: "grammar", syntax, definition };
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return {};
  }
}

/** The texts of a format that may follow a beginning. */
export type Rest =
  /** Exactly the texts of these rules. */
  | { kind: "rules"; rules: Rules }
  /** Nothing: the text is whole. */
  | { kind: "nothing" }
  /** The rest has no grammar, or too large a one. */
  | { kind: "unknown" }
  /** No text of the format begins so. */
  | { kind: "impossible" };

/** The texts that may follow `begun` in a text of `bound`. Takes time and memory in the sizes of both. */
export function restOf(bound: Bound, begun: string): Rest {
  try {
    const remainder = remainderOf(bound, begun);
    return remainder.complete ? { kind: "nothing" } : { kind: "rules", rules: remainder.rules };
  } catch (error) {
    if (!(error instanceof RemainderFault)) throw error;
    return { kind: error.reason === "no_prefix" ? "impossible" : "unknown" };
  }
}

/** The rules of the texts of other rules after a fixed text. */
export function after(text: string, { start, rules }: Rules): Rules {
  if (text === "") return { start, rules };
  let first = "begun";
  while (rules.has(first)) first += "n";
  return {
    start: first,
    rules: new Map([
      [
        first,
        sequence([
          { kind: "text", text },
          { kind: "rule", name: start },
        ]),
      ],
      ...rules,
    ]),
  };
}
