import { createHash } from "node:crypto";
import type { ResponseTiming } from "@responses-edge/responses-api/response";
import type { ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { checkEventStream, parseEventStream } from "../conformance/event-stream.ts";
import { alike, BOUND_REQUESTS, boundTextOf, MARKUP, streamOf } from "../crash/bound-answers.ts";
import { isWhole, replay } from "./event-streams.ts";
import { expectError, readStream } from "./expectations.ts";
import { type Fleet, type Replica, startFleet } from "./fleet.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, TOKEN_BY_TOKEN } from "./support.ts";
import { mcp, startTools, type ToolServer } from "./tool-support.ts";

/** Several model servers behind one gateway, as clients and the servers see it. */

type Way = "json" | "stream" | "background";
const WAYS: Way[] = ["json", "stream", "background"];
const MODELS = ["simulator", "simulator-gpt-oss"];
const INPUT = "one two three four five six seven eight nine ten";

/** Creates a response in one of the ways. Gives it, and the text of its events if it has any. */
async function create(fleet: Fleet, way: Way, body: ResponseCreateParamsNonStreaming) {
  const { responses } = fleet.openai;
  if (way === "json") return { response: await responses.create({ ...body, ...TOKEN_BY_TOKEN }), text: undefined };
  if (way === "stream") {
    const events = await (await fleet.post({ ...body, stream: true })).text();
    return { response: await responses.retrieve(idOf(events)), text: textOf(events) };
  }
  const { id } = await responses.create({ ...body, background: true });
  // The stream ends with the response.
  const text = textOf(await replay(fleet, id));
  return { response: await responses.retrieve(id), text };
}

function idOf(events: string): string {
  return /"id":"(resp_\w+)"/.exec(events)?.[1] ?? "";
}

function textOf(events: string): string {
  expect(isWhole(events)).toBe(true);
  const deltas = events.matchAll(/^data: (\{"type":"response\.output_text\.delta".*)$/gm);
  return [...deltas].map(([, json]) => (JSON.parse(json ?? "") as { delta: string }).delta).join("");
}

/**
 * Starts a gateway in front of groups of servers, each with models of its own, which no other group has. Gives the next
 * group: a test finds its servers as if they were the only ones.
 */
function useGroups({ size, groups, variables }: { size: number; groups: number; variables: Record<string, string> }) {
  let fleet: Fleet;
  let next = 0;
  const modelsOf = (group: number) => MODELS.map((model) => `${model}-${group}`);
  beforeAll(async () => {
    const places = Array.from({ length: groups * size }, (_, place) => place);
    const servers = places.map((place) => [`s${place}`, { models: modelsOf(Math.floor(place / size)) }] as const);
    fleet = await startFleet({ servers: Object.fromEntries(servers), variables });
    // Now the gateway knows which servers have a model.
    await eventually(async () => (await fleet.openai.models.list()).data.length === groups * MODELS.length);
  });
  afterAll(() => fleet.close());
  return () => {
    const group = next++;
    return { fleet, models: modelsOf(group), replicas: fleet.replicas.slice(group * size, (group + 1) * size) };
  };
}

/** Three servers with the same models, for all tests that need no other setting. */
let trio: Fleet;
let tools: ToolServer;
beforeAll(async () => {
  tools = await startTools({ lookup: { run: () => "It is 42." } });
  const variables = { MCP_SERVERS: tools.url, UPSTREAM_BOARD_MS: "100" };
  trio = await startFleet({ servers: { a: {}, b: {}, c: {} }, variables });
});
afterEach(() => trio.clear());
afterAll(async () => {
  await trio.close();
  await tools.close();
});

describe("affinity", () => {
  let fleet: Fleet;
  beforeAll(() => {
    fleet = trio;
  });

  /**
   * Checks that each call of `work` uses one server, and not always the same one. Calls it at least three times, and
   * until two servers were used.
   */
  async function expectOneEach(work: (index: number) => Promise<unknown>): Promise<void> {
    const asked = new Set<string>();
    for (let index = 0; index < 3 || (asked.size < 2 && index < 24); index += 1) {
      fleet.clear();
      await work(index);
      const servers = fleet.servers();
      expect(servers).toHaveLength(1);
      for (const server of servers) asked.add(server);
    }
    expect(asked.size).toBeGreaterThan(1);
  }

  it.each(MODELS)("sends all turns and branches of a conversation to one server: %s", async (model) => {
    const { responses } = fleet.openai;
    await expectOneEach(async (index) => {
      const first = await responses.create({ model, input: `Hello ${index}!` });
      let previous = first.id;
      for (const way of [...WAYS, ...WAYS]) {
        const { response } = await create(fleet, way, { model, input: "And now?", previous_response_id: previous });
        previous = response.id;
      }
      // Two branches of the first turn.
      for (const input of ["This way.", "That way."]) {
        await responses.create({ model, input, previous_response_id: first.id, store: false });
      }
    });
  });

  it("sends all turns in a `conversation` to one server", async () => {
    await expectOneEach(async () => {
      const { id: conversation } = await fleet.openai.conversations.create({});
      for (const way of WAYS) await create(fleet, way, { model: "simulator", input: "Hello!", conversation });
    });
  });

  it("sends all turns over a WebSocket to one server, stored or not", async () => {
    await expectOneEach(async (index) => {
      const socket = await SocketClient.open(fleet);
      let previous: string | undefined;
      for (let turn = 0; turn < 3; turn += 1) {
        const store = index % 2 === 0;
        const { id, text } = await socket.turn({ input: `Hello ${index}!`, store, previous_response_id: previous });
        expect(text).toBe(`You said: Hello ${index}!`);
        previous = id;
      }
      socket.socket.close();
    });
  });

  it("sends a background run to the server of the conversation's other turns", async () => {
    await expectOneEach(async (index) => {
      const { response } = await create(fleet, "background", { model: "simulator", input: `Hello ${index}!` });
      await create(fleet, "json", { model: "simulator", input: "And now?", previous_response_id: response.id });
    });
  });

  it.each(MODELS)("sends all rounds of a turn with hosted tools to one server: %s", async (model) => {
    await expectOneEach(async (index) => {
      const body = { model: `${model}?rounds=3`, input: `Use the tools ${index}.`, tools: [mcp(tools)] };
      const { response } = await create(fleet, WAYS[index % WAYS.length] ?? "json", body);
      expect(response.output.filter(({ type }) => type === "mcp_call")).toHaveLength(3);
      expect(fleet.replicas.flatMap((replica) => replica.asked)).toHaveLength(4);
    });
  });

  it.each<[what: string, fields: (index: number) => object, headers: (index: number) => Record<string, string>]>([
    ["prompt_cache_key", (index) => ({ prompt_cache_key: `thread-${index}` }), () => ({})],
    ["the session that an agent's header names", () => ({}), (index) => ({ "session-id": `thread-${index}` })],
    ["instructions and what the user said first", (index) => ({ instructions: `You are agent ${index}.` }), () => ({})],
  ])("sends requests that contain their history by %s, stored or not", async (_, fields, headers) => {
    await expectOneEach(async (index) => {
      const input: object[] = [{ role: "user", content: "Hello!" }];
      for (const store of [false, true, false, true]) {
        const body = { model: "simulator", input, store, ...fields(index) };
        const response = await fleet.post(body, headers(index));
        expect(response.status).toBe(200);
        const { id } = (await response.json()) as { id: string };
        // A stored response can be continued at the same server.
        if (store)
          await fleet.openai.responses.create({ model: "simulator", input: "More.", previous_response_id: id });
        input.push({ role: "assistant", content: "Hi." }, { role: "user", content: "And now?" });
      }
    });
  });

  it("shows the server in answers if the operator wants it", async () => {
    for (const stream of [false, true]) {
      fleet.clear();
      const response = await fleet.post({ model: "simulator", input: "Hello!", stream });
      await response.text();
      expect([response.status, fleet.servers()]).toEqual([200, [response.headers.get("x-upstream")]]);
    }
  });
});

describe("the board", () => {
  let fleet: Fleet;
  beforeAll(() => {
    fleet = trio;
  });

  /** This isolate's knowledge of a server. A request makes the isolate read the board. */
  async function heard(name: string): Promise<{ down: boolean; load: number | null } | undefined> {
    await (await fleet.fetch(`${fleet.url}/v1/models`)).text();
    const answer = await fleet.fetch(`${fleet.url}/health/upstream`);
    const { servers } = (await answer.json()) as {
      servers: { name: string; board?: { down: boolean; load: number } }[];
    };
    return servers.find((server) => server.name === name)?.board;
  }

  it("reports an unhealthy server before any turn finds it", async () => {
    const [ailing] = fleet.replicas as [Replica, ...Replica[]];
    ailing.trouble = "fault=http:500";
    for (const illness of ["fault=http:503", "fault=stall_headers"]) {
      ailing.illness = illness;
      await eventually(async () => (await heard("a"))?.down === true);
      for (let turn = 0; turn < 12; turn += 1) {
        await create(fleet, "json", { model: "simulator", input: `Hello ${illness} ${turn}!` });
      }
      expect(fleet.servers()).toEqual(["b", "c"]);
      ailing.illness = "";
      await eventually(async () => (await heard("a"))?.down === false);
    }
  });

  it("reports a server's load by other isolates, and the server gets no more than its share", async () => {
    const [loaded] = fleet.replicas as [Replica, ...Replica[]];
    loaded.trouble = "fault=stall_headers";
    const abort = new AbortController();
    const others = Array.from({ length: 30 }, () =>
      fetch(`${loaded.url}/v1/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: '{"model":"simulator","prompt":"x"}',
        signal: abort.signal,
      }).catch(() => {}),
    );
    await eventually(async () => (await heard("a"))?.load === 30);
    for (let turn = 0; turn < 12; turn += 1) {
      await create(fleet, "json", { model: "simulator", input: `Hello ${turn}!` });
    }
    expect(loaded.asked).toHaveLength(30);
    abort.abort();
    await Promise.all(others);
    await eventually(async () => (await heard("a"))?.load === 0);
  });
});

describe("a living server that breaks off each of its answers", () => {
  // It is not ejected for that, because it has begun each of the answers.
  let fleet: Fleet;
  beforeAll(() => {
    fleet = trio;
  });

  it.each(MODELS.flatMap((model) => WAYS.map((way) => [model, way] as const)))(
    "is asked once for each answer, and another one generates the rest (%s, %s)",
    async (model, way) => {
      const [ailing] = fleet.replicas as [Replica, ...Replica[]];
      ailing.trouble = "fault=cut:4";
      for (let turn = 0; ailing.asked.length < 4 && turn < 64; turn += 1) {
        const { response } = await create(fleet, way, { model, input: `${INPUT} ${turn}` });
        expect(response).toMatchObject({ status: "completed", output_text: `You said: ${INPUT} ${turn}` });
        expect(ailing.asked.length).toBeLessThanOrEqual(turn + 1);
      }
      expect(ailing.asked).toHaveLength(4);
    },
  );
});

describe("a server in trouble", () => {
  const troubles: [what: string, trouble: string][] = [
    ["closes connections", "fault=refuse"],
    ["fails", "fault=http:500"],
    ["has no room", "fault=http:503"],
    ["answers 200 with a page", "fault=html"],
    ["accepts and never answers", "fault=stall_headers"],
  ];
  // Long enough for healthy servers, also on a busy machine.
  const patient = useGroups({ size: 3, groups: troubles.length - 1, variables: { UPSTREAM_FAILOVER_MS: "30000" } });
  const hasty = useGroups({ size: 3, groups: 1, variables: { UPSTREAM_FAILOVER_MS: "1000" } });

  it.each(troubles)("%s: is replaced by another one for every client", async (_, trouble) => {
    const { fleet, models, replicas } = trouble === "fault=stall_headers" ? hasty() : patient();
    const [model = ""] = models;
    const [ailing] = replicas as [Replica, ...Replica[]];
    ailing.trouble = trouble;
    const ejections = () => fleet.logs().split('"state":"ejected"').length;
    const ejectedBefore = ejections();
    for (const way of WAYS) {
      const created = models.flatMap((each) =>
        Array.from({ length: 4 }, (_, index) => create(fleet, way, { model: each, input: `${INPUT} ${way} ${index}` })),
      );
      for (const { response, text } of await Promise.all(created)) {
        expect(response).toMatchObject({ status: "completed", output_text: expect.stringContaining(INPUT) });
        if (text !== undefined) expect(text).toBe(response.output_text);
      }
    }
    // The server in trouble was tried, but only for a while: a few requests were in progress when it was ejected.
    expect(ailing.asked.length).toBeGreaterThan(0);
    const before = ailing.asked.length;
    for (let turn = 0; turn < 12; turn += 1) await create(fleet, "json", { model, input: `${turn}` });
    expect(ailing.asked.length).toBeLessThanOrEqual(Math.max(5, before) + 5);
    // One line of the log, not one for each request.
    expect(ejections() - ejectedBefore).toBeLessThanOrEqual(1);
  });
});

describe("a server that is slow, or dies in the middle of its answer", () => {
  let fleet: Fleet;
  beforeAll(() => {
    fleet = trio;
  });

  it("gets its time to answer", async () => {
    for (const replica of fleet.replicas) replica.trouble = "ttft=300";
    const { response } = await create(fleet, "stream", { model: "simulator", input: INPUT });
    expect(response.output_text).toBe(`You said: ${INPUT}`);
    expect(fleet.replicas.flatMap(({ asked }) => asked)).toHaveLength(1);
  });

  const cases = (["kill", "terminate", "engine"] as const).flatMap((death) =>
    MODELS.flatMap((model) => WAYS.map((way) => [death, model, way] as const)),
  );

  it.each(cases)(
    "has its answer continued by another, without a lost or repeated token: %s, %s, %s",
    async (death, model, way) => {
      const whole = await create(fleet, way, { model, input: INPUT });
      fleet.clear();
      for (const replica of fleet.replicas) replica.trouble = "tps=40";
      const creating = create(fleet, way, { model, input: INPUT });
      const speaking = await eventually(() =>
        fleet.replicas.find(({ asked }) => asked.some(({ deltasSent }) => deltasSent > 4)),
      );
      for (const replica of fleet.replicas) if (replica !== speaking) replica.trouble = "";
      await speaking.die(death);
      try {
        const { response, text } = await creating;
        expect(response).toMatchObject({ status: "completed", output_text: whole.response.output_text });
        expect(text).toBe(whole.text);
        expect(response.usage?.output_tokens).toBe(whole.response.usage?.output_tokens);
        expect(fleet.servers().length).toBeGreaterThan(1);
      } finally {
        await speaking.restart();
      }
    },
  );
});

describe("a server that dies in the middle of a bound answer, or of a call", () => {
  /** Characters after which a server dies. The one that goes on dies after as many, once. */
  const DEATHS = [1, 3, 8, 17, 30, 47, 68];

  it.each(BOUND_REQUESTS.map((request) => [request.model, request.kind, request] as const))(
    "has it completed within its format, after any of its characters: %s, %s",
    async (_, __, request) => {
      const whole = boundTextOf(await streamOf(trio, request, ""), request);
      expect(request.isValid(whole)).toBe(true);
      // The last one is after a text's end, before its server tells so.
      const deaths = [...DEATHS, whole.length];
      const kept = await Promise.all(
        deaths.map(async (after) => {
          const events = await streamOf(trio, request, `fault=cut:${after}&fault_times=1`);
          const text = boundTextOf(events, request);
          expect([after, text, request.isValid(text)]).toEqual([after, text, true]);
          return alike(text, whole);
        }),
      );
      // What was shown stays: at least the text without a call's markup.
      for (const [index, length] of kept.entries()) {
        expect(length).toBeGreaterThanOrEqual(Math.min(whole.length, deaths[index] ?? 0) - MARKUP);
      }
      const asked = trio.replicas.flatMap((replica) => replica.asked);
      expect(asked.length).toBeGreaterThan(deaths.length + 1);
    },
  );
});

describe("a server that dies in the middle of parallel calls", () => {
  const parameters = {
    type: "object",
    properties: { city: { type: "string", minLength: 9 } },
    required: ["city"],
    additionalProperties: false,
  };
  const tools = ["visit", "leave"].map((name) => ({ type: "function", name, parameters, strict: true }));
  const request = { input: "Use visit and leave and note.", tools: [...tools, { type: "custom", name: "note" }] };
  const whole = ["visit true", "leave true", "note true"];

  /** Tokens after which a server dies, in and between the three calls; the one that goes on dies after as many, once. */
  const DEATHS = [4, 15, 22, 26, 31, 40, 48, 57];

  it.each(["auto", "required"])("has those after it made, each once: tool_choice %s", async (tool_choice) => {
    const callsOf = async (settings: string) => {
      const model = `simulator?letters=1${settings}`;
      const answer = await trio.post({ ...request, model, tool_choice, stream: true });
      const { response } = checkEventStream(parseEventStream(await answer.text()));
      expect([settings, response?.status, response?.error]).toEqual([settings, "completed", null]);
      return response?.output.map((item) => {
        if (item.type === "custom_tool_call") return `${item.name} ${item.input.length > 0}`;
        if (item.type !== "function_call") return item.type;
        const { city, ...others } = JSON.parse(item.arguments) as { city: string };
        return `${item.name} ${city.length > 8 && Object.keys(others).length === 0}`;
      });
    };
    expect(await callsOf("")).toEqual(whole);
    trio.clear();
    for (const calls of await Promise.all(DEATHS.map((after) => callsOf(`&fault=cut:${after}&fault_times=1`)))) {
      expect(calls).toEqual(whole);
    }
    expect(trio.replicas.flatMap((replica) => replica.asked).length).toBeGreaterThan(2 * DEATHS.length);
  });
});

describe("a server that dies beside one that cannot continue its text", () => {
  let fleet: Fleet;
  beforeAll(async () => {
    const models = ["simulator"];
    fleet = await startFleet({ servers: { goes_on: { models }, begins_anew: { models, kind: "transformers" } } });
  });
  afterAll(() => fleet.close());

  it("continues the text itself after its return: no token is lost or repeated, and the other one is not asked", async () => {
    const [able, unable] = fleet.replicas as [Replica, Replica];
    const body = { model: "simulator", input: INPUT };
    // Now the gateway knows that both have the model.
    await fleet.openai.models.list();
    await unable.die("kill");
    const whole = await create(fleet, "stream", body);
    fleet.clear();
    able.trouble = "tps=40";
    const creating = create(fleet, "stream", body);
    await eventually(() => able.asked.some(({ deltasSent }) => deltasSent > 4));
    await unable.restart();
    const asked = unable.asked.length;
    await able.die("kill");
    able.trouble = "";
    await able.restart();
    const { response, text } = await creating;
    expect(response).toMatchObject({ status: "completed", output_text: whole.response.output_text });
    expect(text).toBe(whole.text);
    expect(unable.asked).toHaveLength(asked);
  });
});

describe("when no server answers", () => {
  const failures: [trouble: string, status: number, code: string][] = [
    ["fault=refuse", 502, "upstream_unreachable"],
    ["fault=http:503", 503, "server_is_overloaded"],
    ["fault=http:429", 429, "rate_limit_exceeded"],
    ["fault=html", 502, "upstream_malformed_response"],
    ["fault=stall_headers", 504, "upstream_timeout"],
  ];
  const group = useGroups({
    size: 2,
    groups: failures.length,
    variables: {
      ...{ UPSTREAM_FAILOVER_MS: "200", VLLM_CONNECT_TIMEOUT_MS: "400" },
      // A stream that has begun waits for a server that died as long as this.
      ...{ VLLM_RECOVERY_TIME_MS: "500", VLLM_FOREGROUND_RECOVERY_TIME_MS: "500" },
    },
  });

  it.each(failures)("%s: the client gets an error in bounded time: %i %s", async (trouble, status, code) => {
    const { fleet, models, replicas } = group();
    const [model = ""] = models;
    for (const replica of replicas) replica.trouble = trouble;
    await expectError(await fleet.post({ model, input: INPUT }), { status, code });
    const streamed = await fleet.post({ model, input: INPUT, stream: true });
    if (streamed.ok) expect((await readStream(streamed)).types.at(-1)).toBe("response.failed");
    else await expectError(streamed, { status, code });
    const { response } = await create(fleet, "background", { model, input: INPUT });
    expect(response).toMatchObject({ status: "failed", error: { code: expect.any(String) } });
  });
});

describe("servers that do not all have the same models", () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet({
      servers: {
        chat: { models: ["simulator"] },
        oss: { models: ["simulator-gpt-oss"] },
        both: { models: ["simulator", "simulator-gpt-oss"] },
      },
    });
  });
  afterEach(() => fleet.clear());
  afterAll(() => fleet.close());

  it("are listed together, each model once", async () => {
    const ids = [];
    for await (const { id } of fleet.openai.models.list()) ids.push(id);
    expect(ids.toSorted()).toEqual(["simulator", "simulator-gpt-oss"]);
  });

  it("get requests for their own models, in every form of answer", async () => {
    for (const way of WAYS) {
      for (const model of MODELS) {
        for (let turn = 0; turn < 4; turn += 1) await create(fleet, way, { model, input: `${way} ${turn}` });
      }
    }
    expect(fleet.servers("simulator")).toEqual(["chat", "both"]);
    expect(fleet.servers("simulator-gpt-oss")).toEqual(["oss", "both"]);
  });

  it("refuse a model that none of them has, after one request", async () => {
    const error = { status: 400, code: "model_not_found", param: "model" };
    await expectError(await fleet.post({ model: "nobody", input: INPUT }), error);
    expect(fleet.servers()).toHaveLength(1);
  });

  it("are in /health/upstream by their names only, and a dead one hides no model", async () => {
    const [chat] = fleet.replicas as [Replica, ...Replica[]];
    await chat.die("kill");
    try {
      const answer = await fleet.fetch(`${fleet.url}/health/upstream`);
      const text = await answer.text();
      expect(answer.status).toBe(200);
      expect(JSON.parse(text)).toMatchObject({
        status: "degraded",
        models: expect.arrayContaining(MODELS),
        servers: [
          { name: "chat", status: "unreachable", error: { code: "upstream_unreachable" }, ejected: false },
          { name: "oss", status: "ok", models: ["simulator-gpt-oss"], draining: false },
          { name: "both", status: "ok", models: MODELS },
        ],
      });
      expect(text).not.toMatch(/127\.0\.0\.1|localhost/);
      const ids = [];
      for await (const { id } of fleet.openai.models.list()) ids.push(id);
      expect(ids.toSorted()).toEqual(MODELS);
    } finally {
      await chat.restart();
    }
  });
});

describe("a model with a fallback", () => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet({
      servers: { big: { models: ["simulator-reasoning"] }, small: { models: ["simulator"] } },
      variables: {
        MODEL_ALIASES: '{"best":"simulator-reasoning"}',
        MODEL_FALLBACKS: '{"simulator-reasoning":["nobody","simulator"]}',
      },
    });
  });
  afterAll(() => fleet.close());

  const answering = async (way: Way, model: string) =>
    (await create(fleet, way, { model, input: INPUT })).response.model;

  it("answers itself as long as it has a server; else the fallback does, which the response names", async () => {
    const [big] = fleet.replicas as [Replica, ...Replica[]];
    for (const way of WAYS) {
      expect(await answering(way, "simulator-reasoning")).toBe("simulator-reasoning");
      expect(await answering(way, "best")).toBe("best");
    }
    await big.die("kill");
    // A server that was healthy just now counts as healthy for a moment.
    await eventually(async () => (await answering("json", "best").catch(() => undefined)) === "simulator");
    for (const way of WAYS) {
      for (const model of ["simulator-reasoning", "best"]) {
        const { response } = await create(fleet, way, { model, input: INPUT });
        expect(response).toMatchObject({ status: "completed", model: "simulator" });
        const { timing } = (await fleet.openai.responses.retrieve(response.id, {
          include: ["timing"] as unknown as ["reasoning.encrypted_content"],
        })) as unknown as { timing: ResponseTiming };
        expect(timing.rounds.at(-1)).toMatchObject({ server: "small", model: "simulator", error: null });
      }
    }
    await big.restart();
    await eventually(async () => (await answering("json", "best")) === "best");
  });

  it("without a server is refused if it has no fallback", async () => {
    const [, small] = fleet.replicas as [Replica, Replica];
    await small.die("kill");
    await expectError(await fleet.post({ model: "simulator", input: INPUT }), {
      status: 502,
      code: "upstream_unreachable",
    });
    await small.restart();
  });
});

describe("with UNSALTED_SERVERS=refuse, a server that is not known to be a vLLM", () => {
  const hash = (key: string) => createHash("sha256").update(key).digest("hex");
  const headers = { authorization: "Bearer any", "content-type": "application/json" };
  const error = { status: 503, code: "tenants_not_separated" };
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet({
      servers: {
        vllm: { models: ["simulator"] },
        other: { models: ["simulator", "simulator-gpt-oss", "simulator-reasoning"], ownedBy: "llamacpp" },
        vouched: { models: ["simulator"], ownedBy: "proxy", fields: { salted: true } },
      },
      variables: {
        UNSALTED_SERVERS: "refuse",
        API_KEYS: `a:${hash("any")},b:${hash("else")}`,
        PASSTHROUGH_ENDPOINTS: "all",
      },
    });
  });
  afterEach(() => fleet.clear());
  afterAll(() => fleet.close());

  const post = (path: string, body: object) =>
    fleet.fetch(fleet.url + path, { method: "POST", headers, body: JSON.stringify(body) });

  it("gets no prompt for a model that others have, too; one that the operator declares `salted` does", async () => {
    for (let turn = 0; turn < 24; turn += 1) {
      const { id } = await fleet.openai.responses.create({ model: "simulator", input: `Hello ${turn}!` });
      await fleet.openai.responses.create({ model: "simulator", input: "And now?", previous_response_id: id });
      await post("/v1/chat/completions", { model: "simulator", messages: [{ role: "user", content: `${turn}` }] });
    }
    expect(fleet.servers()).toEqual(["vllm", "vouched"]);
  });

  it.each([
    ["/v1/responses", { input: INPUT }],
    ["/v1/responses", { input: INPUT, stream: true }],
    ["/v1/responses/input_tokens", { input: INPUT }],
    ["/v1/chat/completions", { messages: [] }],
    ["/v1/completions", { prompt: INPUT }],
    ["/v1/embeddings", { input: INPUT }],
    ["/tokenize", { prompt: INPUT }],
  ])("makes every request for its own model a 503: %s %j", async (path, body) => {
    for (const model of ["simulator-reasoning", "simulator-gpt-oss"]) {
      await expectError(await post(path, { model, ...body }), error);
    }
    expect(fleet.servers()).toEqual([]);
  });

  it("is in /health/upstream", async () => {
    const answer = await fleet.fetch(`${fleet.url}/health/upstream`, { headers });
    expect(await answer.json()).toMatchObject({
      separates_tenants: false,
      servers: [
        { name: "vllm", separates_tenants: true },
        { name: "other", separates_tenants: false },
        { name: "vouched", separates_tenants: true },
      ],
    });
  });
});

describe("a server that drains", () => {
  it("with weight 0 keeps its own conversations, and gets no new ones and no turns of others'", async () => {
    const fleet = await startFleet({ servers: { a: {}, b: {}, old: { fields: { weight: 0 } } } });
    try {
      for (let turn = 0; turn < 16; turn += 1) {
        const { response } = await create(fleet, turn % 2 ? "json" : "background", { input: `Hello ${turn}!` });
        await create(fleet, "json", { input: "And now?", previous_response_id: response.id });
        await fleet.openai.responses.create({ input: `Hello ${turn}!`, store: false, prompt_cache_key: `${turn}` });
      }
      expect(fleet.servers()).toEqual(["a", "b"]);
      fleet.clear();
      // These conversations' ids were chosen without regard to their server, as before the server drained.
      for (let turn = 0; turn < 24 && !fleet.servers().includes("old"); turn += 1) {
        const { id: conversation } = await fleet.openai.conversations.create({});
        await create(fleet, "json", { model: "simulator", input: "Hello!", conversation });
      }
      expect(fleet.servers()).toContain("old");
    } finally {
      await fleet.close();
    }
  });

  it("with `drain` loses its own, too, as long as another one accepts them", async () => {
    const fleet = await startFleet({ servers: { a: {}, old: { fields: { drain: true } } } });
    try {
      for (let turn = 0; turn < 12; turn += 1) {
        const { id: conversation } = await fleet.openai.conversations.create({});
        await create(fleet, "json", { model: "simulator", input: "Hello!", conversation });
      }
      expect(fleet.servers()).toEqual(["a"]);
    } finally {
      await fleet.close();
    }
  });
});
