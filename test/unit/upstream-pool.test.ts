import { DIALECTS } from "@responses-edge/engines/dialects/all";
import { listModels, resolveModel } from "@responses-edge/engines/models";
import { type ServerKey, Upstream, type UpstreamOptions } from "@responses-edge/engines/upstream";
import type { ServerAttempt } from "@responses-edge/turn/contract/engine";
import { afterEach, describe, expect, it, vi } from "vitest";
import { serverStates } from "../../src/assembly/model-server.ts";
import { loadConfig, type Variables } from "../../src/config/index.ts";

/** Requests to several model servers, and their results. */

type Answer = (path: string, init: RequestInit) => Response | Promise<Response>;

const { signal } = new AbortController();
const MODEL = "qwen3";

/** The answers of a server that has the models. */
function having(...models: string[]): Answer {
  const data = models.map((id) => ({ id, owned_by: "vllm" }));
  return (path) => (path === "/v1/models" ? Response.json({ data }) : Response.json({}));
}

/** The same answers, except to requests for the model. */
function failing(answer: Answer, ...models: string[]): Answer {
  return (path, init) =>
    path === "/v1/models" ? having(...(models.length ? models : [MODEL]))(path, init) : answer(path, init);
}

const status = (code: number, body: object = {}, headers: Record<string, string> = {}) =>
  failing(() => Response.json(body, { status: code, headers }));
const unreachable = failing(() => Promise.reject(new TypeError("connection refused")));
const page = failing(() => new Response("<html>", { headers: { "content-type": "text/html; charset=utf-8" } }));
/** A server that accepts connections and never answers. */
const hanging = failing(
  (_, { signal }) => new Promise((_, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted")))),
);

let fleets = 0;

/** The paths for a server whose cards do not name its kind. */
const PROBES = new Set(Object.values(DIALECTS).map(({ probe }) => probe?.path.slice(1)));

/** A pool of servers with given answers. A server's state is cached by its URL. */
function fleetOf(answers: Record<string, Answer>, variables: Partial<Variables> = {}, fields: object = {}) {
  fleets += 1;
  const urls = Object.keys(answers).map((name) => ({ name, url: `http://${name}-${fleets}/v1`, ...fields }));
  const config = loadConfig({ UPSTREAMS: JSON.stringify(urls), ...variables } as Variables);
  /** The requests to each server, except those for its models. */
  const asked: string[] = [];
  const lists: string[] = [];
  config.modelServers = config.modelServers.map((server) => ({
    ...server,
    fetch: async (url, init) => {
      const path = new URL(url).pathname;
      if (!PROBES.has(path)) (path === "/v1/models" ? lists : asked).push(server.name);
      const answer = answers[server.name];
      if (!answer) throw new Error("There is no such server.");
      return answer(path, init);
    },
  }));
  const upstream = (options: Partial<UpstreamOptions> = {}) => new Upstream(config, { model: MODEL, ...options });
  return { config, asked, lists, upstream };
}

/** A key whose turns go to this one of the servers a, b and c. */
function serverKeyFor(server: string, fleet: ReturnType<typeof fleetOf>, isRoot = true): ServerKey {
  for (let index = 0; ; index += 1) {
    const serverKey = { id: `session-${index}`, key: `key ${index}`, isRoot };
    const first = fleet.config.modelServers.find(({ name }) => name === server);
    const upstream = new Upstream(fleet.config, { serverKey });
    if (upstream.server.config.name === first?.name) return serverKey;
  }
}

const ask = (upstream: Upstream) => upstream.request("/chat/completions", signal, "{}");
/** Reads the answer to its end. */
const askWhole = async (upstream: Upstream) => new Response((await ask(upstream)).body).text();
const healthy = having(MODEL);

afterEach(() => {
  vi.restoreAllMocks();
});

describe("one server alone", () => {
  it("gets each request once, and its errors go to the client", async () => {
    const fleet = fleetOf({ a: status(503, {}, { "retry-after": "7" }) });
    await expect(ask(fleet.upstream())).rejects.toMatchObject({ status: 503, headers: { "retry-after": "7" } });
    expect(fleet.asked).toEqual(["a"]);
    // For its kind.
    expect(fleet.lists).toEqual(["a"]);
  });

  it("gets no requests for models other than the operator's list", async () => {
    const fleet = fleetOf({ a: healthy }, {}, { models: ["other"] });
    await expect(ask(fleet.upstream())).rejects.toMatchObject({ status: 400, code: "model_not_found" });
    expect(fleet.asked).toEqual([]);
    await ask(fleet.upstream({ model: "other" }));
    expect(fleet.asked).toEqual(["a"]);
  });
});

describe("with several tenants, a server that is not a vLLM", () => {
  const API_KEYS = `a:${"a".repeat(64)},b:${"b".repeat(64)}`;
  const REFUSING = { API_KEYS, UNSALTED_SERVERS: "refuse" };
  const refused = { status: 503, code: "tenants_not_separated" };
  /** A server that names its kind in each of its cards. */
  const of =
    (...owners: string[]): Answer =>
    (path) =>
      Response.json(path === "/v1/models" ? { data: owners.map((owned_by) => ({ id: MODEL, owned_by })) } : {});

  it.each<[what: string, owner: string, variables: Partial<Variables>, fields: object, lines: number]>([
    ["of an unknown kind", "somebody", {}, {}, 1],
    ["whose tenants share a cache, which the operator accepts", "llamacpp", {}, { shared_cache: true }, 1],
    ["that mixes tenants, where that is only warned of", "llamacpp", { UNSALTED_SERVERS: "warn" }, {}, 1],
    ["that heeds the salt, as the operator says", "llamacpp", {}, { salted: true }, 0],
    ["that heeds the salt by its kind", "sglang", {}, {}, 0],
  ])("is used, and logged once: one %s", async (_, owner, variables, fields, lines) => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    const fleet = fleetOf({ other: of(owner) }, { API_KEYS, ...variables }, fields);
    for (let turn = 0; turn < 3; turn += 1) await ask(fleet.upstream());
    expect(fleet.asked).toEqual(["other", "other", "other"]);
    expect(warned.mock.calls.map(([line]) => JSON.parse(line))).toEqual(
      Array(lines).fill({ level: "warn", tenants_not_separated: "other" }),
    );
  });

  it("gets no prompt if its kind mixes tenants, unless the operator accepts that", async () => {
    for (const owner of ["llamacpp", "library"]) {
      const fleet = fleetOf({ other: of(owner) }, { API_KEYS });
      for (let turn = 0; turn < 2; turn += 1) await expect(ask(fleet.upstream())).rejects.toMatchObject(refused);
      expect(fleet.asked).toEqual([]);
    }
  });

  it.each<[what: string, owners: string[]]>([
    ["another server", ["llamacpp"]],
    ["a proxy before several", ["vllm", "llamacpp"]],
    ["a server that says nothing", []],
  ])("gets no prompt if the operator refuses that: %s", async (_, owners) => {
    const fleet = fleetOf({ a: of(...owners) }, REFUSING);
    for (let turn = 0; turn < 2; turn += 1) await expect(ask(fleet.upstream())).rejects.toMatchObject(refused);
    expect([fleet.asked, fleet.lists]).toEqual([[], ["a"]]);
    const vllm = fleetOf({ a: of("vllm") }, REFUSING);
    for (let turn = 0; turn < 2; turn += 1) await ask(vllm.upstream());
    expect([vllm.asked, vllm.lists]).toEqual([["a", "a"], ["a"]]);
  });

  it("gets no prompt in a pool, for a named model or not", async () => {
    for (const model of [MODEL, undefined]) {
      const fleet = fleetOf({ a: of("vllm"), b: of("llamacpp"), c: of("vllm") }, REFUSING);
      const moved: ServerAttempt[] = [];
      const onAttempt = (call: ServerAttempt) => void (call.attempt > 1 && moved.push(call));
      for (let turn = 0; turn < 30; turn += 1) await ask(fleet.upstream({ model, onAttempt }));
      expect(new Set(fleet.asked)).toEqual(new Set(["a", "c"]));
      // After its kind is known, it is not even chosen.
      expect(moved.length).toBeLessThanOrEqual(1);
    }
  });

  it("is used with one tenant", async () => {
    for (const keys of [{}, { API_KEYS: `a:${"a".repeat(64)},a:${"b".repeat(64)}` }]) {
      const fleet = fleetOf({ a: of("llamacpp") }, { UNSALTED_SERVERS: "refuse", ...keys });
      await ask(fleet.upstream());
      expect(fleet.asked).toEqual(["a"]);
    }
  });

  it("that is down has the fault of an outage, for whose end turns wait", async () => {
    let answer: Answer = () => Promise.reject(new TypeError("connection refused"));
    const fleet = fleetOf({ a: (path, init) => answer(path, init) }, REFUSING);
    await expect(ask(fleet.upstream())).rejects.toMatchObject({ status: 502, code: "upstream_unreachable" });
    answer = of("vllm");
    await ask(fleet.upstream());
  });
});

describe("a turn", () => {
  it("sends all its requests to one server, which is the same for all turns of a conversation", async () => {
    const fleet = fleetOf({ a: healthy, b: healthy, c: healthy });
    for (const name of ["a", "b", "c"]) {
      fleet.asked.length = 0;
      const serverKey = serverKeyFor(name, fleet);
      for (let turn = 0; turn < 2; turn += 1) {
        const upstream = fleet.upstream({ serverKey });
        for (let round = 0; round < 3; round += 1) await askWhole(upstream);
      }
      expect(fleet.asked).toEqual(Array(6).fill(name));
    }
  });

  it("sends the id of the key, and each server's own key and headers", async () => {
    const sent: Headers[] = [];
    const noting = failing((_, { headers }) => {
      sent.push(new Headers(headers));
      return Response.json({});
    });
    const UPSTREAM_SECRETS = JSON.stringify({ a: { api_key: "key-of-a", headers: { "CF-Access-Client-Id": "id" } } });
    const fleet = fleetOf({ a: noting, b: noting }, { UPSTREAM_SECRETS, VLLM_API_KEY: "key-of-all" });
    for (const name of ["a", "b"]) await ask(fleet.upstream({ serverKey: serverKeyFor(name, fleet) }));
    const [a, b] = sent;
    expect(a?.get("x-session-id")).toMatch(/^session-/);
    expect(a?.get("authorization")).toBe("Bearer key-of-a");
    expect(a?.get("cf-access-client-id")).toBe("id");
    expect(b?.get("authorization")).toBe("Bearer key-of-all");
    expect(b?.has("cf-access-client-id")).toBe(false);
  });
});

describe("a request that a server cannot answer", () => {
  const faults: [what: string, answer: Answer][] = [
    ["refuses the connection", unreachable],
    ["answers 500", status(500)],
    ["answers 502", status(502)],
    ["answers 503", status(503)],
    ["answers 504", status(504)],
    ["answers 429", status(429)],
    ["answers 401", status(401)],
    ["answers 403", status(403)],
    ["redirects to a login", failing(() => new Response(null, { status: 302, headers: { location: "/login" } }))],
    ["has a dead engine", status(500, { error: { message: "EngineCore encountered an issue." } })],
    ["answers 200 with a page", page],
    ["does not know its model", status(404, { error: { message: "The model `qwen3` does not exist." } })],
  ];

  it.each(faults)("goes to another: one %s", async (_, fault) => {
    const fleet = fleetOf({ a: fault, b: healthy, c: healthy });
    const serverKey = serverKeyFor("a", fleet);
    const calls: ServerAttempt[] = [];
    const upstream = fleet.upstream({ serverKey, onAttempt: (call) => calls.push(call) });
    expect((await ask(upstream)).status).toBe(200);
    expect(fleet.asked).toHaveLength(2);
    expect(fleet.asked[0]).toBe("a");
    expect(calls).toMatchObject([
      { server: "a", attempt: 1, path: "/chat/completions" },
      { server: fleet.asked[1], attempt: 2, status: 200, fault: undefined },
    ]);
    // The turn stays at this server.
    await ask(upstream);
    expect(fleet.asked[2]).toBe(fleet.asked[1]);
  });

  it("goes to the servers in the key's own order", async () => {
    const fleet = fleetOf({ a: unreachable, b: unreachable, c: healthy });
    const serverKey = serverKeyFor("a", fleet);
    await ask(fleet.upstream({ serverKey }));
    expect(fleet.asked.at(-1)).toBe("c");
    expect(new Set(fleet.asked).size).toBe(fleet.asked.length);
  });

  it("goes to another when no headers arrive in time; the last one has VLLM_CONNECT_TIMEOUT_MS", async () => {
    const fleet = fleetOf({ a: hanging, b: healthy }, { UPSTREAM_FAILOVER_MS: "30" });
    await ask(fleet.upstream({ serverKey: serverKeyFor("a", fleet) }));
    expect(fleet.asked).toEqual(["a", "b"]);
    const bounds = { UPSTREAM_FAILOVER_MS: "30", VLLM_CONNECT_TIMEOUT_MS: "60" };
    const dead = fleetOf({ a: hanging, b: hanging }, bounds);
    await expect(ask(dead.upstream())).rejects.toMatchObject({
      status: 504,
      code: "upstream_timeout",
      message: expect.stringContaining("30 ms"),
    });
    expect(dead.asked.toSorted()).toEqual(["a", "b"]);
    expect(serverStates(dead.config, 0).map(({ isUp }) => isUp)).toEqual([false, false]);
    expect(serverStates(fleet.config, 0).map(({ isUp }) => isUp)).toEqual([false, true]);
  });

  it("has its normal timeout if the answer is JSON", async () => {
    const slow = failing(async () => {
      await new Promise((resolve) => setTimeout(resolve, 100));
      return Response.json({});
    });
    const fleet = fleetOf({ a: slow, b: slow }, { UPSTREAM_FAILOVER_MS: "10" });
    await fleet.upstream().request("/chat/completions", signal, "{}", { isWhole: true });
    expect(fleet.asked).toHaveLength(1);
  });

  it.each([400, 404, 405, 413, 422, 501])("does not go to another if the request is at fault: %i", async (code) => {
    const fleet = fleetOf({ a: status(code, { error: { message: "No." } }), b: healthy });
    await expect(ask(fleet.upstream({ serverKey: serverKeyFor("a", fleet) }))).rejects.toThrow();
    expect(fleet.asked).toEqual(["a"]);
  });

  it("goes to at most three servers, and after a failure that the prompt may have caused to two", async () => {
    const four = (fault: Answer) => fleetOf({ a: fault, b: fault, c: fault, d: fault });
    const gone = four(unreachable);
    await expect(ask(gone.upstream())).rejects.toMatchObject({ status: 502, code: "upstream_unreachable" });
    expect(gone.asked).toHaveLength(3);
    const broken = four(status(500));
    await expect(ask(broken.upstream())).rejects.toMatchObject({ status: 502, code: "upstream_error" });
    expect(broken.asked).toHaveLength(2);
  });

  it("is a 503 with the wait if any server would accept it later", async () => {
    const busy = status(503, {}, { "retry-after": "9" });
    for (const answers of [
      { a: busy, b: unreachable },
      { a: unreachable, b: busy },
    ]) {
      const fleet = fleetOf(answers);
      const fault = { status: 503, code: "server_is_overloaded", headers: { "retry-after": "9" } };
      await expect(ask(fleet.upstream({ serverKey: serverKeyFor("a", fleet) }))).rejects.toMatchObject(fault);
      expect(fleet.asked).toEqual(["a", "b"]);
    }
  });

  it("ends with its client, at any time", async () => {
    const client = new AbortController();
    const fleet = fleetOf({ a: hanging, b: hanging });
    const asking = fleet.upstream().request("/chat/completions", client.signal, "{}");
    await expect.poll(() => fleet.asked.length).toBeGreaterThan(0);
    client.abort(new Error("the client left"));
    await expect(asking).rejects.toThrow("the client left");
    expect(fleet.asked).toHaveLength(1);
  });
});

describe("a server that names a time to retry", () => {
  it("gets no request before, while another one is free", async () => {
    const fleet = fleetOf({ a: status(503, {}, { "retry-after": "30" }), b: healthy });
    const serverKey = serverKeyFor("a", fleet);
    for (let turn = 0; turn < 5; turn += 1) await askWhole(fleet.upstream({ serverKey }));
    expect(fleet.asked).toEqual(["a", "b", "b", "b", "b", "b"]);
    vi.spyOn(Date, "now").mockReturnValue(Date.now() + 31_000);
    await ask(fleet.upstream({ serverKey }));
    expect(fleet.asked.slice(6)).toEqual(["a", "b"]);
  });
});

describe("a server that fails again and again", () => {
  it("is ejected after five failures, and used again after half a minute", async () => {
    const fleet = fleetOf({ a: page, b: healthy, c: healthy });
    const serverKey = serverKeyFor("a", fleet);
    for (let turn = 0; turn < 9; turn += 1) await askWhole(fleet.upstream({ serverKey }));
    expect(fleet.asked.filter((name) => name === "a")).toHaveLength(5);
    vi.spyOn(Date, "now").mockReturnValue(Date.now() + 31_000);
    await ask(fleet.upstream({ serverKey }));
    expect(fleet.asked.filter((name) => name === "a")).toHaveLength(6);
  });
});

describe("a server that accepts and never answers", () => {
  it("delays one request, and is then ejected", async () => {
    const fleet = fleetOf({ a: hanging, b: healthy, c: healthy }, { UPSTREAM_FAILOVER_MS: "20" });
    const serverKey = serverKeyFor("a", fleet);
    for (let turn = 0; turn < 6; turn += 1) await ask(fleet.upstream({ serverKey }));
    expect(fleet.asked.filter((name) => name === "a")).toHaveLength(1);
  });
});

describe("a server that breaks off its output", () => {
  it("does not get its continuation while there is another; it does if all have broken off", async () => {
    const fleet = fleetOf({ a: healthy, b: healthy });
    const upstream = fleet.upstream({ serverKey: serverKeyFor("a", fleet) });
    for (let broken = 0; broken < 4; broken += 1) {
      await ask(upstream);
      upstream.leaveServer();
    }
    expect(fleet.asked).toEqual(["a", "b", "a", "b"]);
  });
});

describe("the models of several servers", () => {
  it("are listed once each, also if a server is down or hangs", async () => {
    const fleet = fleetOf({ a: having("m1", "m2"), b: () => Promise.reject(new Error("down")), c: having("m2", "m3") });
    const cards = await listModels(fleet.config, new Upstream(fleet.config), signal);
    expect(cards.map(({ id }) => id)).toEqual(["m1", "m2", "m3"]);
    const hung = fleetOf({ a: (_, init) => hanging("/", init), b: having("m1") });
    expect(await listModels(hung.config, new Upstream(hung.config), signal)).toMatchObject([{ id: "m1" }]);
    const down = () => Promise.reject(new Error("down"));
    const none = fleetOf({ a: down, b: down });
    const nothing = listModels(none.config, new Upstream(none.config), signal);
    await expect(nothing).rejects.toMatchObject({ status: 502, code: "upstream_unreachable" });
  });

  it("are requested from the servers that list them only", async () => {
    const fleet = fleetOf({ a: having("m1"), b: having("m2"), c: having("m1", "m2") });
    for (let turn = 0; turn < 20; turn += 1) await askWhole(fleet.upstream({ model: "m1" }));
    expect(new Set(fleet.asked)).toEqual(new Set(["a", "c"]));
    // Each server got one request for its list.
    expect(fleet.lists.toSorted()).toEqual(["a", "b", "c"]);
  });

  it("are known from all servers before one is chosen, also for simultaneous requests", async () => {
    const heard = Promise.withResolvers<void>();
    const late: Answer = async (path, init) => {
      if (path === "/v1/models") await heard.promise;
      return having("m1")(path, init);
    };
    let list: Response | undefined;
    const early: Answer = async (path, init) => {
      const answer = await having("m1")(path, init);
      if (path === "/v1/models") list = answer;
      return answer;
    };
    const fleet = fleetOf({ a: early, b: late, c: late });
    const turn = (index: number) =>
      ask(fleet.upstream({ model: "m1", serverKey: { id: "", key: `key ${index}`, isRoot: true } }));
    const first = turn(0);
    await expect.poll(() => fleet.lists.length === 3 && list?.bodyUsed).toBe(true);
    const others = Array.from({ length: 40 }, (_, index) => turn(index + 1));
    heard.resolve();
    await Promise.all([first, ...others]);
    expect(new Set(fleet.asked).size).toBe(3);
  });

  it("are the operator's list for a server, instead of its own", async () => {
    const fleet = fleetOf({ a: having("m1", "m2"), b: having("m1", "m2") }, {}, { models: ["m2"] });
    expect(await listModels(fleet.config, new Upstream(fleet.config), signal)).toMatchObject([{ id: "m2" }]);
    await expect(ask(fleet.upstream({ model: "m1" }))).rejects.toMatchObject({ code: "model_not_found" });
    expect(fleet.asked).toEqual([]);
  });

  it("that a server lists and does not serve are requested from another from then on", async () => {
    const fleet = fleetOf({ a: status(404, { error: { message: "The model `qwen3` does not exist." } }), b: healthy });
    const serverKey = serverKeyFor("a", fleet);
    for (let turn = 0; turn < 3; turn += 1) await askWhole(fleet.upstream({ serverKey }));
    expect(fleet.asked).toEqual(["a", "b", "b", "b"]);
  });

  it("that no server lists are requested from one server, which refuses them", async () => {
    const unknown = failing(() =>
      Response.json({ error: { message: "The model `x` does not exist." } }, { status: 404 }),
    );
    const fleet = fleetOf({ a: unknown, b: unknown });
    await expect(ask(fleet.upstream({ model: "x" }))).rejects.toMatchObject({ status: 400, code: "model_not_found" });
    expect(fleet.asked).toHaveLength(1);
  });

  it("that no server lists are unknown, also while a server is down", async () => {
    const unknown = failing(() =>
      Response.json({ error: { message: "The model `x` does not exist. Valid aliases: qwen3." } }, { status: 404 }),
    );
    let isDown = false;
    const dying: Answer = (path, init) => {
      if (isDown) throw new TypeError("connection refused");
      return unknown(path, init);
    };
    for (const first of ["a", "b"]) {
      isDown = false;
      const fleet = fleetOf({ a: unknown, b: dying });
      await listModels(fleet.config, new Upstream(fleet.config), signal);
      isDown = true;
      await expect(ask(fleet.upstream({ model: "x", serverKey: serverKeyFor(first, fleet) }))).rejects.toMatchObject({
        status: 400,
        code: "model_not_found",
        param: "model",
        message: "The model 'x' does not exist: no model server has it. GET /v1/models lists the models.",
      });
      expect(fleet.asked[0]).toBe(first);
    }
  });

  it("that a server may have which never answered are not unknown: the error is the unreachable server", async () => {
    const unknown = failing(() =>
      Response.json({ error: { message: "The model `x` does not exist." } }, { status: 404 }),
    );
    const down: Answer = () => {
      throw new TypeError("connection refused");
    };
    for (const first of ["a", "b"]) {
      const fleet = fleetOf({ a: unknown, b: down });
      const serverKey = serverKeyFor(first, fleet);
      await expect(ask(fleet.upstream({ model: "x", serverKey }))).rejects.toMatchObject({
        code: "upstream_unreachable",
      });
    }
  });

  it("that a server does not know are requested from those without a known list", async () => {
    const silent = (answer: Answer): Answer => {
      const busy = Response.json({}, { status: 503 });
      return (path, init) => (path === "/v1/models" ? busy.clone() : answer(path, init));
    };
    const unknown = silent(() =>
      Response.json({ error: { message: "The model `qwen3` does not exist." } }, { status: 404 }),
    );
    const fleet = fleetOf({ a: unknown, b: silent(healthy) }, { UPSTREAM_DIALECT: "vllm" });
    const serverKey = serverKeyFor("a", fleet);
    await askWhole(fleet.upstream({ serverKey }));
    expect(fleet.asked).toEqual(["a", "b"]);
  });

  it("use the engine that the operator sets for their server", async () => {
    const fleet = fleetOf({ a: having("house-model", "gpt-oss") }, {}, { engine: "harmony" });
    const engineOf = async (name: string, { config }: typeof fleet) =>
      (await resolveModel(name, "", config, new Upstream(config), signal)).engine;
    expect(await engineOf("house-model", fleet)).toBe("harmony");
    const chat = fleetOf({ a: having("gpt-oss"), b: having("gpt-oss") }, {}, { engine: "chat" });
    expect(await engineOf("gpt-oss", chat)).toBe("chat");
    expect(await engineOf("gpt-oss", fleetOf({ a: having("gpt-oss") }))).toBe("harmony");
  });
});
