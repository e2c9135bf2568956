import { env as bindings } from "cloudflare:workers";
import { previousResponseNotFound } from "@responses-edge/responses-api/errors";
import { responseId } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { createSimulator, type Simulator } from "../../dev/simulator/handler.ts";
import { createResponse } from "../../src/api/create-response.ts";
import type { Caller, ClientSink } from "../../src/api/transport.ts";
import type { PastSource, ReadPast } from "../../src/assembly/assemble-turn.ts";
import { loadConfig } from "../../src/config/index.ts";
import { NO_KEY } from "../../src/contract/grants.ts";
import { HomeClient } from "../../src/store/home/home-client.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { FileClient } from "../../src/store/tenant/files/file-client.ts";
import { StoreClient } from "../../src/store/tenant/vector-stores/store-client.ts";

const env = withObjects(bindings);

/** The API with a transport of the test, without HTTP: a sink, a loop, and a source of the history. */

let simulator: Simulator;
beforeEach(() => {
  simulator = createSimulator();
});

/** A connection whose turns continue each other without storage. */
class Connection implements PastSource {
  readonly sinks: MessageSink[] = [];
  /** If set, its sinks report a client that has not read everything, and return this promise. */
  flushed: MessageSink["flushed"];
  readonly #client = new AbortController();
  readonly #turns = new Map<string, ReadPast>();

  async past(input: readonly Item[], previous: Parameters<PastSource["past"]>[1]): Promise<ReadPast> {
    if (!previous) return { history: [], replays: [], input: [...input], length: 0 };
    const before = this.#turns.get(responseId(previous));
    if (!before) throw previousResponseNotFound(responseId(previous));
    return { ...before, input: [...input] };
  }

  /** Creates a response and waits until its events have ended. Gives the response's id. */
  async create(input: string, fields: object = {}): Promise<string> {
    const body = { model: "simulator", input, stream: true, store: false, ...fields };
    const created = await createResponse(this.#caller(JSON.stringify(body)), body, {
      openSink: (onLeft) => {
        const sink = Object.assign(new MessageSink(onLeft), this.flushed && { flushed: this.flushed });
        this.sinks.push(sink);
        return sink;
      },
    });
    if (created.kind !== "events") throw new Error(`Expected events, not ${created.kind}.`);
    const { outcome, closed } = await created.ended;
    await created.sink.over;
    const { id } = JSON.parse(closed.head) as { id: string };
    const said: Item = {
      type: "message",
      role: "user",
      status: "completed",
      content: [{ type: "input_text", text: input }],
    };
    if (outcome.status === "completed") {
      this.#turns.set(id, {
        history: [said, ...(JSON.parse(closed.kept) as Item[])],
        replays: [],
        input: [],
        length: closed.kept.length,
      });
    }
    return id;
  }

  close(): void {
    this.#client.abort();
  }

  #caller(body: string): Caller {
    const fetch = (url: string, init: RequestInit) => simulator.fetch(new Request(url, init));
    return {
      // Runs of other files hold permits of this isolate.
      config: loadConfig({ VLLM: { fetch }, ALLOW_ANONYMOUS: "true", MAX_OPEN_TURNS: "10000" }),
      tenant: "tenant",
      boards: env.BOARD,
      identity: { tenant: "tenant", keyId: NO_KEY, policy: undefined, counted: undefined, storingKey: undefined },
      quotas: env.QUOTAS,
      counting: { isDone: false },
      homes: new HomeClient(env, "tenant"),
      files: new FileClient(env, "tenant"),
      stores: new StoreClient(env, "tenant"),
      past: this,
      bodyLength: body.length,
      signal: this.#client.signal,
      waitUntil: () => {},
    };
  }
}

class MessageSink implements ClientSink {
  readonly messages: { type: string; delta?: string }[] = [];
  ending: "ended" | "abandoned" | undefined;
  readonly over: Promise<void>;
  readonly #onLeft: () => void;
  #resolve = () => {};

  constructor(onLeft: () => void) {
    this.#onLeft = onLeft;
    this.over = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** If set, the client's disconnection is noticed at the first delta. */
  leaves = false;

  flushed?: () => Promise<void> | undefined;

  event(type: string, json: string): void {
    this.messages.push(JSON.parse(json) as { type: string });
    if (this.leaves && type.endsWith(".delta")) this.#onLeft();
  }

  flush(): undefined {}

  async end(): Promise<void> {
    this.ending = "ended";
    this.#resolve();
  }

  async abandon(): Promise<void> {
    this.ending = "abandoned";
    this.#resolve();
  }
}

describe("a transport without HTTP", () => {
  it("gets every event of a turn, in order, and then its end", async () => {
    const connection = new Connection();
    await connection.create("Hello.");
    const [sink] = connection.sinks;
    expect(sink?.messages.at(0)?.type).toBe("response.created");
    expect(sink?.messages.at(-1)?.type).toBe("response.completed");
    expect(sink?.messages.map(({ delta = "" }) => delta).join("")).toBe("You said: Hello.");
    expect(sink?.ending).toBe("ended");
  });

  it("has sent the output before its turn is stored", async () => {
    const settle = vi.spyOn(HomeClient.prototype, "settle");
    const taken = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const connection = new Connection();
    connection.flushed = () => {
      asked.resolve();
      return taken.promise;
    };
    const created = connection.create("Hello.", { store: true });
    await asked.promise;
    expect(settle).not.toHaveBeenCalled();
    taken.resolve();
    await created;
    expect(settle).toHaveBeenCalledOnce();
    settle.mockRestore();
  });

  it("does not delay its turn if it has no back-pressure", async () => {
    const connection = new Connection();
    connection.flushed = () => new Promise(() => {});
    await connection.create("Hello.", { store: true });
    expect(connection.sinks[0]?.messages.at(-1)?.type).toBe("response.completed");
  });

  it("continues turns that only its own history has", async () => {
    const connection = new Connection();
    const first = await connection.create("Hello.");
    await connection.create("Go on.", { previous_response_id: first });
    const sent = simulator.requests.findLast(({ path }) => path.endsWith("/chat/completions"));
    const contents = ["Hello.", "You said: Hello.", "Go on."].map((content) => ({ content }));
    expect(sent?.body).toMatchObject({ messages: contents });
    await expect(new Connection().create("Go on.", { previous_response_id: first })).rejects.toMatchObject({
      status: 400,
      code: "previous_response_not_found",
    });
  });

  it("throws a refusal before the turn begins, and leaves no sink open", async () => {
    const connection = new Connection();
    await expect(connection.create("Hello.", { temperature: 3 })).rejects.toMatchObject({ param: "temperature" });
    expect(connection.sinks).toEqual([]);
    await expect(connection.create("Hello.", { model: "nobody" })).rejects.toMatchObject({ code: "model_not_found" });
    expect(connection.sinks.map(({ ending }) => ending)).toEqual(["abandoned"]);
  });

  it("ends a turn by reporting its client's disconnection", async () => {
    const connection = new Connection();
    const running = connection.create("Hello.", { model: "simulator?tps=50&words=100000" });
    await expect.poll(() => connection.sinks.length).toBe(1);
    const [sink] = connection.sinks;
    if (sink) sink.leaves = true;
    await running;
    expect(sink?.ending).toBe("abandoned");
    await expect.poll(() => simulator.lastAsked?.state).toBe("aborted");
  });
});
