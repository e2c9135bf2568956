import type { Response, ResponseInputItem } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { type Speech, saying } from "../speech.ts";
import { callsOf, expectCompleted, messageTextOf, type Subject, typesOf } from "./subject.ts";

/** A response with its tokens: `enable_response_messages` of a chat model. */
type Raw = Response & { input_messages: { tokens: number[] }[]; output_messages: { tokens: number[] }[] };

const raw = { enable_response_messages: true };
const tokensOf = (messages: { tokens: number[] }[]) => messages.flatMap(({ tokens }) => tokens);

/**
 * The chat template's text for the model's earlier output: the same tokens, so that the model continues as if it had
 * not stopped.
 */
export function continuation(subject: () => Subject): void {
  const look = { type: "function" as const, name: "look", parameters: { type: "object" }, strict: false };
  const call = (at: string) => ({ name: "look", arguments: `{"at": "${at}"}` });

  async function ask(speech: Speech, fields: object): Promise<Raw> {
    return (await subject().ask(speech, { ...raw, ...fields })) as Raw;
  }

  describe("an answer with an open text", () => {
    it.each([
      ["in a word", "Hello there you.", "Hello there"],
      ["after a line", "One.\n\nTwo:\n- a\n- b\n\nThree.", "One.\n\nTwo:\n- a"],
      ["in the indentation of its first line", "    code = 1\n\tx", "    code"],
      ["beside characters of several tokens", "A 🦄 and 漢字 here.", "A 🦄 and 漢"],
    ])("is continued token for token: %s", async (_, text, said) => {
      const speech = { thought: "hm", text };
      const whole = await ask(speech, {});
      expectCompleted(whole);
      const all = [...tokensOf(whole.input_messages), ...tokensOf(whole.output_messages)];
      const thoughts = whole.output.filter(({ type }) => type === "reasoning") as ResponseInputItem[];
      const open = { type: "message", role: "assistant", status: "in_progress" };
      const message = whole.output.find(({ type }) => type === "message");
      // With the blank line between reasoning and text, as it was delivered.
      const content = [{ type: "output_text", text: `\n\n${said}`, annotations: [], logprobs: [] }];
      const input = [{ role: "user", content: saying("chat", speech) }, ...thoughts, { ...message, ...open, content }];
      const rest = await ask(speech, { input });
      const prompt = tokensOf(rest.input_messages);
      expect(prompt).toEqual(all.slice(0, prompt.length));
      expect([...prompt, ...tokensOf(rest.output_messages)]).toEqual(all);
      expect(said + messageTextOf(rest)).toBe(text);
    });
  });

  describe("an answered call", () => {
    it.each<[string, Speech, string[]]>([
      ["right after its thoughts", { calls: [call("Bonn")] }, ["reasoning", "function_call"]],
      ["after a text", { text: "Let me look.", calls: [call("Bonn")] }, ["reasoning", "message", "function_call"]],
      ["beside another", { calls: [call("Bonn"), call("Rome")] }, ["reasoning", "function_call", "function_call"]],
    ])("is in the next prompt token for token: %s", async (_, speech, types) => {
      const made = await ask(speech, { tools: [look] });
      expectCompleted(made);
      expect(typesOf(made)).toEqual(types);
      const input = callsOf(made).map(({ call_id }) => ({ type: "function_call_output", call_id, output: "Rain." }));
      const next = await ask(speech, { input, previous_response_id: made.id, tools: [look] });
      const all = [...tokensOf(made.input_messages), ...tokensOf(made.output_messages)];
      expect(tokensOf(next.input_messages).slice(0, all.length)).toEqual(all);
    });
  });
}
