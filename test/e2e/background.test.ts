import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { framesOf, generationsOf, idIn, isWhole, replay, resume, typesOf } from "./event-streams.ts";
import { eventually, type Gateway, lastPrompt, startGateway } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ VLLM_RECOVERY_TIME_MS: "3000" });
});
afterAll(() => gateway.close());

const weatherTool = {
  type: "function",
  name: "get_weather",
  parameters: { type: "object", properties: { city: { type: "string" } } },
  strict: false,
} as const;

const unknownId = `resp_${"0".repeat(32)}`;

function begin(body: ResponseCreateParamsNonStreaming): Promise<Response> {
  return gateway.openai.responses.create({ ...body, background: true });
}

const isRunning = ({ status }: Response) => status === "queued" || status === "in_progress";

function settled(id: string, timeoutMs?: number): Promise<Response> {
  return eventually(async () => {
    const response = await gateway.openai.responses.retrieve(id);
    return isRunning(response) ? undefined : response;
  }, timeoutMs);
}

/** Cancels a response. Adds the output text, which openai-node adds only to retrieved responses. */
async function cancel(id: string): Promise<Response> {
  const response = await gateway.openai.responses.cancel(id);
  const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
  const output_text = parts.map((part) => (part.type === "output_text" ? part.text : "")).join("");
  return { ...response, output_text };
}

async function run(body: ResponseCreateParamsNonStreaming): Promise<Response> {
  return settled((await begin(body)).id);
}

/** The generation of a model name that is used once. */
function generation(model: string) {
  const generations = generationsOf(gateway, model);
  if (generations.length !== 1 || !generations[0]) throw new Error(`${model} was asked ${generations.length} times.`);
  return generations[0];
}

/** Gives a test a model name of its own, by a setting without effect. */
let names = 0;
const own = (model: string) => `${model}${model.includes("?") ? "&" : "?"}max_model_len=${100_000 + names++}`;

/** Begins a run, and waits for its first output. */
async function beginTalking(model: string, body: Partial<ResponseCreateParamsNonStreaming> = {}): Promise<Response> {
  const response = await begin({ model, input: "Go on.", ...body });
  await eventually(() => (generationsOf(gateway, model).at(-1)?.deltasSent ?? 0) > 3);
  return response;
}

describe("a background response with store: false", () => {
  it("is read, streamed again and cancelled as any other, and says that it is not stored", async () => {
    const response = await run({ model: "simulator", input: "Hello!", store: false });
    expect(response).toMatchObject({ status: "completed", output_text: "You said: Hello!", store: false });
    expect(isWhole(await replay(gateway, response.id))).toBe(true);
    const running = await beginTalking(own("simulator?fault=stall:6"), { store: false });
    expect(await gateway.openai.responses.retrieve(running.id)).toMatchObject({ status: "in_progress", store: false });
    expect(await cancel(running.id)).toMatchObject({ status: "cancelled", store: false });
  });

  it("cannot be continued, which the 400 says", async () => {
    const { id } = await run({ model: "simulator", input: "Hello!", store: false });
    for (const background of [false, true]) {
      const next = gateway.openai.responses.create({
        ...{ model: "simulator", input: "And then?", previous_response_id: id, background },
      });
      await expect(next).rejects.toMatchObject({
        status: 400,
        code: "previous_response_not_found",
        param: "previous_response_id",
        message: expect.stringContaining("because it was created with 'store: false'"),
      });
    }
  });

  it("continues a stored response, which stays as it was", async () => {
    const first = await run({ model: "simulator", input: "Hello!" });
    const next = await run({ model: "simulator", input: "Again.", previous_response_id: first.id, store: false });
    expect(next.output_text).toBe("You said: Again.");
    await gateway.openai.responses.delete(next.id);
    const other = await run({ model: "simulator", input: "Further.", previous_response_id: first.id });
    expect(other.output_text).toBe("You said: Further.");
  });
});

describe("a later completion window", () => {
  it.each([
    ["without background", { background: false }, "needs 'background: true'"],
    ["with a stream", { background: true, stream: true }, "needs 'stream: false'"],
    ["with another service tier", { background: true, service_tier: "priority" }, "needs the service tier 'default'"],
  ])("is refused %s, with its name", async (_, fields, needs) => {
    for (const completion_window of ["2h", "8h"]) {
      const answer = await gateway.post({
        ...{ model: "simulator", input: "Hello!", background_options: { completion_window }, ...fields },
      });
      expect(answer.status).toBe(400);
      expect(await answer.json()).toMatchObject({
        error: {
          param: "background_options.completion_window",
          message: `The completion window '${completion_window}' ${needs}.`,
        },
      });
    }
  });

  it("lets what others wait for go first: 2h waits for foreground turns, 8h also for other runs", async () => {
    const [turns, runs, [two, eight]] = [own("simulator?fault=stall:4"), own("simulator?fault=stall:4"), ["2h", "8h"]];
    const words = "one two three four five six seven eight";
    const foreground = await gateway.openai.responses.create({ model: turns, input: words, stream: true });
    await eventually(() => generationsOf(gateway, turns)[0]?.deltasSent === 4);
    const other = await begin({ model: runs, input: words });
    await eventually(() => generationsOf(gateway, runs)[0]?.deltasSent === 4);
    const later = (completion_window: string, model: string) =>
      begin({ model, input: "Hello!", background_options: { completion_window } } as ResponseCreateParamsNonStreaming);
    const models = [own("simulator"), own("simulator"), own("simulator")] as const;
    const [last, cancelled, first] = [
      ...[await later(eight, models[0]), await later(eight, models[1])],
      await later(two, models[2]),
    ];
    expect(await cancel(cancelled?.id ?? "")).toMatchObject({ status: "cancelled" });
    expect(await gateway.openai.responses.retrieve(first?.id ?? "")).toMatchObject({ status: "in_progress" });
    generationsOf(gateway, turns)[0]?.release();
    expect((await Array.fromAsync(foreground)).at(-1)?.type).toBe("response.completed");
    expect((await settled(first?.id ?? "")).output_text).toBe("You said: Hello!");
    expect(generationsOf(gateway, models[0])).toHaveLength(0);
    generation(runs).release();
    await settled(other.id);
    expect((await settled(last?.id ?? "")).output_text).toBe("You said: Hello!");
    expect(generationsOf(gateway, models[1])).toHaveLength(0);
  });
});

describe("a background response", () => {
  it("is queued at once, however long the model takes", async () => {
    const model = own("simulator?fault=stall_headers");
    const response = await begin({ model, input: "Hello!", metadata: { topic: "greeting" } });
    expect(response).toMatchObject({
      id: expect.stringMatching(/^resp_/),
      status: "queued",
      background: true,
      output: [],
      usage: null,
      error: null,
      completed_at: null,
      metadata: { topic: "greeting" },
    });
    await cancel(response.id);
  });

  it("streams that it is queued and in progress before the model's first token", async () => {
    const model = own("simulator?fault=stall_headers");
    const stream = await gateway.openai.responses.create({ model, input: "Hello!", background: true, stream: true });
    const seen: [string, string | undefined][] = [];
    for await (const event of stream) {
      if (!("response" in event)) throw new Error(event.type);
      seen.push([event.type, event.response.status]);
      if (event.type !== "response.in_progress") continue;
      await cancel(event.response.id);
    }
    expect(seen).toEqual([
      ["response.created", "queued"],
      ["response.queued", "queued"],
      ["response.in_progress", "in_progress"],
      ["response.incomplete", "cancelled"],
    ]);
  });

  it("is in progress without output, until it is completed with the whole output", async () => {
    const model = own("simulator?fault=stall:4");
    const { id } = await begin({ model, input: "one two three four five six seven eight" });
    await eventually(() => generationsOf(gateway, model)[0]?.deltasSent === 4);
    for (const response of [await gateway.openai.responses.retrieve(id), await gateway.openai.responses.retrieve(id)]) {
      expect(response).toMatchObject({ id, status: "in_progress", output: [], usage: null, completed_at: null });
    }
    generation(model).release();
    const done = await settled(id);
    expect(done.output_text).toBe("You said: one two three four five six seven eight");
    expect(done.completed_at).toBeGreaterThanOrEqual(done.created_at);
    expect(done.usage?.output_tokens).toBe(12);
  });

  it("with a stream has a message's events from beginning to end, and is the same for GET", async () => {
    const answer = await gateway.post({ model: "simulator", input: "Hello!", background: true, stream: true });
    const text = await answer.text();
    expect(answer.headers.get("content-type")).toMatch(/^text\/event-stream/);
    expect(typesOf(text)).toEqual([
      "response.created",
      "response.queued",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
    expect(isWhole(text)).toBe(true);
    const last = framesOf(text).at(-2) ?? "";
    const { response } = JSON.parse(last.slice(last.indexOf("{"))) as { response: Response };
    const { output_text: _, ...stored } = await gateway.openai.responses.retrieve(response.id);
    expect(stored).toEqual(response);
  });

  it("is the same as in the foreground except its id and times", async () => {
    const body = { model: "simulator-reasoning", input: "Call get_weather.", tools: [weatherTool] };
    const foreground = await gateway.openai.responses.create(body);
    const background = await run(body);
    const essence = ({ id: _, created_at, completed_at, output, ...rest }: Response) => ({
      ...rest,
      usage: { ...rest.usage, input_tokens_details: {} },
      output: output.map((item) => ({ ...item, id: "", call_id: "" })),
    });
    expect(essence(background)).toEqual({ ...essence(foreground), background: true });
  });

  it("is incomplete at max_output_tokens", async () => {
    const response = await run({ model: "simulator", input: "Hello!", max_output_tokens: 2 });
    expect(response).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      completed_at: null,
      output: [{ type: "message", status: "incomplete", content: [{ text: "You said" }] }],
      usage: { output_tokens: 2 },
    });
  });

  it.each([
    ["the model server fails", "simulator?fault=http:500", "server_error"],
    ["the model server refuses", "simulator?fault=http:400", "invalid_prompt"],
    ["there is no such model", "no-such-model", "invalid_prompt"],
    ["the model server sends an error after some text", "simulator?fault=error:3", "server_error"],
    ["the model server sends nonsense after some text", "simulator?fault=garbage:3", "server_error"],
  ])("fails when %s, and says why", async (_, model, code) => {
    const response = await run({ model, input: "Hello!" });
    expect(response).toMatchObject({ status: "failed", error: { code, message: expect.any(String) } });
    expect(response.completed_at).toBeNull();
    const text = await replay(gateway, response.id);
    expect(typesOf(text).slice(-2)).toEqual(["error", "response.failed"]);
    expect(isWhole(text)).toBe(true);
  });

  it("that fails keeps the text so far", async () => {
    const response = await run({ model: "simulator?fault=error:3&tps=100", input: "Hello!" });
    expect(response.output).toMatchObject([
      { type: "message", status: "incomplete", content: [{ text: "You said:" }] },
    ]);
  });

  it("calls functions, and accepts their outputs", async () => {
    const first = await run({ model: "simulator", input: "Call get_weather.", tools: [weatherTool] });
    expect(first.status).toBe("completed");
    const [call] = first.output;
    if (call?.type !== "function_call") throw new Error("No call.");
    expect(call).toMatchObject({ name: "get_weather", arguments: '{"city":"city"}', status: "completed" });
    const second = await run({
      model: "simulator",
      previous_response_id: first.id,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
      tools: [weatherTool],
    });
    expect(second.output_text).toBe("The tool get_weather returned: sunny");
  });

  it("is refused when its input does not fit its history", async () => {
    const input = [{ type: "function_call_output" as const, call_id: "call_of_nobody", output: "sunny" }];
    await expect(begin({ model: "simulator", input })).rejects.toMatchObject({ status: 400 });
  });
});

describe.concurrent("a background response whose model server is in trouble", () => {
  it.each(["fault=refuse", "fault=http:503", "fault=cut:0"])(
    "tries again when the model server fails at first (%s)",
    async (fault) => {
      const model = own(`simulator?${fault}&fault_times=1`);
      const response = await run({ model, input: "Hello!" });
      expect(response.status).toBe("completed");
      expect(response.output_text).toBe("You said: Hello!");
      expect(generationsOf(gateway, model)).toHaveLength(2);
      expect(typesOf(await replay(gateway, response.id)).filter((type) => type === "response.created")).toHaveLength(1);
    },
  );

  it("fails in bounded time when the model server never answers", async () => {
    const model = own("simulator?fault=refuse");
    const { id } = await begin({ model, input: "Hello!" });
    const response = await settled(id, 10_000);
    expect(response).toMatchObject({ status: "failed", error: { message: "The model server could not be reached." } });
    expect(generationsOf(gateway, model).length).toBeGreaterThan(2);
  });

  it("ends at once when it is cancelled between two attempts", async () => {
    const model = own("simulator?fault=http:503");
    const { id } = await begin({ model, input: "Hello!" });
    await eventually(() => generationsOf(gateway, model).length >= 2);
    expect((await cancel(id)).status).toBe("cancelled");
    const later = own("simulator?fault=http:503");
    const other = await begin({ model: later, input: "Hello!" });
    await eventually(() => generationsOf(gateway, later).length > 0);
    const asked = generationsOf(gateway, model).length;
    // The other run tries for as long as a run may.
    expect((await settled(other.id)).status).toBe("failed");
    expect(generationsOf(gateway, model)).toHaveLength(asked);
  });
});

describe("a background response without a client", () => {
  it("runs on when its client has left the stream", async () => {
    const model = own("simulator?tps=100&words=40");
    const stream = await gateway.openai.responses.create({ model, input: "Go on.", background: true, stream: true });
    let id = "";
    for await (const event of stream) {
      if (event.type === "response.created") id = event.response.id;
      if (event.type === "response.output_text.delta") break;
    }
    const response = await settled(id);
    expect(response.status).toBe("completed");
    expect(response.usage?.output_tokens).toBe(41);
    expect(generation(model).state).toBe("completed");
  });

  it("runs on without any request", async () => {
    const model = own("simulator?tps=200&words=40");
    const { id } = await begin({ model, input: "Go on." });
    await eventually(() => generationsOf(gateway, model).at(0)?.state === "completed");
    expect((await settled(id)).usage?.output_tokens).toBe(41);
  });

  it("runs beside others of its conversation tree", async () => {
    const root = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    const inputs = Array.from({ length: 8 }, (_, index) => `Branch ${index}`);
    const begun = await Promise.all(
      inputs.map((input) => begin({ model: "simulator?tps=100", previous_response_id: root.id, input })),
    );
    const done = await Promise.all(begun.map(({ id }) => settled(id)));
    expect(done.map((response) => response.output_text)).toEqual(inputs.map((input) => `You said: ${input}`));
  });
});

describe("the history of a background response", () => {
  const said = (text: string) => ({ role: "assistant", content: text });
  const asked = (text: string) => ({ role: "user", content: text });

  it("is that of the response that it continues, in whichever order the two run in the background", async () => {
    const ways = {
      background: run,
      foreground: (body: ResponseCreateParamsNonStreaming) => gateway.openai.responses.create(body),
    };
    for (const first of ["background", "foreground"] as const) {
      for (const second of ["background", "foreground"] as const) {
        const { id } = await ways[first]({ model: "simulator", input: "I am Ann." });
        const next = await ways[second]({ model: "simulator", previous_response_id: id, input: "Who am I?" });
        expect(next.previous_response_id).toBe(id);
        expect(lastPrompt(gateway).messages).toEqual([
          asked("I am Ann."),
          said("You said: I am Ann."),
          asked("Who am I?"),
        ]);
      }
    }
  });

  it("must exist when it begins", async () => {
    const body = { model: "simulator", previous_response_id: unknownId, input: "Who am I?" };
    await expect(begin(body)).rejects.toMatchObject({
      status: 400,
      code: "previous_response_not_found",
      param: "previous_response_id",
    });
  });

  it("cannot be that of a running response", async () => {
    const { id } = await beginTalking(own("simulator?tps=50&words=1000"));
    const body = { model: "simulator", previous_response_id: id, input: "And then?" };
    const code = "previous_response_not_found";
    const message = expect.stringContaining(`Previous response with id '${id}' is still in progress.`);
    await expect(gateway.openai.responses.create(body)).rejects.toMatchObject({ status: 400, code, message });
    await expect(begin(body)).rejects.toMatchObject({ status: 400, code, message });
    await cancel(id);
  });

  it("cannot be that of a stream that is still in progress, which the 400 says", async () => {
    const { responses } = gateway.openai;
    const fields = { model: own("simulator?tps=50&words=1000"), input: "Go on.", stream: true } as const;
    for (const store of [true, false]) {
      const stream = await responses.create({ ...fields, store });
      for await (const event of stream) {
        if (event.type !== "response.created") continue;
        const body = { model: "simulator", previous_response_id: event.response.id, input: "And then?" };
        const code = "previous_response_not_found";
        const message = expect.stringContaining(store ? "' is still in progress." : "' not found.");
        const refused = { status: 400, code, param: "previous_response_id", message };
        await expect(responses.create(body)).rejects.toMatchObject(refused);
        await expect(begin(body)).rejects.toMatchObject(refused);
        await expect(responses.inputTokens.count(body)).rejects.toMatchObject(refused);
        await expect(responses.compact(body)).rejects.toMatchObject(refused);
        break;
      }
    }
  });

  it("may be that of a cancelled response, with its partial output", async () => {
    const { id } = await beginTalking(own("simulator?tps=50&words=1000"));
    const { output_text } = await cancel(id);
    const next = await gateway.openai.responses.create({ model: "simulator", previous_response_id: id, input: "Why?" });
    expect(next.output_text).toBe("You said: Why?");
    expect(lastPrompt(gateway).messages).toEqual([asked("Go on."), said(output_text), asked("Why?")]);
  });

  const input = "Call get_weather and get_time.";
  const functions = ["get_weather", "get_time"].map((name) => ({ ...weatherTool, name, strict: true }));
  /** Parts of an answer that was cut off: the model, the deltas or tokens until then, and the types of the output's items. */
  const parts = {
    nothing: { base: "simulator", deltas: 0, body: {}, types: [] },
    "a text": { base: "simulator", deltas: 3, body: {}, types: ["message"] },
    "a thought": { base: "simulator-reasoning", deltas: 3, body: {}, types: ["reasoning"] },
    "a call": { base: "simulator", deltas: 3, body: { tools: functions }, types: ["function_call"] },
    "two calls": {
      base: "simulator",
      deltas: 9,
      body: { tools: functions },
      types: ["function_call", "function_call"],
    },
    "a thought and a call": {
      base: "simulator-reasoning",
      deltas: 20,
      body: { tools: functions },
      types: ["reasoning", "function_call"],
    },
  };
  const endings = {
    "was cancelled": async (base: string, deltas: number, body: object) => {
      const model = own(`${base}?fault=stall:${deltas}`);
      const { id } = await begin({ model, input, ...body });
      await eventually(() => (generationsOf(gateway, model)[0]?.deltasSent ?? -1) >= deltas);
      return cancel(id);
    },
    failed: (base: string, deltas: number, body: object) =>
      run({ model: own(`${base}?fault=error:${deltas}`), input, ...body }),
  };

  it.each(
    Object.keys(parts).flatMap((part) => Object.keys(endings).map((ending) => [part, ending])) as [
      keyof typeof parts,
      keyof typeof endings,
    ][],
  )("has of %s of a response that %s no more than its text", async (part, ending) => {
    const { base, deltas, body, types } = parts[part];
    const { id, status, output } = await endings[ending](base, deltas, body);
    expect(status).toBe(ending === "failed" ? "failed" : "cancelled");
    // A cancellation may come before the last deltas.
    expect(types.slice(0, ending === "failed" ? undefined : output.length)).toEqual(output.map(({ type }) => type));
    const texts = output.flatMap((item) => (item.type === "message" ? item.content : []));
    const history = [asked(input), ...texts.map((text) => said("text" in text ? text.text : ""))];
    const next = await gateway.openai.responses.create({ model: "simulator", previous_response_id: id, input: "Why?" });
    expect(lastPrompt(gateway).messages).toEqual([...history, asked("Why?")]);
    await run({ model: "simulator", previous_response_id: next.id, input: "Really?" });
    const later = [...history, asked("Why?"), said("You said: Why?"), asked("Really?")];
    expect(lastPrompt(gateway).messages).toEqual(later);
  });

  it.each([
    ["simulator", {}, [said("You said:")]],
    ["simulator-reasoning", {}, []],
    ["simulator", { tools: functions }, []],
  ] as const)("has no more of an incomplete response of %s with %j", async (model, body, kept) => {
    const cut = { model, input, max_output_tokens: 3, ...body };
    const { id, status } = await run({ ...cut, tools: "tools" in body ? [...body.tools] : [] });
    expect(status).toBe("incomplete");
    await run({ model: "simulator", previous_response_id: id, input: "Why?" });
    expect(lastPrompt(gateway).messages).toEqual([asked(input), ...kept, asked("Why?")]);
  });

  it("has the calls of a cut off response that the client answers", async () => {
    const { id, output } = await endings["was cancelled"]("simulator", 9, { tools: functions });
    const answers = output.map((item) => ({
      type: "function_call_output" as const,
      call_id: item.type === "function_call" ? item.call_id : "",
      output: "sunny",
    }));
    await gateway.openai.responses.create({ model: "simulator", previous_response_id: id, input: answers.slice(0, 1) });
    expect(lastPrompt(gateway).messages).toMatchObject([
      asked(input),
      { role: "assistant", tool_calls: [{ id: answers[0]?.call_id }] },
      { role: "tool", tool_call_id: answers[0]?.call_id, content: "sunny" },
    ]);
  });
});

describe("the metadata of a background response", () => {
  it("can be changed once it has ended", async () => {
    const { id } = await beginTalking(own("simulator?tps=50&words=1000"), { metadata: { title: "Old" } });
    const change = (): Promise<Response> => gateway.openai.post(`/responses/${id}`, { body: { metadata: { a: "b" } } });
    await expect(change()).rejects.toMatchObject({ status: 409, code: "response_in_progress" });
    expect((await gateway.openai.responses.retrieve(id)).metadata).toEqual({ title: "Old" });
    const { metadata: _, output_text: text, ...cancelled } = await cancel(id);
    expect(await change()).toMatchObject({ ...cancelled, metadata: { a: "b" } });
    expect(await settled(id)).toMatchObject({ status: "cancelled", metadata: { a: "b" }, output_text: text });
  });
});

describe("the input items of a background response", () => {
  it("can be listed while it runs, and are the same afterwards", async () => {
    const input = [
      { role: "user", content: "one" },
      { role: "assistant", content: "two" },
      { role: "user", content: "three" },
    ] as const;
    const model = own("simulator?words=40&fault=stall:5");
    const { id } = await beginTalking(model, { input: [...input] });
    const pages = async () => {
      const all = await Array.fromAsync(gateway.openai.responses.inputItems.list(id, { order: "asc", limit: 2 }));
      const newest = await gateway.openai.responses.inputItems.list(id, { limit: 1 });
      return { all, newest: newest.data, more: newest.has_more };
    };
    const early = await pages();
    expect(isRunning(await gateway.openai.responses.retrieve(id))).toBe(true);
    expect(early.all).toHaveLength(3);
    expect(early.newest).toEqual(early.all.slice(2));
    expect(early.more).toBe(true);
    generationsOf(gateway, model)[0]?.release();
    await settled(id);
    expect(await pages()).toEqual(early);
  });
});

describe("deleting a background response", () => {
  it("that runs stops the model, and leaves nothing", async () => {
    const model = own("simulator?tps=50&words=1000");
    const { id } = await beginTalking(model);
    // This bypasses the checks, which do not know that it ends the stream.
    const reading = await fetch(`${gateway.url}/v1/responses/${id}?stream=true`);
    const reader = reading.body?.getReader();
    await reader?.read();
    // These readers have all events so far.
    const waiting = Array.from({ length: 5 }, () =>
      fetch(`${gateway.url}/v1/responses/${id}?stream=true&starting_after=100000`),
    );
    expect(
      await gateway.fetch(`${gateway.url}/v1/responses/${id}`, { method: "DELETE" }).then((a) => a.json()),
    ).toEqual({
      id,
      object: "response.deleted",
      deleted: true,
    });
    await eventually(() => generation(model).state === "aborted");
    let rest = "";
    for (;;) {
      const part = await reader?.read();
      if (part?.value) rest += new TextDecoder().decode(part.value);
      if (part?.done !== false) break;
    }
    expect(rest).toMatch(/data: \[DONE\]\n\n$/);
    for (const answer of await Promise.all(waiting)) {
      const text = await answer.text();
      if (answer.status === 200) expect(text).toMatch(/data: \[DONE\]\n\n$/);
      else expect(answer.status).toBe(404);
    }
    for (const path of ["", "?stream=true", "/input_items"]) {
      const answer = await gateway.fetch(`${gateway.url}/v1/responses/${id}${path}`);
      expect([path, answer.status]).toEqual([path, 404]);
    }
    await expect(cancel(id)).rejects.toMatchObject({ status: 404 });
  });

  it("that is being read ends the readers' streams, or is a 404 for them", async () => {
    for (let round = 0; round < 5; round += 1) {
      const { id } = await begin({ model: "simulator?tps=50&words=1000", input: "Hello!" });
      const url = `${gateway.url}/v1/responses/${id}`;
      const read = (query: string) => [fetch(url + query), fetch(url + query)];
      const readers = [...read("?stream=true"), ...read("?stream=true&starting_after=5")];
      const deleted = gateway.fetch(url, { method: "DELETE" });
      readers.push(...read("?stream=true"), ...read("?stream=true&starting_after=5"));
      expect((await deleted).status).toBe(200);
      for (const answer of await Promise.all(readers)) {
        const text = await answer.text();
        if (answer.status !== 404) expect([answer.status, text.slice(-14)]).toEqual([200, "data: [DONE]\n\n"]);
      }
    }
  });

  it("that has ended removes its events, too", async () => {
    const first = await run({ model: "simulator", input: "Hello!" });
    const second = await run({ model: "simulator", previous_response_id: first.id, input: "And now?" });
    await gateway.openai.responses.delete(second.id);
    expect((await resume(gateway, second.id)).status).toBe(404);
    expect(isWhole(await replay(gateway, first.id))).toBe(true);
    await gateway.openai.responses.delete(first.id);
    expect((await resume(gateway, first.id)).status).toBe(404);
  });
});

describe("cancelling", () => {
  it("aborts the model's request at once, and keeps the partial output", async () => {
    const model = own("simulator?tps=50&words=1000");
    const { id } = await beginTalking(model);
    const cancelled = await cancel(id);
    await eventually(() => generation(model).state === "aborted");
    expect(cancelled).toMatchObject({
      id,
      status: "cancelled",
      completed_at: null,
      error: null,
      incomplete_details: null,
    });
    expect(cancelled.output).toMatchObject([{ type: "message", status: "incomplete" }]);
    expect(cancelled.output_text).toMatch(/^the( quick|$)/);
    expect(await gateway.openai.responses.retrieve(id)).toEqual(cancelled);
  });

  it("again changes nothing, and the response never becomes completed", async () => {
    const model = own("simulator?tps=50&words=1000");
    const { id } = await beginTalking(model);
    const cancelled = await cancel(id);
    expect(cancelled.status).toBe("cancelled");
    expect(await cancel(id)).toEqual(cancelled);
    await eventually(() => generation(model).state === "aborted");
    expect(await gateway.openai.responses.retrieve(id)).toEqual(cancelled);
  });

  it("by many at the same time gives all of them the same response", async () => {
    const { id } = await beginTalking(own("simulator?tps=50&words=1000"));
    const answers = await Promise.all(Array.from({ length: 5 }, () => cancel(id)));
    for (const answer of answers) expect(answer).toEqual(answers[0]);
    expect(answers[0]?.status).toBe("cancelled");
  });

  it.each(["completed", "incomplete", "failed"])("a %s response does not change it", async (status) => {
    const response = await run({
      model: status === "failed" ? "simulator?fault=http:500" : "simulator",
      input: "Hello!",
      ...(status === "incomplete" && { max_output_tokens: 2 }),
    });
    expect(response.status).toBe(status);
    expect(await cancel(response.id)).toEqual(response);
    expect(await gateway.openai.responses.retrieve(response.id)).toEqual(response);
  });

  it("before the model's answer keeps no output", async () => {
    const model = own("simulator?fault=stall_headers");
    const { id } = await begin({ model, input: "Hello!" });
    await eventually(() => generationsOf(gateway, model).length === 1);
    expect(await cancel(id)).toMatchObject({ status: "cancelled", output: [] });
    await eventually(() => generation(model).state === "aborted");
  });

  it("in the middle of reasoning or a call keeps the partial item", async () => {
    const thinking = await beginTalking(own("simulator-reasoning?tps=20"));
    expect((await cancel(thinking.id)).output).toMatchObject([
      { type: "reasoning", status: "incomplete", content: [{ text: expect.stringMatching(/^The user said/) }] },
    ]);
    // Other calls are shown only when they are complete.
    const body = { input: "Call get_weather.", tools: [{ ...weatherTool, strict: true }] };
    const calling = await beginTalking(own("simulator?tps=20"), body);
    const { output } = await cancel(calling.id);
    expect(output).toMatchObject([{ type: "function_call", status: "incomplete", name: "get_weather" }]);
  });

  it("ends the streams of all readers with the cancelled response", async () => {
    const body = { model: own("simulator?tps=50&words=1000"), input: "Go on.", background: true, stream: true };
    const creator = await gateway.post(body);
    const reader = creator.body?.getReader();
    let first = "";
    while (!first.includes("output_text.delta")) first += new TextDecoder().decode((await reader?.read())?.value);
    const id = idIn(first);
    const others = [replay(gateway, id), replay(gateway, id, "&starting_after=2")];
    const cancelled = await cancel(id);
    const { output_text: _, ...snapshot } = cancelled;
    for (const text of await Promise.all(others)) {
      expect(isWhole(text)).toBe(true);
      expect(typesOf(text).at(-1)).toBe("response.incomplete");
      const last = framesOf(text).at(-2) ?? "";
      expect((JSON.parse(last.slice(last.indexOf("{"))) as { response: Response }).response).toEqual(snapshot);
    }
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true };
      if (done) break;
      first += new TextDecoder().decode(value);
    }
    expect(isWhole(first)).toBe(true);
  });

  it("a foreground response is refused", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    await expect(cancel(id)).rejects.toMatchObject({
      status: 400,
      type: "invalid_request_error",
      message: expect.stringContaining("Cannot cancel a synchronous response."),
    });
  });

  it.each([unknownId, "resp_unknown", "msg_1"])("%s gives a 404", async (id) => {
    await expect(cancel(id)).rejects.toMatchObject({ status: 404 });
  });
});
