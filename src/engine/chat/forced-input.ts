import type { ModelDelta, Prompt } from "../../contract/engine.ts";
import { type ClientTool, ClientTools } from "../../protocol/client-tools.ts";
import { mustCall } from "../../protocol/tools.ts";
import { boundRules } from "../grammar/bound-inputs.ts";
import { toEbnf } from "../grammar/ebnf.ts";
import { callableTools, isContinued } from "./request.ts";

/**
 * A call that the model has to make, of a custom tool with a grammar. vLLM's grammars know nothing of a call's syntax, but
 * all that is left to the model is the input: so it is asked for that alone, as its text, under the grammar.
 */
export interface ForcedInput {
  tool: ClientTool;
  /** EBNF. */
  grammar: string;
}

/** What a prompt leaves to the model, if it is the input of one tool. */
export function forcedInput(prompt: Prompt): ForcedInput | undefined {
  const { request } = prompt;
  const { tools, tool_choice: choice } = request;
  if (prompt.freeInputs || !mustCall(choice) || request.structured_outputs != null || isContinued(prompt)) return;
  const clients = ClientTools.of(tools);
  const callable = callableTools(prompt);
  const only = callable.length === 1 ? callable[0] : undefined;
  const tool = clients.named(choice) ?? (only && clients.get(only.name));
  const rules = tool && boundRules(request).get(tool.flatName);
  return rules && { tool, grammar: toEbnf(rules) };
}

/**
 * A call with the text of an answer for its input. It is written as the JSON of a function's arguments, since a text may
 * look like such.
 */
export async function* asCall(answer: AsyncIterable<ModelDelta[]>, name: string): AsyncGenerator<ModelDelta[]> {
  let isOpen = false;
  const write = (text: string): ModelDelta => {
    const first = isOpen ? undefined : name;
    isOpen = true;
    const opening = first === undefined ? "" : '{"input": "';
    return { kind: "tool_call", index: 0, ...(first !== undefined && { name }), arguments: opening + text };
  };
  for await (const deltas of answer) {
    yield deltas.flatMap((delta): ModelDelta[] => {
      if (delta.kind === "text") return [write(JSON.stringify(delta.text).slice(1, -1))];
      if (delta.kind !== "finish" || delta.reason !== "stop") return [delta];
      return [write('"}'), { kind: "finish", reason: "tool_calls" }];
    });
  }
}
