import { contextWindow, resolveModel } from "@responses-edge/engines/models";
import { Upstream } from "@responses-edge/engines/upstream";
import { expect, it } from "vitest";
import { loadConfig, type Variables } from "../../src/config/index.ts";

let servers = 0;

/** A model server with these cards, and the number of requests for them. */
function serving(cards: object[], variables: Partial<Variables> = {}) {
  const config = loadConfig({
    VLLM_BASE_URL: `http://vllm-${servers++}/v1`,
    ALLOW_ANONYMOUS: "true",
    UPSTREAM_DIALECT: "vllm",
    ...variables,
  });
  let asked = 0;
  const fetch = async () => {
    asked += 1;
    return Response.json({ object: "list", data: cards });
  };
  config.modelServers = config.modelServers.map((server) => ({ ...server, fetch }));
  const upstream = new Upstream(config);
  const { signal } = new AbortController();
  return {
    engineOf: async (name: string) => (await resolveModel(name, "", config, upstream, signal)).engine,
    windowOf: (name: string) => contextWindow(name, upstream, signal),
    asked: () => asked,
  };
}

// Cards of vLLM 0.32: an adapter's root is its path, and it has no window.
const base = { id: "house-model", root: "/models/openai/gpt-oss-20b", parent: null, max_model_len: 8192 };
const adapter = { id: "tuned", root: "/adapters/tuned", parent: "house-model", max_model_len: null };

it("an adapter of gpt-oss uses Harmony, and has its base's window", async () => {
  const { engineOf, windowOf, asked } = serving([base, adapter, { ...adapter, id: "twice", parent: "tuned" }]);
  for (const name of ["house-model", "tuned", "twice"]) {
    expect(await engineOf(name)).toBe("harmony");
    expect(await windowOf(name)).toBe(8192);
  }
  expect(asked()).toBe(1);
});

it("an adapter's base without a card counts by its name", async () => {
  expect(await serving([{ ...adapter, parent: "gpt-oss-20b" }]).engineOf("tuned")).toBe("harmony");
});

it("an adapter of another model does not use Harmony, unless MODEL_ENGINES says so of its base", async () => {
  const cards = [{ ...base, root: "/models/qwen3" }, adapter];
  expect(await serving(cards).engineOf("tuned")).toBe("chat");
  const configured = { MODEL_ENGINES: '{"house-model":"harmony"}' };
  expect(await serving(cards, configured).engineOf("tuned")).toBe("harmony");
});

it("cards that name each other cause no endless loop", async () => {
  const cards = [
    { ...adapter, id: "a", parent: "b" },
    { ...adapter, id: "b", parent: "a" },
  ];
  const { engineOf, windowOf } = serving(cards);
  expect(await engineOf("a")).toBe("chat");
  expect(await windowOf("a")).toBeUndefined();
});
