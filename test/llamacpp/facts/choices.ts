import type { FunctionTool } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import {
  answerOf,
  callsOf,
  expectCompleted,
  type Fields,
  messageTextOf,
  refusalOf,
  type Subject,
  typesOf,
} from "../../vllm/facts/subject.ts";
import { expectKept, responseOf, WAYS } from "./promises.ts";

const tool = (name: string, property: string, strict: boolean): FunctionTool => ({
  type: "function",
  name,
  parameters: {
    type: "object",
    properties: { [property]: { type: "string" } },
    required: [property],
    additionalProperties: false,
  },
  strict,
});
const PARIS = { name: "get_weather", arguments: '{"city": "Paris"}' };
const UTC = { name: "get_time", arguments: '{"zone": "UTC"}' };
const LIMIT = { max_output_tokens: 600 };

/**
 * The effect of `tool_choice`: llama.cpp reads a named choice as `auto`, and lets a model output text before a required
 * call.
 */
export function choices(subject: () => Subject): void {
  describe.each(WAYS)("%s", (way) => {
    describe.each([true, false])("tools with strict: %s", (strict) => {
      const tools = [tool("get_weather", "city", strict), tool("get_time", "zone", strict)];
      const named = { type: "function" as const, name: "get_time" };

      it("a named function is called, although the model would call the other", async () => {
        const response = await responseOf(subject(), way, { calls: [PARIS] }, { tools, tool_choice: named, ...LIMIT });
        expect(callsOf(response).map(({ name }) => name)).not.toContain("get_weather");
        expectKept(response, (kept) => expect(callsOf(kept)).toMatchObject([{ name: "get_time" }]));
      });

      it("a named function is called, or the response is not completed, although the model would answer", async () => {
        const response = await responseOf(subject(), way, { text: "No." }, { tools, tool_choice: named, ...LIMIT });
        expectKept(response, (kept) => expect(callsOf(kept)).toMatchObject([{ name: "get_time" }]));
      });

      it("a named function that the model calls is a call, with its arguments", async () => {
        const response = await responseOf(subject(), way, { calls: [UTC] }, { tools, tool_choice: named, ...LIMIT });
        expectCompleted(response);
        expect(callsOf(response)).toMatchObject([UTC]);
        expect(messageTextOf(response).trim()).toBe("");
      });

      it("required: a model that would answer makes a call, or the response is not completed", async () => {
        const response = await responseOf(
          subject(),
          way,
          { text: "No." },
          { tools, tool_choice: "required", ...LIMIT },
        );
        expectKept(response, (kept) => expect(callsOf(kept).length).toBeGreaterThan(0));
      });

      it("required: a model that outputs text first makes a call after it", async () => {
        const speech = { text: "Let me look.", calls: [UTC] };
        const response = await responseOf(subject(), way, speech, { tools, tool_choice: "required", ...LIMIT });
        expectCompleted(response);
        expect(callsOf(response)).toMatchObject([UTC]);
      });

      it("required: two calls are two", async () => {
        const speech = { calls: [PARIS, UTC] };
        const response = await responseOf(subject(), way, speech, { tools, tool_choice: "required", ...LIMIT });
        expectCompleted(response);
        expect(callsOf(response)).toMatchObject([PARIS, UTC]);
      });

      it("parallel_tool_calls: false is one call", async () => {
        const fields: Fields = { tools, parallel_tool_calls: false, ...LIMIT };
        const response = await responseOf(subject(), way, { calls: [PARIS, UTC] }, fields);
        expectCompleted(response);
        expect(callsOf(response)).toMatchObject([PARIS]);
      });

      it("none: the text of a call is no call", async () => {
        const response = await responseOf(subject(), way, { calls: [PARIS] }, { tools, tool_choice: "none", ...LIMIT });
        expect(callsOf(response)).toEqual([]);
        expect(messageTextOf(response)).not.toContain("<tool_call>");
      });

      it("none: an answer is the answer", async () => {
        const response = await responseOf(subject(), way, { text: "No." }, { tools, tool_choice: "none", ...LIMIT });
        expectCompleted(response);
        expect(typesOf(response)).toEqual(["reasoning", "message"]);
        expect(answerOf(response)).toBe("No.");
      });

      it("allowed_tools: the others are not called", async () => {
        const tool_choice = { type: "allowed_tools" as const, mode: "required" as const, tools: [{ ...named }] };
        const response = await responseOf(subject(), way, { calls: [PARIS] }, { tools, tool_choice, ...LIMIT });
        expect(callsOf(response).map(({ name }) => name)).not.toContain("get_weather");
        expectKept(response, (kept) => expect(callsOf(kept)).toMatchObject([{ name: "get_time" }]));
      });

      it("a limit in the middle of a call leaves no completed call", async () => {
        const response = await responseOf(subject(), way, { calls: [PARIS] }, { tools, max_output_tokens: 75 });
        expect(response.status).toBe("incomplete");
        for (const { status } of callsOf(response)) expect(status).not.toBe("completed");
      });
    });

    it("without tools, markup is text like any other, and no call", async () => {
      const response = await responseOf(subject(), way, { calls: [PARIS] });
      expect(typesOf(response)).not.toContain("function_call");
    });
  });

  it("required without a tool is refused", async () => {
    const refusal = await refusalOf(subject().ask("Hello!", { tool_choice: "required" }));
    expect(refusal).toMatchObject({ status: 400, param: "tool_choice" });
  });

  it("a tool with an invalid schema is a 400 that names it", async () => {
    const tools = [{ type: "function" as const, name: "bad", parameters: { type: "objekt" }, strict: true }];
    expect(await refusalOf(subject().ask("Hello!", { tools }))).toMatchObject({
      status: 400,
      param: expect.stringMatching(/^tools/),
    });
  });

  it("the results of two calls come after both", async () => {
    const { ask } = subject();
    const tools = [tool("get_weather", "city", true), tool("get_time", "zone", true)];
    const made = await ask({ calls: [PARIS, UTC] }, { tools });
    const input = callsOf(made).map(({ call_id, name }) => ({
      type: "function_call_output" as const,
      call_id,
      output: `${name} done`,
    }));
    const after = await ask("", { input, previous_response_id: made.id, tools });
    expectCompleted(after);
    expect(answerOf(after)).toBe("The tool returned: get_time done");
  });

  it("arguments that are no JSON, in a client's own history, cause no error", async () => {
    const { gateway, server } = subject();
    const call = { type: "function_call" as const, call_id: "call_1", name: "get_time", arguments: "{not json" };
    const output = { type: "function_call_output" as const, call_id: "call_1", output: "Noon." };
    const input = [{ role: "user" as const, content: "When?" }, call, output];
    const asked = gateway.openai.responses.create({ model: server.model, input });
    const outcome = await asked.then(
      ({ status }) => status,
      ({ status }: { status: number }) => status,
    );
    expect(["completed", 400]).toContain(outcome);
  });
}
