import { parseResponseId } from "@responses-edge/responses-api/ids";
import fc from "fast-check";
import type { ResponseStreamEvent } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { homeKey, objectId } from "../workerd/storage.ts";
import {
  eventCount,
  framesOf,
  generationsOf,
  idIn,
  isWhole,
  replay,
  resume,
  streamFrom,
  typesOf,
  withoutHeartbeats,
} from "./event-streams.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";

const keys = {
  alice: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
  bob: "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
};

let gateway: Gateway;
beforeAll(async () => {
  // Keys "test" and "test2"; heartbeats as good as never, so that streams can be compared byte by byte.
  const API_KEYS = `alice:${keys.alice} bob:${keys.bob}`;
  gateway = withKey(await startGateway({ API_KEYS, HEARTBEAT_MS: "600000" }));
});
afterAll(() => gateway.close());

/** Requests without a key of their own get Alice's. */
function withKey(real: Gateway): Gateway {
  const authorized = (init?: RequestInit) => {
    const headers = new Headers(init?.headers);
    if (!headers.has("authorization")) headers.set("authorization", "Bearer test");
    return { ...init, headers };
  };
  const fetch = Object.assign((...[input, init]: Parameters<Gateway["fetch"]>) => real.fetch(input, authorized(init)), {
    violations: real.fetch.violations,
    settled: real.fetch.settled,
  });
  return {
    ...real,
    fetch,
    openai: real.client({ apiKey: "test" }),
    post: (body, headers) => real.post(body, { authorization: "Bearer test", ...headers }),
  };
}

const weatherTool = { type: "function", name: "get_weather", parameters: null, strict: false } as const;

interface Run {
  id: string;
  /** The bytes that its creator gets. */
  stream: Promise<string>;
}

/** Begins a background run whose creator reads its stream. */
async function begin(body: Record<string, unknown>): Promise<Run> {
  const answer = await gateway.post({ input: "Go on.", ...body, background: true, stream: true });
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = (await reader?.read())?.value ?? "";
  const rest = async () => {
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true };
      if (done) return text;
      text += value;
    }
  };
  return { id: idIn(text), stream: rest() };
}

/** Reads without the checks, for which a stream that begins after its end would be cut off. */
function resumeUnchecked(id: string, after?: number): Promise<Response> {
  const query = after === undefined ? "" : `&starting_after=${after}`;
  const headers = { authorization: "Bearer test" };
  return fetch(`${gateway.url}/v1/responses/${id}?stream=true${query}`, { headers });
}

/** Waits until a model that no other test uses has generated `tokens` tokens. */
async function spoken(model: string, tokens: number): Promise<void> {
  await eventually(() => (generationsOf(gateway, model)[0]?.deltasSent ?? 0) >= tokens);
}

function deltasIn(stream: string): number {
  return stream.split("event: response.output_text.delta\n").length - 1;
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe("the stream of an ended response", () => {
  const bodies: [string, Record<string, unknown>][] = [
    ["a message", { model: "simulator", input: "Grüße, 你好 and 👩‍👩‍👧\n\nto all" }],
    ["reasoning and a call", { model: "simulator-reasoning", input: "Call get_weather.", tools: [weatherTool] }],
    ["an incomplete message", { model: "simulator", max_output_tokens: 3 }],
    ["a failure", { model: "simulator?fault=http:500" }],
    ["logprobs", { model: "simulator", include: ["message.output_text.logprobs"], top_logprobs: 2 }],
    ["no text at all", { model: "simulator?words=0" }],
    ["many events", { model: "simulator?words=2000" }],
  ];

  it.each(bodies)("is replayed byte for byte, from every position: %s", async (_, body) => {
    const run = await begin(body);
    const whole = await run.stream;
    const events = eventCount(whole);
    expect(isWhole(whole)).toBe(true);
    expect(await replay(gateway, run.id)).toBe(whole);
    const starts = events < 40 ? Array.from({ length: events }, (_, index) => index) : [0, 1, 3, 1000, events - 2];
    const replays = await Promise.all(starts.map((after) => replay(gateway, run.id, `&starting_after=${after}`)));
    for (const [index, after] of starts.entries()) expect(replays[index]).toBe(streamFrom(whole, after + 1));
  });

  it.each([500, 5_000])("is stored in at most 20 bytes a token: %i tokens", async (tokens) => {
    const { id, stream } = await begin({ model: `simulator?words=${tokens}` });
    const whole = await stream;
    const home = objectId(`alice:${homeKey(id)}`);
    const { turn = "" } = parseResponseId(id) ?? {};
    const [kept] = gateway.storage.exec(home, "SELECT octet_length(log) AS bytes FROM turns WHERE turn = ?", turn);
    const sealed = gateway.storage.exec(home, "SELECT octet_length(body) AS bytes FROM events WHERE turn = ?", turn);
    const bytes = sealed.reduce((sum, row) => sum + Number(row.bytes), Number(kept?.bytes));
    expect(bytes).toBeLessThanOrEqual(20 * deltasIn(whole));
    // A short one has no row of its own.
    expect(sealed.length).toBeLessThanOrEqual(tokens / 600);
    expect(await replay(gateway, id)).toBe(whole);
  });

  it("exists also if the create did not request a stream", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!", background: true });
    const text = await replay(gateway, id);
    expect(typesOf(text).slice(0, 3)).toEqual(["response.created", "response.queued", "response.in_progress"]);
    expect(typesOf(text).at(-1)).toBe("response.completed");
    expect(isWhole(text)).toBe(true);
  });

  it("has nothing but [DONE] after its last event, and beyond", async () => {
    const run = await begin({ model: "simulator" });
    const last = eventCount(await run.stream) - 1;
    for (const after of [last, last + 1, 1_000_000, Number.MAX_SAFE_INTEGER]) {
      expect(await (await resumeUnchecked(run.id, after)).text()).toBe("data: [DONE]\n\n");
    }
  });

  it("leaves out obfuscation on request, and nothing else", async () => {
    const input = 'Call get_weather, and say ,"obfuscation":"x"} to it.';
    const metadata = { obfuscation: "kept" };
    const run = await begin({ model: "simulator-reasoning", input, tools: [weatherTool], metadata });
    const whole = await run.stream;
    const bare = await replay(gateway, run.id, "&include_obfuscation=false");
    const strip = (frame: string) => {
      if (!frame.startsWith("event: ")) return frame;
      const [event = "", data = ""] = frame.split("\ndata: ");
      const { obfuscation, ...rest } = JSON.parse(data) as Record<string, unknown>;
      return event.endsWith(".delta") ? `${event}\ndata: ${JSON.stringify(rest)}` : frame;
    };
    expect(whole).toContain('"obfuscation":"');
    expect(framesOf(bare)).toEqual(framesOf(whole).map(strip));
    expect(await replay(gateway, run.id, "&include_obfuscation=true")).toBe(whole);
    const tail = await replay(gateway, run.id, "&include_obfuscation=false&starting_after=5");
    expect(tail).toBe(streamFrom(bare, 6));
  });

  it("has no obfuscation if its creator has disabled it", async () => {
    const run = await begin({ model: "simulator", stream_options: { include_obfuscation: false } });
    const whole = await run.stream;
    expect(whole).not.toContain("obfuscation");
    expect(await replay(gateway, run.id)).toBe(whole);
  });

  it("keeps the bytes that were sent when any of its readers disconnects", async () => {
    const run = await begin({ model: "simulator?tps=200&words=60" });
    const leaving = new AbortController();
    const answer = await resume(gateway, run.id, "", { signal: leaving.signal });
    const reader = answer.body?.getReader();
    await reader?.read();
    leaving.abort();
    const whole = await run.stream;
    expect(await replay(gateway, run.id)).toBe(whole);
  });
});

describe("the stream of a running response", () => {
  it("is the same for many readers who start at different moments", async () => {
    const model = "simulator?tps=100&words=80";
    const run = await begin({ model });
    const readers: Promise<string>[] = [];
    for (let index = 0; index < 10; index += 1) {
      await spoken(model, 8 * index);
      readers.push(replay(gateway, run.id));
    }
    const whole = await run.stream;
    for (const text of await Promise.all(readers)) expect(text).toBe(whole);
    expect(whole.split("output_text.delta\n").length - 1).toBe(80);
  });

  it("continues after starting_after, also if that event is still to come", async () => {
    const model = "simulator?tps=100&words=61";
    const run = await begin({ model });
    await spoken(model, 12);
    const starts = [0, 2, 3, 10, 40, 62];
    const texts = await Promise.all(starts.map((after) => replay(gateway, run.id, `&starting_after=${after}`)));
    const whole = await run.stream;
    for (const [index, after] of starts.entries()) expect(texts[index]).toBe(streamFrom(whole, after + 1));
  });

  it("ends for a reader that asks for more events than there will be", async () => {
    const run = await begin({ model: "simulator?tps=200&words=20" });
    expect(await (await resumeUnchecked(run.id, 100_000)).text()).toBe("data: [DONE]\n\n");
    expect(isWhole(await run.stream)).toBe(true);
  });

  it("reaches readers without delay", async () => {
    const model = "simulator?words=35&fault=stall:7";
    const { id } = await gateway.openai.responses.create({ model, input: "Go on.", background: true });
    const answer = await resume(gateway, id);
    let seen = "";
    for await (const text of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      seen += text;
      // The model generates no more before these have been seen.
      if (deltasIn(seen) === 7) generationsOf(gateway, model)[0]?.release();
    }
    expect(deltasIn(seen)).toBe(35);
  });

  it("is read by openai-node", async () => {
    const run = await begin({ model: "simulator?tps=100&words=30" });
    const stream = gateway.openai.responses.stream({ response_id: run.id, starting_after: 5 });
    const events: { sequence_number: number }[] = [];
    for await (const event of stream) events.push(event);
    const response = await stream.finalResponse();
    expect(response.status).toBe("completed");
    expect(response.output_text.split(" ")).toHaveLength(30);
    const whole = await run.stream;
    expect(events.map((event) => event.sequence_number)).toEqual(
      Array.from({ length: eventCount(whole) - 6 }, (_, index) => index + 6),
    );
  });

  it("is read by openai-node through retrieve", async () => {
    const run = await begin({ model: "simulator?tps=100&words=30" });
    const events: ResponseStreamEvent[] = [];
    for await (const event of await gateway.openai.responses.retrieve(run.id, { stream: true, starting_after: 3 })) {
      events.push(event);
    }
    expect(events[0]?.sequence_number).toBe(4);
    expect(events.at(-1)?.type).toBe("response.completed");
    await run.stream;
  });

  it("waits for a reader that does not read, and delays no other", async () => {
    const model = "simulator?words=40000&chunk=50";
    const { id } = await gateway.openai.responses.create({ model, input: "Go on.", background: true });
    const slow = await resumeUnchecked(id);
    const [whole, other] = await Promise.all(
      [resumeUnchecked(id), resumeUnchecked(id)].map(async (a) => (await a).text()),
    );
    expect(other === whole).toBe(true);
    expect(whole?.split("output_text.delta\n").length).toBe(40_001);
    expect((await gateway.openai.responses.retrieve(id)).status).toBe("completed");
    // More than all the buffers on the way can hold.
    expect(whole?.length).toBeGreaterThan(8_000_000);
    expect((await slow.text()) === whole).toBe(true);
  });
});

describe("heartbeats", () => {
  let quiet: Gateway;
  beforeAll(async () => {
    quiet = await startGateway({ HEARTBEAT_MS: "50" });
  });
  afterAll(() => quiet.close());

  it("fill the silence of every reader, between events", async () => {
    const body = { model: "simulator?ttft=400", input: "Hello!", background: true, stream: true };
    const answer = await quiet.post(body);
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let creator = (await reader?.read())?.value ?? "";
    const id = idIn(creator);
    const later = replay(quiet, id);
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true };
      if (done) break;
      creator += value;
    }
    const whole = withoutHeartbeats(creator);
    expect(creator.length).toBeGreaterThan(whole.length + 3 * ": heartbeat\n\n".length);
    expect(await later).toContain(": heartbeat\n\n");
    expect(withoutHeartbeats(await later)).toBe(whole);
    expect(await replay(quiet, id)).toBe(whole);
  });
});

describe("a stream that does not exist", () => {
  it("is that of a foreground response: 400", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    await expect(gateway.openai.responses.retrieve(id, { stream: true })).rejects.toMatchObject({
      status: 400,
      type: "invalid_request_error",
      param: "stream",
    });
  });

  it.each([`resp_${"0".repeat(32)}`, "resp_x", "conv_1"])("is that of no response: 404 (%s)", async (id) => {
    await expect(gateway.openai.responses.retrieve(id, { stream: true })).rejects.toMatchObject({ status: 404 });
  });

  it("is another tenant's: 404, as if it did not exist, running or not", async () => {
    const bob = { headers: { authorization: "Bearer test2" } };
    const run = await begin({ model: "simulator?tps=100&words=30" });
    const statuses = async () => {
      const url = `${gateway.url}/v1/responses/${run.id}`;
      const asked = [
        resume(gateway, run.id, "", bob),
        gateway.fetch(url, bob),
        gateway.fetch(`${url}/input_items`, bob),
        gateway.fetch(`${url}/cancel`, { method: "POST", ...bob }),
        gateway.fetch(url, { method: "DELETE", ...bob }),
      ];
      return (await Promise.all(asked)).map(({ status }) => status);
    };
    expect(await statuses()).toEqual([404, 404, 404, 404, 404]);
    expect(isWhole(await run.stream)).toBe(true);
    expect(await statuses()).toEqual([404, 404, 404, 404, 404]);
    expect((await gateway.openai.responses.retrieve(run.id)).status).toBe("completed");
  });

  it.each([
    ["starting_after=-1", "starting_after"],
    ["starting_after=x", "starting_after"],
    ["starting_after=1.5", "starting_after"],
    ["starting_after=", "starting_after"],
    ["starting_after=99999999999999999999", "starting_after"],
    ["include_obfuscation=maybe", "include_obfuscation"],
  ])("is a 400 for an invalid query (%s)", async (query, param) => {
    const run = await begin({ model: "simulator" });
    await run.stream;
    const answer = await resume(gateway, run.id, `&${query}`);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { type: "invalid_request_error", param } });
  });

  it("is a 400 without stream=true", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!", background: true });
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/${id}?starting_after=3`);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param: "starting_after" } });
  });
});

describe("any reader of any run", () => {
  const settings = fc.record({
    words: fc.integer({ min: 1, max: 50 }),
    tps: fc.constantFrom(0, 100, 150, 400),
    chunk: fc.constantFrom(1, 2, 7, 100),
    per_delta: fc.constantFrom(1, 1, 3),
    bytes: fc.option(fc.integer({ min: 1, max: 300 }), { nil: undefined }),
    ttft: fc.constantFrom(0, 0, 30),
  });
  const reader = fc.record({
    delay: fc.integer({ min: 0, max: 350 }),
    after: fc.option(fc.integer({ min: 0, max: 80 }), { nil: undefined }),
    /** The wait between two reads. Milliseconds. */
    lag: fc.constantFrom(0, 0, 0, 20),
  });

  /** Reads as slowly as `lag` says. */
  async function read(
    id: string,
    { delay, after, lag }: { delay: number; after?: number; lag: number },
  ): Promise<string> {
    await pause(delay);
    const answer = await resumeUnchecked(id, after);
    let text = "";
    for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += part;
      if (lag > 0) await pause(lag);
    }
    return text;
  }

  it("sees the same sequence, at any time and with any chunking of the model", async () => {
    const property = fc.asyncProperty(
      settings,
      fc.array(reader, { minLength: 1, maxLength: 8 }),
      async (how, readers) => {
        const query = Object.entries(how).filter(([, value]) => value !== undefined);
        const model = `simulator?${query.map(([name, value]) => `${name}=${value}`).join("&")}`;
        const run = await begin({ model });
        const texts = await Promise.all(readers.map((one) => read(run.id, one)));
        const whole = await run.stream;
        expect(isWhole(whole)).toBe(true);
        for (const [index, { after = -1 }] of readers.entries())
          expect(texts[index]).toBe(streamFrom(whole, after + 1));
        expect(await replay(gateway, run.id)).toBe(whole);
      },
    );
    await fc.assert(property, { numRuns: 10, endOnFailure: true });
  });
});

it("does not cause a second generation", async () => {
  const model = "simulator?tps=200&words=21";
  const run = await begin({ model });
  await Promise.all(Array.from({ length: 5 }, () => replay(gateway, run.id)));
  await eventually(() => generationsOf(gateway, model).every(({ state }) => state === "completed"));
  expect(generationsOf(gateway, model)).toHaveLength(1);
});
