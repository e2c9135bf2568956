import { env as bindings } from "cloudflare:workers";
import { newTurnAddress, responseId } from "@responses-edge/responses-api/ids";
import { beforeEach, describe, expect, it } from "vitest";
import { createSimulator, type Simulator } from "../../dev/simulator/handler.ts";
import { compactConversation } from "../../src/api/compact.ts";
import { createConversation } from "../../src/api/conversations.ts";
import { createResponse } from "../../src/api/create-response.ts";
import { countInputTokens } from "../../src/api/input-tokens.ts";
import { passJson } from "../../src/api/passthrough.ts";
import { RequestScope } from "../../src/api/request-scope.ts";
import { cancelResponse, responseAddress } from "../../src/api/responses.ts";
import type { Caller, ClientSink, SlowAnswer } from "../../src/api/transport.ts";
import { loadConfig } from "../../src/config/index.ts";
import { newIdentity } from "../../src/store/deployment/keys/key-cache.ts";
import { conversationAddress, HomeClient } from "../../src/store/home/home-client.ts";
import { tenantConversations, turnsBesideClients } from "../../src/store/limits/permits.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { FileClient } from "../../src/store/tenant/files/file-client.ts";
import { StoreClient } from "../../src/store/tenant/vector-stores/store-client.ts";

const env = withObjects(bindings);

/**
 * After any end of a request, everything that it held is released: memory permits, its reservation, and its
 * conversation.
 */

/** The limit is one request and one run at a time, so that a reservation that is not released refuses the next one. */
const LIMITS = { max_concurrent_requests: 1, max_background_runs: 1, tokens_per_minute: 10_000_000 };

let simulator: Simulator;
let tenants = 0;
let tenant = "";
let permitsBefore = 0;
beforeEach(() => {
  simulator = createSimulator();
  tenants += 1;
  tenant = `scope-${tenants}`;
  permitsBefore = turnsBesideClients();
});

class Sink implements ClientSink {
  ending: "ended" | "abandoned" | undefined;
  readonly onLeft: () => void;
  deltas = 0;

  constructor(onLeft: () => void) {
    this.onLeft = onLeft;
  }

  event(type: string): void {
    this.deltas += Number(type.endsWith(".delta"));
  }

  flush(): undefined {}

  async end(): Promise<void> {
    this.ending = "ended";
  }

  async abandon(): Promise<void> {
    this.ending = "abandoned";
  }
}

function callerOf(fields: Partial<Caller> = {}): Caller {
  const fetch = (url: string, init: RequestInit) => simulator.fetch(new Request(url, init));
  const homes = new HomeClient(env, tenant);
  return {
    config: loadConfig({
      VLLM: { fetch },
      ALLOW_ANONYMOUS: "true",
      MAX_OPEN_TURNS: "10000",
      VLLM_MAX_RETRIES: "0",
      CONVERSATION_LOCK_WAIT_MS: "300",
      PASSTHROUGH_ENDPOINTS: "chat/completions",
      VLLM_EXTRAS: "priority",
    }),
    tenant,
    identity: newIdentity({ tenant, keyId: "key_scope" }, LIMITS, null, { storedBytesPerTenant: 0, diskShare: 0 }),
    quotas: env.QUOTAS,
    boards: env.BOARD,
    counting: { isDone: false },
    homes,
    files: new FileClient(env, tenant),
    stores: new StoreClient(env, tenant),
    past: homes,
    bodyLength: 100,
    signal: new AbortController().signal,
    waitUntil: (promise) => void promise.catch(() => {}),
    ...fields,
  };
}

const HELLO = { model: "simulator", input: "Hello." };

interface Asked extends Partial<Caller> {
  idempotencyKey?: string;
  openSink?: (onLeft: () => void) => Sink;
  slowAnswer?: SlowAnswer;
}

/** Creates a response, to its end. Gives its id. */
async function create(body: object, { idempotencyKey, openSink, slowAnswer, ...fields }: Asked = {}): Promise<string> {
  const created = await createResponse(
    callerOf(fields),
    { ...HELLO, ...body },
    {
      idempotencyKey,
      openSink: openSink ?? ((onLeft) => new Sink(onLeft)),
      slowAnswer,
    },
  );
  switch (created.kind) {
    case "response":
      return (JSON.parse(created.response.head) as { id: string }).id;
    case "events":
      return (JSON.parse((await created.ended).closed.head) as { id: string }).id;
    case "run":
      return /"id":"(resp_\w+)"/.exec(await new Response(created.events).text())?.[1] ?? "";
  }
}

/** Ends a run, which holds its reservation until then. No model server answers it here. */
async function endRun(id: string): Promise<void> {
  await cancelResponse(callerOf(), responseAddress(id));
}

const conversation = async () => (await createConversation(callerOf(), {})).id;

/** Checks that everything was released: another request succeeds, one in the same conversation, and a run. */
async function expectAllGivenBack(inConversation?: string): Promise<void> {
  await expect.poll(turnsBesideClients).toBe(permitsBefore);
  await create(inConversation === undefined ? {} : { conversation: inConversation });
  await endRun(await create({ background: true }));
  expect(turnsBesideClients()).toBe(permitsBefore);
}

describe("a completed request releases everything", () => {
  it.each([
    ["foreground", {}],
    ["as a stream", { stream: true }],
    ["not stored", { store: false }],
    ["only prepared", { generate: false }],
    ["only prepared, as a stream", { generate: false, stream: true }],
  ])("%s", async (_, body) => {
    await create(body);
    await expectAllGivenBack();
  });

  it.each([[{}], [{ stream: true }], [{ store: false }]])("in a conversation: %j", async (body) => {
    const id = await conversation();
    await create({ ...body, conversation: id });
    await expectAllGivenBack(id);
  });

  it("in the background, also in a conversation", async () => {
    const id = await conversation();
    const run = await create({ background: true, conversation: id });
    expect(turnsBesideClients()).toBe(permitsBefore);
    await endRun(run);
    await expectAllGivenBack(id);
  });

  it("with an idempotency key, the first time and again", async () => {
    const keyed = { idempotencyKey: `once-${tenant}` };
    const first = await create({ background: true }, keyed);
    await endRun(first);
    expect(await create({ background: true }, keyed)).toBe(first);
    await expectAllGivenBack();
  });

  it("counted and compacted", async () => {
    expect((await countInputTokens(callerOf(), HELLO)).tokens).toBeGreaterThan(0);
    await compactConversation(callerOf(), HELLO);
    await expectAllGivenBack();
  });

  it("passed on, after its answer was read or cancelled", async () => {
    const body = { model: "simulator", stream: true, messages: [{ role: "user", content: "Hello." }] };
    await new Response((await passJson(callerOf(), "chat/completions", body)).body).text();
    await (await passJson(callerOf(), "chat/completions", body)).body?.cancel();
    await new Response((await passJson(callerOf(), "chat/completions", { ...body, stream: false })).body).text();
    await expectAllGivenBack();
  });
});

const missing = responseId(newTurnAddress());
const call = { type: "function_call_output", call_id: "call_1", output: "" };

describe("a refused request releases everything", () => {
  it.each<[string, object, string | number]>([
    ["by its schema", { temperature: 3 }, "temperature"],
    ["by what the operator has not opened", { kv_transfer_params: {} }, "kv_transfer_params"],
    [
      "for media",
      { input: [{ role: "user", content: [{ type: "input_image", image_url: "http://10.0.0.1/" }] }] },
      400,
    ],
    ["for a response id that is none", { previous_response_id: "resp_none" }, "previous_response_id"],
    ["for a response that is not there", { previous_response_id: missing }, "previous_response_id"],
    ["for a conversation id that is none", { conversation: "conv_none" }, 404],
    ["by its model's engine", { model: "gpt-oss", text: { format: { type: "json_object" } }, top_logprobs: 99 }, 400],
    ["for an output without its call", { input: [call] }, 400],
    ["by the model server", { model: "nobody" }, "model"],
  ])("%s", async (_, body, expected) => {
    for (const way of [{}, { stream: true }, { background: true }]) {
      // A refusal by a run's model server ends the run.
      if ("background" in way && expected === "model") continue;
      const refusal = typeof expected === "number" ? { status: expected } : { param: expected };
      await expect(create({ ...body, ...way })).rejects.toMatchObject(refusal);
    }
    await expectAllGivenBack();
  });

  it("by an idempotency key of another body", async () => {
    const keyed = { idempotencyKey: `other-${tenant}` };
    await endRun(await create({ background: true }, keyed));
    const again = create({ background: true, input: "Something else." }, keyed);
    await expect(again).rejects.toMatchObject({ status: 422 });
    await expectAllGivenBack();
  });

  it("by a deleted conversation", async () => {
    const { home, turn } = newTurnAddress();
    for (const way of [{}, { stream: true }, { background: true }]) {
      const gone = create({ ...way, conversation: `conv_${home}${turn}` });
      await expect(gone).rejects.toMatchObject({ status: 404 });
    }
    await expectAllGivenBack();
  });

  it("by a conversation that another turn has locked", async () => {
    const id = await conversation();
    const { home } = conversationAddress(id);
    const taken = await callerOf().homes.enterConversation({ id, home }, "another", 1_000);
    for (const way of [{}, { stream: true }, { background: true }]) {
      await expect(create({ ...way, conversation: id })).rejects.toMatchObject({ status: 409 });
    }
    taken.release();
    await expectAllGivenBack(id);
  });

  it("while it is passed on", async () => {
    const body = { model: "nobody", messages: [{ role: "user", content: "Hello." }] };
    await expect(passJson(callerOf(), "chat/completions", body)).rejects.toMatchObject({ status: 404 });
    await expect(passJson(callerOf(), "chat/completions", { ...body, stream: "yes" })).rejects.toBeDefined();
    await expectAllGivenBack();
  });
});

describe("a request that breaks off releases everything", () => {
  const broken = new TypeError("It broke.");

  it("when its history cannot be read", async () => {
    const id = await conversation();
    const past = { past: () => Promise.reject(broken) };
    for (const way of [{}, { stream: true }, { background: true }]) {
      await expect(create({ ...way, conversation: id }, { past })).rejects.toBe(broken);
    }
    await expect(countInputTokens(callerOf({ past }), HELLO)).rejects.toBe(broken);
    await expect(compactConversation(callerOf({ past }), HELLO)).rejects.toBe(broken);
    await expectAllGivenBack(id);
  });

  it("when its sink fails", async () => {
    const openSink = () => {
      throw broken;
    };
    await expect(create({ stream: true }, { openSink })).rejects.toBe(broken);
    await expectAllGivenBack();
  });

  it("when it cannot be stored", async () => {
    const homes = new HomeClient(env, tenant);
    homes.settle = () => Promise.reject(broken);
    await expect(create({}, { homes })).rejects.toMatchObject({ status: 500 });
    await expectAllGivenBack();
  });

  it("when its model breaks off", async () => {
    const model = "simulator?fault=cut:2";
    await expect(create({ model })).rejects.toMatchObject({ status: 502 });
    await create({ model, stream: true });
    await expectAllGivenBack();
  });
});

describe("a client's disconnection releases everything", () => {
  const asked = (count: number) => expect.poll(() => simulator.requests.filter(isGeneration).length).toBe(count);
  const isGeneration = ({ path }: { path: string }) => path.endsWith("/chat/completions");

  it.each([{}, { stream: true }, { store: false }])("before the model has answered: %j", async (body) => {
    const id = await conversation();
    const client = new AbortController();
    const model = "simulator?fault=stall_headers";
    const left = create({ ...body, model, conversation: id }, { signal: client.signal });
    await asked(1);
    client.abort();
    await expect(left).rejects.toMatchObject({ status: 499 });
    await expectAllGivenBack(id);
  });

  it("while it waits for its conversation", async () => {
    const id = await conversation();
    const client = new AbortController();
    const { home } = conversationAddress(id);
    const taken = await callerOf().homes.enterConversation({ id, home }, "another", 1_000);
    const left = create({ conversation: id }, { signal: client.signal });
    await expect.poll(() => tenantConversations.takenBy(tenant)).toBe(2);
    client.abort();
    await expect(left).rejects.toBeDefined();
    taken.release();
    await expectAllGivenBack(id);
  });

  it("in the middle of the answer, noticed by the transport or the sink", async () => {
    const id = await conversation();
    const model = "simulator?fault=stall:2";
    for (const leave of [(client: AbortController) => client.abort(), (_: unknown, sink: Sink) => sink.onLeft()]) {
      const client = new AbortController();
      const sinks: Sink[] = [];
      const openSink = (onLeft: () => void) => sinks[sinks.push(new Sink(onLeft)) - 1] as Sink;
      const ended = create({ model, stream: true, conversation: id }, { signal: client.signal, openSink });
      await expect.poll(() => sinks[0]?.deltas ?? 0).toBeGreaterThan(0);
      leave(client, sinks[0] as Sink);
      await ended;
      await expectAllGivenBack(id);
      expect(sinks[0]?.ending).toBe("abandoned");
    }
  });

  it("in the middle of a slow answer, after heartbeats", async () => {
    let onLeft = () => {};
    const slowAnswer = {
      begin: (left: () => void) => {
        onLeft = left;
      },
      hasBegun: true,
    };
    const ended = create({ model: "simulator?fault=stall:2" }, { slowAnswer });
    await asked(1);
    await expect.poll(() => onLeft.name).toBe("onLeft");
    onLeft();
    await ended;
    await expectAllGivenBack();
  });

  it("while its request is passed on", async () => {
    const client = new AbortController();
    const model = "simulator?fault=stall:2";
    const body = { model, stream: true, messages: [{ role: "user", content: "Hello." }] };
    const { body: bytes } = await passJson(callerOf({ signal: client.signal }), "chat/completions", body);
    const read = new Response(bytes).text();
    client.abort();
    await read.catch(() => {});
    await expectAllGivenBack();
  });
});

describe("a scope", () => {
  const admission = () => {
    const ends: unknown[] = [];
    return { ends, end: (used?: unknown) => ends.push(used) };
  };

  it("releases everything once, at its first end", () => {
    const held = admission();
    const released: string[] = [];
    {
      using scope = RequestScope.open(callerOf());
      scope.admit(held);
      scope.enter({ release: () => released.push("released") });
      expect(turnsBesideClients()).toBe(permitsBefore + 1);
      scope.end();
      scope.end();
    }
    expect([held.ends, released, turnsBesideClients()]).toEqual([[undefined], ["released"], permitsBefore]);
  });

  it("does not release moved resources", () => {
    const held = admission();
    const moved = (() => {
      using scope = RequestScope.open<unknown>(callerOf());
      scope.admit(held);
      return scope.move();
    })();
    expect([held.ends, turnsBesideClients()]).toEqual([[], permitsBefore + 1]);
    moved.releasePermits();
    expect([held.ends, turnsBesideClients()]).toEqual([[], permitsBefore]);
    moved.end("used");
    expect(held.ends).toEqual(["used"]);
  });

  it("that has ended releases late resources at once", () => {
    const held = admission();
    const released: string[] = [];
    using scope = RequestScope.open(callerOf());
    scope.end();
    scope.admit(held);
    scope.enter({ release: () => released.push("released") });
    expect([held.ends, released]).toEqual([[undefined], ["released"]]);
  });
});
