import { connect } from "node:net";
import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { sha256 } from "./key-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, reached, unique } from "./turns.ts";

let gateway: Gateway;
let openai: OpenAI;

/** Has the tests of a group ask a gateway of their own, with these variables. */
function useGateway(variables: Record<string, string>): void {
  beforeAll(async () => {
    gateway = await startGateway({ HEARTBEAT_MS: "50", ...variables });
    openai = gateway.openai;
  });
  afterAll(() => gateway.close());
}

/** A model that says nothing until the test lets it. */
const HELD = "simulator?words=3&fault=stall:0&max_model_len=10000000";

const OVERLOADED = { status: 503, code: "server_is_overloaded", type: "server_error", param: null };

async function expectOverloaded(request: PromiseLike<unknown>): Promise<void> {
  const error = await Promise.resolve(request).catch((error: unknown) => error);
  expect(error).toMatchObject(OVERLOADED);
  expect((error as InstanceType<typeof OpenAI.APIError>).headers?.get("retry-after")).toMatch(/^\d+$/);
}

/** A turn that has reached the model, and what lets it end. */
interface Held<T> {
  turn: Promise<T>;
  release: () => void;
}

async function held<T>(create: (input: string) => Promise<T>): Promise<Held<T>> {
  const input = unique("Held");
  const turn = create(input);
  const refused = new Promise<never>((_, reject) => turn.catch(reject));
  return { turn, release: await Promise.race([reached(gateway, input), refused]) };
}

const json = (input: string) => openai.responses.create({ model: HELD, input });
const background = (input: string) => openai.responses.create({ model: HELD, input, background: true });
const hello = () => openai.responses.create({ input: "Hello!" });

async function letEnd(turns: Held<unknown>[]): Promise<void> {
  for (const { release } of turns) release();
  await Promise.all(turns.map(({ turn }) => turn));
}

describe("an isolate with all the turns that it may have", () => {
  useGateway({ MAX_OPEN_TURNS: "3" });

  it("refuses new ones, however they are asked for, and goes on with those that it has", async () => {
    const socket = await SocketClient.open(gateway);
    const whole = await held(json);
    const run = await held(background);
    const frames = await held(async (input) => socket.turn({ model: HELD, input }));
    await expectOverloaded(hello());
    await expectOverloaded(openai.responses.create({ input: "Streamed", stream: true }));
    await expectOverloaded(openai.responses.create({ input: "In the background", background: true }));
    await expectOverloaded(openai.responses.compact({ model: "simulator", input: "Compact me." }));
    const refused = await socket.turn({ stream_id: "other", input: "Hello!" });
    expect(refused.last).toMatchObject({ type: "error", status: 503, error: { code: "server_is_overloaded" } });
    // What is no turn is still answered.
    const { id } = await run.turn;
    expect((await openai.responses.retrieve(id)).status).toBe("in_progress");
    whole.release();
    expect((await whole.turn).status).toBe("completed");
    expect((await hello()).status).toBe("completed");
    run.release();
    expect((await ended(gateway, id)).status).toBe("completed");
    frames.release();
    expect((await frames.turn).last.type).toBe("response.completed");
    await socket.close();
  });

  it("has room again for each that has ended, was refused, or was left", async () => {
    const one = await held(json);
    const two = await held(background);
    const { id } = await two.turn;
    for (let turn = 0; turn < 4; turn += 1) {
      expect((await hello()).status).toBe("completed");
      await expect(openai.responses.create({ input: "Fails", model: "simulator?fault=http:400" })).rejects.toThrow(
        "400",
      );
      await expect(openai.responses.create({ input: "Fails", previous_response_id: "resp_none" })).rejects.toThrow(
        "400",
      );
    }
    for (let turn = 0; turn < 2; turn += 1) {
      const input = unique("Leaves");
      const stream = await openai.responses.create({ model: "simulator?words=4&fault=stall:2", input, stream: true });
      await reached(gateway, input);
      await expectOverloaded(hello());
      stream.controller.abort();
      // Workerd learns of it by the next heartbeat.
      await eventually(() => hello().catch(() => undefined));
    }
    one.release();
    await one.turn;
    await openai.responses.cancel(id);
    expect((await Promise.all([hello(), hello(), hello()])).map(({ status }) => status)).toEqual(
      Array(3).fill("completed"),
    );
  });

  it("lets the key of what it refused be used again", async () => {
    const turns = [await held(json), await held(json), await held(json)];
    const headers = { "idempotency-key": unique("key") };
    await expectOverloaded(openai.responses.create({ input: "Keyed" }, { headers }));
    await letEnd(turns);
    expect((await openai.responses.create({ input: "Keyed" }, { headers })).status).toBe("completed");
  });
});

/** A model that has room for any prompt. */
const ROOMY = "simulator?words=3&max_model_len=10000000";

/** As a prompt it takes five places: one, and one more for each 256 Ki. */
const LONG = "word ".repeat(220_000);

describe("an isolate of eight places", () => {
  useGateway({ MAX_OPEN_TURNS: "8" });

  const long = (input: string, fields: object = {}) => {
    const messages = [LONG, input].map((content) => ({ role: "user" as const, content }));
    return openai.responses.create({ model: HELD, input: messages, ...fields });
  };

  /** So many short turns are let in, and not one more. */
  async function expectRoomFor(count: number): Promise<void> {
    const turns: Held<unknown>[] = [];
    try {
      for (let turn = 0; turn < count; turn += 1) turns.push(await held(json));
      await expectOverloaded(hello());
    } finally {
      await letEnd(turns);
    }
  }

  const hasRoomFor = (count: number) =>
    expectRoomFor(count).then(
      () => true,
      () => false,
    );

  it("has room for three turns beside a long one", async () => {
    const turn = await held(long);
    await expectRoomFor(3);
    await letEnd([turn]);
    await expectRoomFor(8);
  });

  it("has no more room beside one that lives in its home", async () => {
    const run = await held((input) => long(input, { background: true }));
    await expectRoomFor(3);
    run.release();
    await ended(gateway, (await run.turn).id);
    await eventually(() => hasRoomFor(8));
  });

  it("counts what a short request continues", async () => {
    const first = await openai.responses.create({ model: ROOMY, input: LONG });
    const later = await held((input) =>
      openai.responses.create({ model: HELD, input, previous_response_id: first.id, store: false }),
    );
    await expectRoomFor(3);
    await letEnd([later]);
    const { id: conversation } = await openai.conversations.create({
      items: [{ type: "message", role: "user", content: LONG }],
    });
    const inConversation = await held((input) => openai.responses.create({ model: HELD, input, conversation }));
    await expectRoomFor(3);
    await letEnd([inConversation]);
  });

  it("counts a body from when it is announced, until its client has left", async () => {
    const { host, hostname, port } = new URL(gateway.url);
    const client = connect(Number(port), hostname);
    const head = ["POST /v1/responses HTTP/1.1", `host: ${host}`, "content-type: application/json"];
    client.write([...head, `content-length: ${LONG.length}`, "", '{"input": "'].join("\r\n"));
    // Three copies of it are more than one request may take where there are others.
    await eventually(() => hasRoomFor(2));
    client.destroy();
    await eventually(() => hasRoomFor(8));
  });

  it("counts what waits in a connection, until it is closed", async () => {
    const socket = await SocketClient.open(gateway);
    const first = await held((input) => socket.turn({ model: HELD, input }));
    socket.create({ model: HELD, input: LONG });
    await eventually(() => hasRoomFor(3));
    await socket.close();
    await expect(first.turn).rejects.toThrow();
    await eventually(() => hasRoomFor(8));
  });

  it("lets in one request of any length that a body may have, where nothing else is there", async () => {
    const input = "word ".repeat(2_000_000);
    expect((await openai.responses.create({ model: ROOMY, input })).status).toBe("completed");
  });
});

describe("an isolate of two tenants", () => {
  const KEYS = { a: "key-of-a", b: "key-of-b" };
  const API_KEYS = Object.entries(KEYS).map(([tenant, key]) => `${tenant}:${sha256(key)}`);
  useGateway({ MAX_OPEN_TURNS: "4", API_KEYS: API_KEYS.join(",") });

  it("leaves the last quarter of its places to others, unless a tenant is alone", async () => {
    const [a, b] = Object.values(KEYS).map((apiKey) => gateway.client({ apiKey }).responses) as [
      OpenAI["responses"],
      OpenAI["responses"],
    ];
    const begin = () => held((input) => a.create({ model: HELD, input }));
    const alone = [await begin(), await begin(), await begin(), await begin()];
    await expectOverloaded(b.create({ input: "Hello!" }));
    await letEnd(alone);
    const turns = [await begin(), await begin(), await begin()];
    await expect(a.create({ input: "Hello!" })).rejects.toMatchObject({ status: 429, code: "rate_limit_exceeded" });
    expect((await b.create({ input: "Hello!" })).status).toBe("completed");
    await letEnd(turns);
    // In the background it is the same.
    const runs: Held<unknown>[] = [];
    for (let run = 0; run < 3; run += 1) {
      runs.push(await held((input) => a.create({ model: HELD, input, background: true })));
    }
    await expect(a.create({ input: "Hello!", background: true })).rejects.toMatchObject({ status: 429 });
    expect((await b.create({ input: "Hello!" })).status).toBe("completed");
    await letEnd(runs);
    await eventually(() => a.create({ input: "Hello!" }).catch(() => undefined));
  });
});
