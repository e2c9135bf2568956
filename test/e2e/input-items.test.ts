import type { ResponseInputItem } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Gateway, joinGateway, lastPrompt } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const png = "data:image/png;base64,iVBORw0KGgo=";

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}

/** Sends an input unchanged, since OpenAI's types do not have all of it. Gives vLLM's messages. */
async function messagesFor(input: unknown, more: Record<string, unknown> = {}): Promise<unknown> {
  const answer = await gateway.post({ model: "simulator", input, ...more });
  expect(await answer.json()).toMatchObject({ status: "completed" });
  return lastPrompt(gateway).messages;
}

describe("a user message", () => {
  it.each([
    ["a string", "Hello!", "Hello!"],
    ["one text part", [{ type: "input_text", text: "Hello!" }], "Hello!"],
    [
      "two texts",
      [
        { type: "input_text", text: "Hello" },
        { type: "input_text", text: "there!" },
      ],
      [
        { type: "text", text: "Hello" },
        { type: "text", text: "there!" },
      ],
    ],
    [
      "an image by URL",
      [{ type: "input_image", image_url: "https://example.com/cat.png" }],
      [{ type: "image_url", image_url: { url: "https://example.com/cat.png", detail: "auto" } }],
    ],
    [
      "an image as data, with text and detail",
      [
        { type: "input_text", text: "What is this?" },
        { type: "input_image", image_url: png, detail: "high" },
      ],
      [
        { type: "text", text: "What is this?" },
        { type: "image_url", image_url: { url: png, detail: "high" } },
      ],
    ],
    [
      "an image in original detail, which chat completions do not know",
      [{ type: "input_image", image_url: png, detail: "original" }],
      [{ type: "image_url", image_url: { url: png, detail: "high" } }],
    ],
    [
      "audio",
      [{ type: "input_audio", input_audio: { data: "UklGRg==", format: "wav" } }],
      [{ type: "input_audio", input_audio: { data: "UklGRg==", format: "wav" } }],
    ],
    [
      "video, vLLM's own part",
      [{ type: "input_video", video_url: "https://example.com/cat.mp4" }],
      [{ type: "video_url", video_url: { url: "https://example.com/cat.mp4" } }],
    ],
    [
      "a text file",
      [
        { type: "input_file", filename: "notes.md", file_data: `data:text/markdown;base64,${base64("# Grüße 你好")}` },
        { type: "input_text", text: "Summarise." },
      ],
      [
        { type: "text", text: "[file: notes.md]\n# Grüße 你好" },
        { type: "text", text: "Summarise." },
      ],
    ],
    [
      "a JSON file without a name",
      [{ type: "input_file", file_data: `data:application/json;charset=utf-8;base64,${base64('{"a":1}')}` }],
      [{ type: "text", text: '[file: unnamed]\n{"a":1}' }],
    ],
    ["no parts", [], ""],
  ])("carries %s", async (_, content, sent) => {
    const sentMessage = { role: "user", content: sent };
    expect(await messagesFor([{ role: "user", content }])).toEqual([sentMessage]);
    expect(await messagesFor([{ type: "message", role: "user", content }])).toEqual([sentMessage]);
  });

  it("may have parts that are not text, which reach the model unchanged", async () => {
    const content = [
      { type: "input_text" as const, text: "Look:" },
      { type: "input_image" as const, image_url: png, detail: "auto" as const },
    ];
    const response = await gateway.openai.responses.create({ model: "simulator", input: [{ role: "user", content }] });
    expect(response.output_text).toBe("You said: Look:\n[image]");
  });
});

describe("a developer message", () => {
  it("is a system message for the model, and stays a developer message in the input items", async () => {
    const response = await gateway.openai.responses.create({
      model: "simulator",
      input: [
        { role: "developer", content: "Be brief." },
        { role: "user", content: "Hello!" },
      ],
    });
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello!" },
    ]);
    const items = await gateway.openai.responses.inputItems.list(response.id, { order: "asc" });
    expect(items.data[0]).toMatchObject({ role: "developer", content: [{ type: "input_text", text: "Be brief." }] });
  });

  it("of several texts is one system message, a line each", async () => {
    const content = [
      { type: "input_text", text: "One." },
      { type: "input_text", text: "Two." },
    ];
    expect(
      await messagesFor([
        { role: "system", content },
        { role: "user", content: "Hello!" },
      ]),
    ).toEqual([
      { role: "system", content: "One.\nTwo." },
      { role: "user", content: "Hello!" },
    ]);
  });
});

describe("an assistant message", () => {
  const user = { role: "user", content: "Hello!" };
  const again = { role: "user", content: "Again!" };

  it.each([
    ["a string", "Hi.", "Hi."],
    ["output text", [{ type: "output_text", text: "Hi.", annotations: [], logprobs: [] }], "Hi."],
    ["input text, as chat clients send it", [{ type: "input_text", text: "Hi." }], "Hi."],
    ["a refusal", [{ type: "refusal", refusal: "I cannot." }], "I cannot."],
    [
      "text and a refusal",
      [
        { type: "output_text", text: "Hi. " },
        { type: "refusal", refusal: "I cannot." },
      ],
      "Hi. I cannot.",
    ],
  ])("carries %s", async (_, content, sent) => {
    expect(await messagesFor([user, { role: "assistant", content }, again])).toEqual([
      user,
      { role: "assistant", content: sent },
      again,
    ]);
  });

  it("keeps its phase", async () => {
    const response = await gateway.openai.responses.create({
      model: "simulator",
      input: [
        { role: "user", content: "Hello!" },
        { role: "assistant", content: "Working.", phase: "commentary" },
        { role: "user", content: "Again!" },
      ],
    });
    const items = await gateway.openai.responses.inputItems.list(response.id, { order: "asc" });
    expect(items.data[1]).toMatchObject({ role: "assistant", phase: "commentary" });
  });

  it("beside another one stays a separate message", async () => {
    const two = [
      { role: "assistant", content: "One." },
      { role: "assistant", content: "Two." },
    ];
    expect(await messagesFor([user, ...two, again])).toEqual([user, ...two, again]);
  });

  it("that is unfinished, at the end, is continued", async () => {
    const unfinished = {
      type: "message",
      id: "msg_from_elsewhere",
      role: "assistant",
      status: "incomplete",
      content: [{ type: "output_text", text: "You said: He", annotations: [] }],
    };
    const answer = await gateway.post({ model: "simulator", input: [user, unfinished] });
    expect(await answer.json()).toMatchObject({ output: [{ content: [{ text: "llo!" }] }] });
    expect(lastPrompt(gateway)).toMatchObject({ continue_final_message: true, add_generation_prompt: false });
  });

  it("that is finished, at the end, is not continued", async () => {
    await gateway.post({ model: "simulator", input: [user, { role: "assistant", content: "You said: He" }] });
    expect(lastPrompt(gateway)).not.toHaveProperty("continue_final_message");
  });

  it("that max_output_tokens has cut off is continued by an empty input", async () => {
    const cut = await gateway.openai.responses.create({ model: "simulator", input: "Hello!", max_output_tokens: 2 });
    const rest = await gateway.openai.responses.create({
      model: "simulator",
      previous_response_id: cut.id,
      input: [],
    });
    expect(cut.output_text + rest.output_text).toBe("You said: Hello!");
  });
});

describe("returned reasoning", () => {
  const user = { role: "user", content: "Hello!" };
  const again = { role: "user", content: "Again!" };
  const assistant = { role: "assistant", content: "Hi." };
  const thought = { type: "reasoning", content: [{ type: "reasoning_text", text: "Greet." }] };

  function withReasoning(text: string) {
    return { ...assistant, reasoning: text, reasoning_content: text };
  }

  it.each([
    ["its text", thought, "Greet."],
    [
      "its parts, a line each",
      {
        ...thought,
        content: [
          { type: "reasoning_text", text: "Greet." },
          { type: "reasoning_text", text: "Briefly." },
        ],
      },
      "Greet.\nBriefly.",
    ],
    [
      "its summary, where it has no text",
      { type: "reasoning", summary: [{ type: "summary_text", text: "Greeted." }] },
      "Greeted.",
    ],
    [
      "its text rather than the summary or what another server encrypted",
      { ...thought, summary: [{ type: "summary_text", text: "No." }], encrypted_content: "gAAA" },
      "Greet.",
    ],
  ])("reaches the model with the message that it led to: %s", async (_, reasoning, text) => {
    expect(await messagesFor([user, reasoning, assistant, again])).toEqual([user, withReasoning(text), again]);
  });

  it("that is empty is no message", async () => {
    expect(await messagesFor([user, { type: "reasoning", summary: [] }, assistant, again])).toEqual([
      user,
      assistant,
      again,
    ]);
  });

  it("of earlier turns is left out with reasoning.context: current_turn", async () => {
    const call = { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" };
    const output = { type: "function_call_output", call_id: "call_1", output: "seen" };
    const later = { ...thought, content: [{ type: "reasoning_text", text: "Look first." }] };
    const input = [user, thought, assistant, again, later, call, output];
    const messages = await messagesFor(input, { reasoning: { context: "current_turn" } });
    expect(messages).toMatchObject([
      user,
      assistant,
      again,
      { role: "assistant", reasoning: "Look first.", tool_calls: [{ id: "call_1" }] },
      { role: "tool" },
    ]);
    expect((messages as unknown[])[1]).toEqual(assistant);
  });

  it("is the same from a stored turn and from a replayed one", async () => {
    const model = "simulator-reasoning";
    const question: ResponseInputItem = { role: "user", content: "Hello!" };
    const first = await gateway.openai.responses.create({ model, input: [question] });
    await gateway.openai.responses.create({ model, previous_response_id: first.id, input: "Again!" });
    const stored = lastPrompt(gateway).messages;
    const replayed = [question, ...first.output, { role: "user", content: "Again!" }] as ResponseInputItem[];
    await gateway.openai.responses.create({ model, input: replayed });
    expect(lastPrompt(gateway).messages).toEqual(stored);
  });
});

describe("one step of an assistant", () => {
  it("is one message: reasoning, text and calls together", async () => {
    const messages = await messagesFor([
      { role: "user", content: "Hello!" },
      { type: "reasoning", content: [{ type: "reasoning_text", text: "Look it up." }] },
      { role: "assistant", content: "One moment." },
      { type: "function_call", call_id: "call_1", name: "look", arguments: '{"at":1}' },
      { type: "function_call", call_id: "call_2", name: "look", arguments: '{"at":2}' },
      { type: "function_call_output", call_id: "call_1", output: "one" },
      { type: "function_call_output", call_id: "call_2", output: "two" },
    ]);
    const call = (id: string, at: string) => ({ id, type: "function", function: { name: "look", arguments: at } });
    expect(messages).toEqual([
      { role: "user", content: "Hello!" },
      {
        role: "assistant",
        content: "One moment.",
        reasoning: "Look it up.",
        reasoning_content: "Look it up.",
        tool_calls: [call("call_1", '{"at":1}'), call("call_2", '{"at":2}')],
      },
      { role: "tool", tool_call_id: "call_1", content: "one" },
      { role: "tool", tool_call_id: "call_2", content: "two" },
    ]);
  });
});

describe("items from elsewhere", () => {
  it("may have statuses, ids of other servers and unknown keys", async () => {
    const messages = await messagesFor([
      { type: "message", role: "user", id: "msg_elsewhere", status: "completed", content: "Hello!", extra: 1 },
      { type: "function_call", id: "fc_1", call_id: "call_1", name: "look", arguments: "{}", status: null },
      { type: "function_call_output", id: null, call_id: "call_1", output: "seen", status: "completed" },
    ]);
    expect(messages).toMatchObject([{ role: "user" }, { role: "assistant" }, { role: "tool" }]);
  });
});

describe("the output items of OpenAI's API, sent as input", () => {
  const ran = { type: "exec" as const, command: ["ls"], env: {} };
  const items: ResponseInputItem[] = [
    { type: "message", role: "user", content: [{ type: "input_text", text: "Do all of it." }] },
    { type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "I should." }] },
    { type: "function_call", call_id: "c1", name: "f", arguments: "{}", id: "fc_1", status: "completed" },
    { type: "function_call_output", call_id: "c1", output: "done" },
    { type: "custom_tool_call", call_id: "c2", name: "g", input: "raw", id: "ctc_1" },
    { type: "custom_tool_call_output", call_id: "c2", output: "done" },
    { type: "tool_search_call", call_id: "c3", execution: "client", arguments: { query: "x" }, status: "completed" },
    { type: "tool_search_output", call_id: "c3", execution: "client", status: "completed", tools: [] },
    {
      type: "additional_tools",
      role: "developer",
      tools: [{ type: "function", name: "h", parameters: {}, strict: false }],
    },
    { type: "local_shell_call", id: "lsh_1", call_id: "c4", action: ran, status: "completed" },
    { type: "local_shell_call_output", id: "c4", output: "a.txt", status: "completed" },
    { type: "shell_call", call_id: "c5", action: { commands: ["ls"] }, status: "completed" },
    {
      type: "shell_call_output",
      call_id: "c5",
      output: [{ stdout: "a.txt", stderr: "", outcome: { type: "exit", exit_code: 0 } }],
    },
    {
      type: "apply_patch_call",
      call_id: "c6",
      operation: { type: "delete_file", path: "a.txt" },
      status: "completed",
    },
    { type: "apply_patch_call_output", call_id: "c6", status: "completed", output: "done" },
    {
      type: "web_search_call",
      id: "ws_1",
      status: "completed",
      action: { type: "search", query: "x", queries: ["x"] },
    },
    {
      type: "code_interpreter_call",
      id: "ci_1",
      code: "1",
      container_id: "cntr_1",
      outputs: null,
      status: "completed",
    },
    { type: "mcp_list_tools", id: "mcpl_1", server_label: "docs", tools: [] },
    { type: "mcp_call", id: "mcp_1", server_label: "docs", name: "read", arguments: "{}", output: "text" },
    { type: "file_search_call", id: "fs_1", queries: ["x"], status: "completed", results: [{ text: "found" }] },
    {
      type: "computer_call",
      id: "cu_1",
      call_id: "c7",
      pending_safety_checks: [],
      status: "completed",
      action: { type: "screenshot" },
    },
    { type: "computer_call_output", call_id: "c7", output: { type: "computer_screenshot", image_url: png } },
    { type: "image_generation_call", id: "ig_1", status: "completed", result: "AA==" },
    { type: "program", id: "prog_1", call_id: "c8", code: "1", fingerprint: "x" },
    { type: "program_output", id: "progo_1", call_id: "c8", result: "1", status: "completed" },
    {
      type: "message",
      id: "msg_1",
      role: "assistant",
      status: "completed",
      content: [{ type: "output_text", text: "Done.", annotations: [] }],
    },
    { type: "message", role: "user", content: [{ type: "input_text", text: "And now?" }] },
  ];

  it.each(["simulator", "simulator-gpt-oss"])("are stored, listed unchanged, and continued (%s)", async (model) => {
    const first = await gateway.openai.responses.create({ model, input: items });
    expect(first.output_text).toContain("And now?");
    const { data } = await gateway.openai.responses.inputItems.list(first.id, { order: "asc", limit: 100 });
    // Each item has an id of this server's.
    expect(data).toMatchObject(items.map((item) => ({ ...item, id: expect.any(String) })));
    const next = await gateway.openai.responses.create({ model, input: "Go on.", previous_response_id: first.id });
    expect(next.output_text).toContain("Go on.");
  });
});

describe("an assistant's message that is last", () => {
  const last = (status: string) => [
    { role: "user", content: "Hello!" },
    { type: "message", role: "assistant", id: "msg_1", status, content: [{ type: "output_text", text: "You said" }] },
  ];

  it.each(["incomplete", "in_progress"])("is continued if its status is %s", async (status) => {
    await messagesFor(last(status));
    expect(lastPrompt(gateway)).toMatchObject({ continue_final_message: true, add_generation_prompt: false });
  });

  it("is not continued if it is completed", async () => {
    await messagesFor(last("completed"));
    expect(lastPrompt(gateway)).not.toHaveProperty("continue_final_message");
  });
});
