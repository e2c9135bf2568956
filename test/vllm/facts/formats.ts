import type { FunctionTool, ResponseFormatTextConfig } from "openai/resources/responses/responses";
import { describe, expect, it } from "vitest";
import { answerOf, callsOf, expectCompleted, finalOf, messageTextOf, refusalOf, type Subject } from "./subject.ts";

const person: ResponseFormatTextConfig = {
  type: "json_schema",
  name: "person",
  strict: true,
  schema: {
    type: "object",
    properties: { name: { type: "string", enum: ["Ada", "Bob"] }, age: { type: "integer", enum: [5, 7] } },
    required: ["name", "age"],
    additionalProperties: false,
  },
};
const ADA = { name: "Ada", age: 5 };
const said = JSON.stringify(ADA, null, 1).replaceAll(/\s+/g, " ");

const tools: FunctionTool[] = [true, false].map((strict) => ({
  type: "function",
  name: strict ? "find_strictly" : "find",
  parameters: { type: "object", properties: { q: { type: "string" } }, required: ["q"], additionalProperties: false },
  strict,
}));

/** `text.format`: JSON, with and without tools. */
export function formats(subject: () => Subject): void {
  it("json_object: the answer is JSON", async () => {
    const { ask } = subject();
    const response = await ask(
      { text: said, bound: true },
      { text: { format: { type: "json_object" } }, max_output_tokens: 200 },
    );
    expectCompleted(response);
    expect(JSON.parse(messageTextOf(response))).toEqual(ADA);
  });

  it("json_schema: the answer matches the schema, as JSON and as a stream", async () => {
    const { ask, stream } = subject();
    const fields = { text: { format: person }, max_output_tokens: 200 };
    const response = await ask({ text: said, bound: true }, fields);
    expectCompleted(response);
    expect(JSON.parse(messageTextOf(response))).toEqual(ADA);
    const streamed = finalOf(await stream({ text: said, bound: true }, fields));
    expect(JSON.parse(answerOf(streamed))).toEqual(ADA);
  });

  it("json_schema: a model that would output something else is bound", async () => {
    const { ask } = subject();
    const wrong = '{"name": "Eve", "age": 5}';
    const response = await ask({ text: wrong, bound: true }, { text: { format: person }, max_output_tokens: 400 });
    // The output may reach its limit, but it does not contain Eve.
    expect(messageTextOf(response)).not.toContain("Eve");
    if (response.status === "completed") expect(["Ada", "Bob"]).toContain(JSON.parse(messageTextOf(response)).name);
  });

  describe.each(tools)("json_schema with tools in auto: $name", (tool) => {
    const fields = { tools: [tool], text: { format: person }, max_output_tokens: 400 };

    it("a tool can be called; the schema binds the final text only", async () => {
      const { ask } = subject();
      const response = await ask({ calls: [{ name: tool.name, arguments: '{"q": "Ada"}' }], bound: true }, fields);
      expectCompleted(response);
      expect(callsOf(response)).toMatchObject([{ name: tool.name, arguments: '{"q": "Ada"}' }]);
    });

    it("an answer matches the schema", async () => {
      const response = await subject().ask({ text: said, bound: true }, fields);
      expectCompleted(response);
      expect(callsOf(response)).toEqual([]);
      expect(JSON.parse(messageTextOf(response))).toEqual(ADA);
    });
  });

  describe.each([false, true])("a schema that the server refuses, stream: %s", (stream) => {
    it("is a 400 that names the format, before the stream begins", async () => {
      const { gateway, server } = subject();
      const format = { type: "json_schema" as const, name: "bad", schema: { type: "objekt" } };
      const body = { model: server.model, input: "Hello!", text: { format } };
      const refusal = await refusalOf(gateway.openai.responses.create({ ...body, stream }));
      expect(refusal).toMatchObject({ status: 400, param: expect.stringMatching(/^text\.format/) });
    });
  });
}
