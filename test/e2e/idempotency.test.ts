import { createHash, randomUUID } from "node:crypto";
import OpenAI from "openai";
import type { ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseEventStream } from "../conformance/event-stream.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, itemsOf, promptsFor, reached, unique } from "./turns.ts";

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** The number of a tenant's turns that may hold a conversation or wait for one. */
const MOST_IN_CONVERSATIONS = 8;

let gateway: Gateway;
let openai: OpenAI;
let stranger: OpenAI;
beforeAll(async () => {
  gateway = await startGateway({
    API_KEYS: ["ann", "bob", "cat"].map((name) => `${name}:${sha256(`${name}-key`)}`).join(),
    MAX_OPEN_CONVERSATIONS_PER_TENANT: String(MOST_IN_CONVERSATIONS),
  });
  openai = gateway.client({ apiKey: "ann-key" });
  // The gateway that the helpers use.
  gateway.openai = openai;
  stranger = gateway.client({ apiKey: "bob-key" });
});
afterAll(() => gateway.close());

/** Long enough for clients to join, disconnect and return. */
const SLOW = "simulator?tps=40&words=30";

function headersOf(key: string): { headers: Record<string, string> } {
  return { headers: { "idempotency-key": key } };
}

const create = (key: string, body: ResponseCreateParamsNonStreaming) => openai.responses.create(body, headersOf(key));

/** Begins a stream, and waits for its first event. */
async function openStream(key: string, body: object, signal?: AbortSignal): Promise<Response> {
  const answer = await gateway.fetch(`${gateway.url}/v1/responses`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer ann-key", "idempotency-key": key },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  expect(answer.status).toBe(200);
  return answer;
}

/** The received bytes of a stream, without heartbeats. */
const textOf = async (answer: Response) => (await answer.text()).replaceAll(/^: .*\n\n/gm, "");

const streamText = async (key: string, body: object, signal?: AbortSignal) =>
  textOf(await openStream(key, body, signal));

const REUSED = {
  status: 422,
  code: "idempotency_key_reused",
  param: "Idempotency-Key",
  type: "invalid_request_error",
};

describe.concurrent("the same request under the same key", () => {
  it("is the same response, later", async () => {
    const [key, body] = [randomUUID(), { input: unique("Later") }];
    const first = await create(key, body);
    expect(first.output_text).toBe(`You said: ${body.input}`);
    expect(await create(key, body)).toEqual(first);
    expect(await openai.responses.retrieve(first.id)).toEqual(first);
    expect(promptsFor(gateway, body.input)).toHaveLength(1);
  });

  it("is the same response, at the same time", async () => {
    const [key, body] = [randomUUID(), { model: SLOW, input: unique("At once") }];
    const responses = await Promise.all(Array.from({ length: 8 }, () => create(key, body)));
    for (const response of responses) expect(response).toEqual(responses[0]);
    expect(promptsFor(gateway, body.input)).toHaveLength(1);
  });

  it("is the same stream, event by event, at the same time and later", async () => {
    const [key, body] = [randomUUID(), { model: SLOW, input: unique("Streams") }];
    const streams = await Promise.all(Array.from({ length: 4 }, () => streamText(key, body)));
    streams.push(await streamText(key, body));
    for (const stream of streams) expect(stream).toBe(streams[0]);
    const { events, done } = parseEventStream(streams[0] ?? "");
    expect(done).toBe(true);
    expect(events.map(({ data }) => (data as { sequence_number: number }).sequence_number)).toEqual([...events.keys()]);
    expect(events.at(-1)?.name).toBe("response.completed");
    expect(promptsFor(gateway, body.input)).toHaveLength(1);
  });

  it("joins the running response, from the first event on", async () => {
    const [key, body] = [randomUUID(), { model: "simulator?words=100&fault=stall:8", input: unique("Joined") }];
    const first = streamText(key, body);
    const release = await reached(gateway, body.input);
    const second = await openStream(key, body);
    expect(gateway.vllm.simulator.requests.findLast(isFor(body.input))?.state).toBe("open");
    release();
    expect(await textOf(second)).toBe(await first);
  });

  it("goes on when its client disconnects, and is there when the client returns", async () => {
    const [key, body] = [randomUUID(), { model: SLOW, input: unique("Comes back") }];
    const leaving = new AbortController();
    const left = streamText(key, body, leaving.signal).catch(() => "left");
    await eventually(() => (gateway.vllm.simulator.requests.findLast(isFor(body.input))?.deltasSent ?? 0) > 3);
    leaving.abort();
    expect(await left).toBe("left");
    const { events } = parseEventStream(await streamText(key, body));
    expect(events.at(-1)?.name).toBe("response.completed");
    expect(promptsFor(gateway, body.input)).toMatchObject([{ state: "completed" }]);
  });

  it.each([false, true])("is not begun again after a client disconnects at once (stream: %s)", async (stream) => {
    const [key, body] = [randomUUID(), { model: SLOW, input: unique("Leaves at once") }];
    for (let attempt = 0; attempt < 5; attempt += 1) {
      const signal = AbortSignal.timeout(5 + 10 * attempt);
      await openai.responses.create({ ...body, stream }, { ...headersOf(key), signal }).catch(() => {});
    }
    if (stream) expect(await streamText(key, body)).toContain("response.completed");
    else expect((await create(key, { ...body, stream })).status).toBe("completed");
    expect(promptsFor(gateway, body.input)).toHaveLength(1);
  });

  it("goes on for one client when another disconnects", async () => {
    const [key, body] = [randomUUID(), { model: SLOW, input: unique("One stays") }];
    const leaving = new AbortController();
    const left = streamText(key, body, leaving.signal).catch(() => "left");
    const stays = streamText(key, body);
    await reached(gateway, body.input);
    leaving.abort();
    await left;
    expect(await stays).toContain("response.completed");
  });

  it("is the same background response, in any state", async () => {
    const [key, body] = [randomUUID(), { model: SLOW, input: unique("Background"), background: true }];
    const first = await create(key, body);
    expect(first.status).toBe("queued");
    const second = await create(key, body);
    expect(second.id).toBe(first.id);
    const done = await ended(gateway, first.id);
    expect(await create(key, body)).toEqual(done);
    expect(promptsFor(gateway, body.input)).toHaveLength(1);

    const cancelKey = randomUUID();
    const { id } = await create(cancelKey, body);
    expect(id).not.toBe(first.id);
    await openai.responses.cancel(id);
    expect(await create(cancelKey, body)).toMatchObject({ id, status: "cancelled" });
  });

  it("is one turn of its conversation", async () => {
    const { id: conversation } = await openai.conversations.create();
    const [key, body] = [randomUUID(), { model: SLOW, input: unique("Turn"), conversation }];
    const responses = await Promise.all(Array.from({ length: 3 }, () => create(key, body)));
    responses.push(await create(key, body));
    expect(new Set(responses.map(({ id }) => id)).size).toBe(1);
    expect(await itemsOf(gateway, conversation)).toHaveLength(2);
  });

  it("continues a response once", async () => {
    const { id: previous_response_id } = await openai.responses.create({ input: "Hello!" });
    const [key, body] = [randomUUID(), { input: unique("Continues"), previous_response_id }];
    const first = await create(key, body);
    expect(await create(key, body)).toEqual(first);
    expect(promptsFor(gateway, body.input)).toMatchObject([{ texts: ["Hello!", "You said: Hello!", body.input] }]);
  });
});

describe.concurrent("a key", () => {
  it("belongs to one request body", async () => {
    const [key, body] = [randomUUID(), { input: unique("Mine") }];
    await create(key, body);
    const others = [{ input: "Other" }, { ...body, temperature: 0.5 }, { ...body, background: true }];
    for (const other of others) {
      const refused = Promise.resolve(create(key, other));
      await expect(refused).rejects.toBeInstanceOf(OpenAI.UnprocessableEntityError);
      await expect(refused).rejects.toMatchObject(REUSED);
    }
    await expect(
      Promise.resolve(openai.responses.create({ ...body, stream: true }, headersOf(key))),
    ).rejects.toMatchObject(REUSED);
  });

  it("belongs to one of two requests that come at the same time", async () => {
    const key = randomUUID();
    const inputs = [unique("Race"), unique("Race")];
    const outcomes = await Promise.allSettled(inputs.map((input) => create(key, { input })));
    expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    const lost = outcomes.find((outcome) => outcome.status === "rejected");
    expect(lost?.reason).toMatchObject(REUSED);
    expect(inputs.flatMap((input) => promptsFor(gateway, input))).toHaveLength(1);
  });

  it("belongs to one tenant", async () => {
    const [key, body] = [randomUUID(), { input: unique("Tenant") }];
    const mine = await create(key, body);
    const theirs = await stranger.responses.create(body, headersOf(key));
    expect(theirs.id).not.toBe(mine.id);
    await stranger.responses.create({ input: "Other" }, headersOf(randomUUID()));
    await expect(openai.responses.retrieve(theirs.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });

  it("needs a stored response", async () => {
    const refused = Promise.resolve(create(randomUUID(), { input: "Hello!", store: false }));
    await expect(refused).rejects.toMatchObject({ status: 400, param: "Idempotency-Key" });
  });

  it("has 1 to 255 characters", async () => {
    expect((await create("k".repeat(255), { input: "Hello!" })).status).toBe("completed");
    const refused = Promise.resolve(create("k".repeat(256), { input: "Hello!" }));
    await expect(refused).rejects.toMatchObject({ status: 400, param: "Idempotency-Key" });
  });

  it("can be used again after its request was refused", async () => {
    const key = randomUUID();
    const { id: conversation } = await openai.conversations.create();
    await openai.conversations.delete(conversation);
    const output = { type: "function_call_output", call_id: "call_1", output: "Sunny" } as const;
    const refused: [ResponseCreateParamsNonStreaming, object][] = [
      [
        { input: "Hello!", temperature: 3 },
        { status: 400, param: "temperature" },
      ],
      [{ input: "Hello!", previous_response_id: `resp_${"a".repeat(32)}` }, { code: "previous_response_not_found" }],
      [{ input: [{ type: "item_reference", id: "msg_1" }] }, { code: "item_not_found" }],
      [{ input: [output] }, { status: 400, param: "input" }],
      [{ input: "Hello!", conversation }, { code: "conversation_not_found" }],
    ];
    for (const [body, error] of refused) {
      await expect(Promise.resolve(create(key, body))).rejects.toMatchObject(error);
    }
    expect((await create(key, { input: "Hello!" })).status).toBe("completed");
    await expect(Promise.resolve(create(key, { input: "Other" }))).rejects.toMatchObject(REUSED);
  });

  it("stays with its request when that has waited in vain", async () => {
    const { id: conversation } = await openai.conversations.create();
    const holder = await openai.responses.create({
      model: "simulator?tps=20&words=10000",
      input: unique("Endless"),
      conversation,
      background: true,
    });
    const [key, body] = [randomUUID(), { input: unique("In vain"), conversation }];
    const locked = { status: 409, code: "conversation_locked" };
    await expect(Promise.resolve(create(key, body))).rejects.toMatchObject(locked);
    await expect(Promise.resolve(create(key, { input: "Other", conversation }))).rejects.toMatchObject(REUSED);
    await openai.responses.cancel(holder.id);
    expect(await create(key, body)).toEqual(await create(key, body));
    expect(promptsFor(gateway, body.input)).toHaveLength(1);
  });

  it("stands for a deleted response, and creates no other", async () => {
    const [key, body] = [randomUUID(), { input: unique("Gone") }];
    const { id } = await create(key, body);
    await openai.responses.delete(id);
    for (const stream of [false, true]) {
      const again = Promise.resolve(openai.responses.create({ ...body, ...(stream && { stream }) }, headersOf(key)));
      await expect(again).rejects.toMatchObject(stream ? REUSED : { status: 404, code: "response_not_found" });
    }
    await expect(Promise.resolve(openai.responses.retrieve(id))).rejects.toMatchObject({ status: 404 });
    expect(promptsFor(gateway, body.input)).toHaveLength(1);
  });

  it("accepts the same body with its fields in another order, and null for absent fields", async () => {
    const key = randomUUID();
    const input = unique("Ordered");
    const tool = {
      type: "function",
      name: "f",
      strict: false,
      parameters: { type: "object", properties: {} },
    } as const;
    const first = await create(key, { input, metadata: { a: "1", b: "2" }, tools: [tool], temperature: 1 });
    const turned = { temperature: 1, tools: [Object.fromEntries(Object.entries(tool).reverse())], user: null };
    const again = { ...turned, metadata: { b: "2", a: "1" }, input } as unknown as ResponseCreateParamsNonStreaming;
    expect(await create(key, again)).toEqual(first);
    expect(promptsFor(gateway, input)).toHaveLength(1);
    const other = { input, metadata: { a: "2", b: "1" }, tools: [tool], temperature: 1 };
    await expect(Promise.resolve(create(key, other))).rejects.toMatchObject(REUSED);
  });

  it("repeats a failure with its status", async () => {
    const [key, body] = [randomUUID(), { model: "simulator?fault=http:503", input: unique("Busy") }];
    const busy = { status: 503, code: "server_is_overloaded", type: "server_error" };
    await expect(Promise.resolve(create(key, body))).rejects.toMatchObject(busy);
    await expect(Promise.resolve(create(key, body))).rejects.toMatchObject(busy);
    expect(promptsFor(gateway, body.input)).toHaveLength(1);
  });

  it("creates a turn of a conversation once, also when its response was deleted", async () => {
    const { id: conversation } = await openai.conversations.create();
    const [key, body] = [randomUUID(), { input: unique("Deleted"), conversation }];
    const response = await create(key, body);
    await openai.responses.delete(response.id);
    await expect(Promise.resolve(create(key, body))).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    expect(await itemsOf(gateway, conversation)).toHaveLength(2);
    expect(promptsFor(gateway, body.input)).toHaveLength(1);
  });

  it("joins a turn that began while it waited for the conversation", async () => {
    const { conversations, responses } = gateway.client({ apiKey: "cat-key" });
    const [{ id: conversation }, { id: free }] = await Promise.all([conversations.create(), conversations.create()]);
    const body = { model: "simulator?tps=40&words=10000", input: unique("Endless"), conversation, background: true };
    const holder = await responses.create(body);
    const input = unique("Waits");
    const waiting = { model: "simulator?fault=stall:0", input, conversation };
    const options = headersOf(randomUUID());
    const all = Promise.all(
      Array.from({ length: MOST_IN_CONVERSATIONS - 1 }, () => responses.create(waiting, options)),
    );
    // While all of them wait, the tenant cannot even add an item to another conversation.
    const items = [{ role: "user" as const, content: "Hello!" }];
    const added = () => conversations.items.create(free, { items }).catch(({ status }) => status);
    await eventually(async () => (await added()) === 429);
    await responses.cancel(holder.id);
    const release = await reached(gateway, input);
    // When a later one has given up waiting, all but the first have, too.
    const later = responses.create({ input: "Later", conversation });
    await expect(Promise.resolve(later)).rejects.toMatchObject({ status: 409, code: "conversation_locked" });
    release();
    const [first, ...others] = await all;
    for (const other of others) expect(other).toEqual(first);
    expect(promptsFor(gateway, input)).toHaveLength(1);
  });
});

function isFor(input: string) {
  return ({ body }: { body: unknown }) => JSON.stringify(body)?.includes(JSON.stringify(input)) ?? false;
}
