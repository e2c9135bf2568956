import type {
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseInputItem,
  ResponseStreamEvent,
  Tool,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Gateway, lastPrompt, startGateway } from "./support.ts";

/** Tools that the client runs, besides functions: custom tools, namespaces, searches, shells, patches. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ HOSTED_TOOLS: "none", UNKNOWN_TOOLS: "drop" });
});
afterAll(() => gateway.close());

const CHAT = "tiny-qwen3";

const MODELS = [CHAT, "tiny-gpt-oss"];

const agents: Tool = {
  type: "namespace",
  name: "multi_agent_v1",
  description: "Tools for sub-agents.",
  tools: [
    { type: "function", name: "close_agent", parameters: { type: "object", properties: { id: { type: "string" } } } },
    { type: "custom", name: "note", description: "Takes a note." },
  ],
};
const applyPatch: Tool = { type: "custom", name: "patch", description: "Applies a patch.", format: { type: "text" } };
const deferredWeather: Tool = {
  type: "function",
  name: "weather",
  description: "The weather.",
  parameters: {},
  strict: false,
  defer_loading: true,
};
const toolSearch: Tool = { type: "tool_search", execution: "client" };
const tools: Tool[] = [
  agents,
  applyPatch,
  toolSearch,
  { type: "shell", environment: { type: "local" } },
  { type: "apply_patch" },
  { type: "local_shell" },
];

/**
 * The input that makes a scripted model call a tool. `name` is the tool's name for chat models, `recipient` the one for
 * gpt-oss.
 */
function script(model: string, name: string, recipient: string, json: string, raw = json): string {
  if (model === CHAT)
    return `SCRIPT[[‹think›\nhm\n‹/think›\n\n‹tool_call›\n{"name": "${name}", "arguments": ${json}}\n‹/tool_call›‹|im_end|›]]`;
  const type = raw === json ? " ‹|constrain|›json" : "";
  return `SCRIPT[[‹|channel|›commentary to=${recipient}${type}‹|message|›${raw}‹|call|›]]`;
}

function create(body: ResponseCreateParamsNonStreaming): Promise<Response> {
  return gateway.openai.responses.create({ tools, ...body });
}

type Item = Response["output"][number];

function onlyCall<Type extends Item["type"]>(response: { output: Item[] }, type: Type): Extract<Item, { type: Type }> {
  const calls = response.output.filter(({ type: each }) => each !== "reasoning" && each !== "message");
  const [call] = calls;
  if (calls.length !== 1 || call?.type !== type) throw new Error(`Expected one ${type}, got ${JSON.stringify(calls)}`);
  return call as Extract<Item, { type: Type }>;
}

async function stream(
  body: ResponseCreateParamsNonStreaming,
): Promise<{ events: ResponseStreamEvent[]; response: Response }> {
  const events = await Array.fromAsync(await gateway.openai.responses.create({ tools, ...body, stream: true }));
  const last = events.at(-1);
  if (last?.type !== "response.completed") throw new Error(`The last event is ${JSON.stringify(last)}`);
  return { events, response: last.response };
}

/** The prompt that reached vLLM, as text. */
function promptText(model: string): string {
  if (model === CHAT) return JSON.stringify(lastPrompt(gateway));
  const asked = gateway.vllm.simulator.requests.findLast(({ path }) => path === "/v1/completions");
  return String((asked?.body as { prompt?: unknown } | undefined)?.prompt);
}

describe.each(MODELS)("%s", (model) => {
  const patch = '*** Begin\nline "one"\n+é\\';

  it("calls a tool of a namespace by one name, which is two fields in the items", async () => {
    const input = script(model, "multi_agent_v1__close_agent", "multi_agent_v1.close_agent", '{"id": "a"}');
    const { events, response } = await stream({ model, input });
    const call = onlyCall(response, "function_call");
    expect(call).toMatchObject({ name: "close_agent", namespace: "multi_agent_v1", arguments: '{"id": "a"}' });
    const done = events.find(({ type }) => type === "response.function_call_arguments.done");
    expect(done).toMatchObject({ name: "close_agent", arguments: '{"id": "a"}' });
    const answered = await create({
      model,
      previous_response_id: response.id,
      // The output has no call_id, which the types allow.
      input: [{ type: "function_call_output", name: "close_agent", namespace: "multi_agent_v1", output: "closed" }],
    });
    expect(answered.output_text.trim()).toBe("The tool returned: closed");
    const { data } = await gateway.openai.responses.inputItems.list(answered.id);
    expect(data).toMatchObject([{ type: "function_call_output", call_id: call.call_id, output: "closed" }]);
    expect(promptText(model)).toContain(
      model === CHAT ? '"name":"multi_agent_v1__close_agent"' : "to=multi_agent_v1.close_agent",
    );
  });

  it("calls a custom tool, whose input is plain text", async () => {
    const input = script(model, "patch", "functions.patch", JSON.stringify({ input: patch }), patch);
    const { events, response } = await stream({ model, input });
    const call = onlyCall(response, "custom_tool_call");
    expect(call).toMatchObject({ name: "patch", input: patch });
    expect(call).not.toHaveProperty("namespace");
    const deltas = events.flatMap((event) =>
      event.type === "response.custom_tool_call_input.delta" ? [event.delta] : [],
    );
    expect(deltas.length).toBeGreaterThan(1);
    expect(deltas.join("")).toBe(patch);
    expect(response.tools).toContainEqual(applyPatch);
    expect(await gateway.openai.responses.retrieve(response.id)).toMatchObject({ output: response.output });
    const output: ResponseInputItem = { type: "custom_tool_call_output", call_id: call.call_id, output: "applied" };
    const answered = await create({ model, previous_response_id: response.id, input: [output] });
    expect(answered.output_text.trim()).toBe("The tool returned: applied");
    expect(promptText(model)).toContain("Applies a patch.");
  });

  it("gets its own calls back from a client that keeps everything itself", async () => {
    const question: ResponseInputItem = { role: "user", content: "?" };
    const replayed: ResponseInputItem[] = [
      question,
      { type: "custom_tool_call", call_id: "c1", name: "note", namespace: "multi_agent_v1", input: "remember" },
      { type: "custom_tool_call_output", call_id: "c1", output: "noted" },
      { type: "shell_call", call_id: "c2", action: { commands: ["ls"] } },
      {
        type: "shell_call_output",
        call_id: "c2",
        output: [{ stdout: "a", stderr: "b", outcome: { type: "exit", exit_code: 1 } }],
      },
      {
        type: "local_shell_call",
        id: "x",
        call_id: "c3",
        action: { type: "exec", command: ["ls"], env: {} },
        status: "completed",
      },
      { type: "local_shell_call_output", id: "c3", output: "here" },
      { type: "apply_patch_call", call_id: "c4", status: "completed", operation: { type: "delete_file", path: "a" } },
      { type: "apply_patch_call_output", call_id: "c4", status: "failed", output: "no such file" },
    ];
    const answered = await create({ model, input: replayed, store: false });
    expect(answered.output_text.trim()).toBe("The tool returned: no such file");
    const prompt = promptText(model);
    for (const text of ["remember", "noted", "[exit code 1]", "no such file"]) expect(prompt).toContain(text);
  });

  it("lets the client search for tools, and calls a found one in the next turn", async () => {
    const asked = await create({
      model,
      input: script(model, "tool_search", "functions.tool_search", '{"query": "calendar", "limit": 3}'),
    });
    const search = onlyCall(asked, "tool_search_call");
    expect(search).toMatchObject({
      execution: "client",
      arguments: { query: "calendar", limit: 3 },
      status: "completed",
    });
    const found: ResponseInputItem = {
      type: "tool_search_output",
      call_id: search.call_id,
      execution: "client",
      status: "completed",
      tools: [
        {
          type: "namespace",
          name: "mcp__cal",
          description: "",
          tools: [{ type: "function", name: "list", description: "Lists.", parameters: {} }],
        },
      ],
    };
    const answered = await create({ model, previous_response_id: asked.id, input: [found] });
    expect(answered.output_text).toContain("These tools can be called now:");
    const called = await create({
      model,
      previous_response_id: answered.id,
      input: script(model, "mcp__cal__list", "mcp__cal.list", "{}"),
    });
    expect(onlyCall(called, "function_call")).toMatchObject({ name: "list", namespace: "mcp__cal" });
  });

  it.each([
    [
      "shell",
      { commands: ["ls", "pwd"] },
      { type: "shell_call", action: { commands: ["ls", "pwd"], timeout_ms: null } },
    ],
    ["local_shell", { command: ["ls"] }, { type: "local_shell_call", action: { type: "exec", command: ["ls"] } }],
    [
      "apply_patch",
      { type: "create_file", path: "a", diff: "+b" },
      { type: "apply_patch_call", operation: { diff: "+b" } },
    ],
  ])("calls %s in the background", async (name, args, expected) => {
    const input = script(model, name, `functions.${name}`, JSON.stringify(args));
    const begun = await gateway.openai.responses.create({ model, tools, input, background: true, stream: true });
    const events = await Array.fromAsync(begun);
    const last = events.at(-1);
    if (last?.type !== "response.completed") throw new Error(`The last event is ${JSON.stringify(last)}`);
    expect(last.response.output.at(-1)).toMatchObject(expected);
  });

  it("searches for deferred tools here, and offers the found ones from the next round on", async () => {
    const deferred: Tool[] = [
      {
        type: "namespace",
        name: "calendar",
        description: "Appointments.",
        tools: [
          { type: "function", name: "list_events", description: "Lists events.", parameters: {}, defer_loading: true },
          { type: "function", name: "delete_event", description: "Deletes one.", parameters: {}, defer_loading: true },
        ],
      },
      deferredWeather,
      { type: "tool_search" },
    ];
    const input = script(model, "tool_search", "functions.tool_search", '{"query": "list events", "limit": 1}');
    const { response } = await stream({ model, input, tools: deferred });
    const output = response.output.filter(({ type }) => type !== "reasoning");
    const [search, found, message] = output.filter((item) => item.type !== "message" || item === output.at(-1));
    expect(search).toMatchObject({ type: "tool_search_call", execution: "server", call_id: null, status: "completed" });
    expect(found).toMatchObject({
      type: "tool_search_output",
      tools: [{ type: "namespace", name: "calendar", tools: [{ name: "list_events" }] }],
    });
    expect(message).toMatchObject({ type: "message" });
    expect(JSON.stringify(message)).toContain("These tools can be called now:");
    const prompt = promptText(model);
    expect(prompt).toContain(model === CHAT ? '"name":"calendar__list_events"' : "namespace calendar {");
    expect(prompt).not.toContain("delete_event");
    // Later turns know the found tools, also those of a client that keeps everything itself.
    const call = script(model, "calendar__list_events", "calendar.list_events", "{}");
    const followed = await create({ model, previous_response_id: response.id, input: call, tools: deferred });
    expect(onlyCall(followed, "function_call")).toMatchObject({ name: "list_events", namespace: "calendar" });
    const replayed = [
      { role: "user" as const, content: "?" },
      ...response.output,
      { role: "user" as const, content: call },
    ];
    const again = await create({ model, input: replayed as ResponseInputItem[], tools: deferred, store: false });
    expect(onlyCall(again, "function_call")).toMatchObject({ name: "list_events", namespace: "calendar" });
  });

  it("calls a deferred function of a namespace with the same name, and shows the model the name once", async () => {
    const tools: Tool[] = [deferredWeather, { type: "tool_search" }];
    const input = script(model, "tool_search", "functions.tool_search", '{"query": "weather", "limit": 1}');
    const { response } = await stream({ model, input, tools });
    expect(response.output).toContainEqual(
      expect.objectContaining({ type: "tool_search_output", tools: [expect.objectContaining({ name: "weather" })] }),
    );
    const asked = await create({
      model,
      previous_response_id: response.id,
      input: script(model, "weather", "functions.weather", "{}"),
      tools,
    });
    const call = onlyCall(asked, "function_call");
    expect(call).toMatchObject({ name: "weather", namespace: "weather" });
    const output: ResponseInputItem = { type: "function_call_output", call_id: call.call_id, output: "sunny" };
    const showsItsName = () => {
      expect(promptText(model)).toContain(model === CHAT ? '"name":"weather"' : "to=functions.weather");
      expect(promptText(model)).not.toMatch(/weather__weather|weather\.weather/);
    };
    await create({ model, previous_response_id: asked.id, input: [output], tools });
    showsItsName();
    // It is the same for a client that keeps everything itself. A choice that names the function offers it once.
    const items = [...response.output, ...asked.output, output] as ResponseInputItem[];
    const again = script(model, "weather", "functions.weather", "{}");
    const forced = await create({
      model,
      input: [...items, { role: "user", content: again }],
      tools,
      tool_choice: { type: "function", name: "weather" },
    });
    expect(onlyCall(forced, "function_call")).toMatchObject({ name: "weather" });
    showsItsName();
  });

  it("accepts more tools, and other settings, in the middle of the input", async () => {
    const more: ResponseInputItem = {
      type: "additional_tools",
      role: "developer",
      tools: [{ type: "custom", name: "later", description: "A tool that came later." }],
    };
    const update: ResponseInputItem = { type: "configuration_update", reasoning: { effort: "high" } };
    const input = script(model, "later", "functions.later", '{"input": "x"}', "x");
    const asked = await create({ model, tools: [], input: [more, update, { role: "user", content: input }] });
    const call = onlyCall(asked, "custom_tool_call");
    expect(call).toMatchObject({ name: "later", input: "x" });
    expect(asked.reasoning).toMatchObject({ effort: "high" });
    const output: ResponseInputItem = { type: "custom_tool_call_output", call_id: call.call_id, output: "done" };
    const answered = await create({ model, tools: [], previous_response_id: asked.id, input: [output] });
    expect(answered.output_text.trim()).toBe("The tool returned: done");
    expect(answered.reasoning).toMatchObject({ effort: "high" });
    const { data } = await gateway.openai.responses.inputItems.list(asked.id);
    expect(data.map(({ type }) => type)).toEqual(["message", "configuration_update", "additional_tools"]);
  });

  it("works in a conversation with all of its items", async () => {
    const conversation = await gateway.openai.conversations.create({});
    const input = script(model, "shell", "functions.shell", '{"commands": ["ls"]}');
    const asked = await create({ model, input, conversation: conversation.id });
    const call = onlyCall(asked, "shell_call");
    const output: ResponseInputItem = {
      type: "shell_call_output",
      call_id: call.call_id,
      output: [{ stdout: "file", stderr: "", outcome: { type: "exit", exit_code: 0 } }],
    };
    const answered = await create({ model, input: [output], conversation: conversation.id });
    expect(answered.output_text.trim()).toBe("The tool returned: file\n[exit code 0]");
    const items = await Array.fromAsync(gateway.openai.conversations.items.list(conversation.id, { order: "asc" }));
    expect(items.map(({ type }) => type)).toContain("shell_call_output");
  });

  it.each([
    [{ type: "custom", name: "note" }, "multi_agent_v1__note", "multi_agent_v1.note"],
    [
      { type: "function", name: "close_agent", namespace: "multi_agent_v1" },
      "multi_agent_v1__close_agent",
      "multi_agent_v1.close_agent",
    ],
    [{ type: "shell" }, "shell", "functions.shell"],
  ])("must call the tool that %o names", async (choice, name, recipient) => {
    const tool_choice = choice as ResponseCreateParamsNonStreaming["tool_choice"];
    await create({
      model,
      tool_choice,
      input: script(model, name, recipient, name === "shell" ? '{"commands": ["ls"]}' : '{"input": "x"}'),
    });
    if (model === CHAT) expect(lastPrompt(gateway).tool_choice).toEqual({ type: "function", function: { name } });
    else expect(JSON.stringify(gateway.vllm.simulator.lastAsked?.body)).toContain(`to=${recipient}`);
  });
});

describe("unsupported tools that clients always send", () => {
  it("are left out if the operator allows that, and a header names them", async () => {
    const unknown = [
      { type: "computer_use_preview", display_width: 1, display_height: 1, environment: "linux" },
      { type: "x y" },
    ];
    const input = [
      { type: "additional_tools", tools: [{ type: "image_generation" }] },
      { role: "user", content: "Hello!" },
    ];
    // The echo differs from the request, so the body is not checked against it.
    const answer = await fetch(`${gateway.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: CHAT, input, tools: [...unknown, applyPatch], store: false }),
    });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-dropped-tools")).toBe("computer_use_preview, image_generation");
    expect((await answer.json()) as Response).toMatchObject({ tools: [applyPatch] });
    const other = await gateway.post({ model: CHAT, input: "Hello!", tools: [applyPatch], store: false });
    expect(other.headers.get("x-dropped-tools")).toBeNull();
  });

  it("are not offered if the operator has disabled them, and cannot be forced", async () => {
    const search: Tool = { type: "web_search" };
    const code: Tool = { type: "code_interpreter", container: { type: "auto" } };
    const asked = await create({ model: CHAT, input: "Hello!", tools: [search, code, applyPatch] });
    expect(asked.tools).toEqual([search, code, applyPatch]);
    expect(JSON.stringify(lastPrompt(gateway).tools)).not.toContain("browser");
    const forced = create({
      model: CHAT,
      input: "Hello!",
      tools: [search],
      tool_choice: { type: "web_search_preview" },
    });
    const refusal = { status: 400, param: "tool_choice", code: "unsupported_parameter" };
    await expect(forced).rejects.toMatchObject(refusal);
    const body = { model: CHAT, input: "Hello!", tools: [search, code], tool_choice: "required" as const };
    await expect(create(body)).rejects.toMatchObject(refusal);
    await expect(create({ ...body, background: true })).rejects.toMatchObject(refusal);
    const agents = { model: CHAT, input: "Hello!", multi_agent: { enabled: true } };
    const disabled = { status: 400, param: "multi_agent.enabled", code: "unsupported_parameter" };
    await expect(gateway.openai.beta.responses.create(agents)).rejects.toMatchObject(disabled);
    const empty: Tool = { type: "namespace", name: "empty", description: "", tools: [] };
    await expect(create({ ...body, tools: [search, empty] })).rejects.toMatchObject({
      ...{ status: 400, param: "tool_choice" },
      message: expect.stringMatching(/'empty' has no tools/),
    });
  });
});
