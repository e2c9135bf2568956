import type { CustomTool, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { APPLY_PATCH } from "../../packages/grammar/test/grammar-cases.ts";
import { refusalOf } from "../vllm/facts/subject.ts";
import { type Gateway, joinGateway } from "./support.ts";

/** The grammars of custom tools, and their effect on the model with both engines. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const lark = (name: string, definition: string): CustomTool => ({
  type: "custom",
  name,
  description: "Takes text.",
  format: { type: "grammar", syntax: "lark", definition },
});
const regex = (name: string, definition: string): CustomTool => ({
  ...lark(name, ""),
  format: { type: "grammar", syntax: "regex", definition },
});
const text: CustomTool = { type: "custom", name: "note", description: "Takes a note." };

const patch = lark("apply_patch", APPLY_PATCH);
const date = regex("set_date", "\\d{4}-\\d{2}-\\d{2}");
const SAMPLE = "*** Begin Patch\n*** Add File: a\n+a\n*** End Patch\n";

/** The last body that reached vLLM. */
function asked(): Record<string, unknown> {
  return gateway.vllm.simulator.lastAsked?.body as Record<string, unknown>;
}

describe.each(["tiny-qwen3", "tiny-gpt-oss"])("%s", (model) => {
  const body = (fields: object) => ({ model, input: "Hi", ...fields }) as ResponseCreateParamsNonStreaming;
  const refusal = (fields: object) => refusalOf(gateway.openai.responses.create(body(fields)));

  it("answers an invalid grammar with a 400 that names the place", async () => {
    const broken = lark("f", 'start: x\nx: "a" y');
    expect(await refusal({ tools: [text, broken] })).toEqual({
      status: 400,
      code: "invalid_value",
      param: "tools[1].format.definition",
      message: expect.stringContaining("this is no Lark grammar: 'y' is not defined (line 2, column 8)."),
    });
    const namespace = { type: "namespace", name: "n", description: "", tools: [text, regex("f", "a(")] };
    expect(await refusal({ tools: [namespace] })).toMatchObject({
      status: 400,
      param: "tools[0].tools[1].format.definition",
      message: expect.stringContaining("this is no regular expression: "),
    });
    const added = { type: "additional_tools", role: "developer", tools: [broken] };
    const input = [{ role: "user", content: "Hi" }, added];
    expect(await refusal({ input })).toMatchObject({ status: 400, param: "input[1].tools[0].format.definition" });
    expect(await refusal({ tools: [lark("f", 'start: "a"\n'.repeat(100_000))] })).toMatchObject({
      status: 400,
      param: "tools[0].format.definition",
    });
    const long = `start: "a"${" ".repeat(60_000)}`;
    expect(await refusal({ tools: [lark("f", long), lark("g", long), lark("h", long)] })).toMatchObject({
      status: 400,
      code: "string_above_max_length",
      param: "tools[2].format.definition",
    });
  });

  it("refuses a grammar whose expansion is too large, before the model server gets it", async () => {
    const bomb = "((a{99}){99}){99}";
    const before = gateway.vllm.simulator.requests.length;
    const format = { type: "json_schema", name: "a", schema: { type: "string", pattern: bomb } };
    const own = { type: "function", name: "f", strict: true, parameters: { properties: { a: { pattern: bomb } } } };
    const input_schema = { type: "object", properties: { a: { pattern: bomb } } };
    const listed = { type: "mcp_list_tools", id: "mcpl_1", server_label: "a", tools: [{ name: "f", input_schema }] };
    const cases: [fields: object, param: string][] = [
      [{ tools: [regex("bomb", bomb)] }, "tools[0].format.definition"],
      [{ tools: [text, lark("bomb", 'start: "a"~1..1000000')] }, "tools[1].format.definition"],
      [{ tools: [lark("bomb", `start: /${bomb}/`)] }, "tools[0].format.definition"],
      [{ tools: [own] }, "tools[0].parameters.properties.a.pattern"],
      [{ input: [listed] }, "input[0].tools[0].input_schema.properties.a.pattern"],
      [{ text: { format } }, "text.format.schema.pattern"],
      [{ structured_outputs: { regex: bomb } }, "structured_outputs.regex"],
      [{ structured_outputs: { grammar: `root ::= ${'("a"{999}){999}'}` } }, "structured_outputs.grammar"],
    ];
    for (const [fields, param] of cases) {
      expect(await refusal(fields)).toMatchObject({ status: 400, code: "above_max_value", param });
    }
    expect(
      gateway.vllm.simulator.requests.slice(before).filter(({ body }) => JSON.stringify(body).includes("99")),
    ).toEqual([]);
  });

  it("has a grammar that cannot be enforced in the description, and does not bind the model", async () => {
    const beyond = regex("f", "(?=a).*");
    const response = await gateway.openai.responses.create(body({ tools: [beyond] }));
    expect(response.status).toBe("completed");
    expect(JSON.stringify(asked())).toContain("(?=a)");
    expect(asked().structured_outputs).toBeUndefined();
    expect(JSON.stringify(asked())).not.toContain("pattern");
  });
});

describe("a chat model", () => {
  const model = "simulator-reasoning";
  const forced = { type: "custom", name: "apply_patch" };
  const create = (fields: object) =>
    gateway.openai.responses.create({ model, input: "Hi", ...fields } as ResponseCreateParamsNonStreaming);

  it("that must call writes the input alone, after its reasoning", async () => {
    const response = await create({ tools: [patch, text], tool_choice: forced });
    expect(response.output.map(({ type }) => type)).toEqual(["reasoning", "custom_tool_call"]);
    expect(response.output[1]).toMatchObject({ name: "apply_patch", input: SAMPLE, status: "completed" });
    expect(response.tool_choice).toEqual(forced);
    expect(asked()).toMatchObject({
      tool_choice: "none",
      structured_outputs: { grammar: expect.stringMatching(/^root ::= /) },
    });
    expect(asked().tools).toHaveLength(2);
  });

  it("may write input that looks like a function's arguments", async () => {
    const json = lark("f", 'start: "{\\"input\\": \\"a\\"}"');
    const response = await create({ tools: [json], tool_choice: "required" });
    expect(response.output.at(-1)).toMatchObject({ input: '{"input": "a"}' });
  });

  it("that is cut off has an incomplete input", async () => {
    const response = await create({ tools: [patch], tool_choice: "required", max_output_tokens: 20 });
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    const call = response.output.at(-1);
    expect(call).toMatchObject({ type: "custom_tool_call", status: "incomplete" });
    expect(SAMPLE.startsWith(call?.type === "custom_tool_call" ? call.input : "?")).toBe(true);
  });

  it("that may call something else gets a function whose schema has the pattern", async () => {
    await create({ tools: [date, patch, text] });
    const functions = (asked().tools as { function: { strict?: boolean; parameters: unknown } }[]).map(
      (tool) => tool.function,
    );
    expect(functions).toMatchObject([
      { strict: true, parameters: { properties: { input: { pattern: "^(?:[0-9]{4}-[0-9]{2}-[0-9]{2})$" } } } },
      { parameters: { properties: { input: { type: "string" } } } },
      {},
    ]);
    expect(functions.filter(({ strict }) => strict)).toHaveLength(1);
    const called = await create({ input: "Use set_date", tools: [date, patch] });
    expect(called.output.at(-1)).toMatchObject({ type: "custom_tool_call", input: "aaaa-aa-aa".replaceAll("a", "0") });
  });
});

describe("gpt-oss", () => {
  const model = "simulator-gpt-oss";

  it("is bound by the grammars of its custom tools with every tool_choice", async () => {
    for (const tool_choice of ["auto", "required", { type: "custom", name: "apply_patch" }]) {
      const fields = { model, input: "Use apply_patch", tools: [patch, text, date], tool_choice };
      const response = await gateway.openai.responses.create(fields as ResponseCreateParamsNonStreaming);
      expect(response.output.at(-1)).toMatchObject({ type: "custom_tool_call", status: "completed" });
      const call = response.output.at(-1);
      expect(call?.type === "custom_tool_call" && call.input).toMatch(
        /^\*\*\* Begin Patch\n\*\*\* Add File: .+\n\+.*\n\*\*\* End Patch\n$/,
      );
      const { structural_tag: tag } = asked().structured_outputs as { structural_tag: string };
      expect(tag).toContain("to=functions.apply_patch<|message|>");
      expect(tag).toContain('"type":"grammar"');
    }
  });

  it("is not bound without a tool that has a grammar", async () => {
    await gateway.openai.responses.create({ model, input: "Hi", tools: [text] });
    expect(asked().structured_outputs).toBeUndefined();
  });
});
