import { createHash } from "node:crypto";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, itemsOf, prompts, promptsFor, reached, textsOf, unique } from "./turns.ts";

/** Turns of one conversation wait for each other. */

const LONG = "240000";
const TENANTS = Array.from({ length: 8 }, (_, index) => `tenant${index}`);

/** A gateway whose turns wait longer than a test takes. */
let patient: Gateway;
/**
 * A gateway with the same wait, in which one turn of a tenant may wait beside a running one. A tenant's name is its
 * key.
 */
let narrow: Gateway;
let hasty: Gateway;
let impatient: Gateway;
beforeAll(async () => {
  const keys = TENANTS.map((name) => `${name}:${createHash("sha256").update(name).digest("hex")}`);
  [patient, narrow, hasty, impatient] = await Promise.all([
    startGateway({ CONVERSATION_LOCK_WAIT_MS: LONG }),
    startGateway({ CONVERSATION_LOCK_WAIT_MS: LONG, MAX_OPEN_CONVERSATIONS_PER_TENANT: "2", API_KEYS: keys.join(" ") }),
    startGateway({ CONVERSATION_LOCK_WAIT_MS: "3000" }),
    startGateway({ CONVERSATION_LOCK_WAIT_MS: "0" }),
  ]);
});
afterAll(() => Promise.all([patient.close(), narrow.close(), hasty.close(), impatient.close()]));

type Served = Pick<Gateway, "openai" | "vllm">;

/** The next tenant of `narrow`. */
function newTenant(): Served {
  return { openai: narrow.client({ apiKey: TENANTS.pop() ?? "" }), vllm: narrow.vllm };
}

/**
 * Sends two requests beside a running turn, as a tenant of `narrow`. When one of the two is refused, the other waits
 * for the conversation. Gives the answer of the latter.
 */
async function inLine<T>(ask: () => PromiseLike<T>): Promise<{ answer: Promise<T> }> {
  const [one, other] = [Promise.resolve(ask()), Promise.resolve(ask())];
  const reason = (request: Promise<T>) => request.then(() => undefined).catch((error: unknown) => error);
  const [refusal, answer] = await Promise.race([
    reason(one).then((error) => [error, { answer: other }] as const),
    reason(other).then((error) => [error, { answer: one }] as const),
  ]);
  expect(refusal).toMatchObject({ status: 429 });
  return answer;
}

const LOCKED = {
  status: 409,
  code: "conversation_locked",
  type: "invalid_request_error",
  param: "conversation",
  message: expect.stringContaining("Another process is currently operating on this conversation."),
};

/** A model that outputs nothing until it is released. */
const STALLED = "simulator?fault=stall:0";
const ENDLESS = "simulator?tps=20&words=10000";

const said = (content: string) => ({ role: "user" as const, content });

async function newConversation({ openai }: Served): Promise<string> {
  return (await openai.conversations.create()).id;
}

/** Begins an answer that never ends. Gives a function that ends it by its client's disconnection. */
async function beginEndlessStream(gateway: Served, conversation: string): Promise<() => void> {
  const input = unique("Endless stream");
  const stream = await gateway.openai.responses.create({ model: ENDLESS, input, conversation, stream: true });
  const read = (async () => {
    for await (const _event of stream);
  })();
  read.catch(() => {});
  await reached(gateway, input);
  return () => stream.controller.abort();
}

/** Begins a background turn that never ends. Gives a function that cancels it. */
async function hold({ openai, vllm }: Served, conversation: string) {
  const input = unique("Endless");
  const { id } = await openai.responses.create({ model: ENDLESS, input, conversation, background: true });
  await reached({ vllm }, input);
  return {
    release: async () => {
      const { status } = await openai.responses.cancel(id);
      // The turn was still running: everything before happened beside it.
      expect(status).toBe("cancelled");
    },
  };
}

describe.concurrent("turns on one conversation", () => {
  it("run one after another, in the order of their arrival, and each sees all before it", async () => {
    const conversation = await newConversation(patient);
    const inputs = Array.from({ length: 6 }, (_, index) => unique(`FIFO ${index}`));
    const running: Promise<unknown>[] = [];
    let release = () => {};
    for (const [index, input] of inputs.entries()) {
      const body = { model: index === 0 ? STALLED : "simulator", input, conversation };
      if (index % 3 === 0) running.push(patient.openai.responses.create(body));
      if (index % 3 === 1)
        running.push(patient.openai.responses.create({ ...body, stream: true }).then(Array.fromAsync));
      if (index % 3 === 2) running.push(patient.openai.responses.create({ ...body, background: true }));
      // Waits until the turn is in the queue: ten later requests, one after another, have been answered.
      if (index === 0) release = await reached(patient, input);
      else for (let times = 0; times < 10; times += 1) await itemsOf(patient, conversation);
    }
    expect(prompts(patient).filter(({ texts }) => inputs.includes(texts.at(-1) ?? ""))).toHaveLength(1);
    release();
    await Promise.all(running);
    // The last one runs in the background.
    await eventually(async () => (await itemsOf(patient, conversation)).length === 2 * inputs.length);
    const expected = inputs.flatMap((input) => [input, `You said: ${input}`]);
    expect(await textsOf(patient, conversation)).toEqual(expected);
    let before = 0;
    for (const [index, input] of inputs.entries()) {
      const [prompt] = promptsFor(patient, input);
      expect(prompt?.texts).toEqual(expected.slice(0, 2 * index + 1));
      expect(prompt?.startedAt).toBeGreaterThanOrEqual(before);
      before = prompt?.endedAt ?? 0;
    }
  });

  it("do not hold up those on another conversation, nor turns without one", async () => {
    const [held, free] = await Promise.all([newConversation(impatient), newConversation(impatient)]);
    const { release } = await hold(impatient, held);
    await impatient.openai.responses.create({ input: "Hello!", conversation: free });
    await impatient.openai.responses.create({ input: "Hello!" });
    await release();
  });

  it("do not prevent the conversation from being read and its metadata from being changed", async () => {
    const conversation = await newConversation(impatient);
    const { release } = await hold(impatient, conversation);
    expect(await itemsOf(impatient, conversation)).toEqual([]);
    await impatient.openai.conversations.update(conversation, { metadata: { busy: "yes" } });
    expect((await impatient.openai.conversations.retrieve(conversation)).metadata).toEqual({ busy: "yes" });
    await release();
  });

  it.each(["foreground", "background"] as const)("are refused at once if no turn may wait (%s)", async (way) => {
    const conversation = await newConversation(impatient);
    const { openai } = impatient;
    let release: () => unknown;
    if (way === "background") ({ release } = await hold(impatient, conversation));
    else release = await beginEndlessStream(impatient, conversation);
    const others = [
      openai.responses.create({ input: "Me too.", conversation }),
      openai.responses.create({ input: "Me too.", conversation, stream: true }),
      openai.responses.create({ input: "Me too.", conversation, background: true }),
      openai.conversations.items.create(conversation, { items: [{ role: "user", content: "Me too." }] }),
    ];
    const errors = await Promise.all(others.map((other) => Promise.resolve(other).catch((error: unknown) => error)));
    for (const error of errors) {
      expect(error).toBeInstanceOf(OpenAI.ConflictError);
      expect(error).toMatchObject(LOCKED);
      expect(Number((error as InstanceType<typeof OpenAI.APIError>).headers?.get("retry-after"))).toBeGreaterThan(0);
    }
    expect(await itemsOf(impatient, conversation)).toEqual([]);
    await release();
  });

  it("keep their lock while their home sleeps during the model's output", async () => {
    const conversation = await newConversation(impatient);
    const inputs = [unique("Slow"), unique("Next")];
    const [input = "", next = ""] = inputs;
    const turn = impatient.openai.responses.create({ model: STALLED, input, conversation });
    const release = await reached(impatient, input);
    const { storage } = impatient;
    const asleep = () => !storage.isAwake(conversation);
    expect(storage.isAwake(conversation)).toBe(true);
    await eventually(asleep);
    const other = impatient.openai.responses.create({ input: "Me too.", conversation });
    await expect(Promise.resolve(other)).rejects.toMatchObject(LOCKED);
    await eventually(asleep);
    release();
    expect((await turn).status).toBe("completed");
    await impatient.openai.responses.create({ input: next, conversation });
    const expected = inputs.flatMap((text) => [text, `You said: ${text}`]);
    expect(await textsOf(impatient, conversation)).toEqual(expected);
  });

  it("are sent again by the SDK after a refusal", async () => {
    const conversation = await newConversation(impatient);
    const input = unique("Slow");
    const slowTurn = impatient.openai.responses.create({ model: STALLED, input, conversation });
    const release = await reached(impatient, input);
    const statuses: number[] = [];
    const fetch = async (...request: Parameters<typeof impatient.fetch>) => {
      const answer = await impatient.fetch(...request);
      statuses.push(answer.status);
      release();
      await slowTurn;
      return answer;
    };
    const second = impatient.client({ maxRetries: 1, fetch }).responses.create({ input: "Me too.", conversation });
    expect((await second).status).toBe("completed");
    expect(statuses).toEqual([409, 200]);
    expect(await itemsOf(impatient, conversation)).toHaveLength(4);
  });

  it("are refused after the maximum wait", async () => {
    const conversation = await newConversation(hasty);
    const { release } = await hold(hasty, conversation);
    for (const stream of [false, true]) {
      const refused = hasty.openai.responses.create({ input: "Me too.", conversation, stream });
      await expect(Promise.resolve(refused)).rejects.toMatchObject(LOCKED);
    }
    await release();
  });

  it("that no longer wait do not hold up those after them", async () => {
    const conversation = await newConversation(hasty);
    const { release } = await hold(hasty, conversation);
    const givenUp = unique("Given up");
    const first = hasty.openai.responses.create({ input: givenUp, conversation });
    await expect(Promise.resolve(first)).rejects.toMatchObject(LOCKED);
    const second = hasty.openai.responses.create({ input: unique("Patient"), conversation });
    await release();
    expect((await second).status).toBe("completed");
    expect(promptsFor(hasty, givenUp)).toEqual([]);
  });

  it("go on as soon as the client of the running one disconnects", async () => {
    const tenant = newTenant();
    const conversation = await newConversation(tenant);
    const leave = await beginEndlessStream(tenant, conversation);
    const next = await inLine(() => tenant.openai.responses.create({ input: "Next", conversation }));
    leave();
    expect((await next.answer).status).toBe("completed");
    expect(await itemsOf(tenant, conversation)).toHaveLength(2);
  });

  it("wait for a background run until it has ended, and see its answer", async () => {
    const tenant = newTenant();
    const conversation = await newConversation(tenant);
    const input = unique("In the background");
    const { id } = await tenant.openai.responses.create({ model: STALLED, input, conversation, background: true });
    const release = await reached(tenant, input);
    const next = unique("Next");
    const waiting = await inLine(() => tenant.openai.responses.create({ input: next, conversation }));
    expect(promptsFor(tenant, next)).toEqual([]);
    release();
    await waiting.answer;
    expect((await tenant.openai.responses.retrieve(id)).status).toBe("completed");
    expect(promptsFor(tenant, next)[0]?.texts).toEqual([input, `You said: ${input}`, next]);
  });

  it("go on as soon as a background run is cancelled, and see nothing of it", async () => {
    const tenant = newTenant();
    const conversation = await newConversation(tenant);
    const { release } = await hold(tenant, conversation);
    const next = unique("Next");
    const waiting = await inLine(() => tenant.openai.responses.create({ input: next, conversation }));
    expect(promptsFor(tenant, next)).toEqual([]);
    await release();
    await waiting.answer;
    expect(promptsFor(tenant, next)[0]?.texts).toEqual([next]);
  });

  it("go on when the running one fails or is refused", async () => {
    const conversation = await newConversation(patient);
    for (const model of ["simulator?ttft=300&fault=error:0", "simulator?headers_delay=300&fault=http:400"]) {
      const input = unique("Fails");
      const failing = patient.openai.responses.create({ model, input, conversation }).catch(() => "failed");
      await reached(patient, input);
      const next = patient.openai.responses.create({ input: unique("Next"), conversation });
      expect(await failing).toBe("failed");
      expect((await next).status).toBe("completed");
    }
  });

  const late = unique("Late");
  it.each<[string, (tenant: Served, conversation: string) => PromiseLike<unknown>]>([
    ["foreground", ({ openai }, conversation) => openai.responses.create({ input: late, conversation })],
    [
      "background",
      ({ openai }, conversation) => openai.responses.create({ input: late, conversation, background: true }),
    ],
    ["items", ({ openai }, conversation) => openai.conversations.items.create(conversation, { items: [said(late)] })],
  ])("get a 404 when the conversation is deleted while they wait (%s)", async (_, ask) => {
    const tenant = newTenant();
    const conversation = await newConversation(tenant);
    const input = unique("Slow");
    const running = tenant.openai.responses.create({ model: STALLED, input, conversation });
    const release = await reached(tenant, input);
    const waiting = await inLine(() => ask(tenant, conversation));
    await tenant.openai.conversations.delete(conversation);
    release();
    await expect(waiting.answer).rejects.toMatchObject({ status: 404, code: "conversation_not_found" });
    expect(promptsFor(tenant, late)).toEqual([]);
    // The running turn gets its answer.
    const { id } = await running;
    expect((await tenant.openai.responses.retrieve(id)).output_text).toBe(`You said: ${input}`);
  });
});

describe.concurrent("a change of a conversation's items waits for the running turn", () => {
  it.each(["added", "removed"])("(%s)", async (way) => {
    const tenant = newTenant();
    const { items } = tenant.openai.conversations;
    const conversation = await newConversation(tenant);
    await items.create(conversation, { items: [said("Old")] });
    const [old] = await itemsOf(tenant, conversation);
    const input = unique("Slow");
    const turn = tenant.openai.responses.create({ model: STALLED, input, conversation });
    const release = await reached(tenant, input);
    const change = () =>
      way === "added"
        ? items.create(conversation, { items: [said("New")] })
        : items.delete(old?.id ?? "", { conversation_id: conversation });
    const waiting = await inLine<unknown>(change);
    expect(await textsOf(tenant, conversation)).toEqual(["Old"]);
    release();
    await Promise.all([turn, waiting.answer]);
    const turnTexts = [input, `You said: ${input}`];
    const after = way === "added" ? ["Old", ...turnTexts, "New"] : turnTexts;
    expect(await textsOf(tenant, conversation)).toEqual(after);
    expect(promptsFor(tenant, input)[0]?.texts).toEqual(["Old", input]);
  });
});

describe.concurrent("branches", () => {
  it("of one response run at the same time", async () => {
    const { openai } = impatient;
    const root = await openai.responses.create({ input: "Root" });
    const inputs = [unique("Branch"), unique("Branch"), unique("Branch")];
    const branches = await Promise.all(
      inputs.map((input) =>
        openai.responses.create({ model: ENDLESS, input, previous_response_id: root.id, background: true }),
      ),
    );
    const foreground = await openai.responses.create({ input: "Branch", previous_response_id: root.id });
    expect(foreground.status).toBe("completed");
    await eventually(() => inputs.every((input) => promptsFor(impatient, input)[0]?.state === "open"));
    for (const { id } of branches) expect((await openai.responses.cancel(id)).status).toBe("cancelled");
  });

  it("of a conversation's turn do not wait for the conversation", async () => {
    const conversation = await newConversation(impatient);
    const { id } = await impatient.openai.responses.create({ input: "Root", conversation });
    const { release } = await hold(impatient, conversation);
    const branch = { input: "Branch", previous_response_id: id };
    await impatient.openai.responses.create(branch);
    const background = await impatient.openai.responses.create({ ...branch, background: true });
    expect((await ended(impatient, background.id)).status).toBe("completed");
    await release();
  });
});
