import { DIALECTS } from "@responses-edge/engines/dialects/all";
import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { contextWindow, listModels, resolveModel } from "@responses-edge/engines/models";
import { Upstream } from "@responses-edge/engines/upstream";
import { describe, expect, it } from "vitest";
import { loadConfig, type Variables } from "../../src/config/index.ts";

/** Model servers whose kind or models are not known, or no longer what they were. */

type Answer = (path: string) => Response | Promise<Response>;

const { signal } = new AbortController();
let servers = 0;

const list = (owned_by: string | undefined, ...ids: string[]) =>
  Response.json({ data: ids.map((id) => ({ id, ...(owned_by && { owned_by }) })) });
const missing = () => Response.json({ error: { message: "Not Found" } }, { status: 404 });
const failing = (status: number) => () => Response.json({}, { status });
const down = () => Promise.reject(new TypeError("connection refused"));
const PROBES = Object.fromEntries(
  Object.values(DIALECTS).flatMap(({ probe }) => (probe ? [[probe.path.slice(1), missing]] : [])),
);

/** Servers, by the answers of their paths. `becomes` replaces the answers of one of them. */
function serving(
  first: Record<string, Record<string, Answer>>,
  variables: Partial<Variables> = {},
  fields: object = {},
) {
  servers += 1;
  const answers = { ...first };
  const entries = Object.keys(answers).map((name) => ({ name, url: `http://${name}-kind-${servers}/v1`, ...fields }));
  const config = loadConfig({ UPSTREAMS: JSON.stringify(entries), ALLOW_ANONYMOUS: "true", ...variables });
  const asked: string[] = [];
  config.modelServers = config.modelServers.map((server) => ({
    ...server,
    fetch: async (url) => {
      const { pathname } = new URL(url);
      asked.push(`${server.name} ${pathname}`);
      return (answers[server.name]?.[pathname] ?? PROBES[pathname] ?? missing)(pathname);
    },
  }));
  const upstream = (model: string | undefined = "alpha") => new Upstream(config, { model });
  return {
    config,
    asked,
    upstream,
    count: (path: string) => asked.filter((line) => line.endsWith(` ${path}`)).length,
    becomes: (name: string, now: Record<string, Answer>) => void Object.assign(answers, { [name]: now }),
    /** Sends a request, and gives the kind that its body was made for. */
    ask: async (model?: string) => {
      let kind: Dialect | undefined;
      await upstream(model).request("/chat/completions", signal, (dialect) => {
        kind = dialect;
        return "{}";
      });
      return kind?.name;
    },
  };
}

const chat = { "/v1/chat/completions": () => Response.json({}) };
const of = (owner: string | undefined, ...ids: string[]): Record<string, Answer> => ({
  ...chat,
  "/v1/models": () => list(owner, ...ids),
});
const UNKNOWN = { status: 503, code: "model_server_unknown" };
const NO_MODEL = { status: 400, code: "model_not_found", param: "model" };

describe("a model server of an unknown kind", () => {
  it("that was away is asked for it before the first request, however short its absence", async () => {
    const { ask, becomes, count } = serving({ a: { "/v1/models": down, "/v1/chat/completions": down } });
    await expect(ask()).rejects.toMatchObject({ status: 502, code: "upstream_unreachable" });
    becomes("a", of("llamacpp", "alpha"));
    expect(await ask()).toBe("llamacpp");
    expect(count("/v1/chat/completions")).toBe(1);
  });

  it.each([500, 503, 429])("gets no request while its list of models fails with %i", async (status) => {
    const { ask, becomes, count } = serving({ a: { ...chat, "/v1/models": failing(status) } });
    const fault = status === 500 ? UNKNOWN : { status };
    for (let turn = 0; turn < 2; turn += 1) await expect(ask()).rejects.toMatchObject(fault);
    expect(count("/v1/chat/completions")).toBe(0);
    becomes("a", of("sglang", "alpha"));
    expect(await ask()).toBe("sglang");
  });

  it("gets no request while the paths that show a kind fail", async () => {
    const hidden = { ...of("somebody", "alpha"), "/props": failing(503) };
    const { ask, becomes, count } = serving({ a: hidden });
    await expect(ask()).rejects.toMatchObject(UNKNOWN);
    expect(count("/v1/chat/completions")).toBe(0);
    becomes("a", { ...hidden, "/props": () => Response.json({ default_generation_settings: {} }) });
    expect(await ask()).toBe("llamacpp");
  });

  it.each<[string, Record<string, Answer>]>([
    ["lists no models at that path", chat],
    ["lists none", of(undefined)],
    ["names no owner", of(undefined, "alpha")],
    ["names an unknown owner", of("somebody", "alpha")],
    ["answers something else", { ...chat, "/v1/models": () => Response.json([]) }],
  ])("gets only fields of OpenAI if it %s and has none of the paths", async (_, answers) => {
    const { ask, count } = serving({ a: answers });
    for (let turn = 0; turn < 3; turn += 1) expect(await ask()).toBe("openai");
    expect(count("/v1/models")).toBe(1);
  });

  it.each<[string, Record<string, Answer>]>([
    ["lists no models at that path", chat],
    ["names no owner", of(undefined, "alpha")],
  ])("is recognised by a path if it %s", async (_, answers) => {
    const version = { "/version": () => Response.json({ version: "0.33.0" }) };
    expect(await serving({ a: { ...answers, ...version } }).ask()).toBe("vllm");
  });

  it("gets one question of many requests, whose failure is that of all", async () => {
    const answer = Promise.withResolvers<Response>();
    const { ask, becomes, count } = serving({ a: { ...chat, "/v1/models": () => answer.promise } });
    const turns = Array.from({ length: 20 }, () => ask());
    await expect.poll(() => count("/v1/models")).toBe(1);
    answer.resolve(failing(500)());
    for (const { status } of await Promise.allSettled(turns)) expect(status).toBe("rejected");
    expect(count("/v1/models")).toBe(1);
    becomes("a", of("vllm", "alpha"));
    expect(await Promise.all(Array.from({ length: 20 }, () => ask()))).toEqual(Array(20).fill("vllm"));
    expect(count("/v1/models")).toBe(2);
  });

  it("is no reason to wait in a pool: another server gets the request", async () => {
    const { upstream, asked } = serving({ a: { ...chat, "/v1/models": failing(500) }, b: of("vllm", "alpha") });
    for (let turn = 0; turn < 10; turn += 1) {
      const turns = upstream();
      expect((await turns.learnDialect(signal)).name).toBe("vllm");
      await turns.request("/chat/completions", signal, "{}");
    }
    expect(asked.filter((line) => line.endsWith("completions"))).toEqual(Array(10).fill("b /v1/chat/completions"));
  });

  it("gets no prompt of several tenants before its kind is known, and none if one of several kinds mixes them", async () => {
    const API_KEYS = `a:${"a".repeat(64)},b:${"b".repeat(64)}`;
    const { ask, becomes, count } = serving({ a: { ...chat, "/v1/models": failing(500) } }, { API_KEYS });
    await expect(ask()).rejects.toMatchObject(UNKNOWN);
    const behindProxy = () =>
      Response.json({ data: ["vllm", "llamacpp"].map((owned_by) => ({ id: `${owned_by}-model`, owned_by })) });
    for (const models of [() => list("llamacpp", "alpha"), behindProxy]) {
      becomes("a", { ...chat, "/v1/models": models });
      await expect(ask()).rejects.toMatchObject({ status: 503, code: "tenants_not_separated" });
    }
    expect(count("/v1/chat/completions")).toBe(0);
  });

  it("is assumed to know token ids while it is away, so that a run of gpt-oss may wait for it", async () => {
    const { config, upstream, becomes, count } = serving({ a: { "/v1/models": down } });
    expect((await resolveModel("gpt-oss-20b", "", config, upstream(), signal)).engine).toBe("harmony");
    // Another kind does not get what was made for a vLLM.
    const turn = upstream("gpt-oss-20b");
    turn.require(({ hasTokenIds }) => hasTokenIds);
    becomes("a", { ...of("llamacpp", "gpt-oss-20b"), "/v1/completions": () => Response.json({}) });
    await expect(turn.request("/completions", signal, "{}")).rejects.toMatchObject({ status: 502 });
    expect(count("/v1/completions")).toBe(0);
    expect((await resolveModel("gpt-oss-20b", "", config, upstream(), signal)).engine).toBe("chat");
  });

  it("is no reason to guess the engine of gpt-oss", async () => {
    const { config, upstream } = serving({ a: { ...chat, "/v1/models": failing(500) } });
    await expect(resolveModel("gpt-oss-20b", "", config, upstream(), signal)).rejects.toMatchObject(UNKNOWN);
  });
});

describe("the window of a model", () => {
  const unloaded = of("llamacpp", "alpha", "beta");
  const loaded = () => Response.json({ default_generation_settings: { n_ctx: 4096 } });

  it("that llama.cpp's router lists without one is that of the loaded model", async () => {
    const { upstream, ask, asked } = serving({ a: { ...unloaded, "/props": loaded } });
    await ask();
    expect(await contextWindow("alpha", upstream(), signal)).toBe(4096);
    expect(asked.at(-1)).toBe("a /props");
    expect(await contextWindow("gamma", upstream("gamma"), signal)).toBeUndefined();
  });

  it("is the operator's, if there is one", async () => {
    const CONTEXT_WINDOWS = '{"alpha":2000}';
    const { config, upstream, ask, count } = serving({ a: { ...unloaded, "/props": loaded } }, { CONTEXT_WINDOWS });
    await ask();
    expect(await contextWindow("alpha", upstream(), signal)).toBe(2000);
    expect(count("/props")).toBe(0);
    const cards = await listModels(config, upstream(), signal);
    expect(cards).toMatchObject([
      { id: "alpha", max_model_len: 2000 },
      { id: "beta", max_model_len: null },
    ]);
  });
});

describe("another server at the URL of one that was away", () => {
  it("is asked for its kind again", async () => {
    const { ask, becomes } = serving({ a: of("vllm", "alpha") });
    expect(await ask()).toBe("vllm");
    becomes("a", { "/v1/models": down, "/v1/chat/completions": down });
    await expect(ask()).rejects.toMatchObject({ code: "upstream_unreachable" });
    becomes("a", of("llamacpp", "alpha"));
    expect(await ask()).toBe("llamacpp");
  });
});

describe("another model at a server that answers for any name", () => {
  it.each(["llamacpp", "sglang"])("is the only one that completes, at once (%s)", async (owner) => {
    const { ask, becomes } = serving({ a: of(owner, "alpha") });
    expect(await ask("alpha")).toBe(owner);
    becomes("a", of(owner, "beta"));
    await expect(ask("alpha")).rejects.toMatchObject(NO_MODEL);
    expect(await ask("beta")).toBe(owner);
  });

  it("completes at once where its name was unknown a moment ago", async () => {
    const { ask, becomes, asked } = serving({ a: of("llamacpp", "alpha") });
    await ask("alpha");
    becomes("a", of("llamacpp", "alpha", "beta"));
    await expect.poll(() => ask("beta").catch(() => undefined)).toBe("llamacpp");
    // A name that nobody knows does not cause a question each.
    asked.length = 0;
    for (let turn = 0; turn < 20; turn += 1) await expect(ask("gamma")).rejects.toMatchObject(NO_MODEL);
    expect(asked.length).toBeLessThan(5);
  });

  it("is not taken for the one that was asked for if the list fails", async () => {
    const { ask } = serving({ a: { ...chat, "/v1/models": failing(500) } }, {}, { dialect: "llamacpp" });
    await expect(ask("alpha")).rejects.toMatchObject({ code: "upstream_error" });
  });
});

describe("another model at a vLLM", () => {
  it("is found at the other server of a pool as soon as the first one has refused it", async () => {
    const refusing = (name: string) => ({
      "/v1/chat/completions": () =>
        Response.json({ error: { message: `The model \`${name}\` does not exist.`, code: 404 } }, { status: 404 }),
    });
    const { ask, becomes } = serving({ a: of("vllm", "alpha"), b: of("vllm", "alpha") });
    await ask("alpha");
    becomes("a", { ...of("vllm", "beta"), ...refusing("alpha") });
    becomes("b", { ...of("vllm", "beta"), ...refusing("alpha") });
    await expect(ask("alpha")).rejects.toMatchObject(NO_MODEL);
    becomes("a", of("vllm", "beta"));
    becomes("b", of("vllm", "gamma"));
    expect(await ask("beta")).toBe("vllm");
  });
});
