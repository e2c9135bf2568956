import type { Response as ResponseBody } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { SimulatedRequest } from "../../dev/simulator/handler.ts";
import { expectError } from "./expectations.ts";
import { eventually, type Gateway, startGateway, TOKEN_BY_TOKEN } from "./support.ts";

/**
 * Clients that disconnect.
 *
 * Local workerd notices that a client has disconnected only when it writes to it. So the interval of a stream's
 * heartbeats bounds the time in which vLLM generates for no reader. A JSON request writes nothing before its answer:
 * locally it runs to its end, and the response is stored as completed. (Deployed, `enable_request_signal` reports the
 * disconnection, and the request stops like a stream.)
 */
const HEARTBEAT_MS = 100;

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ HEARTBEAT_MS: String(HEARTBEAT_MS), TREES_PER_HOME: "1" });
});
afterAll(() => gateway.close());

/** vLLM's request for this model name. Each test uses another name. */
function requestOf(model: string): SimulatedRequest | undefined {
  return gateway.vllm.simulator.requests.findLast(({ body }) => JSON.stringify(body)?.includes(`"model":"${model}"`));
}

/** Reads a stream until `ready`, and disconnects. Gives the response's id and the text until then. */
async function leave(
  request: { model: string; [field: string]: unknown },
  ready: (text: string) => boolean | Promise<boolean>,
) {
  const controller = new AbortController();
  const response = await gateway.fetch(`${gateway.url}/v1/responses`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input: "Hello!", stream: true, ...request }),
    signal: controller.signal,
  });
  expect(response.status).toBe(200);
  let text = "";
  let isReady = false;
  const decoder = new TextDecoder();
  try {
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk, { stream: true });
      // A heartbeat may come before the first event.
      isReady ||= text.includes('"id":"resp_') && (await ready(text));
      if (isReady) controller.abort();
    }
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  }
  expect(isReady).toBe(true);
  const id = /"id":"(resp_\w+)"/.exec(text)?.[1] ?? "";
  const deltas = [...text.matchAll(/"type":"response.output_text.delta".*?"delta":("(?:[^"\\]|\\.)*")/g)];
  return { id, seen: deltas.map((match) => JSON.parse(match[1] ?? '""') as string).join("") };
}

/** vLLM's connection is closed, and its generation with it. */
async function expectReleased(model: string): Promise<void> {
  // A request may reach vLLM just after the disconnection.
  await eventually(() => (requestOf(model)?.state ?? "open") !== "open");
  expect(requestOf(model)?.state).toBe("aborted");
}

/** The stored response, as soon as it exists. */
function settled(id: string) {
  return eventually(() => gateway.openai.responses.retrieve(id).catch(() => undefined));
}

describe.concurrent("a client that disconnects from a stream", () => {
  it("in the middle of the tokens stops vLLM, and the response is cancelled with its partial output", async () => {
    const model = "simulator?words=100000&tps=100";
    const { id, seen } = await leave({ model }, (text) => text.split("output_text.delta").length > 20);
    await expectReleased(model);

    const response = await settled(id);
    expect(response).toMatchObject({
      status: "cancelled",
      error: null,
      incomplete_details: null,
      completed_at: null,
      output: [{ type: "message", status: "incomplete" }],
    });
    expect(response.output_text.startsWith(seen)).toBe(true);
    expect(seen.split(" ").length).toBeGreaterThan(5);
    expect((await gateway.openai.responses.inputItems.list(id)).data).toHaveLength(1);
  });

  it("leaves the question and the text, and no thought and no call, to the turn that continues the response", async () => {
    const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
    const tools = ["f", "g"].map((name) => ({ type: "function", name, parameters }));
    const deltasOf = (model: string) => requestOf(model)?.deltasSent ?? 0;
    for (const [model, more, deltas, begins] of [
      ["simulator?words=9&fault=stall:4", {}, 4, "the"],
      ["simulator-reasoning?words=9&fault=stall:4", {}, 4, ""],
      ["simulator?fault=stall:9&rounds=1", { tools, tool_choice: "required", input: "Call tools." }, 9, ""],
    ] as const) {
      const { id } = await leave({ model, ...more }, () => deltasOf(model) >= deltas);
      const { status, output_text: said } = await settled(id);
      expect([status, said.split(" ")[0]]).toEqual(["cancelled", begins]);
      const question = "input" in more ? more.input : "Hello!";
      const asked = `Why did you stop, ${model}?`;
      await gateway.openai.responses.create({ model: "simulator", previous_response_id: id, input: asked });
      const sent = gateway.vllm.simulator.requests.findLast(({ body }) => JSON.stringify(body)?.includes(asked));
      expect(sent?.body).toMatchObject({
        messages: [
          { role: "user", content: question },
          ...(said === "" ? [] : [{ role: "assistant", content: said }]),
          { role: "user", content: asked },
        ],
      });
    }
  });

  it("in the middle of its reasoning leaves the reasoning stored", async () => {
    const model = "simulator-reasoning?fault=stall:5";
    const { id } = await leave({ model }, (text) => text.split("reasoning_text.delta").length > 4);
    await expectReleased(model);
    expect(await settled(id)).toMatchObject({
      status: "cancelled",
      output: [{ type: "reasoning", status: "incomplete", content: [{ text: expect.stringMatching(/^The user/) }] }],
    });
  });

  it("in the middle of a call leaves no call to answer", async () => {
    const model = "simulator?rounds=1&fault=stall:3";
    const parameters = {
      type: "object",
      properties: Object.fromEntries(["a", "b", "c", "d", "e"].map((name) => [name, { type: "string" }])),
      required: ["a", "b", "c", "d", "e"],
    };
    const tools = [{ type: "function", name: "f", parameters }];
    const isCalling = () => requestOf(model)?.deltasSent === 3;
    const { id } = await leave({ model, tools, tool_choice: "required" }, isCalling);
    await expectReleased(model);
    const { status, output } = await settled(id);
    expect(status).toBe("cancelled");
    for (const item of output) expect(item).toMatchObject({ type: "function_call", status: "incomplete", name: "f" });
  });

  it("before the first token is noticed by a heartbeat", async () => {
    const model = "simulator?fault=stall:0";
    const { id } = await leave({ model }, (text) => text.includes(": heartbeat"));
    await expectReleased(model);
    expect(await settled(id)).toMatchObject({ status: "cancelled", output: [] });
  });

  it("before vLLM has answered with headers is noticed", async () => {
    const model = "simulator?fault=stall_headers";
    const { id } = await leave({ model }, (text) => text.includes("response.in_progress"));
    await expectReleased(model);
    expect(await settled(id)).toMatchObject({ status: "cancelled", output: [] });
  });

  it("while the model pauses in the middle is noticed", async () => {
    const model = "simulator?fault=stall:3";
    const { id } = await leave({ model }, (text) => /output_text\.delta[\s\S]*: heartbeat/.test(text));
    await expectReleased(model);
    expect((await settled(id)).output_text).toBe("You said:");
  });

  it("of a fast model is noticed, also with generated output that nobody has read", async () => {
    const model = "simulator?words=100000&chunk=16";
    const { id } = await leave({ model }, (text) => text.includes("output_text.delta"));
    await expectReleased(model);
    expect((await settled(id)).status).toBe("cancelled");
  });

  it("with store: false leaves nothing", async () => {
    const model = "simulator?words=100001&tps=100";
    const { id } = await leave({ model, store: false }, (text) => text.includes("output_text.delta"));
    await expectReleased(model);
    await expectError(await gateway.fetch(`${gateway.url}/v1/responses/${id}`), { status: 404 });
  });

  it("that continues another response: the branch is cancelled, its parent is unchanged", async () => {
    const parent = await gateway.openai.responses.create({ model: "simulator", input: "First" });
    const model = "simulator?words=100002&tps=100";
    const request = { model, previous_response_id: parent.id };
    const { id } = await leave(request, (text) => text.includes("output_text.delta"));
    await expectReleased(model);
    expect(await settled(id)).toMatchObject({ status: "cancelled", previous_response_id: parent.id });
    const openai = gateway.openai.responses;
    expect((await openai.create({ model: "simulator", input: "Next", previous_response_id: parent.id })).status).toBe(
      "completed",
    );
    // The cancelled response can be continued, too.
    const next = await openai.create({ model: "simulator?mode=transcript", input: "Go on", previous_response_id: id });
    expect(JSON.parse(next.output_text)).toMatchObject([
      { role: "user", content: "First" },
      { role: "assistant" },
      { role: "user", content: "Hello!" },
      { role: "assistant", content: expect.any(String) },
      { role: "user", content: "Go on" },
    ]);
  });

  it("by stream.abort() of the openai client is noticed", async () => {
    const model = "simulator?words=100003&tps=100";
    const stream = await gateway.openai.responses.create({ model, input: "Hello!", stream: true });
    let id = "";
    for await (const event of stream) {
      if (event.type === "response.created") id = event.response.id;
      if (event.type === "response.output_text.delta") break;
    }
    await expectReleased(model);
    expect((await settled(id)).status).toBe("cancelled");
  });
});

it("a client that disconnects from a JSON request is not noticed locally: the answer is generated and stored", async () => {
  const model = "simulator?words=30&fault=stall:3";
  const before = gateway.storage.ids().length;
  const leaving = new AbortController();
  const left = gateway.fetch(`${gateway.url}/v1/responses`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, input: "Hello!", ...TOKEN_BY_TOKEN }),
    signal: leaving.signal,
  });
  await eventually(() => requestOf(model)?.deltasSent === 3);
  leaving.abort();
  await expect(left).rejects.toThrow();
  requestOf(model)?.release();
  await eventually(() => requestOf(model)?.state === "completed");
  await eventually(() => gateway.storage.ids().length === before + 1);
});

describe("a JSON request, with JSON_HEARTBEATS", () => {
  let patient: Gateway;
  beforeAll(async () => {
    const variables = { VLLM_FOREGROUND_RECOVERY_TIME_MS: "0", JSON_HEARTBEATS: "true" };
    patient = await startGateway({ HEARTBEAT_MS: String(HEARTBEAT_MS), ...variables });
  });
  afterAll(() => patient.close());

  it("whose client disconnects is noticed by a heartbeat, and vLLM stops", async () => {
    const seen = () => patient.vllm.simulator.lastAsked;
    const leaving = new AbortController();
    const left = patient.fetch(`${patient.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "simulator?words=30&fault=stall:3", input: "Hello!", ...TOKEN_BY_TOKEN }),
      signal: leaving.signal,
    });
    await eventually(() => seen()?.deltasSent === 3);
    leaving.abort();
    await expect(left).rejects.toThrow();
    await eventually(() => seen()?.state === "aborted");
  });

  it("whose client waits gets the JSON after the heartbeats, and finds the response by its id", async () => {
    const asked = patient.post({ model: "simulator?words=5&fault=stall:3", input: "Hello!", ...TOKEN_BY_TOKEN });
    const response = await asked;
    // The headers arrive before the answer.
    patient.vllm.simulator.lastAsked?.release();
    const text = await response.text();
    expect(text).toMatch(/^\n+\{/);
    const { id, status } = JSON.parse(text) as ResponseBody;
    expect(status).toBe("completed");
    expect((await patient.openai.responses.retrieve(id)).status).toBe("completed");
  });

  it("is the same as without them if it is refused, or answered before the first one", async () => {
    await expectError(await patient.post({ model: "nobody", input: "Hello!" }), { status: 400, param: "model" });
    const quick = await patient.post({ model: "simulator", input: "Hello!" });
    expect(await quick.text()).toMatch(/^\{/);
  });

  it("that fails after the first one is a failed response, because its status is sent", async () => {
    const asked = await patient.post({ model: "simulator?tps=5&fault=error:3", input: "Hello!", ...TOKEN_BY_TOKEN });
    const { id, status, error } = (await asked.json()) as ResponseBody;
    expect({ status, error }).toMatchObject({ status: "failed", error: { code: "server_error" } });
    expect((await patient.openai.responses.retrieve(id)).status).toBe("failed");
  });
});

it("a client that waits through silence gets the whole answer", async () => {
  const response = await gateway.openai.responses
    .stream({ model: "simulator?ttft=500", input: "Hello!" })
    .finalResponse();
  expect(response.output_text).toBe("You said: Hello!");
});
