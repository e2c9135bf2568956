import { env as bindings } from "cloudflare:workers";
import { ApiError, previousResponseNotFound, toApiError } from "@responses-edge/responses-api/errors";
import { newTurnAddress, responseId } from "@responses-edge/responses-api/ids";
import { beforeEach, describe, expect, it } from "vitest";
import { createSimulator, type Simulator } from "../../dev/simulator/handler.ts";
import type { PastSource } from "../../src/assembly/assemble-turn.ts";
import { loadConfig, type Variables } from "../../src/config/index.ts";
import { NO_KEY } from "../../src/contract/grants.ts";
import { Connection } from "../../src/socket/connection.ts";
import { KeptTurns } from "../../src/socket/kept-turns.ts";
import { Lanes } from "../../src/socket/lanes.ts";
import { HomeClient } from "../../src/store/home/home-client.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { FileClient } from "../../src/store/tenant/files/file-client.ts";
import { StoreClient } from "../../src/store/tenant/vector-stores/store-client.ts";

const env = withObjects(bindings);

/** A WebSocket without a network: facts that need a fake connection, and the limits of a connection. */

let simulator: Simulator;
beforeEach(() => {
  simulator = createSimulator();
});

interface Frame {
  type: string;
  stream_id?: string;
  status?: number;
  delta?: string;
  error?: { code: string };
  response?: { id: string };
}

class FakeSocket {
  readonly frames: Frame[] = [];
  closing: { code: number; reason: string } | undefined;
  bufferedAmount = 0;
  /** True if the client is gone without a close. */
  isGone = false;
  /** The state of the key. */
  refusal: ApiError | undefined;
  readonly connection: Connection;

  constructor(variables: Variables = {}) {
    const fetch = (url: string, init: RequestInit) => simulator.fetch(new Request(url, init));
    const config = loadConfig({
      VLLM: { fetch },
      ALLOW_ANONYMOUS: "true",
      MAX_OPEN_TURNS: "10000",
      VLLM_MAX_RETRIES: "0",
      ...variables,
    });
    const homes = new HomeClient(env, "tenant");
    this.connection = new Connection(this, {
      tenant: "tenant",
      config,
      caller: (signal) => {
        if (this.refusal) throw this.refusal;
        const identity = {
          tenant: "tenant",
          keyId: NO_KEY,
          policy: undefined,
          counted: undefined,
          storingKey: undefined,
        };
        const { QUOTAS: quotas, BOARD: boards } = env;
        return {
          config,
          tenant: "tenant",
          identity,
          quotas,
          boards,
          counting: { isDone: false },
          homes,
          files: new FileClient(env, "tenant"),
          stores: new StoreClient(env, "tenant"),
          past: homes,
          bodyLength: 0,
          signal,
          waitUntil: () => {},
        };
      },
      shown: toApiError,
    });
  }

  send(text: string): void {
    if (this.isGone) throw new TypeError("Can't call WebSocket send() after close().");
    this.frames.push(JSON.parse(text) as Frame);
  }

  close(code: number, reason: string): void {
    this.closing = { code, reason };
  }

  create(fields: object): void {
    this.connection.receive(
      JSON.stringify({ type: "response.create", model: "simulator", input: "Hello!", store: false, ...fields }),
    );
  }

  /** Waits for a frame of this type, the `count`-th. */
  async frame(type: string, count = 1): Promise<Frame> {
    const found = () => this.frames.filter((frame) => frame.type === type);
    await expect.poll(() => found().length, { timeout: 60_000, interval: 5 }).toBeGreaterThanOrEqual(count);
    return found()[count - 1] as Frame;
  }

  async closed(): Promise<{ code: number; reason: string }> {
    await expect.poll(() => this.closing, { timeout: 60_000, interval: 5 }).toBeDefined();
    return this.closing as { code: number; reason: string };
  }

  get deltas(): number {
    return this.frames.filter(({ type }) => type === "response.output_text.delta").length;
  }
}

const ENDLESS = { model: "simulator?tps=200&words=100000" };
const lastState = () => simulator.lastAsked?.state;

describe("a connection", () => {
  it("ends with the key: 401 as a frame, then 1008", async () => {
    const socket = new FakeSocket();
    socket.create({});
    await socket.frame("response.completed");
    socket.create({ ...ENDLESS, stream_id: "a" });
    await socket.frame("response.output_text.delta", 10);
    socket.refusal = new ApiError({ status: 401, message: "Incorrect API key provided.", code: "invalid_api_key" });
    socket.create({ stream_id: "b" });
    expect(await socket.frame("error")).toMatchObject({
      stream_id: "b",
      status: 401,
      error: { code: "invalid_api_key" },
    });
    expect(await socket.closed()).toEqual({ code: 1008, reason: "Incorrect API key provided." });
    await expect.poll(lastState).toBe("aborted");
  });

  it("ends after its maximum life: an error frame, then 1000", async () => {
    const socket = new FakeSocket({ WEBSOCKET_LIFETIME_MS: "200" });
    socket.create(ENDLESS);
    expect(await socket.frame("error")).toMatchObject({
      status: 400,
      error: { code: "websocket_connection_limit_reached" },
    });
    expect(await socket.closed()).toMatchObject({ code: 1000 });
    await expect.poll(lastState).toBe("aborted");
  });

  it("delays its turns while much is unsent, and reads no frame meanwhile", async () => {
    const socket = new FakeSocket();
    socket.create(ENDLESS);
    await socket.frame("response.output_text.delta", 10);
    socket.bufferedAmount = 1_000_000;
    const held = simulator.lastAsked;
    const before = held?.deltasSent ?? 0;
    socket.create({ stream_id: "b" });
    const other = new FakeSocket();
    other.create({ model: "simulator?tps=200&words=100" });
    await other.frame("response.completed");
    expect(held?.deltasSent).toBeLessThan(before + 10);
    expect(socket.deltas).toBeLessThan(before + 10);
    expect(socket.frames.some(({ stream_id }) => stream_id === "b")).toBe(false);
    socket.bufferedAmount = 0;
    await socket.frame("response.output_text.delta", before + 40);
    expect((await socket.frame("response.completed")).stream_id).toBe("b");
    socket.connection.leave();
    await expect.poll(() => simulator.requests.some(({ state }) => state === "open")).toBe(false);
  });

  it("ends when its client has read nothing for too long, but not while it reads a little", async () => {
    const socket = new FakeSocket({ WEBSOCKET_SEND_TIMEOUT_MS: "100" });
    socket.create(ENDLESS);
    await socket.frame("response.output_text.delta");
    socket.bufferedAmount = 1_000_000;
    const reading = setInterval(() => {
      socket.bufferedAmount -= 1_000;
    }, 10);
    await expect.poll(() => socket.bufferedAmount, { timeout: 60_000 }).toBeLessThan(960_000);
    expect(socket.closing).toBeUndefined();
    clearInterval(reading);
    expect(await socket.closed()).toEqual({ code: 1008, reason: expect.stringContaining("does not read") });
    await expect.poll(lastState).toBe("aborted");
  });

  it("treats a socket that throws as closed", async () => {
    const socket = new FakeSocket();
    socket.create(ENDLESS);
    await socket.frame("response.output_text.delta");
    socket.isGone = true;
    await expect.poll(lastState).toBe("aborted");
  });

  it("repeats `response.in_progress` in a turn that is quiet", async () => {
    const socket = new FakeSocket({ HEARTBEAT_MS: "20" });
    socket.create({ model: "simulator?words=5&fault=stall:3" });
    await socket.frame("response.in_progress", 4);
    simulator.lastAsked?.release();
    await socket.frame("response.completed");
  });
});

describe("lanes", () => {
  const LENGTH = 1_000;

  /** Requests that run until they are released. */
  function rig() {
    const lanes = new Lanes(LENGTH);
    const running: string[] = [];
    const ends = new Map<string, () => void>();
    const add = (lane: string, length = 1, name = lane) =>
      lanes.add(lane, length, async () => {
        running.push(name);
        await new Promise<void>((resolve) => ends.set(name, resolve));
        running.splice(running.indexOf(name), 1);
      });
    const settled = () => new Promise((resolve) => setTimeout(resolve, 0));
    const end = (name: string) => {
      ends.get(name)?.();
      return settled();
    };
    return { lanes, running, add, settled, end };
  }

  it("let long requests run side by side only if they fit together; one always runs", async () => {
    const { running, add, settled, end } = rig();
    expect(add("a", 2 * LENGTH)).toBe(true);
    expect(add("b", 600)).toBe(false);
    expect(add("c", 300)).toBe(false);
    await settled();
    expect(running).toEqual(["a"]);
    await end("a");
    expect(running).toEqual(["b", "c"]);
    expect(add("d", 600)).toBe(false);
    expect(() => add("e", 600)).toThrow("Too many requests");
    // It would fit, but does not overtake.
    expect(add("f", 10)).toBe(false);
    await end("b");
    expect(running).toEqual(["c", "d", "f"]);
  });

  it("send refusals in the lane's order, and read a bounded number of frames", async () => {
    const { lanes, add, settled, end } = rig();
    const said: string[] = [];
    add("a", 1, "first");
    await settled();
    expect(lanes.refuse("a", () => said.push("a"))).toBe(true);
    expect(lanes.refuse("b", () => said.push("b"))).toBe(true);
    await settled();
    expect(said).toEqual(["b"]);
    while (lanes.refuse("a", () => said.push("a")));
    await settled();
    expect(said).toEqual(["b"]);
    await end("first");
    await expect.poll(() => said.length).toBe(1 + 256);
  });
});

describe("kept turns", () => {
  const MEBI = 1024 * 1024;
  const homes: PastSource = {
    past: async (_, previous) => {
      if (previous) throw previousResponseNotFound(responseId(previous));
      return { history: [], replays: [], input: [], length: 0 };
    },
  };

  /** Keeps a turn of `length` units in a lane, which may continue another one. Gives its id. */
  function keep(kept: KeptTurns, lane: string, length: number, previous?: string): string {
    const address = newTurnAddress();
    const input = JSON.stringify([{ type: "message", role: "user", content: "x".repeat(length) }]);
    kept.continuation(lane, previous, homes).keep({ address, input, output: "[]", messages: null });
    return responseId(address);
  }

  const isKept = (kept: KeptTurns, id: string) => kept.continuation("z", id, homes).isUnstored;

  it("hold the whole history of a lane's latest turn, once for all lanes", async () => {
    const kept = new KeptTurns("tenant");
    const first = keep(kept, "a", 10);
    const second = keep(kept, "b", 20, first);
    expect([isKept(kept, first), isKept(kept, second)]).toEqual([true, true]);
    expect((await kept.continuation("c", second, homes).past([], null)).history).toHaveLength(2);
    const third = keep(kept, "a", 30, first);
    expect([isKept(kept, first), isKept(kept, second), isKept(kept, third)]).toEqual([false, true, true]);
    expect((await kept.continuation("c", second, homes).past([], null)).history).toHaveLength(2);
    kept.clear();
    expect([isKept(kept, second), isKept(kept, third)]).toEqual([false, false]);
  });

  it("are at most 12 Mi units in a lane and 16 Mi in a connection: the oldest is dropped", () => {
    const kept = new KeptTurns("tenant");
    expect(isKept(kept, keep(kept, "a", 13 * MEBI))).toBe(false);
    const ids = ["a", "b", "c"].map((lane) => keep(kept, lane, 6 * MEBI));
    expect(ids.map((id) => isKept(kept, id))).toEqual([false, true, true]);
    // It counts together with the turns that it continues.
    expect(isKept(kept, keep(kept, "b", 7 * MEBI, ids[1]))).toBe(false);
    kept.clear();
  });

  it("are at most 32 Mi units in a process: the tenant with the most loses its oldest", () => {
    const [small, ...large] = ["small", "large", "large", "large"].map((tenant) => new KeptTurns(tenant));
    const first = keep(small as KeptTurns, "a", 3 * MEBI);
    const ids = large.map((kept) => keep(kept, "a", 11 * MEBI));
    expect(isKept(small as KeptTurns, first)).toBe(true);
    expect(large.map((kept, index) => isKept(kept, ids[index] ?? ""))).toEqual([false, true, true]);
    for (const kept of [small as KeptTurns, ...large]) kept.clear();
  });
});
