import type { Response } from "openai/resources/responses/responses";
import { expect, it } from "vitest";
import { answerOf, type Subject } from "./subject.ts";

interface Raw {
  role: string;
  channel?: string;
  recipient?: string;
  content: { type: string; text?: string }[];
}

type WithMessages = Response & { input_messages: Raw[]; output_messages: Raw[] };

const textOf = ({ content }: Raw) => content.map(({ text }) => text ?? "").join("");

/** gpt-oss's own messages, in output and input. */
export function rawMessages(subject: () => Subject): void {
  it("enable_response_messages shows the model's input and output", async () => {
    const response = (await subject().ask(
      { thought: "one two", text: "three" },
      { enable_response_messages: true },
    )) as WithMessages;
    expect(response.input_messages.map(({ role }) => role)).toEqual(["system", "user"]);
    expect(response.output_messages.map((message) => [message.role, message.channel, textOf(message)])).toEqual([
      ["assistant", "analysis", "one two"],
      ["assistant", "final", "three"],
    ]);
  });

  it("previous_input_messages continues from them as from a stored response", async () => {
    const { ask } = subject();
    const first = (await ask("Hello!", { enable_response_messages: true })) as WithMessages;
    const raw = await ask("And now?", {
      previous_input_messages: [...first.input_messages, ...first.output_messages],
      store: false,
    });
    const chained = await ask("And now?", { previous_response_id: first.id });
    expect(answerOf(raw)).toBe("You said: And now?");
    expect(raw.usage?.input_tokens).toBe(chained.usage?.input_tokens);
  });

  it("a call is shown with its recipient", async () => {
    const response = (await subject().ask(
      { calls: [{ name: "get_time", arguments: "{}" }] },
      {
        enable_response_messages: true,
        tools: [{ type: "function", name: "get_time", parameters: { type: "object", properties: {} }, strict: false }],
      },
    )) as WithMessages;
    expect(response.output_messages.at(-1)).toMatchObject({
      role: "assistant",
      channel: "commentary",
      recipient: "functions.get_time",
    });
  });
}
