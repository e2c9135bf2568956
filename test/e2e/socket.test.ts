import { createHash } from "node:crypto";
import fc from "fast-check";
import { ResponsesWebSocketSession } from "openai/lib/responses/responses-websocket-session";
import { ResponsesWS } from "openai/resources/responses/ws";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { SimulatedRequest } from "../../dev/simulator/handler.ts";
import { isObject, type JsonObject } from "../../dev/simulator/json.ts";
import { framesOf } from "./event-streams.ts";
import { SocketClient, type SocketTurn, turnViolations } from "./socket-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, textsOf, unique } from "./turns.ts";

/** WebSocket mode: the same turns, in frames. */

const KEYS = { a: "key-of-tenant-a", b: "key-of-tenant-b" };
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

const VARIABLES = {
  API_KEYS: `a:${sha256(KEYS.a)},b:${sha256(KEYS.b)}`,
  WEBSOCKET_SEND_TIMEOUT_MS: "2000",
  VLLM_MAX_RETRIES: "0",
};

const MAX_REQUEST_BYTES = 12 * 1024 * 1024;

/** A model that outputs nothing until it is released. */
const STALLED = "simulator?fault=stall:0";
const ENDLESS = "simulator?tps=50&words=100000";

let gateway: Gateway;
let openai: Gateway["openai"];
beforeAll(async () => {
  gateway = await startGateway(VARIABLES);
  openai = gateway.client({ apiKey: KEYS.a });
});
afterAll(() => gateway.close());

const authorization = (key: keyof typeof KEYS) => ({ authorization: `Bearer ${KEYS[key]}` });

function connect(key: keyof typeof KEYS = "a"): Promise<SocketClient> {
  return SocketClient.open(gateway, { headers: authorization(key) });
}

/** Calls `work` with a connection of its own. */
async function connected<T>(work: (socket: SocketClient) => Promise<T>): Promise<T> {
  const socket = await connect();
  try {
    return await work(socket);
  } finally {
    socket.terminate();
  }
}

/** The prompts at "vLLM" with this text of the user. */
function promptsOf(text: string): SimulatedRequest[] {
  return gateway.vllm.simulator.requests.filter(
    ({ path, body }) => /completions$/.test(path) && JSON.stringify(body).includes(JSON.stringify(text).slice(1, -1)),
  );
}

const promptOf = (text: string) => eventually(() => promptsOf(text).at(-1));

function messagesOf(request: SimulatedRequest | undefined): unknown[] {
  const body: unknown = request?.body;
  if (!isObject(body) || !Array.isArray(body.messages)) return [];
  return (body.messages as JsonObject[]).map(({ content }) => content);
}

const stored = (id: string) => eventually(() => openai.responses.retrieve(id).catch(() => undefined));

/** Fails unless the turn is a single error frame. */
function expectRefusal(turn: SocketTurn, status: number, error: object): void {
  expect(turn.events).toMatchObject([{ type: "error", status, error }]);
}

describe("over a socket and over HTTP", () => {
  const tool = { type: "function", name: "weather", parameters: { type: "object", properties: { city: {} } } };
  const CASES: [name: string, fields: JsonObject][] = [
    ["a text", { model: "simulator?words=40" }],
    ["reasoning", { model: "simulator-reasoning" }],
    ["a call", { model: "simulator", input: "weather", tools: [tool] }],
    ["logprobs", { model: "simulator", include: ["message.output_text.logprobs"], top_logprobs: 2 }],
    ["JSON", { model: "simulator", text: { format: { type: "json_object" } } }],
    ["gpt-oss", { model: "simulator-gpt-oss" }],
    ["gpt-oss with a call", { model: "simulator-gpt-oss", input: "weather", tools: [tool] }],
    ["an answer that is cut off", { model: "simulator?words=40", max_output_tokens: 5 }],
  ];

  /** Ids, times, padding and cached tokens differ between any two responses. */
  function comparable(json: string): string {
    const id = /resp_(\w{32})/.exec(json)?.[1] ?? /[a-z]+_(\w{32})o/.exec(json)?.[1] ?? "";
    return json
      .replaceAll(id, "ID")
      .replaceAll(/"call_id":"[\w-]+"/g, '"call_id":"ID"')
      .replaceAll(/"(created_at|completed_at)":\d+/g, '"$1":0')
      .replaceAll(/"(cached_tokens|cache_write_tokens)":\d+/g, '"$1":0')
      .replaceAll(/"obfuscation":"[^"]*"/g, '"obfuscation":""');
  }

  /** The events of the same create over both transports, without their framing. */
  async function both(socket: SocketClient, lane: string | undefined, fields: JsonObject) {
    const create = { input: "Hello, Jürgen! 😀", store: false, ...fields };
    const [turn, answer] = await Promise.all([
      socket.turn({ ...create, ...(lane !== undefined && { stream_id: lane }) }),
      gateway.post({ ...create, stream: true }, authorization("a")),
    ]);
    const sse = framesOf(await answer.text()).filter((frame) => frame !== "data: [DONE]");
    const head = `{"stream_id":"${lane}",`;
    return {
      turn,
      frames: turn.frames.map((frame) => (lane === undefined ? frame : frame.replace(head, "{"))).map(comparable),
      events: sse.map((frame) => frame.slice(frame.indexOf("\ndata: ") + 7)).map(comparable),
    };
  }

  it.each(CASES)("the events of %s are the same, byte for byte", async (_, fields) => {
    await connected(async (socket) => {
      const plain = await both(socket, undefined, fields);
      expect(plain.frames).toEqual(plain.events);
      expect(turnViolations(plain.turn)).toEqual([]);
      const inLane = await both(socket, "a.lane-1_", fields);
      expect(inLane.frames).toEqual(inLane.events);
      expect(inLane.turn.events.every(({ stream_id }) => stream_id === "a.lane-1_")).toBe(true);
    });
  });

  it("the events are the same for every chunking of vLLM's stream", async () => {
    const cut = fc.oneof(
      fc.integer({ min: 1, max: 200 }).map((bytes) => `bytes=${bytes}`),
      fc.integer({ min: 1, max: 9 }).map((chunk) => `chunk=${chunk}`),
      fc.constantFrom("per_delta=odd", "per_delta=3", "crlf=1&bytes=5", "comments=1"),
    );
    const model = fc.constantFrom("simulator", "simulator-reasoning", "simulator-gpt-oss");
    await connected((socket) =>
      fc.assert(
        fc.asyncProperty(model, cut, fc.string({ minLength: 1, maxLength: 60 }), async (name, settings, input) => {
          const { frames, events } = await both(socket, undefined, { model: `${name}?${settings}`, input });
          expect(frames).toEqual(events);
        }),
        { numRuns: 15 },
      ),
    );
  });
});

describe("the upgrade", () => {
  it("is required for GET: else 426", async () => {
    const answer = await gateway.fetch(`${gateway.url}/v1/responses`, { headers: authorization("a") });
    expect(answer.status).toBe(426);
    expect(await answer.json()).toMatchObject({
      error: { code: "upgrade_required", message: expect.stringContaining("'Upgrade: websocket'") },
    });
  });

  it("needs a key", async () => {
    for (const headers of [undefined, { authorization: "Bearer of-nobody" }]) {
      await expect(SocketClient.open(gateway, { ...(headers && { headers }) })).rejects.toThrow("401");
    }
  });

  it("accepts a page's key in a subprotocol, which no answer repeats", async () => {
    const protocols = ["responses", `openai-insecure-api-key.${KEYS.a}`];
    const socket = await SocketClient.open(gateway, { protocols });
    expect(socket.socket.protocol).toBe("responses");
    expect((await socket.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
    await socket.close();
    expect(gateway.logs()).not.toContain(KEYS.a);
  });

  it.each<[string, string[], Record<string, string>]>([
    ["a key of nobody's", ["responses", "openai-insecure-api-key.of-nobody"], {}],
    ["no key", ["responses"], {}],
    ["an empty one", ["responses", "openai-insecure-api-key."], {}],
    [
      "a header with another key, which comes first",
      ["responses", `openai-insecure-api-key.${KEYS.a}`],
      { authorization: "Bearer of-nobody" },
    ],
    [
      "more than any offer has",
      ["responses", ...Array.from({ length: 2_000 }, (_, at) => `protocol-${at}`), `openai-insecure-api-key.${KEYS.a}`],
      {},
    ],
  ])("refuses a subprotocol with %s", async (_, protocols, headers) => {
    await expect(SocketClient.open(gateway, { protocols, headers })).rejects.toThrow(/Unexpected server response: 4/);
  });

  it("accepts no key in a subprotocol without an upgrade", async () => {
    const headers = { "sec-websocket-protocol": `openai-insecure-api-key.${KEYS.a}` };
    expect((await gateway.fetch(`${gateway.url}/v1/models`, { headers })).status).toBe(401);
  });
});

describe("lanes", () => {
  it("run side by side, and one after another within each", async () => {
    await connected(async (socket) => {
      const first = unique("First");
      socket.create({ model: STALLED, input: first, stream_id: "a" });
      const second = socket.turn({ input: unique("Second"), stream_id: "a" });
      const { release } = await promptOf(first);
      expect((await socket.turn({ input: "Hello!", stream_id: "b" })).text).toBe("You said: Hello!");
      expect((await socket.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
      expect(promptsOf("Second")).toEqual([]);
      release();
      expect((await second).text).toBe(`You said: ${first}`);
      expect((await socket.ended("a")).text).toMatch(/^You said: Second/);
    });
  });

  it("hold 16 requests in flight; more wait until one has ended", async () => {
    await connected(async (socket) => {
      const text = unique("Sixteen");
      const lanes = Array.from({ length: 17 }, (_, index) => `lane-${index}`);
      for (const lane of lanes) socket.create({ model: STALLED, input: text, stream_id: lane });
      await eventually(() => promptsOf(text).length === 16);
      // By now the server has read the frames after the seventeenth.
      socket.send({ type: "unknown" });
      expectRefusal(await socket.ended(), 400, { param: "type" });
      expect(promptsOf(text)).toHaveLength(16);
      promptsOf(text)[0]?.release();
      await eventually(() => promptsOf(text).length === 17);
      for (const { release } of promptsOf(text)) release();
      for (const lane of lanes) expect((await socket.ended(lane)).last.type).toBe("response.completed");
    });
  });

  it("refuse frames beyond the queue, in their order", async () => {
    await connected(async (socket) => {
      const text = unique("Waiting");
      socket.create({ model: STALLED, input: text, stream_id: "a" });
      const { release } = await promptOf(text);
      for (let count = 0; count < 65; count += 1) socket.create({ input: `Number ${count}`, stream_id: "a" });
      expect((await socket.turn({ input: "Beside it", stream_id: "b" })).last.type).toBe("response.completed");
      release();
      const turns: SocketTurn[] = [];
      while (turns.length < 66) turns.push(await socket.ended("a"));
      expect(turns.slice(1, 65).map((turn) => turn.text)).toEqual(
        Array.from({ length: 64 }, (_, count) => `You said: Number ${count}`),
      );
      expectRefusal(turns[65] as SocketTurn, 429, { code: "rate_limit_exceeded", headers: { "retry-after": "5" } });
    });
  });

  it("have names of 1 to 256 letters, digits, '_', '.', '-', and are at most 32", async () => {
    await connected(async (socket) => {
      for (const stream_id of ["x".repeat(300), "a b", "", 7]) {
        socket.create({ input: "Hello!", stream_id });
        expectRefusal(await socket.ended(), 400, { param: "stream_id", code: "invalid_stream_id" });
      }
      for (let lane = 0; lane < 32; lane += 1) {
        const turn = await socket.turn({ input: "Hello!", generate: false, stream_id: `${lane}`.padStart(256, "x") });
        expect(turn.last.type).toBe("response.completed");
      }
      const error = { param: "stream_id", code: "websocket_stream_limit_reached" };
      expectRefusal(await socket.turn({ input: "Hello!", stream_id: "one-more" }), 400, error);
      expect((await socket.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
    });
  });
});

describe("bad input is an error frame, and leaves the socket open", () => {
  const CASES: [name: string, frame: string | Buffer, status: number, error: object][] = [
    ["half a JSON", '{"type":"response.create","input":"He', 400, { code: "invalid_json", param: null }],
    ["a binary frame", Buffer.from('{"type":"response.create"}'), 400, { message: expect.stringContaining("Binary") }],
    ["no object", '"response.create"', 400, { code: "invalid_type" }],
    ["an unknown type", '{"type":"response.sing"}', 400, { param: "type" }],
    ["deep nesting", `{"type":${"[".repeat(1000)}`, 400, { message: expect.stringContaining("256") }],
    ["many values", `{"type":[${"{},".repeat(500_001)}{}]}`, 413, { code: "request_too_large" }],
    ["a large frame", JSON.stringify("ü".repeat(MAX_REQUEST_BYTES / 2)), 413, { code: "request_too_large" }],
    ["a larger frame", " ".repeat(MAX_REQUEST_BYTES + 1), 413, { code: "request_too_large" }],
    ["no input", '{"type":"response.create"}', 400, { param: "input", code: "missing_required_parameter" }],
    ["a bad field", '{"type":"response.create","input":"?","temperature":3}', 400, { param: "temperature" }],
    [
      "`background`",
      '{"type":"response.create","input":"?","background":true}',
      400,
      { param: "background", code: "unsupported_parameter" },
    ],
    ["`generate` of another type", '{"type":"response.create","input":"?","generate":0}', 400, { param: "generate" }],
    [
      "an unknown id",
      `{"type":"response.create","input":"?","store":false,"previous_response_id":"resp_${"a".repeat(32)}"}`,
      400,
      { param: "previous_response_id", code: "previous_response_not_found" },
    ],
    ["steering without input", '{"type":"response.steer","previous_response_id":"resp_x"}', 400, { param: "input" }],
  ];

  it.each(CASES)("%s", async (_, frame, status, error) => {
    await connected(async (socket) => {
      socket.socket.send(frame);
      expectRefusal(await socket.ended(), status, error);
      expect((await socket.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
    });
  });

  it("a refusal in a lane names the lane", async () => {
    await connected(async (socket) => {
      const turn = await socket.turn({ input: "?", temperature: 3, stream_id: "a" });
      expectRefusal(turn, 400, { param: "temperature" });
      expect(turn.last.stream_id).toBe("a");
    });
  });
});

describe("excessive use ends its connection, and no other", () => {
  it("a frame of 33 MiB: 1009 by the runtime", async () => {
    await connected(async (other) => {
      const socket = await connect();
      socket.socket.send("x".repeat(33 * 1024 * 1024));
      // The client's next bytes reset the connection, which may overtake the close frame.
      expect([1009, 1006]).toContain((await socket.closing()).code);
      expect((await other.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
    });
  });

  // They fit into the buffers of the kernel: a connection that is reset loses its close frame.
  it("2,000 frames at once: 1008, with the reason", async () => {
    await connected(async (other) => {
      const socket = await connect();
      for (let count = 0; count < 2_000; count += 1) socket.send({ type: "unknown" });
      expect(await socket.closing()).toEqual({ code: 1008, reason: expect.stringContaining("too many frames") });
      let last: SocketTurn | undefined;
      for (let turn = await socket.ended(); ; turn = await socket.ended()) {
        last = turn;
        if (turn.last.status === 429) break;
      }
      expectRefusal(last, 429, { code: "rate_limit_exceeded" });
      expect((await other.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
    });
  });

  it("a client that reads nothing: its generations are stopped, and its connection ends", async () => {
    await connected(async (other) => {
      const socket = await connect();
      const text = unique("Unread");
      socket.create({ model: ENDLESS, input: text, stream_id: "a" });
      const prompt = await promptOf(text);
      socket.socket.pause();
      // The echoes, each of which comes twice, exceed the kernel's buffers (`tcp_rmem`, `tcp_wmem`).
      const instructions = "x".repeat(10_000_000);
      for (const lane of ["b", "c", "d"]) {
        socket.create({ input: "Hello!", instructions, generate: false, stream_id: lane });
      }
      await eventually(() => prompt.state !== "open");
      expect(prompt.state).toBe("aborted");
      expect((await other.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
      socket.socket.resume();
      const { code, reason } = await socket.closing();
      // Only a client that soon reads again gets the close frame (`CLOSE_TIMEOUT_MS`).
      if (code !== 1006)
        expect({ code, reason }).toEqual({ code: 1008, reason: expect.stringContaining("does not read") });
    });
  });
});

describe("a response with `store: false`", () => {
  it("is continued from the connection's memory, and stored nowhere else", async () => {
    await connected(async (socket) => {
      const first = await socket.turn({ input: unique("One") });
      const second = await socket.turn({ input: "Two", previous_response_id: first.id });
      const text = unique("Three");
      const third = await socket.turn({ input: text, previous_response_id: second.id });
      expect(third.last.type).toBe("response.completed");
      expect(messagesOf(await promptOf(text))).toEqual([
        expect.stringMatching(/^One/),
        expect.stringMatching(/^You said: One/),
        "Two",
        "You said: Two",
        text,
      ]);
      for (const { id } of [first, second, third]) {
        await expect(openai.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
      }
      const overHttp = openai.responses.create({ model: "simulator", input: "?", previous_response_id: third.id });
      await expect(overHttp).rejects.toMatchObject({ status: 400, code: "previous_response_not_found" });
    });
  });

  it("of gpt-oss has the same prompt, token for token, as a stored one", async () => {
    const tools = [{ type: "function", name: "weather", parameters: { type: "object", properties: { city: {} } } }];
    const model = "simulator-gpt-oss";
    const text = unique("weather preamble");
    const chain = async (create: (fields: JsonObject) => Promise<{ id: string; callId: string }>, last: string) => {
      const first = await create({ model, tools, input: text });
      const output = { type: "function_call_output", call_id: first.callId, output: "sunny" };
      const second = await create({ model, tools, input: [output], previous_response_id: first.id });
      await create({ model, tools, input: last, previous_response_id: second.id });
      const { body } = await promptOf(last);
      return isObject(body) && typeof body.prompt === "string" ? body.prompt.replace(last, "") : "";
    };
    const callIn = (output: unknown) => /"call_id":"(\w+)"/.exec(JSON.stringify(output))?.[1] ?? "";
    const overSocket = await connected((socket) =>
      chain(async (fields) => {
        const { id, last } = await socket.turn(fields);
        return { id, callId: callIn(last.response?.output) };
      }, unique("Last")),
    );
    const overHttp = await chain(async (fields) => {
      const { id, output } = await openai.responses.create({ ...fields, stream: false });
      return { id, callId: callIn(output) };
    }, unique("Last"));
    expect(overSocket).toBe(overHttp);
    expect(overSocket).toContain("Let me look.");
  });

  it("can be continued if it is incomplete", async () => {
    await connected(async (socket) => {
      const first = await socket.turn({ model: "simulator?words=20", input: "One", max_output_tokens: 3 });
      expect(first.last.type).toBe("response.incomplete");
      expect((await socket.turn({ input: "Two", previous_response_id: first.id })).text).toBe("You said: Two");
    });
  });

  it("may continue a stored one", async () => {
    const { id } = await openai.responses.create({ model: "simulator", input: unique("Stored") });
    await connected(async (socket) => {
      const second = await socket.turn({ input: "Two", previous_response_id: id });
      const text = unique("Three");
      await socket.turn({ input: text, previous_response_id: second.id });
      expect(messagesOf(await promptOf(text))).toHaveLength(5);
      await openai.responses.delete(id);
      const miss = await socket.turn({ input: "Four", previous_response_id: second.id });
      expectRefusal(miss, 400, { code: "previous_response_not_found" });
    });
  });

  it("can be continued only if it is the latest of its lane", async () => {
    await connected(async (socket) => {
      const first = await socket.turn({ input: "One", stream_id: "a" });
      const fork = { input: "Two", previous_response_id: first.id };
      const forked = await socket.turn({ ...fork, stream_id: "b" });
      expect(forked.last.type).toBe("response.completed");
      expect((await socket.turn({ ...fork, stream_id: "a" })).last.type).toBe("response.completed");
      // Its lane has a later response now.
      expectRefusal(await socket.turn({ ...fork, stream_id: "a" }), 400, { code: "previous_response_not_found" });
      const further = await socket.turn({ input: "Three", previous_response_id: forked.id, stream_id: "a" });
      expect(further.last.type).toBe("response.completed");
    });
  });

  it("ends with its connection, and belongs to no other", async () => {
    await connected(async (socket) => {
      const { id } = await socket.turn({ input: "One" });
      const others = [await connect("a"), await connect("b")];
      for (const other of others) {
        const turn = await other.turn({ input: "Two", previous_response_id: id });
        expectRefusal(turn, 400, { code: "previous_response_not_found", message: expect.stringContaining(id) });
        other.terminate();
      }
      expect((await socket.turn({ input: "Two", previous_response_id: id })).text).toBe("You said: Two");
    });
  });

  it("is forgotten when a continuation in its lane fails; after a failure in another lane, or for lack of memory, it stays", async () => {
    await connected(async (socket) => {
      const { id } = await socket.turn({ input: "One", stream_id: "a" });
      const next = { input: "Two", previous_response_id: id };
      const elsewhere = await socket.turn({ ...next, model: "simulator?fault=http:500", stream_id: "b" });
      expect(elsewhere.last).toMatchObject({ type: "error", status: 502 });
      const busy = await socket.turn({ ...next, model: "simulator?fault=http:429", stream_id: "a" });
      expect(busy.last).toMatchObject({ type: "error", status: 429 });
      const broken = await socket.turn({ ...next, temperature: 3, stream_id: "a" });
      expectRefusal(broken, 400, { param: "temperature" });
      expectRefusal(await socket.turn({ ...next, stream_id: "a" }), 400, { code: "previous_response_not_found" });
    });
  });

  it("cannot be continued by a stored one, whose conversation would begin in the middle", async () => {
    await connected(async (socket) => {
      const { id } = await socket.turn({ input: "One", stream_id: "a" });
      const next = { input: "Two", previous_response_id: id, stream_id: "b" };
      expectRefusal(await socket.turn({ ...next, store: true }), 400, { param: "store" });
      expectRefusal(await socket.turn({ ...next, store: undefined }), 400, { param: "store" });
      expect((await socket.turn(next)).last.type).toBe("response.completed");
    });
  });
});

describe("a prepared response", () => {
  it.each([{ generate: false }, { prompt_cache_options: { prewarm: true } }])("%j", async (fields) => {
    await connected(async (socket) => {
      const prepared = unique("Prepared");
      const first = await socket.turn({ input: prepared, ...fields, stream_id: "a" });
      expect(first.types).toEqual(["response.created", "response.completed"]);
      expect(first.last.response).toMatchObject({ status: "completed", output: [], usage: { total_tokens: 0 } });
      expect(promptsOf(prepared)).toEqual([]);
      const text = unique("Asked");
      await socket.turn({ input: text, previous_response_id: first.id, stream_id: "a" });
      expect(messagesOf(await promptOf(text))).toEqual([prepared, text]);
    });
  });

  it("is checked like any other", async () => {
    await connected(async (socket) => {
      const input = [{ type: "function_call_output", call_id: "call_x", output: "?" }];
      expectRefusal(await socket.turn({ input, generate: false }), 400, { param: "input" });
    });
  });

  it("is stored with store: true", async () => {
    await connected(async (socket) => {
      const { id } = await socket.turn({ input: "Prepared", generate: false, store: true });
      expect(await stored(id)).toMatchObject({ status: "completed", output: [] });
      const next = await openai.responses.create({ model: "simulator", input: "Go on", previous_response_id: id });
      expect(next.output_text).toBe("You said: Go on");
    });
  });
});

describe("a WebSocket, like HTTP,", () => {
  it("stores responses, which HTTP continues", async () => {
    await connected(async (socket) => {
      const first = await socket.turn({ input: "One", store: true });
      const second = await openai.responses.create({
        model: "simulator?mode=transcript",
        input: "Two",
        previous_response_id: first.id,
      });
      expect(second.output_text).toContain("You said: One");
      const third = await socket.turn({ input: "Three", store: true, previous_response_id: second.id });
      expect((await stored(third.id)).output_text).toBe("You said: Three");
    });
  });

  it("takes turns in a conversation", async () => {
    const conversation = (await openai.conversations.create()).id;
    await connected(async (socket) => {
      await socket.turn({ input: "One", store: true, conversation });
      await socket.turn({ input: "Two", conversation });
      const texts = ["One", "You said: One", "Two", "You said: Two"];
      expect(await textsOf({ ...gateway, openai }, conversation)).toEqual(texts);
    });
  });

  it("always streams, whatever `stream` is, and pads no delta if padding is disabled", async () => {
    await connected(async (socket) => {
      for (const stream of [true, false, "please"]) {
        const turn = await socket.turn({ input: "Hello!", stream, stream_options: { include_obfuscation: false } });
        expect(turn.types).toContain("response.output_text.delta");
        expect(turn.frames.join("")).not.toContain('"obfuscation"');
      }
    });
  });
});

describe("a turn that fails", () => {
  it("before it has begun, is only an error frame, with the model server's message", async () => {
    await connected(async (socket) => {
      const turn = await socket.turn({ model: "simulator?fault=http:503", input: "Hello!", stream_id: "a" });
      expectRefusal(turn, 503, { code: "server_is_overloaded" });
      expect(turn.last.stream_id).toBe("a");
    });
  });

  it("after it has begun, ends with `response.failed` alone", async () => {
    await connected(async (socket) => {
      const turn = await socket.turn({ model: "simulator?words=20&fault=error:5", input: "Hello!" });
      expect(turn.last).toMatchObject({ type: "response.failed", response: { status: "failed" } });
      expect(turn.types).not.toContain("error");
      expect(turn.events.map((event) => event.sequence_number)).toEqual(turn.events.map((_, index) => index));
      expect(turnViolations(turn)).toEqual([]);
      expect((await socket.turn({ input: "Hello!" })).text).toBe("You said: Hello!");
    });
  });
});

describe("other events", () => {
  it("`response.processed` has no effect", async () => {
    await connected(async (socket) => {
      const { id } = await socket.turn({ input: "Hello!" });
      socket.send({ type: "response.processed", response_id: id });
      expect((await socket.turn({ input: "Again" })).text).toBe("You said: Again");
    });
  });
});

describe("a client that disconnects", () => {
  it.each(["terminate", "close"] as const)("by %s stops every generation of its connection", async (how) => {
    const socket = await connect();
    const text = unique("Left");
    for (const lane of ["a", "b", "c"]) {
      socket.create({ model: ENDLESS, input: text, stream_id: lane, store: lane === "a" });
    }
    socket.create({ input: "Never", stream_id: "a" });
    const [created] = await socket.reached(({ type }) => type === "response.created", "a");
    await socket.reached(({ type }) => type === "response.output_text.delta", "a");
    await eventually(() => promptsOf(text).length === 3);
    socket[how]();
    await eventually(() => promptsOf(text).every(({ state }) => state !== "open"));
    expect(promptsOf(text).map(({ state }) => state)).toEqual(["aborted", "aborted", "aborted"]);
    // The response with storage is stored, with its partial output.
    const response = await ended({ ...gateway, openai }, (await stored(created?.response?.id ?? "")).id);
    expect(response).toMatchObject({ status: "cancelled", output: [{ status: "incomplete" }] });
    expect(promptsOf("Never")).toEqual([]);
  });

  it("releases its conversation, also one that it still waits for", async () => {
    const conversation = (await openai.conversations.create()).id;
    const [holder, waiter] = [await connect(), await connect()];
    const [held, waited] = [unique("Held"), unique("Waited")];
    holder.create({ model: ENDLESS, input: held, conversation });
    await promptOf(held);
    waiter.create({ input: waited, conversation });
    waiter.terminate();
    holder.terminate();
    const next = await openai.responses.create({ model: "simulator", input: "Next", conversation });
    expect(next.output_text).toBe("You said: Next");
    expect(promptsOf(waited)).toEqual([]);
  });
});

describe("openai-node's ResponsesWS", () => {
  it("reads two lanes side by side, each in its order", async () => {
    const connection = new ResponsesWS(gateway.client({ apiKey: KEYS.a }));
    const session = new ResponsesWebSocketSession(connection, {
      maxLanes: 4,
      maxBufferedEvents: 10_000,
      maxBufferedBytes: 10_000_000,
    });
    await new Promise<void>((resolve, reject) => {
      connection.socket.on("open", () => resolve());
      connection.socket.on("error", reject);
    });
    const lanes = [session.lane("a"), session.lane("b")] as const;
    for (const [index, lane] of lanes.entries()) {
      lane.create({ model: "simulator", input: `Lane ${index}`, store: false });
    }
    const [first, second] = await Promise.all(lanes.map((lane) => lane.finalResponse()));
    expect([first?.output_text, second?.output_text]).toEqual(["You said: Lane 0", "You said: Lane 1"]);
    const input = "Go on";
    lanes[0].create({ model: "simulator", input, store: false, previous_response_id: first?.id ?? "" });
    expect((await lanes[0].finalResponse()).output_text).toBe("You said: Go on");
    lanes[0].create({ model: "simulator", input, store: false, previous_response_id: "resp_unknown" });
    await expect(lanes[0].finalResponse()).rejects.toThrow("Responses WebSocket request failed");
    lanes[0].create({ model: "simulator?words=9&fault=error:3", input, store: false });
    expect((await lanes[0].finalResponse()).status).toBe("failed");
    lanes[0].create({ model: "simulator", input, store: false });
    expect((await lanes[0].finalResponse()).output_text).toBe("You said: Go on");
    connection.close();
  });
});
