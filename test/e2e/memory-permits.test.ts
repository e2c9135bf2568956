import { connect, type Socket } from "node:net";
import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { sha256 } from "./key-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, reached, unique } from "./turns.ts";

let gateway: Gateway;
let openai: OpenAI;

/** Starts a gateway with these variables for the tests of a group. */
function useGateway(variables: Record<string, string>): void {
  beforeAll(async () => {
    gateway = await startGateway({ HEARTBEAT_MS: "50", ...variables });
    openai = gateway.openai;
  });
  afterAll(() => gateway.close());
}

/** A model that outputs nothing until the test releases it. */
const HELD = "simulator?words=3&fault=stall:0&max_model_len=10000000";

const OVERLOADED = { status: 503, code: "server_is_overloaded", type: "server_error", param: null };
const OVER_SHARE = { status: 429, code: "rate_limit_exceeded", type: "rate_limit_error", param: null };

async function expectRefused(request: PromiseLike<unknown>, refusal: object = OVER_SHARE): Promise<void> {
  const error = await Promise.resolve(request).catch((error: unknown) => error);
  expect(error).toMatchObject(refusal);
  expect((error as InstanceType<typeof OpenAI.APIError>).headers?.get("retry-after")).toMatch(/^\d+$/);
}

/** A turn that has reached the model, and the function that lets it end. */
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

describe("an isolate in which a tenant has its three turns", () => {
  useGateway({ MAX_OPEN_TURNS: "4" });

  it("refuses new ones of every form, and continues the running ones", async () => {
    const socket = await SocketClient.open(gateway);
    const whole = await held(json);
    const run = await held(background);
    const frames = await held(async (input) => socket.turn({ model: HELD, input }));
    await expectRefused(hello());
    await expectRefused(openai.responses.create({ input: "Streamed", stream: true }));
    await expectRefused(openai.responses.create({ input: "In the background", background: true }));
    await expectRefused(openai.responses.compact({ model: "simulator", input: "Compact me." }));
    const refused = await socket.turn({ stream_id: "other", input: "Hello!" });
    expect(refused.last).toMatchObject({ type: "error", status: 429, error: { code: "rate_limit_exceeded" } });
    // Requests other than turns are still answered.
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

  it("admits another for each that has ended, was refused, or lost its client", async () => {
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
      await expectRefused(hello());
      stream.controller.abort();
      // workerd notices the disconnection at the next heartbeat.
      await eventually(() => hello().catch(() => undefined));
    }
    one.release();
    await one.turn;
    await openai.responses.cancel(id);
    expect((await Promise.all([hello(), hello(), hello()])).map(({ status }) => status)).toEqual(
      Array(3).fill("completed"),
    );
  });

  it("lets the idempotency key of a refused request be used again", async () => {
    const turns = [await held(json), await held(json), await held(json)];
    const headers = { "idempotency-key": unique("key") };
    await expectRefused(openai.responses.create({ input: "Keyed" }, { headers }));
    await letEnd(turns);
    expect((await openai.responses.create({ input: "Keyed" }, { headers })).status).toBe("completed");
  });
});

/** A model with a window for any prompt. */
const ROOMY = "simulator?words=3&max_model_len=10000000";

/** As a prompt it takes five permits: one, and another for each 256 Ki. */
const LONG = "word ".repeat(220_000);

describe("an isolate in which a tenant may hold nine permits", () => {
  useGateway({ MAX_OPEN_TURNS: "12" });

  const long = (input: string, fields: object = {}) => {
    const messages = [LONG, input].map((content) => ({ role: "user" as const, content }));
    return openai.responses.create({ model: HELD, input: messages, ...fields });
  };

  /** Checks that exactly `count` short turns are admitted. */
  async function expectRoomFor(count: number): Promise<void> {
    const turns: Held<unknown>[] = [];
    try {
      for (let turn = 0; turn < count; turn += 1) turns.push(await held(json));
      await expectRefused(hello());
    } finally {
      await letEnd(turns);
    }
  }

  const hasPermitsFor = (count: number) =>
    expectRoomFor(count).then(
      () => true,
      () => false,
    );

  it("admits four turns beside a long one", async () => {
    const turn = await held(long);
    await expectRoomFor(4);
    await letEnd([turn]);
    await expectRoomFor(9);
  });

  it("admits no more beside one that runs in its home", async () => {
    const run = await held((input) => long(input, { background: true }));
    await expectRoomFor(4);
    run.release();
    await ended(gateway, (await run.turn).id);
    await eventually(() => hasPermitsFor(9));
  });

  it("counts the history of a short request", async () => {
    const first = await openai.responses.create({ model: ROOMY, input: LONG });
    const later = await held((input) =>
      openai.responses.create({ model: HELD, input, previous_response_id: first.id, store: false }),
    );
    await expectRoomFor(4);
    await letEnd([later]);
    const { id: conversation } = await openai.conversations.create({
      items: [{ type: "message", role: "user", content: LONG }],
    });
    const inConversation = await held((input) => openai.responses.create({ model: HELD, input, conversation }));
    await expectRoomFor(4);
    await letEnd([inConversation]);
  });

  it("counts the received bytes of a body, not its announced length, until its client has disconnected", async () => {
    const client = upload({ announced: LONG.length });
    await expectRoomFor(8);
    // The received bytes count three times, and an open body takes an eighth of a permit: three and five eighths.
    client.write("a".repeat(300 * 1024));
    await eventually(() => hasPermitsFor(5));
    client.destroy();
    await eventually(() => hasPermitsFor(9));
  });

  it("counts the waiting data of a connection until its close", async () => {
    const socket = await SocketClient.open(gateway);
    const first = await held((input) => socket.turn({ model: HELD, input }));
    socket.create({ model: HELD, input: LONG });
    await eventually(() => hasPermitsFor(4));
    await socket.close();
    await expect(first.turn).rejects.toThrow();
    await eventually(() => hasPermitsFor(9));
  });

  it("admits a request of any allowed length if there is no other", async () => {
    const input = "word ".repeat(2_000_000);
    expect((await openai.responses.create({ model: ROOMY, input })).status).toBe("completed");
  });
});

const KEYS = { a: "key-of-a", b: "key-of-b", c: "key-of-c" };
const API_KEYS = Object.entries(KEYS)
  .map(([tenant, key]) => `${tenant}:${sha256(key)}`)
  .join(",");

/** Begins a request whose body has this length, or is chunked, and sends only its beginning. */
function upload({ announced, key = "any" }: { announced: number | "chunked"; key?: string }): Socket {
  const { host, hostname, port } = new URL(gateway.url);
  const client = connect(Number(port), hostname);
  client.on("error", () => {});
  const length = announced === "chunked" ? "transfer-encoding: chunked" : `content-length: ${announced}`;
  const head = [`host: ${host}`, `authorization: Bearer ${key}`, "content-type: application/json", length];
  const body = '{"input": "';
  const begun = announced === "chunked" ? `${body.length.toString(16)}\r\n${body}\r\n` : body;
  client.write(["POST /v1/responses HTTP/1.1", ...head, "", begun].join("\r\n"));
  return client;
}

describe("an isolate of several tenants", () => {
  useGateway({ MAX_OPEN_TURNS: "4", API_KEYS });

  it("reserves a quarter of its permits for others", async () => {
    const [a, b, c] = Object.values(KEYS).map((apiKey) => gateway.client({ apiKey }).responses) as [
      OpenAI["responses"],
      OpenAI["responses"],
      OpenAI["responses"],
    ];
    const begin = () => held((input) => a.create({ model: HELD, input }));
    const turns = [await begin(), await begin(), await begin()];
    await expectRefused(a.create({ input: "Hello!" }));
    const last = await held((input) => b.create({ model: HELD, input }));
    await expectRefused(b.create({ input: "Hello!" }), OVERLOADED);
    await expectRefused(c.create({ input: "Hello!" }), OVERLOADED);
    await letEnd([last]);
    expect((await c.create({ input: "Hello!" })).status).toBe("completed");
    await letEnd(turns);
    // It is the same in the background.
    const runs: Held<unknown>[] = [];
    for (let run = 0; run < 3; run += 1) {
      runs.push(await held((input) => a.create({ model: HELD, input, background: true })));
    }
    await expectRefused(a.create({ input: "Hello!", background: true }));
    expect((await b.create({ input: "Hello!" })).status).toBe("completed");
    await letEnd(runs);
    await eventually(() => a.create({ input: "Hello!" }).catch(() => undefined));
  });
});

describe("an isolate whose clients do not send their announced bodies", () => {
  useGateway({ MAX_OPEN_TURNS: "600", API_KEYS });

  /** Checks that twenty turns of another tenant succeed at once. */
  async function expectTwentyTurns(): Promise<void> {
    const { responses } = gateway.client({ apiKey: KEYS.b });
    const turns = Array.from({ length: 20 }, () => responses.create({ input: "Hello!", store: false }));
    expect((await Promise.all(turns)).map(({ status }) => status)).toEqual(Array(20).fill("completed"));
  }

  /** The first bytes of its answer. */
  const answered = (client: Socket) =>
    new Promise<string>((resolve) => client.once("data", (data) => resolve(`${data}`)));

  it.each([
    ["one tenant", [KEYS.a]],
    ["two tenants", [KEYS.a, KEYS.c]],
  ])("admits the turns of others, whatever %s announced, or sent", async (_, keys) => {
    const clients: Socket[] = [];
    const begin = (count: number, announced: number) => {
      for (let at = 0; at < count; at += 1) clients.push(upload({ announced, key: keys[at % keys.length] ?? "" }));
    };
    begin(29, 12 * 1024 * 1024);
    begin(200, 16 * 1024);
    begin(200, 16_500);
    const first = await upload({ announced: 2, key: KEYS.b });
    // The later bodies do not affect a body that arrived before.
    expect(await answered(first)).toContain("400 Bad Request");
    await expectTwentyTurns();
    const sending: Socket[] = [];
    // The clients send as slowly as allowed.
    const timer = setInterval(() => sending.forEach((client) => void client.write("a".repeat(2048))), 1000);
    for (const key of keys) {
      const { responses } = gateway.client({ apiKey: key });
      // Repeats this until the tenant has all permits that it may have: bodies that grow at the same time are refused
      // at the same time.
      await eventually(() => {
        for (let at = 0; at < 30; at += 1) {
          const client = upload({ announced: 12 * 1024 * 1024, key });
          client.write("a".repeat(512 * 1024));
          sending.push(client);
        }
        return responses.create({ input: "a".repeat(1_600_000) }).then(() => false, isOverShare);
      });
      await expectTwentyTurns();
    }
    clearInterval(timer);
    for (const client of [...clients, ...sending, first]) client.destroy();
    // The gateway notices their disconnection a moment later.
    for (const key of keys) {
      const { responses } = gateway.client({ apiKey: key });
      await eventually(() => responses.create({ input: "a".repeat(1_600_000) }).then(() => true, isFree));
    }
  });

  it("ends a request whose body does not arrive, and its connection", async () => {
    const bodies = [12 * 1024 * 1024, 16 * 1024, "chunked" as const];
    const clients = bodies.map((announced) => upload({ announced, key: KEYS.a }));
    await Promise.all(
      clients.map(async (client) => {
        const closed = new Promise((resolve) => client.once("close", resolve));
        expect(await answered(client)).toMatch(/^HTTP\/1\.1 408 .*connection: close/is);
        await closed;
      }),
    );
  });
});

const isOverShare = (error: unknown) => (error as { status?: number }).status === 429;

/** False if the tenant still has all permits that it may have. Throws other errors. */
const isFree = (error: unknown) => {
  if (!isOverShare(error)) throw error;
  return false;
};
