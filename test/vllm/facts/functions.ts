import type { FunctionTool, Response, ResponseInputItem } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { answerOf, callsOf, expectCompleted, type Fields, finalOf, type Subject, typesOf } from "./subject.ts";

const cityOnly = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const PARIS = '{"city": "Paris"}';

const functionTool = (name: string, strict: boolean): FunctionTool => ({
  type: "function",
  name,
  description: "Of a city.",
  parameters: cityOnly,
  strict,
});

/** Function calls, with every `tool_choice`, with strict and other functions. */
export function functions(subject: () => Subject): void {
  describe.each([true, false])("functions with strict: %s", (strict) => {
    const tools = [functionTool("get_weather", strict), functionTool("get_time", strict)];
    const call = (name: string, args = PARIS) => ({ name, arguments: args });
    const namesOf = (response: Response) => callsOf(response).map(({ name }) => name);

    it("auto: the model may call, and continues with the output", async () => {
      const { ask } = subject();
      const response = await ask({ calls: [call("get_weather")] }, { tools });
      expectCompleted(response);
      // The blank line between reasoning and call is not a message.
      expect(typesOf(response)).toEqual(["reasoning", "function_call"]);
      expect(callsOf(response)).toMatchObject([{ name: "get_weather", arguments: PARIS, status: "completed" }]);
      const output: ResponseInputItem = {
        type: "function_call_output",
        call_id: callsOf(response)[0]?.call_id ?? "",
        output: "sunny",
      };
      const after = await ask("", { input: [output], previous_response_id: response.id, tools });
      expectCompleted(after);
      expect(answerOf(after)).toBe("The tool returned: sunny");
    });

    it("auto: the model may answer instead, and may output text before a call", async () => {
      const { ask } = subject();
      const answered = await ask({ text: "No need." }, { tools });
      expect(typesOf(answered)).toEqual(["reasoning", "message"]);
      expect(answerOf(answered)).toBe("No need.");
      const both = await ask({ text: "Let me look.", calls: [call("get_time")] }, { tools });
      expect(typesOf(both)).toEqual(["reasoning", "message", "function_call"]);
      expect(answerOf(both).trim()).toBe("Let me look.");
    });

    it("auto: the arguments are streamed", async () => {
      const events = await subject().stream({ calls: [call("get_weather")] }, { tools });
      const deltas = events.map((event) =>
        event.type === "response.function_call_arguments.delta" ? event.delta : "",
      );
      expect(deltas.join("")).toBe(PARIS);
      expect(typesOf(finalOf(events))).toEqual(["reasoning", "function_call"]);
      expect(events.map(({ type }) => type)).not.toContain("response.output_text.delta");
      expect(callsOf(finalOf(events))).toMatchObject([{ name: "get_weather", arguments: PARIS }]);
    });

    it("auto: a chat model calls several at once", async () => {
      const { ask, engine } = subject();
      // gpt-oss ends its turn with each call.
      if (engine !== "chat") return;
      const response = await ask({ calls: [call("get_weather"), call("get_time")] }, { tools });
      expect(typesOf(response)).toEqual(["reasoning", "function_call", "function_call"]);
      expect(namesOf(response)).toEqual(["get_weather", "get_time"]);
      const one = await ask({ calls: [call("get_weather"), call("get_time")] }, { tools, parallel_tool_calls: false });
      expect(namesOf(one)).toEqual(["get_weather"]);
    });

    const forced: [name: string, choice: Fields["tool_choice"], called: string][] = [
      ["required", "required", "get_time"],
      ["a named function", { type: "function", name: "get_time" }, "get_time"],
      [
        "allowed_tools, required",
        { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "get_time" }] },
        "get_time",
      ],
    ];
    it.each(forced)("%s: the function is called, as JSON and as a stream", async (_, tool_choice, called) => {
      const { ask, stream } = subject();
      const speech = { calls: [call(called)], bound: true };
      const response = await ask(speech, { tools, tool_choice, max_output_tokens: 400 });
      expect(callsOf(response)).toMatchObject([{ name: called, arguments: PARIS }]);
      expectCompleted(response);
      const streamed = finalOf(await stream(speech, { tools, tool_choice, max_output_tokens: 400 }));
      expect(callsOf(streamed)).toMatchObject([{ name: called, arguments: PARIS }]);
    });

    it("none: no function is called, even if the model would", async () => {
      const { ask } = subject();
      const response = await ask(
        { calls: [call("get_weather")] },
        { tools, tool_choice: "none", max_output_tokens: 100 },
      );
      expect(callsOf(response)).toEqual([]);
      expect(answerOf(await ask({ text: "No." }, { tools, tool_choice: "none" }))).toBe("No.");
    });

    it("none and allowed_tools, auto: the prefix cache has the same prompt as for auto, with the tools", async () => {
      const { ask } = subject();
      const allowed = {
        type: "allowed_tools" as const,
        mode: "auto" as const,
        tools: [{ type: "function", name: "get_time" }],
      };
      const asked = { tools: tools.map((tool) => ({ ...tool, description: "Of a city. ".repeat(100) })) };
      const { usage } = await ask({ text: "No." }, asked);
      for (const tool_choice of ["none", allowed] as const) {
        const other = await ask({ text: "No." }, { ...asked, tool_choice });
        expect(other.usage?.input_tokens).toBe(usage?.input_tokens);
        expect(other.usage?.input_tokens_details.cached_tokens).toBeGreaterThan((usage?.input_tokens ?? 0) / 2);
      }
    });

    it("allowed_tools, auto: only those are called", async () => {
      const { ask } = subject();
      const tool_choice = {
        type: "allowed_tools" as const,
        mode: "auto" as const,
        tools: [{ type: "function", name: "get_time" }],
      };
      const allowed = await ask({ calls: [call("get_time")] }, { tools, tool_choice });
      expect(namesOf(allowed)).toEqual(["get_time"]);
      const other = await ask({ calls: [call("get_weather")] }, { tools, tool_choice, max_output_tokens: 200 });
      expect(namesOf(other)).not.toContain("get_weather");
    });

    it("a call of a function that was not offered does not reach the client", async () => {
      const response = await subject().ask({ calls: [call("delete_all")] }, { tools, max_output_tokens: 200 });
      expect(namesOf(response)).not.toContain("delete_all");
    });

    it("a completed call has arguments that can be parsed", async () => {
      const broken = { calls: [call("get_weather", '{"city": ')] };
      const response = await subject().ask(broken, { tools, max_output_tokens: 200 });
      for (const { arguments: args, status } of callsOf(response)) {
        if (status === "completed") expect(() => JSON.parse(args)).not.toThrow();
      }
      // A completed response has an answer or a call.
      if (response.status === "completed")
        expect(callsOf(response).length + answerOf(response).length).toBeGreaterThan(0);
    });
  });

  it("a strict function's arguments match its schema, whatever the model would output", async () => {
    const tools = [functionTool("get_weather", true)];
    const berlin = { calls: [{ name: "get_weather", arguments: '{"city": "Berlin"}' }], bound: true };
    const response = await subject().ask(berlin, { tools, tool_choice: "required", max_output_tokens: 400 });
    for (const { arguments: args, status } of callsOf(response)) {
      if (status === "completed") expect(["Paris", "Rome"]).toContain((JSON.parse(args) as { city: string }).city);
    }
    expect(callsOf(response).length).toBeGreaterThan(0);
  });
}
