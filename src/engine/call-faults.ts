import type { Rules } from "@responses-edge/grammar";
import { Recogniser } from "@responses-edge/grammar";
import { faultOf } from "../contract/client-functions.ts";
import { customInputOf } from "../contract/custom-input.ts";
import type { ClientTool } from "../protocol/client-tools.ts";

/**
 * Why a call of a client's tool cannot be made, in words for the model that has made it; undefined where it can. `text` is
 * all that the model has written as its arguments. `rules` are those of the grammars of custom tools, by flat names: an
 * input is held to them, because few model servers bind every grammar, and some ignore all of them.
 */
export function callFaultOf(
  tool: ClientTool | undefined,
  text: string,
  rules: ReadonlyMap<string, Rules>,
): string | undefined {
  const fault = faultOf(tool, text);
  const own = tool && rules.get(tool.flatName);
  if (fault !== undefined || !own) return fault;
  const recogniser = new Recogniser(own);
  const input = customInputOf(text) ?? "";
  return recogniser.push(input) && recogniser.accepts ? undefined : grammarFaultOf(recogniser, input);
}

/** The fault of an input, which a recogniser has read as far as it keeps to the grammar. */
export function grammarFaultOf({ read }: Recogniser, input: string): string {
  const rest = input.slice(read, read + 40).toWellFormed();
  const where =
    rest === "" ? "it ends too early" : `after ${read} characters it cannot go on with ${JSON.stringify(rest)}`;
  return `the input does not keep to the tool's grammar: ${where}.`;
}
