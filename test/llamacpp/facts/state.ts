import type { Response } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { SocketClient } from "../../e2e/socket-support.ts";
import {
  answerOf,
  expectCompleted,
  finalOf,
  refusalOf,
  type Subject,
  textOf,
  typesOf,
} from "../../vllm/facts/subject.ts";
import { saying, words } from "../../vllm/speech.ts";
import { responseOf, WAYS } from "./promises.ts";

/** State between turns. */
export function state(subject: () => Subject): void {
  it("a chain of five turns has all of them in its prompt", async () => {
    const { ask } = subject();
    let previous: Response | undefined;
    for (const text of ["One.", "Two.", "Three.", "Four.", "Five."]) {
      const response = await ask(text, { ...(previous && { previous_response_id: previous.id }) });
      expect(answerOf(response)).toBe(`You said: ${text}`);
      if (previous) expect(response.usage?.input_tokens).toBeGreaterThan(Number(previous.usage?.input_tokens) + 10);
      previous = response;
    }
  });

  it.each(WAYS)("the stored response is the streamed one, %s", async (way) => {
    const { gateway } = subject();
    const response = await responseOf(subject(), way, { thought: "Let me see.", text: "Done." });
    const { output, usage, status } = await gateway.openai.responses.retrieve(response.id);
    expect({ output, usage, status }).toEqual({
      output: response.output,
      usage: response.usage,
      status: response.status,
    });
  });

  it.each([0, 1, 5, 20])("a background stream is replayed after event %i", async (after) => {
    const { stream, gateway } = subject();
    const events = await stream({ text: words(20) }, { background: true });
    const { id } = finalOf(events);
    const rest = await Array.fromAsync(
      await gateway.openai.responses.retrieve(id, { stream: true, starting_after: after }),
    );
    expect(rest).toEqual(events.slice(after + 1));
  });

  it("a deleted response does not exist, and cannot be continued", async () => {
    const { ask, gateway } = subject();
    const { id } = await ask("Hello!");
    await gateway.openai.responses.delete(id);
    expect(await refusalOf(gateway.openai.responses.retrieve(id))).toMatchObject({ status: 404 });
    expect(await refusalOf(ask("Again.", { previous_response_id: id }))).toMatchObject({
      param: "previous_response_id",
    });
  });

  it("store: false leaves nothing, and its items can be sent back", async () => {
    const { ask, gateway } = subject();
    const first = await ask("Hello!", { store: false });
    expect(await refusalOf(gateway.openai.responses.retrieve(first.id))).toMatchObject({ status: 404 });
    const input = [
      { role: "user" as const, content: "Hello!" },
      ...first.output,
      { role: "user" as const, content: "On." },
    ];
    const next = await ask("", { input: input as never, store: false });
    expect(answerOf(next)).toBe("You said: On.");
  });

  it("the input items are those of the whole chain's last turn", async () => {
    const { ask, gateway } = subject();
    const { id } = await ask("Hello!");
    const items = await Array.fromAsync(gateway.openai.responses.inputItems.list(id));
    expect(items).toMatchObject([{ type: "message", role: "user" }]);
  });

  it("a conversation has its turns, in the background as well", async () => {
    const { ask, gateway } = subject();
    const { id } = await gateway.openai.conversations.create();
    await ask("One.", { conversation: id });
    const { id: run } = await ask("Two.", { conversation: id, background: true });
    await expect
      .poll(async () => (await gateway.openai.responses.retrieve(run)).status, { timeout: 20_000 })
      .toBe("completed");
    const items = await Array.fromAsync(gateway.openai.conversations.items.list(id, { order: "asc" }));
    expect(items.filter(({ type }) => type === "message")).toHaveLength(4);
  });

  it("an open message of a line feed closes the reasoning before it, and an empty one leaves it open", async () => {
    const rendered = async (content: string) => {
      const open = { role: "assistant", reasoning_content: "Hm.", content };
      const body = { messages: [{ role: "user", content: "Hello!" }, open], continue_final_message: true };
      const answer = await fetch(`${subject().server.url}/apply-template`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ ...body, add_generation_prompt: false }),
      });
      return ((await answer.json()) as { prompt: string }).prompt;
    };
    expect(await rendered("\n")).toMatch(/Hm\.\s*<\/think>\s*\n$/);
    expect(await rendered("")).toMatch(/<think>\s*Hm\.$/);
  });

  it("instructions are the turn's own, and do not apply to the next", async () => {
    const { ask } = subject();
    const first = await ask("Hello!", { instructions: "Be brief. ".repeat(20) });
    const next = await ask("On.", { previous_response_id: first.id });
    expect(next.usage?.input_tokens).toBeLessThan(Number(first.usage?.input_tokens));
  });

  describe("an input that ends in an assistant's message", () => {
    it("is answered with a new message if the last one is complete", async () => {
      const { ask } = subject();
      const done = [
        { role: "user" as const, content: saying("chat", { text: `Done with ${words(10)}.` }) },
        { role: "assistant" as const, content: "Done with w0 w1" },
      ];
      const response = await ask("", { input: done });
      expectCompleted(response);
      // It is a new message, not the rest of the client's.
      expect(typesOf(response)).toContain("message");
      expect(answerOf(response)).not.toMatch(/^\s*w?\d* ?w\d .*w9\.$/);
    });

    it.each(WAYS)("is continued if the message is open, %s", async (way) => {
      const { server } = subject();
      const text = `Done with ${words(10)}.`;
      const said = "Done with w0 w1";
      const thought = {
        type: "reasoning",
        id: "rs_1",
        summary: [],
        content: [{ type: "reasoning_text", text: "hm\n" }],
      };
      const open = {
        type: "message",
        id: "msg_1",
        role: "assistant",
        status: "in_progress",
        content: [{ type: "output_text", text: said, annotations: [] }],
      };
      const input = [{ role: "user", content: saying(server.engine, { text }) }, thought, open];
      const response = await responseOf(subject(), way, "", { input: input as never });
      expectCompleted(response);
      expect(said + answerOf(response)).toBe(text);
    });

    it("two messages of the assistant at the end are accepted", async () => {
      const { ask } = subject();
      const input = ["user", "assistant", "assistant"].map((role, place) => ({
        role: role as "user" | "assistant",
        content: `Text ${place}.`,
      }));
      const response = await ask("", { input });
      expect(["completed", "incomplete"]).toContain(response.status);
    });
  });

  it("later system and developer messages are read in their place", async () => {
    const { ask } = subject();
    const input = [
      { role: "user" as const, content: "One." },
      { role: "assistant" as const, content: "Two." },
      { role: "developer" as const, content: "Be brief." },
      { role: "user" as const, content: "Three." },
    ];
    const response = await ask("", { input, instructions: "Be kind." });
    expectCompleted(response);
    expect(answerOf(response)).toBe("You said: Three.");
  });

  it("a message of several parts is one text", async () => {
    const { ask } = subject();
    const content = ["Hello", " there"].map((text) => ({ type: "input_text" as const, text }));
    const response = await ask("", { input: [{ role: "user", content }] });
    expectCompleted(response);
    expect(answerOf(response)).toMatch(/^You said: Hello\s+there$/);
  });

  describe("over a WebSocket", () => {
    it("turns arrive as frames, and can be continued", async () => {
      const { gateway, server } = subject();
      const client = await SocketClient.open(gateway);
      const first = await client.turn({ model: server.model, input: "Hello!", store: true });
      expect(first.last.type).toBe("response.completed");
      expect(first.text.trim()).toBe("You said: Hello!");
      const next = await client.turn({
        model: server.model,
        input: "On.",
        previous_response_id: first.id,
        store: true,
      });
      expect(next.text.trim()).toBe("You said: On.");
      await client.close();
    });

    it("a prompt that does not fit is an error with the same code", async () => {
      const { gateway, server } = subject();
      const client = await SocketClient.open(gateway);
      const { last } = await client.turn({ model: server.model, input: " word".repeat(server.window + 1) });
      expect(last.type).toBe("error");
      expect(last.error?.code).toBe("context_length_exceeded");
      await client.close();
    });
  });

  it.each(WAYS)("emoji and characters of several bytes are complete, %s", async (way) => {
    const text = "Grüße 😀👍🏽, ŕ 漢字 👩‍👩‍👧‍👦.";
    const response = await responseOf(subject(), way, { thought: text, text });
    expectCompleted(response);
    expect(answerOf(response)).toBe(text);
    expect(typesOf(response)).toEqual(["reasoning", "message"]);
  });

  it("twenty streams at a time are all answered by a server that generates eight at a time", async () => {
    const { stream } = subject();
    const texts = Array.from({ length: 20 }, (_, index) => `Number ${index}: ${words(10 + index)}`);
    const all = await Promise.all(texts.map((text) => stream({ text })));
    expect(all.map((events) => textOf(events).replace(/^\n+/, ""))).toEqual(texts);
  });

  describe("compaction", () => {
    it("a summary replaces the summarised items, and the next turn continues", async () => {
      const { gateway, server, ask } = subject();
      const input = [
        { role: "user" as const, content: "Tell me all." },
        { role: "assistant" as const, content: "word ".repeat(1_500) },
        { role: "user" as const, content: "And now?" },
      ];
      const compacted = await gateway.openai.responses.compact({ model: server.model, input });
      const after = await ask("", { input: [...compacted.output, { role: "user", content: "On." }] as never });
      expectCompleted(after);
      expect(answerOf(after)).toBe("You said: On.");
      expect(after.usage?.input_tokens).toBeLessThan(1_500);
    });
  });
}
