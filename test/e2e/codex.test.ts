import type { Response as ResponseBody, ResponseStreamEvent } from "openai/resources/responses/responses";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { eventually, type Gateway, startGateway } from "./support.ts";

/** The parts of the API that only the Codex CLI (0.169) uses. `npm run test:clients` runs the CLI itself. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({
    MODEL_ALIASES: JSON.stringify({ house: "simulator" }),
    CODEX_MODELS: JSON.stringify({
      "*": { truncation_policy: { mode: "tokens", limit: 4_000 } },
      simulator: { input_modalities: ["text", "image"] },
    }),
  });
});
afterAll(() => gateway.close());
beforeEach(() => {
  gateway.vllm.simulator.requests.length = 0;
});

describe("GET /v1/models with client_version", () => {
  type Model = { slug: string; [field: string]: unknown };
  const catalogue = async (): Promise<Model[]> => {
    const response = await gateway.fetch(`${gateway.url}/v1/models?client_version=0.169.0`);
    expect(response.status).toBe(200);
    return ((await response.json()) as { models: Model[] }).models;
  };

  it("lists the models and aliases of /v1/models, each with all fields that Codex requires", async () => {
    const models = await catalogue();
    const { data } = await gateway.openai.models.list();
    expect(models.map(({ slug }) => slug)).toEqual(data.map(({ id }) => id));
    expect(models.map(({ slug }) => slug)).toContain("house");
    for (const model of models) {
      expect(model).toMatchObject({
        display_name: expect.any(String),
        base_instructions: expect.stringContaining("apply_patch"),
        supported_reasoning_levels: expect.any(Array),
        shell_type: "unified_exec",
        visibility: "list",
        supported_in_api: true,
        priority: expect.any(Number),
        support_verbosity: false,
        experimental_supported_tools: [],
        apply_patch_tool_type: "freeform",
      });
    }
  });

  it("gives the window of a model's card, and the efforts of gpt-oss", async () => {
    const models = new Map((await catalogue()).map((model) => [model.slug, model]));
    expect(models.get("tiny-gpt-oss")).toMatchObject({
      context_window: 8192,
      max_context_window: 8192,
      default_reasoning_level: "medium",
      supported_reasoning_levels: [{ effort: "low" }, { effort: "medium" }, { effort: "high" }],
    });
    expect(models.get("tiny-qwen3")).toMatchObject({ context_window: 4096, supported_reasoning_levels: [] });
  });

  it("gives the operator's settings, for all models and for one", async () => {
    const models = new Map((await catalogue()).map((model) => [model.slug, model]));
    for (const model of models.values()) expect(model.truncation_policy).toEqual({ mode: "tokens", limit: 4_000 });
    expect(models.get("simulator")?.input_modalities).toEqual(["text", "image"]);
    expect(models.get("simulator-reasoning")?.input_modalities).toEqual(["text"]);
  });

  it("without client_version is the API's own list", async () => {
    const response = await gateway.fetch(`${gateway.url}/v1/models`);
    expect(await response.json()).toMatchObject({ object: "list" });
  });
});

describe.each([
  [
    "tiny-qwen3",
    { call: (json: string) => `‹tool_call›\n{"name": "apply_patch", "arguments": ${json}}\n‹/tool_call›` },
  ],
  ["tiny-gpt-oss", { call: undefined }],
])("the requests of a turn with a patch, by %s", (model, { call }) => {
  const patch = "*** Begin Patch\n*** Add File: a.txt\n+Hello!\n*** End Patch";
  const grammar = `start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: "*** Add File: " /(.+)/ LF ("+" /(.*)/ LF -> line)+
%import common.LF`;
  const strictless = (name: string) => ({ type: "function", name, description: "", strict: false, parameters: {} });
  const tools = [
    strictless("exec_command"),
    {
      type: "custom",
      name: "apply_patch",
      description: "Edits files.",
      format: { type: "grammar", syntax: "lark", definition: grammar },
    },
    {
      type: "namespace",
      name: "multi_agent_v1",
      description: "Manages agents.",
      tools: [strictless("close_agent"), strictless("spawn_agent")],
    },
    { type: "web_search", external_web_access: true },
  ];
  const said = (role: string, text: string) => ({
    type: "message",
    id: `msg_${crypto.randomUUID()}`,
    role,
    content: [{ type: "input_text", text }],
  });
  const script =
    call === undefined
      ? `SCRIPT[[‹|channel|›analysis‹|message|›hm‹|end|›‹|start|›assistant‹|channel|›commentary to=functions.apply_patch‹|message|›${patch}‹|call|›]]`
      : `SCRIPT[[‹think›\nhm\n‹/think›\n\n${call(JSON.stringify({ input: patch }))}‹|im_end|›]]`;
  const thread = crypto.randomUUID();
  const turn = async (input: object[]): Promise<{ events: ResponseStreamEvent[]; response: ResponseBody }> => {
    const answer = await gateway.post(
      {
        model,
        stream: true,
        input,
        tools,
        tool_choice: "auto",
        parallel_tool_calls: true,
        reasoning: { summary: "auto" },
        store: false,
        include: ["reasoning.encrypted_content"],
        prompt_cache_key: thread,
        client_metadata: { thread_id: thread, "x-codex-window-id": `${thread}:0` },
      },
      { "session-id": thread, "thread-id": thread, originator: "codex_exec", "x-codex-turn-metadata": "{}" },
    );
    expect(answer.status).toBe(200);
    const lines = (await answer.text()).split("\n").filter((line) => line.startsWith("data: {"));
    const events = lines.map((line) => JSON.parse(line.slice("data: ".length)) as ResponseStreamEvent);
    const last = events.at(-1);
    if (last?.type !== "response.completed") throw new Error(`The last event is ${JSON.stringify(last)}`);
    return { events, response: last.response };
  };

  it("are answered with an unchanged patch, and continue after its result", async () => {
    const input = [said("developer", "You are an agent."), said("user", "<environment/>"), said("user", script)];
    const { events, response } = await turn(input);
    const patched = response.output.find(({ type }) => type === "custom_tool_call");
    expect(patched).toMatchObject({ name: "apply_patch", input: patch, status: "completed" });
    // Codex shows only summaries.
    expect(response.output[0]).toMatchObject({ type: "reasoning", summary: [{ text: expect.stringContaining("hm") }] });
    expect(events.map(({ type }) => type)).toContain("response.reasoning_summary_text.delta");
    const callId = patched?.type === "custom_tool_call" ? patched.call_id : "";
    // Codex sends all items back, and reasoning only with the fields that it got.
    const replayed = response.output.map((item) =>
      item.type === "reasoning" ? { ...item, encrypted_content: item.encrypted_content ?? null } : item,
    );
    const output = { type: "custom_tool_call_output", id: "ctco_1", call_id: callId, output: "Success." };
    const { response: answered } = await turn([...input, ...replayed, output]);
    const message = answered.output.at(-1);
    expect(message).toMatchObject({ content: [{ text: expect.stringContaining("The tool returned: Success.") }] });
  });

  it("that request a summary without tools are answered with text", async () => {
    const answer = await gateway.post({
      model,
      input: [said("user", "Hello!"), said("user", "Create a handoff summary.")],
      tools: [],
      parallel_tool_calls: false,
      store: false,
    });
    expect(await answer.json()).toMatchObject({ status: "completed", usage: { total_tokens: expect.any(Number) } });
  });
});

describe("x-codex-turn-state", () => {
  const metadata = { "x-codex-turn-metadata": "{}" };
  const ask = (headers: Record<string, string>, fields: object = {}) =>
    gateway.post({ model: "simulator", input: "Hello!", store: false, ...fields }, headers);
  const state = async (response: Promise<Response>) => {
    const { headers, status } = await response;
    expect(status).toBe(200);
    return headers.get("x-codex-turn-state");
  };

  it("is sent to Codex, and to no other client", async () => {
    expect(await state(ask(metadata))).toMatch(/^[0-9a-f-]{36}$/);
    expect(await state(ask(metadata, { stream: true }))).toMatch(/^[0-9a-f-]{36}$/);
    expect(await state(ask({}))).toBeNull();
  });

  it("is repeated when Codex sends it, unless it is not ours", async () => {
    expect(await state(ask({ ...metadata, "x-codex-turn-state": "sticky" }))).toBe("sticky");
    const long = "x".repeat(257);
    expect(await state(ask({ ...metadata, "x-codex-turn-state": long }))).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe("X-Session-ID, to a router before the model servers", () => {
  const session = async (fields: object, headers: Record<string, string> = {}) => {
    const { requests } = gateway.vllm.simulator;
    requests.length = 0;
    const response = await gateway.post({ model: "simulator", input: "Hello!", ...fields }, headers);
    expect(response.status).toBe(200);
    await response.text();
    return requests.find(({ path }) => path === "/v1/chat/completions")?.headers["x-session-id"];
  };

  it("is the same for one prompt_cache_key, and differs for another", async () => {
    const first = await session({ prompt_cache_key: "thread-1" });
    expect(first).toMatch(/^[0-9a-f]{16}$/);
    expect(await session({ prompt_cache_key: "thread-1", stream: true })).toBe(first);
    expect(await session({ prompt_cache_key: "thread-2" })).not.toBe(first);
  });

  it("is derived from x-codex-turn-state without a key", async () => {
    const headers = { "x-codex-turn-state": "sticky" };
    const first = await session({}, headers);
    expect(first).toMatch(/^[0-9a-f]{16}$/);
    expect(await session({}, headers)).toBe(first);
    expect(await session({ prompt_cache_key: "thread-1" }, headers)).toBe(
      await session({ prompt_cache_key: "thread-1" }),
    );
  });

  it("is derived from the session that the agent's header names", async () => {
    for (const name of ["session-id", "x-claude-code-session-id", "x-session-affinity"]) {
      const first = await session({ store: false }, { [name]: "agent-1" });
      expect(await session({ store: false, input: "And now?" }, { [name]: "agent-1" })).toBe(first);
      expect(await session({ store: false }, { [name]: "agent-2" })).not.toBe(first);
    }
  });

  it("is the conversation's own if the client names none: the same in all turns and branches, and in no other conversation", async () => {
    const { responses } = gateway.openai;
    const { requests } = gateway.vllm.simulator;
    requests.length = 0;
    const first = await responses.create({ model: "simulator", input: "Hello!" });
    const ask = { model: "simulator", previous_response_id: first.id, input: "And now?" };
    const second = await responses.create(ask);
    await responses.create(ask);
    await responses.create({ ...ask, previous_response_id: second.id, store: false });
    const sessions = requests.map(({ headers }) => headers["x-session-id"]);
    expect(sessions).toHaveLength(4);
    expect(new Set(sessions).size).toBe(1);
    expect(await session({})).not.toBe(sessions[0]);
  });

  it("is derived from the beginning of the prompt without storage", async () => {
    const first = await session({ store: false, instructions: "You are an agent." });
    const said = { role: "assistant", content: "You said: Hello!" };
    const input = [{ role: "user", content: "Hello!" }, said, { role: "user", content: "And now?" }];
    expect(await session({ store: false, instructions: "You are an agent.", input })).toBe(first);
    expect(await session({ store: false, instructions: "You are another." })).not.toBe(first);
    expect(await session({ store: false, instructions: "You are an agent.", input: "Bye!" })).not.toBe(first);
  });

  it("is sent by a background run, too", async () => {
    const foreground = await session({ prompt_cache_key: "thread-1" });
    const { requests } = gateway.vllm.simulator;
    requests.length = 0;
    const { id } = await gateway.openai.responses.create({
      input: "Hello!",
      prompt_cache_key: "thread-1",
      background: true,
    });
    await eventually(async () => (await gateway.openai.responses.retrieve(id)).status === "completed");
    expect(requests.find(({ path }) => path === "/v1/chat/completions")?.headers["x-session-id"]).toBe(foreground);
  });
});
