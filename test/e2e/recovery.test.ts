import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startWorkerd } from "../workerd/process.ts";
import { framesOf, generationsOf, isWhole, replay } from "./event-streams.ts";
import { expectError, readStream } from "./expectations.ts";
import { type Death, type MortalServer, startMortalServer } from "./mortal-server.ts";
import { eventually, type Gateway, gatewayAt, TOKEN_BY_TOKEN } from "./support.ts";

/** A model server that dies and returns. The faults are those of vLLM 0.32 (mortal-server.ts). */

const SETTINGS = { ALLOW_ANONYMOUS: "true", HEARTBEAT_MS: "100", VLLM_SILENCE_MS: "100" };

async function startBehind(server: MortalServer, variables: Record<string, string> = {}): Promise<Gateway> {
  const worker = await startWorkerd({ ...SETTINGS, VLLM_BASE_URL: server.url, ...variables }, { readsFormats: false });
  return gatewayAt(worker, server.simulator);
}

let server: MortalServer;
let gateway: Gateway;
beforeAll(async () => {
  server = await startMortalServer();
  gateway = await startBehind(server);
});
beforeEach(async () => {
  if (server.dead) await server.restart();
});
afterAll(async () => {
  await gateway.close();
  await server.close();
});

type Way = "json" | "stream" | "background";
const WAYS: Way[] = ["json", "stream", "background"];
const DEATHS: Death[] = ["kill", "terminate", "abort", "engine"];

let names = 0;
const own = (model: string) => `${model}?max_model_len=${100_000 + names++}`;

/** Creates a response in one of the ways. Gives it, and its events if it has any. */
async function create(way: Way, body: ResponseCreateParamsNonStreaming, through = gateway) {
  const { responses } = through.openai;
  if (way === "json") return { response: await responses.create({ ...body, ...TOKEN_BY_TOKEN }), events: "" };
  if (way === "stream") {
    const events = await (await through.post({ ...body, stream: true })).text();
    expect(isWhole(events)).toBe(true);
    return { response: lastResponse(events), events };
  }
  const { id } = await responses.create({ ...body, background: true });
  const response = await eventually(async () => {
    const found = await responses.retrieve(id);
    return found.status === "queued" || found.status === "in_progress" ? undefined : found;
  });
  return { response, events: await replay(through, id) };
}

function lastResponse(events: string): Response {
  const frame = framesOf(events).at(-2) ?? "";
  return (JSON.parse(frame.slice(frame.indexOf("data: ") + 6)) as { response: Response }).response;
}

/** The parts of a response that must be the same whether the model server died or not. */
function essence({ output, status, error }: Response) {
  return { status, error, output: output.map((item) => ({ ...item, id: "" })) };
}

async function upstreamHealth(through = gateway) {
  const answer = await through.fetch(`${through.url}/health/upstream`);
  return { status: answer.status, body: (await answer.json()) as { down_since: string | null; recovery: object } };
}

/** Waits until the server is dead and no connection to it is left, and starts it again. */
async function restartWhenMissed(): Promise<void> {
  await eventually(() => server.dead && server.open === 0);
  await eventually(async () => (await upstreamHealth()).body.down_since);
  await server.restart();
}

const INPUT = "one two three four five six seven eight";

describe.each(DEATHS)("a model server that dies in the middle of its text (%s) and returns", (death) => {
  it.each(WAYS)("repeats and loses nothing, as %s", async (way) => {
    const whole = await create(way, { model: "simulator", input: INPUT });
    const model = own("simulator");
    server.dieAfter(model, 5, death);
    const [{ response }] = await Promise.all([create(way, { model, input: INPUT }), restartWhenMissed()]);
    expect(essence(response)).toEqual(essence(whole.response));
    expect(response.usage?.output_tokens).toBe(whole.response.usage?.output_tokens);
    expect(generationsOf(gateway, model)).toHaveLength(2);
  });
});

describe.each(DEATHS)("a model server that dies before its first word (%s) and returns", (death) => {
  it.each(WAYS)("is asked again, as %s", async (way) => {
    const model = own("simulator");
    server.dieAfter(model, 0, death);
    const [{ response }] = await Promise.all([create(way, { model, input: INPUT }), restartWhenMissed()]);
    expect(response.status).toBe("completed");
    expect(generationsOf(gateway, model)).toHaveLength(2);
  });
});

describe.each(["kill", "terminate"] as const)(
  "a model server that dies before its headers (%s) and returns",
  (death) => {
    it("is asked again by a stream that has begun", async () => {
      const model = `${own("simulator")}&fault=stall_headers&fault_times=1`;
      const stream = await gateway.post({ model, input: INPUT, stream: true });
      expect(stream.status).toBe(200);
      let events = "";
      const reading = (async () => {
        const decoder = new TextDecoder();
        for await (const bytes of stream.body ?? []) events += decoder.decode(bytes, { stream: true });
      })();
      await server.die(death);
      // The second one tells of the outage.
      await eventually(() => /in_progress\n.+in_progress\n|response\.failed/s.test(events));
      await server.restart();
      await reading;
      const { status, output } = lastResponse(events);
      expect([status, output]).toMatchObject(["completed", [{ content: [{ text: `You said: ${INPUT}` }] }]]);
      expect(generationsOf(gateway, model)).toHaveLength(2);
    });
  },
);

describe("a model server that dies in its reasoning", () => {
  it("begins its reasoning again in another item if the first one was shown", async () => {
    const model = own("simulator-reasoning");
    server.dieAfter(model, 4, "terminate");
    const body = { model, input: INPUT, stream: true };
    const [{ response, events }] = await Promise.all([create("stream", body as never), restartWhenMissed()]);
    expect(response.output).toMatchObject([
      { type: "reasoning", status: "incomplete", content: [{ text: expect.stringMatching(/^The user/) }] },
      { type: "reasoning", status: "completed", content: [{ text: expect.stringMatching(/^The user.*default\.$/s) }] },
      { type: "message", status: "completed", content: [{ text: `You said: ${INPUT}` }] },
    ]);
    expect(events).toContain("response.output_item.done");
  });
});

describe("an outage", () => {
  it("is in the events of a background run, once, with the time at which the run gives up", async () => {
    const model = own("simulator");
    server.dieAfter(model, 3, "kill");
    const { id } = await gateway.openai.responses.create({ model, input: INPUT, background: true });
    await eventually(async () => {
      const { body } = await upstreamHealth();
      return server.dead && body.down_since;
    });
    const stream = await gateway.fetch(`${gateway.url}/v1/responses/${id}?stream=true`);
    let text = "";
    for await (const chunk of stream.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += chunk;
      if (text.includes('"recovery"') && server.dead) await server.restart();
    }
    const told = [...text.matchAll(/"recovery":(\{[^}]*\})/g)].map(([, json]) => JSON.parse(json ?? "") as object);
    expect(told).toEqual([{ down_since: expect.any(Number), gives_up_at: expect.any(Number) }]);
    const { down_since: since, gives_up_at: until } = told[0] as { down_since: number; gives_up_at: number };
    expect(until - since).toBe(900);
    expect(lastResponse(text).status).toBe("completed");
  });

  it("is in /health/upstream, with the maximum wait", async () => {
    await server.die("kill");
    try {
      const { status, body } = await upstreamHealth();
      expect(status).toBe(503);
      expect(body).toMatchObject({
        status: "unreachable",
        recovery: { background_ms: 900_000, foreground_ms: 300_000 },
      });
      expect(Number.isNaN(Date.parse(body.down_since ?? ""))).toBe(false);
    } finally {
      await server.restart();
    }
    expect(await upstreamHealth()).toMatchObject({ status: 200, body: { status: "ok", down_since: null } });
  });
});

describe("a model server that stays down", () => {
  let hasty: Gateway;
  let mortal: MortalServer;
  beforeAll(async () => {
    mortal = await startMortalServer();
    hasty = await startBehind(mortal, {
      VLLM_RECOVERY_TIME_MS: "600",
      VLLM_FOREGROUND_RECOVERY_TIME_MS: "300",
    });
  });
  afterAll(async () => {
    await hasty.close();
    await mortal.close();
  });

  it("delays a background run for VLLM_RECOVERY_TIME_MS", async () => {
    const model = own("simulator");
    const seen = Promise.withResolvers<void>();
    mortal.dieAfter(model, 3, "engine", seen.promise);
    const { id } = await hasty.openai.responses.create({ model, input: INPUT, background: true });
    const stream = await hasty.fetch(`${hasty.url}/v1/responses/${id}?stream=true`);
    let text = "";
    for await (const chunk of stream.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += chunk;
      // Bytes that were sent right before a death may never arrive: a reset connection drops unread bytes.
      if (text.includes('"delta":" said"')) seen.resolve();
    }
    const response = lastResponse(text);
    expect(response).toMatchObject({
      status: "failed",
      error: { code: "server_error" },
      output: [{ type: "message", status: "incomplete", content: [{ text: "You said" }] }],
    });
    // The server was down for longer than that, or dead at the end of that time.
    expect(response.error?.message).toMatch(/^The model server( could not be reached|'s engine has died)\.$/);
    await mortal.restart();
  });

  it("is a 502 in the foreground as JSON, and an event as a stream", async () => {
    for (const stream of [false, true]) {
      const model = own("simulator");
      mortal.dieAfter(model, 3, "kill");
      const answer = await hasty.post({ model, input: INPUT, stream, ...TOKEN_BY_TOKEN });
      if (stream) expect((await readStream(answer)).types.slice(-2)).toEqual(["error", "response.failed"]);
      else await expectError(answer, { status: 502, code: "upstream_unreachable" });
      await mortal.restart();
    }
  });

  it("is a 502 at once for a turn that has not begun", async () => {
    await mortal.die("kill");
    const response = await hasty.post({ model: own("simulator"), input: INPUT });
    await expectError(response, { status: 502, code: "upstream_unreachable" });
    await mortal.restart();
  });
});

describe("a failure of a living server", () => {
  it.each(WAYS)("is not retried while the server is healthy, as %s", async (way) => {
    const model = `${own("simulator")}&fault=error:3`;
    const failed = create(way, { model, input: INPUT });
    if (way === "json") await expect(failed).rejects.toMatchObject({ status: 502, code: "upstream_error" });
    else expect((await failed).response).toMatchObject({ status: "failed" });
    expect(generationsOf(gateway, model)).toHaveLength(1);
  });
});

describe("silence", () => {
  let quick: Gateway;
  beforeAll(async () => {
    quick = await startBehind(server, { VLLM_IDLE_TIMEOUT_MS: "300", VLLM_FIRST_BYTE_TIMEOUT_MS: "300" });
  });
  afterAll(() => quick.close());

  it.each(WAYS)(
    "of a healthy server is accepted until the idle timeout, after which the turn resumes, as %s",
    async (way) => {
      const model = `${own("simulator")}&fault=stall:4&fault_times=1`;
      const { response } = await create(way, { model, input: INPUT }, quick);
      expect(response).toMatchObject({ status: "completed" });
      const generations = generationsOf(quick, model);
      // The server notices the closed request at some time.
      await eventually(() => generations.every(({ state }) => state !== "open"));
      expect(generations.map(({ state }) => state)).toEqual(["aborted", "completed"]);
    },
  );
});
