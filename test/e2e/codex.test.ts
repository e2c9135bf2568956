import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { eventually, type Gateway, startGateway } from "./support.ts";

/** What the Codex CLI (0.169) asks and reads beside the API. The binary itself: `npm run test:clients`. */

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

  it("lists the models and aliases of /v1/models, each with all that Codex demands", async () => {
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

  it("says the window of a model's card, and the efforts of gpt-oss", async () => {
    const models = new Map((await catalogue()).map((model) => [model.slug, model]));
    expect(models.get("tiny-gpt-oss")).toMatchObject({
      context_window: 8192,
      max_context_window: 8192,
      default_reasoning_level: "medium",
      supported_reasoning_levels: [{ effort: "low" }, { effort: "medium" }, { effort: "high" }],
    });
    expect(models.get("tiny-qwen3")).toMatchObject({ context_window: 4096, supported_reasoning_levels: [] });
  });

  it("says what the operator says, of all models and of one", async () => {
    const models = new Map((await catalogue()).map((model) => [model.slug, model]));
    for (const model of models.values()) expect(model.truncation_policy).toEqual({ mode: "tokens", limit: 4_000 });
    expect(models.get("simulator")?.input_modalities).toEqual(["text", "image"]);
    expect(models.get("simulator-reasoning")?.input_modalities).toEqual(["text"]);
  });

  it("is the API's own list without it", async () => {
    const response = await gateway.fetch(`${gateway.url}/v1/models`);
    expect(await response.json()).toMatchObject({ object: "list" });
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

  it("that Codex says again is said again, unless it is none of ours", async () => {
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

  it("is the same for one prompt_cache_key, and another for another", async () => {
    const first = await session({ prompt_cache_key: "thread-1" });
    expect(first).toMatch(/^[\w-]{43}$/);
    expect(await session({ prompt_cache_key: "thread-1", stream: true })).toBe(first);
    expect(await session({ prompt_cache_key: "thread-2" })).not.toBe(first);
  });

  it("is made of x-codex-turn-state where there is no key", async () => {
    const headers = { "x-codex-turn-state": "sticky" };
    const first = await session({}, headers);
    expect(first).toMatch(/^[\w-]{43}$/);
    expect(await session({}, headers)).toBe(first);
    expect(await session({ prompt_cache_key: "thread-1" }, headers)).toBe(
      await session({ prompt_cache_key: "thread-1" }),
    );
  });

  it("is not sent where the client says neither", async () => {
    expect(await session({})).toBeUndefined();
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
