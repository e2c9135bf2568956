import type { ResponseCreateParamsNonStreaming, ResponseReasoningItem } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually, type Gateway, startGateway } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ PROMPT_CACHE_SAMPLE: "1" });
});
afterAll(() => gateway.close());

const tool = (name: string, description = "Looks.") =>
  ({ type: "function", name, description, parameters: { type: "object", properties: {} }, strict: false }) as const;

type Asked = Partial<ResponseCreateParamsNonStreaming>;

/** Two turns of a conversation, the second with `more`, compared with the first. */
async function compared(first: Asked, more: Asked): Promise<Record<string, unknown>> {
  const model = "simulator-harmony";
  const input = `Question ${crypto.randomUUID()}`;
  const asked = { model, input, instructions: "Be brief.", tools: [tool("look")], tool_choice: "none" as const };
  const { id } = await gateway.openai.responses.create({ ...asked, ...first });
  const again = { ...asked, ...first, input: "And now?", previous_response_id: id, ...more };
  const second = await gateway.openai.responses.create({
    ...again,
    prompt_cache_options: { comparison_response_id: id },
  });
  return { ...second.prompt_cache_diagnostics };
}

const CHAT = { model: "simulator" };

describe("prompt_cache_diagnostics", () => {
  it.each([
    ["gpt-oss", {}],
    ["a chat model", CHAT],
  ])("are a hit where nothing has changed: %s", async (_, first) => {
    expect(await compared(first, {})).toEqual({ type: "cache_hit" });
  });

  it.each([
    ["another model", { model: "simulator-reasoning" }, "model_changed", undefined],
    [
      "a date in the instructions",
      { instructions: "Be brief. It is noon." },
      "input_changed",
      { part: "input", index: 0, name: "system" },
    ],
    [
      "a tool that is described otherwise",
      { tools: [tool("look", "Sees.")] },
      "tools_changed",
      { part: "tool", index: 0, name: "look" },
    ],
    [
      "a tool that was added",
      { tools: [tool("look"), tool("hear")] },
      "tools_changed",
      { part: "tool", index: 1, name: "hear" },
    ],
    [
      "tools in another order",
      { tools: [tool("hear"), tool("look")] },
      "tools_changed",
      { part: "tool", index: 0, name: "hear" },
    ],
    ["another effort", { reasoning: { effort: "low" } }, "reasoning_effort_changed", { part: "effort", index: 0 }],
  ] as [string, Asked, string, object | undefined][])("name %s", async (_, more, reason, first) => {
    const found = await compared(
      { ...CHAT, ...(reason.startsWith("reasoning") && { reasoning: { effort: "high" } }) },
      more,
    );
    expect(found).toMatchObject({ type: "cache_miss", reason, ...(first && { first_difference: first }) });
    expect(found.cache_missed_tokens).toBeGreaterThan(0);
  });

  it("name a changed effort, and a format, of gpt-oss", async () => {
    expect(await compared({}, { reasoning: { effort: "low" } })).toMatchObject({ reason: "reasoning_effort_changed" });
    const format = {
      type: "json_schema",
      name: "answer",
      schema: { type: "object", properties: {} },
      strict: false,
    } as const;
    expect(await compared({ tools: [] }, { text: { format } })).toMatchObject({ reason: "text_format_changed" });
  });

  it("name the message that the chat template renders otherwise: its thought is dropped", async () => {
    const model = "simulator-reasoning?old_thoughts=dropped";
    const { id: first } = await gateway.openai.responses.create({ model, input: "One" });
    const { id } = await gateway.openai.responses.create({ model, input: "Two", previous_response_id: first });
    const third = await gateway.openai.responses.create({
      ...{ model, input: "Three", previous_response_id: id },
      prompt_cache_options: { comparison_response_id: id },
    });
    // The thought of the first turn was dropped in the second turn already.
    expect(third.prompt_cache_diagnostics).toEqual({ type: "cache_hit" });
    const call = { type: "function_call", call_id: "c", name: "look", arguments: "{}" } as const;
    const thought = {
      type: "reasoning",
      id: "rs_1",
      summary: [],
      content: [{ type: "reasoning_text", text: "Look." }],
    };
    const output = { type: "function_call_output", call_id: "c", output: "seen" } as const;
    const loop = await gateway.openai.responses.create({
      model,
      input: [{ role: "user", content: "Look" }, thought as ResponseReasoningItem, call, output],
    });
    const next = await gateway.openai.responses.create({
      ...{ model, input: "Again", previous_response_id: loop.id },
      prompt_cache_options: { comparison_response_id: loop.id },
    });
    expect(next.prompt_cache_diagnostics).toMatchObject({
      type: "cache_miss",
      reason: "input_changed",
      first_difference: { part: "input", index: 1, name: "assistant", by_template: true },
    });
  });

  it("say so where there is no such response, and where the run's conversation is not known", async () => {
    const missing = await gateway.openai.responses.create({
      ...{ model: "simulator", input: "Hello" },
      prompt_cache_options: { comparison_response_id: "resp_none" },
    });
    expect(missing.prompt_cache_diagnostics).toEqual({ type: "comparison_response_not_found" });
  });

  it("are those of a background run, too", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "One", instructions: "A" });
    const run = await gateway.openai.responses.create({
      ...{ model: "simulator", input: "Two", instructions: "B", previous_response_id: id, background: true },
      prompt_cache_options: { comparison_response_id: id },
    });
    const ended = await eventually(async () => {
      const response = await gateway.openai.responses.retrieve(run.id);
      return response.status === "completed" ? response : undefined;
    });
    expect(ended.prompt_cache_diagnostics).toMatchObject({ type: "cache_miss", reason: "input_changed" });
  });
});

describe("the log", () => {
  it("names the part that a watched conversation's next prompt does not repeat", async () => {
    const model = "simulator";
    const input = `Watched ${crypto.randomUUID()}`;
    const first = await gateway.openai.responses.create({ model, input, instructions: "It is noon." });
    await gateway.openai.responses.create({
      ...{ model, input: "Next", instructions: "It is one.", previous_response_id: first.id },
    });
    const line = await eventually(async () =>
      gateway
        .logs()
        .split("\n")
        .find((each) => each.includes("prompt_drift") && each.includes('"name":"system"')),
    );
    expect(JSON.parse(line.slice(line.indexOf("{")))).toMatchObject({ event: "prompt_drift", part: "input", index: 0 });
    expect(gateway.logs()).not.toContain("It is noon.");
  });
});
