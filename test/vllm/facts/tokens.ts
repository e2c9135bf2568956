import { describe, expect, it } from "vitest";
import {
  answerOf,
  callsOf,
  expectCompleted,
  finalOf,
  messageTextOf,
  type Subject,
  textOf,
  thoughtOf,
} from "./subject.ts";

/** Facts about single tokens: the number in a prompt, logprobs, and strings that end an answer. */
export function tokens(subject: () => Subject): void {
  describe("input_tokens", () => {
    const look = {
      type: "function" as const,
      name: "look",
      description: "Looks at a place.",
      parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
      strict: false,
    };
    const call = { type: "function_call" as const, call_id: "call_1", name: "look", arguments: '{"place":"Bonn"}' };
    const history = [
      { role: "user" as const, content: "Look at Bonn. 漢字 🦄" },
      call,
      { type: "function_call_output" as const, call_id: "call_1", output: "Rain." },
      { role: "assistant" as const, content: "It rains." },
      { role: "user" as const, content: "Say it again." },
    ];

    it.each([
      ["a text", { input: "Hello!" }],
      ["instructions", { input: "Hello!", instructions: "Be brief." }],
      ["tools and their calls", { input: history, tools: [look] }],
      ["a choice of none of them", { input: history, tools: [look], tool_choice: "none" as const }],
      ["an effort", { input: "Hello!", reasoning: { effort: "low" as const } }],
      ["a format", { input: "Hello!", text: { format: { type: "json_object" as const } } }],
      [
        "a later system message",
        { input: [...history.slice(0, 4), { role: "developer" as const, content: "Now." }, ...history.slice(4)] },
      ],
    ])("count a prompt with %s as vLLM does", async (_, fields) => {
      const { gateway, server } = subject();
      const { openai } = gateway;
      const body = { model: server.model, ...fields };
      const { input_tokens } = await openai.responses.inputTokens.count(body);
      const first = await openai.responses.create({ ...body, max_output_tokens: 256 });
      const { usage } = first as { usage?: { input_tokens: number; input_tokens_per_turn?: number[] } };
      expect(input_tokens).toBe(usage?.input_tokens_per_turn?.[0] ?? usage?.input_tokens);
      const next = { model: server.model, input: "And now?", previous_response_id: first.id };
      if (first.output.some(({ type }) => type === "function_call")) return;
      const { input_tokens: more } = await openai.responses.inputTokens.count(next);
      expect(more).toBe((await openai.responses.create({ ...next, max_output_tokens: 256 })).usage?.input_tokens);
    });
  });

  describe("logprobs", () => {
    const include = ["message.output_text.logprobs" as const];
    const text = "A unicorn 🦄, a family 👩‍👩‍👧‍👦, 漢字.";

    it("belong to the text's own tokens, byte by byte", async () => {
      const response = await subject().ask({ thought: "Not these.", text }, { include, top_logprobs: 2 });
      const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
      const logprobs = parts.flatMap((part) => (part.type === "output_text" ? (part.logprobs ?? []) : []));
      const bytes = logprobs.flatMap((logprob) => logprob.bytes);
      expect(Buffer.from(bytes).toString()).toBe(messageTextOf(response));
      for (const { logprob, top_logprobs } of logprobs) {
        expect(logprob).toBeLessThanOrEqual(0);
        expect(top_logprobs.length).toBeGreaterThan(0);
        expect(top_logprobs.length).toBeLessThanOrEqual(2);
      }
    });

    it("arrive with their deltas", async () => {
      const events = await subject().stream({ thought: "Not these.", text }, { include });
      let said = "";
      let bytes: number[] = [];
      for (const event of events) {
        if (event.type !== "response.output_text.delta") continue;
        said += event.delta;
        bytes = bytes.concat(...event.logprobs.map((logprob) => (logprob as { bytes?: number[] }).bytes ?? []));
      }
      expect(Buffer.from(bytes).toString()).toBe(said);
      expect(said.replace(/^\n+/, "")).toBe(text);
    });
  });

  describe("stop", () => {
    it("ends the answer before the string, and leaves none of it", async () => {
      const { ask, stream } = subject();
      // It begins and ends in the middle of tokens.
      const speech = { text: "alpha beta gamma delta epsilon" };
      const response = await ask(speech, { stop: "ta gam" });
      expectCompleted(response);
      expect(answerOf(response)).toBe("alpha be");
      const events = await stream(speech, { stop: ["zzz", "ta gam"] });
      expect(textOf(events).replace(/^\n+/, "")).toBe("alpha be");
      expect(answerOf(finalOf(events))).toBe("alpha be");
    });

    it("that never occurs changes nothing", async () => {
      const response = await subject().ask({ text: "alpha beta gamma" }, { stop: ["gamma delta"] });
      expect(answerOf(response)).toBe("alpha beta gamma");
    });

    it("leaves the logprobs of the text", async () => {
      const include = ["message.output_text.logprobs" as const];
      const response = await subject().ask({ text: "alpha beta gamma delta" }, { stop: " gamma", include });
      const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
      const logprobs = parts.flatMap((part) => (part.type === "output_text" ? (part.logprobs ?? []) : []));
      expect(answerOf(response)).toBe("alpha beta");
      expect(Buffer.from(logprobs.flatMap(({ bytes }) => bytes)).toString()).toBe(messageTextOf(response));
    });

    it("in the reasoning ends nothing, as JSON and as a stream", async () => {
      const { ask, stream } = subject();
      const speech = { thought: "First STOP here.", text: "The answer STOP is this." };
      const response = await ask(speech, { stop: "STOP" });
      const streamed = finalOf(await stream(speech, { stop: ["STOP", "zzz"] }));
      for (const each of [response, streamed]) {
        expectCompleted(each);
        expect(thoughtOf(each).trim()).toBe("First STOP here.");
        expect(answerOf(each)).toBe("The answer ");
      }
    });

    it("in a call ends nothing", async () => {
      const look = { type: "function" as const, name: "look", parameters: { type: "object" }, strict: false };
      const speech = { calls: [{ name: "look", arguments: '{"at": "STOP"}' }] };
      const response = await subject().ask(speech, { tools: [look], stop: "STOP" });
      expectCompleted(response);
      expect(callsOf(response)).toMatchObject([{ arguments: '{"at": "STOP"}', status: "completed" }]);
    });

    it("belongs to the answer with include_stop_str_in_output", async () => {
      const response = await subject().ask(
        { thought: "STOP", text: "alpha STOP beta" },
        { stop: "STOP", include_stop_str_in_output: true },
      );
      expect(answerOf(response)).toBe("alpha STOP");
    });

    it("leaves the usage of the generated output", async () => {
      const { ask, stream, server } = subject();
      const speech = { text: "one two three STOP four five six seven eight nine ten" };
      const whole = (await ask(speech)).usage;
      for (const response of [await ask(speech, { stop: "STOP" }), finalOf(await stream(speech, { stop: "STOP" }))]) {
        const { usage } = response;
        expect(usage?.input_tokens).toBe(whole?.input_tokens);
        expect(usage?.output_tokens_details.reasoning_tokens).toBe(whole?.output_tokens_details.reasoning_tokens);
        expect(usage?.output_tokens).toBeGreaterThan(4);
        // llama.cpp's model ends before a client can stop it.
        if (server.kind === "llamacpp") expect(usage?.output_tokens).toBeLessThanOrEqual(whole?.output_tokens ?? 0);
        else expect(usage?.output_tokens).toBeLessThan(whole?.output_tokens ?? 0);
      }
    });
  });
}
