import type { Rules } from "@responses-edge/grammar";
import { Recogniser } from "@responses-edge/grammar";
import { type ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import { mustCall } from "@responses-edge/responses-api/tools";
import type { ModelDelta, Prompt } from "@responses-edge/turn/contract/engine";
import type { Dialect } from "../dialects/dialect.ts";
import { boundRules } from "../offered-tools.ts";
import { isContinued, promptTools } from "./request.ts";

/**
 * A call of a custom tool with a grammar that the model is forced to make. vLLM's grammars cannot describe a call's
 * syntax, but only the input is left to the model: so the model is asked only for that, as its text, under the grammar.
 */
export interface ForcedInput {
  tool: ClientTool;
  rules: Rules;
}

/**
 * The input that a prompt leaves to the model; undefined if it leaves anything else, or the server takes no grammar.
 */
export function forcedInput(prompt: Prompt, { grammar }: Dialect): ForcedInput | undefined {
  const { request } = prompt;
  const { tools, tool_choice: choice } = request;
  if (grammar === undefined) return;
  if (prompt.freeInputs || !mustCall(choice) || request.structured_outputs != null || isContinued(prompt)) return;
  const clients = ClientTools.of(tools);
  const callable = promptTools(prompt, "callable");
  const only = callable.length === 1 ? callable[0] : undefined;
  const tool = clients.named(choice) ?? (only && clients.get(only.name));
  const rules = tool && boundRules(request).get(tool.flatName);
  return rules && { tool, rules };
}

/**
 * An answer as a call with its text as the input. The call is written as the JSON of a function's arguments, because a
 * bare text may look like such JSON. A model server may ignore the grammar: text that does not match it is not shown.
 */
class InputCall {
  readonly #name: string;
  readonly #recogniser: Recogniser;
  #isOpen = false;
  #isBroken = false;

  constructor({ tool, rules }: ForcedInput) {
    this.#name = tool.flatName;
    this.#recogniser = new Recogniser(rules);
  }

  /** Takes the deltas of one read. Gives those of the call. */
  read(deltas: readonly ModelDelta[]): ModelDelta[] {
    const out: ModelDelta[] = [];
    for (const delta of deltas) {
      if (delta.kind === "text") this.#readInput(delta.text, out);
      else if (delta.kind === "finish" && delta.reason === "stop") this.#end(out);
      else out.push(delta);
    }
    return out;
  }

  /**
   * The deltas at the end of an answer whose text did not match the grammar: the call is then asked for like any other.
   */
  end(): ModelDelta[] {
    return this.#isBroken ? [{ kind: "item_done" }, { kind: "ask_again", change: { freeInputs: true } }] : [];
  }

  #readInput(text: string, out: ModelDelta[]): void {
    if (this.#isBroken) return;
    if (this.#recogniser.push(text)) this.#write(JSON.stringify(text).slice(1, -1), out);
    else this.#break(out);
  }

  #end(out: ModelDelta[]): void {
    if (!this.#isBroken && !this.#recogniser.accepts) this.#break(out);
    if (this.#isBroken) return;
    this.#write('"}', out);
    out.push({ kind: "finish", reason: "tool_calls" });
  }

  #write(text: string, out: ModelDelta[]): void {
    if (this.#isOpen) out.push({ kind: "tool_call", index: 0, arguments: text });
    else out.push({ kind: "tool_call", index: 0, name: this.#name, arguments: `{"input": "${text}` });
    this.#isOpen = true;
  }

  #break(out: ModelDelta[]): void {
    this.#isBroken = true;
    if (this.#isOpen) out.push({ kind: "call_cut", index: 0 });
  }
}

/** An answer that is the input of a call. */
export async function* asInput(input: ForcedInput, answer: AsyncIterable<ModelDelta[]>): AsyncGenerator<ModelDelta[]> {
  const call = new InputCall(input);
  for await (const deltas of answer) {
    const shown = call.read(deltas);
    if (shown.length > 0) yield shown;
  }
  yield call.end();
}
