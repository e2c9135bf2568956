import { describe, expect, it } from "vitest";
import {
  answerOf,
  expectCompleted,
  type Fields,
  messageTextOf,
  refusalOf,
  type Subject,
  thoughtOf,
  typesOf,
} from "../../vllm/facts/subject.ts";
import { words } from "../../vllm/speech.ts";
import { expectKept, responseOf, WAYS } from "./promises.ts";

const look = { type: "function" as const, name: "look", parameters: { type: "object" }, strict: false };
const logprobs = ["message.output_text.logprobs" as const];

/** Fields of a request besides its input: limits, sampling, data about tokens, and fields unknown to llama.cpp. */
export function options(subject: () => Subject): void {
  describe.each([16, 17, 30, 64])("max_output_tokens: %i", (max_output_tokens) => {
    it.each(WAYS)("the answer has exactly this many, %s", async (way) => {
      const response = await responseOf(subject(), way, { text: words(60) }, { max_output_tokens });
      expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
      expect(response.usage?.output_tokens).toBe(max_output_tokens);
    });
  });

  it("a limit in the reasoning gives only reasoning, which the next turn can follow", async () => {
    const { ask } = subject();
    const first = await ask({ thought: words(30), text: "Done." }, { max_output_tokens: 30 });
    expect(first).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(typesOf(first)).toEqual(["reasoning"]);
    const next = await ask({ text: "Go on." }, { previous_response_id: first.id });
    expectCompleted(next);
    expect(answerOf(next)).toBe("Go on.");
  });

  const sampling: Fields[] = [
    { temperature: 0 },
    { temperature: 0.7 },
    { temperature: 2 },
    { top_p: 0.5 },
    { top_k: 3 },
    { min_p: 0.2 },
    { seed: 7 },
    { presence_penalty: 0.1 },
    { frequency_penalty: 0.1 },
  ];
  it.each(sampling.map((fields) => [JSON.stringify(fields), fields] as const))("%s is passed on", async (_, fields) => {
    const response = await subject().ask({ text: "Hello there." }, fields);
    expectCompleted(response);
    expect(answerOf(response)).toBe("Hello there.");
  });

  it("a temperature above 2 is refused", async () => {
    expect(await refusalOf(subject().ask("Hello!", { temperature: 3 }))).toMatchObject({
      status: 400,
      param: "temperature",
    });
  });

  // Fields that the server ignores silently still have their effect, or are refused by their names.
  const ignored: [name: string, fields: Fields, isKept: (text: string, tokens: number) => boolean][] = [
    ["min_tokens", { min_tokens: 50 }, (_, tokens) => tokens >= 50],
    ["bad_words", { bad_words: ["Hello"] }, (text) => !text.includes("Hello")],
    // The token of a byte, 108 and 3 before it: `l`.
    ["stop_token_ids", { stop_token_ids: [335] }, (text) => text === "He" || text === ""],
    ["structured_outputs.regex", { structured_outputs: { regex: "[0-9]+" } }, (text) => /^[0-9]+$/.test(text)],
    [
      "structured_outputs.choice",
      { structured_outputs: { choice: ["yes", "no"] } },
      (text) => /^(?:yes|no)$/.test(text),
    ],
    [
      "structured_outputs.grammar",
      { structured_outputs: { grammar: 'root ::= "yes" | "no"' } },
      (text) => /^(?:yes|no)$/.test(text),
    ],
    [
      "structured_outputs.json",
      { structured_outputs: { json: { type: "object", properties: {}, additionalProperties: false } } },
      (text) => /^\{\s*\}$/.test(text),
    ],
  ];
  it.each(ignored)(
    "%s is obeyed, or refused by its name, or the response is not completed",
    async (name, fields, isKept) => {
      const outcome = await subject()
        .ask({ text: "Hello there." }, { ...fields, max_output_tokens: 200 })
        .then(
          (response) => ({ response }),
          (error: unknown) => ({ error }),
        );
      if ("error" in outcome) {
        const param = expect.stringContaining(name.split(".")[0] ?? "");
        expect(outcome.error).toMatchObject({ status: 400, param });
        return;
      }
      expectKept(outcome.response, (kept) =>
        expect(isKept(messageTextOf(kept).trim(), kept.usage?.output_tokens ?? 0)).toBe(true),
      );
    },
  );

  it("cache_salt, which the server ignores, changes no answer", async () => {
    const response = await subject().ask({ text: "Hello there." }, { cache_salt: "salt-of-mine" });
    expectCompleted(response);
    expect(answerOf(response)).toBe("Hello there.");
  });

  it.each([
    ["enable_response_messages", { enable_response_messages: true }],
    ["previous_input_messages", { previous_input_messages: [{ role: "user", content: "Hello!" }] }],
  ])("raw messages are refused: %s", async (name, fields) => {
    const refusal = await refusalOf(subject().ask("Hello!", fields));
    expect(refusal).toMatchObject({ status: 400, param: name });
  });

  describe("logprobs", () => {
    it.each([undefined, 0, 1, 5])("top_logprobs: %s has as many alternatives", async (top_logprobs) => {
      const response = await subject().ask(
        { text: "Hello there." },
        { include: logprobs, ...(top_logprobs !== undefined && { top_logprobs }) },
      );
      const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
      const told = parts.flatMap((part) => (part.type === "output_text" ? (part.logprobs ?? []) : []));
      expect(told.map(({ token }) => token).join("")).toBe(messageTextOf(response));
      for (const { top_logprobs: top } of told) expect(top).toHaveLength(top_logprobs ?? 0);
    });

    it.each(WAYS)("beside tools are given, or refused by their name, %s", async (way) => {
      const fields = { tools: [look], include: logprobs, top_logprobs: 1 };
      const outcome = await responseOf(subject(), way, { text: "Hello there." }, fields).then(
        (response) => ({ response }),
        (error: { status: number; param: string }) => ({ error }),
      );
      if ("error" in outcome) {
        expect(outcome.error).toMatchObject({ status: 400, param: expect.stringMatching(/include|top_logprobs/) });
        return;
      }
      const parts = outcome.response.output.flatMap((item) => (item.type === "message" ? item.content : []));
      const told = parts.flatMap((part) => (part.type === "output_text" ? (part.logprobs ?? []) : []));
      expect(told.map(({ token }) => token).join("")).toBe(messageTextOf(outcome.response));
    });
  });

  describe("stop strings", () => {
    it.each(WAYS)("end no reasoning and no call, %s", async (way) => {
      const speech = { thought: "One STOP two.", calls: [{ name: "look", arguments: '{"at": "STOP"}' }] };
      const response = await responseOf(subject(), way, speech, { tools: [look], stop: "STOP" });
      expectCompleted(response);
      expect(thoughtOf(response).trim()).toBe("One STOP two.");
      expect(typesOf(response)).toEqual(["reasoning", "function_call"]);
    });

    it.each(["a", "\n", "é", "🦄", "there"])("%j ends the answer", async (stop) => {
      const text = "Hello there,\ncafé 🦄.";
      const response = await subject().ask({ text }, { stop });
      expectCompleted(response);
      const [said] = text.split(stop);
      // The blank line between reasoning and answer does not belong to the answer.
      expect(messageTextOf(response).replace(/^\n+/, "")).toBe(said);
    });
  });

  describe("reasoning", () => {
    it.each(WAYS)("is a reasoning item, %s", async (way) => {
      const response = await responseOf(subject(), way, { thought: "Let me see. 🦄", text: "Four." });
      expectCompleted(response);
      expect(thoughtOf(response).trim()).toBe("Let me see. 🦄");
      expect(messageTextOf(response).trim()).toBe("Four.");
    });

    it.each(["low", "medium", "high"] as const)("is there with effort %s", async (effort) => {
      const response = await subject().ask({ text: "Four." }, { reasoning: { effort } });
      expect(typesOf(response)).toEqual(["reasoning", "message"]);
    });

    it("is absent with effort none, also beside tools", async () => {
      const speech = { calls: [{ name: "look", arguments: "{}" }] };
      const response = await subject().ask(speech, { tools: [look], reasoning: { effort: "none" } });
      expectCompleted(response);
      expect(typesOf(response)).toEqual(["function_call"]);
    });
  });
}
