import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type {
  Response,
  ResponseCreateParamsNonStreaming,
  ResponseOutputItem,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { generationsOf, isWhole, replay, typesOf } from "./event-streams.ts";
import { eventually, type Gateway, joinGateway, startGateway, TOKEN_BY_TOKEN } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const weatherTool = { type: "function", name: "get_weather", parameters: null, strict: false } as const;

type Way = "json" | "stream" | "background";
const WAYS: Way[] = ["json", "stream", "background"];

/** The response to a request, by each kind of answer. Only JSON throws if the response failed. */
async function create(way: Way, body: ResponseCreateParamsNonStreaming, through = gateway): Promise<Response> {
  const { responses } = through.openai;
  if (way === "json") return responses.create({ ...body, ...TOKEN_BY_TOKEN });
  if (way === "background") {
    const { id } = await responses.create({ ...body, background: true });
    return eventually(async () => {
      const response = await responses.retrieve(id);
      return response.status === "queued" || response.status === "in_progress" ? undefined : response;
    });
  }
  for await (const event of await responses.create({ ...body, stream: true })) {
    if (event.type !== "response.completed" && event.type !== "response.incomplete") continue;
    return { ...event.response, output_text: textOf(event.response.output) };
  }
  throw new Error("The response failed.");
}

/** Gives the events of a stream that fails. */
async function failingStream(body: ResponseCreateParamsNonStreaming): Promise<string> {
  return (await gateway.post({ ...body, stream: true })).text();
}

function textOf(output: ResponseOutputItem[]): string {
  const parts = output.flatMap((item) => (item.type === "message" ? item.content : []));
  return parts.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}

/**
 * The parts of a response that must be the same whether its model server died or not. Cached tokens may differ: the
 * prompt was sent before.
 */
function essence({ output, usage, status, incomplete_details, error }: Response) {
  const counted = usage && { ...usage, input_tokens_details: {} };
  return { output: output.map((item) => ({ ...item, id: "" })), usage: counted, status, incomplete_details, error };
}

/** A model name that is used once: `fault_times` counts by name. */
let names = 0;
const own = (model: string) => `${model}${model.includes("?") ? "&" : "?"}max_model_len=${100_000 + names++}`;

/** A model that is cut off after `after` tokens, `times` times. */
const broken = (after: number, times = 1) => own(`simulator?fault=cut:${after}&fault_times=${times}`);

describe.concurrent.each(WAYS)("a response whose model server dies in the middle of its text, as %s", (way) => {
  it("has the same text, usage and items as an uninterrupted one, wherever it was cut", async () => {
    // White space of all kinds, which a chat template would trim at the end of a message.
    const body = { input: "one two\n\n three   four\n - Grüße,  你好 👩‍👩‍👧\nend" };
    const whole = await create(way, { ...body, model: "simulator" });
    const tokens = whole.usage?.output_tokens ?? 0;
    expect(tokens).toBe(21);
    const cuts = Array.from({ length: tokens }, (_, index) => index + 1);
    const responses = await Promise.all(cuts.map((after) => create(way, { ...body, model: broken(after) })));
    for (const [index, response] of responses.entries()) {
      expect([cuts[index], essence(response)]).toEqual([cuts[index], essence(whole)]);
      expect(response.output).toHaveLength(1);
    }
  });

  it("is requested again, with its output as the beginning of the answer", async () => {
    const model = broken(4);
    await create(way, { model, input: "one two three four" });
    const [first, second, ...others] = generationsOf(gateway, model);
    expect(others).toEqual([]);
    expect(first?.body).not.toHaveProperty("continue_final_message");
    expect(second?.body).toMatchObject({
      continue_final_message: true,
      add_generation_prompt: false,
      messages: [
        { role: "user", content: "one two three four" },
        { role: "assistant", content: "You said: one" },
      ],
    });
  });

  it("survives several deaths", async () => {
    const input = "a b c d e f g h i j k l m n o p q r s t";
    const whole = await create(way, { model: "simulator", input });
    const model = broken(4, 5);
    expect(essence(await create(way, { model, input }))).toEqual(essence(whole));
    expect(generationsOf(gateway, model)).toHaveLength(6);
  });

  it("survives a connection that ends cleanly, but too early", async () => {
    const response = await create(way, { model: own("simulator?fault=end:3&fault_times=1"), input: "one two three" });
    expect(response.output_text).toBe("You said: one two three");
  });

  it("survives a death after the reasoning, which stays in the usage", async () => {
    const whole = await create(way, { model: "simulator-reasoning", input: "one two three four" });
    const reasoning = whole.usage?.output_tokens_details.reasoning_tokens ?? 0;
    const model = own(`simulator-reasoning?fault=cut:${reasoning + 3}&fault_times=1`);
    const response = await create(way, { model, input: "one two three four" });
    expect(essence(response)).toEqual({ ...essence(whole), usage: expect.anything() });
    expect(response.usage?.output_tokens_details).toEqual(whole.usage?.output_tokens_details);
    expect(response.usage?.input_tokens).toBe(whole.usage?.input_tokens);
    // The template's marks around the reasoning count as generated: "<think>" and "</think>", eight tokens here.
    const markup = (response.usage?.output_tokens ?? 0) - (whole.usage?.output_tokens ?? 0);
    expect(markup).toBeGreaterThanOrEqual(0);
    expect(markup).toBeLessThanOrEqual(8);
    expect(generationsOf(gateway, model)).toHaveLength(2);
  });

  it("keeps the logprobs of every token once", async () => {
    const include = ["message.output_text.logprobs" as const];
    const body = { input: "one two\n\n three   four", include, top_logprobs: 1 };
    const whole = await create(way, { ...body, model: "simulator" });
    const cuts = [3, 6, 7, 8, 10, 11];
    const responses = await Promise.all(cuts.map((after) => create(way, { ...body, model: broken(after) })));
    for (const response of responses) expect(essence(response)).toEqual(essence(whole));
  });

  it("obeys max_output_tokens", async () => {
    const body = { input: "one two three four five", max_output_tokens: 6 };
    const whole = await create(way, { ...body, model: "simulator" });
    expect(whole).toMatchObject({ status: "incomplete", output_text: "You said: one two three" });
    const models = [broken(1), broken(3), broken(5), broken(6), broken(2, 2)];
    const responses = await Promise.all(models.map((model) => create(way, { ...body, model })));
    for (const response of responses) expect(essence(response)).toEqual(essence(whole));
  });

  it("may call a function after its text", async () => {
    // The simulator outputs either a text or a call. In any case the tools must be in the prompt again.
    const model = broken(3);
    const body = { model, input: "one two three", tools: [weatherTool] };
    expect((await create(way, body)).output_text).toBe("You said: one two three");
    expect(generationsOf(gateway, model)[1]?.body).toMatchObject({ tools: [{ function: { name: "get_weather" } }] });
  });
});

describe.concurrent("the stream of a response whose model server dies", () => {
  it.each([false, true])("continues without a gap (background: %s)", async (background) => {
    const body = { model: broken(2, 3), input: "one two three four five six seven", background, stream: true };
    const text = await (await gateway.post(body)).text();
    expect(isWhole(text)).toBe(true);
    expect(typesOf(text)).toEqual([
      "response.created",
      ...(background ? ["response.queued"] : []),
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
    // The checks cover numbers, ids and texts.
  });
});

it("begins a call again that no client has seen yet", async () => {
  const model = own("simulator?fault=cut:2&fault_times=1");
  const response = await create("background", { model, input: "Call get_weather.", tools: [weatherTool] });
  expect(response.output).toMatchObject([{ type: "function_call", name: "get_weather", status: "completed" }]);
  expect(generationsOf(gateway, model)).toHaveLength(2);
});

describe.concurrent("an answer that no client streams", () => {
  const input = Array.from({ length: 80 }, (_, index) => `word${index}`).join(" ");

  it("arrives with 16 tokens an event, and loses none of them wherever it is cut", async () => {
    const whole = await create("stream", { model: "simulator", input });
    for (const after of [1, 2, 3, 4]) {
      const model = broken(after);
      const response = await gateway.openai.responses.create({ model, input });
      expect([after, essence(response)]).toEqual([after, essence(whole)]);
      const [first, second] = generationsOf(gateway, model);
      expect(first?.body).toMatchObject({ stream: true, stream_interval: 16 });
      expect(first?.deltasSent).toBe(after);
      expect(second?.body).toMatchObject({ continue_final_message: true, stream_interval: 16 });
    }
  });

  it("arrives as its client requests; token by token if it streams, or calls must be parsed", async () => {
    const intervals = async (body: object) => {
      const model = own("simulator");
      await (await gateway.post({ model, input, ...body })).text();
      return generationsOf(gateway, model).map((asked) => (asked.body as Record<string, unknown>).stream_interval);
    };
    expect(await intervals({})).toEqual([16]);
    expect(await intervals({ stream_interval: 4 })).toEqual([4]);
    expect(await intervals({ stream: true })).toEqual([undefined]);
    expect(await intervals({ background: true, stream: true })).toEqual([undefined]);
    expect(await intervals({ tools: [weatherTool] })).toEqual([undefined]);
  });

  it("that breaks off in the reasoning counts about as many tokens as were lost", async () => {
    const question = { input: "the cat is in the old box ".repeat(15).trim() };
    const whole = await create("stream", { model: "simulator-reasoning", ...question });
    const model = own("simulator-reasoning?fault=cut:4&fault_times=1");
    const { usage, output_text } = await gateway.openai.responses.create({ model, ...question });
    expect(output_text).toBe(textOf(whole.output));
    const inVain =
      (usage?.output_tokens_details.reasoning_tokens ?? 0) - (whole.usage?.output_tokens_details.reasoning_tokens ?? 0);
    // 49 tokens: the first one, and three times sixteen.
    expect(inVain).toBeGreaterThan(49 / 2);
    expect(inVain).toBeLessThan(49 * 2);
  });
});

describe.concurrent("a cut in the reasoning", () => {
  const thought = "The user said: one two. I should answer with effort default.";

  it("ends the broken reasoning, and the model begins its reasoning again in another item (stream)", async () => {
    const model = own("simulator-reasoning?fault=cut:3&fault_times=1");
    const response = await create("stream", { model, input: "one two" });
    expect(response).toMatchObject({
      status: "completed",
      output_text: "You said: one two",
      output: [
        { type: "reasoning", status: "incomplete", content: [{ text: "The user said" }] },
        { type: "reasoning", status: "completed", content: [{ text: thought }] },
        { type: "message", status: "completed" },
      ],
    });
    // The prompt contains no half reasoning.
    const [first, second] = generationsOf(gateway, model);
    expect(second?.body).toEqual(first?.body);
  });

  it("counts lost reasoning as output, and as reasoning", async () => {
    const whole = await create("stream", { model: "simulator-reasoning", input: "one two" });
    for (const way of WAYS) {
      const model = own("simulator-reasoning?fault=cut:3&fault_times=2");
      const { usage } = await create(way, { model, input: "one two" });
      expect(usage).toMatchObject({
        input_tokens: whole.usage?.input_tokens,
        output_tokens: (whole.usage?.output_tokens ?? 0) + 6,
        output_tokens_details: {
          reasoning_tokens: (whole.usage?.output_tokens_details.reasoning_tokens ?? 0) + 6,
        },
        total_tokens: (whole.usage?.total_tokens ?? 0) + 6,
      });
    }
  });

  it("leaves only the rest of max_output_tokens", async () => {
    const model = own("simulator-reasoning?fault=cut:3&fault_times=1");
    const response = await create("stream", { model, input: "one two", max_output_tokens: 5 });
    expect(response).toMatchObject({ status: "incomplete", usage: { output_tokens: 5 } });
    expect(generationsOf(gateway, model)[1]?.body).toMatchObject({ max_completion_tokens: 2 });
  });

  it("is invisible in JSON, because no client has read anything", async () => {
    const response = await create("json", {
      model: own("simulator-reasoning?fault=cut:3&fault_times=1"),
      input: "one two",
    });
    expect(response.output).toMatchObject([
      { type: "reasoning", status: "completed", content: [{ text: thought }] },
      { type: "message", status: "completed" },
    ]);
  });

  it("leaves no trace in the prompt of the next turn", async () => {
    const first = await create("stream", {
      model: own("simulator-reasoning?fault=cut:3&fault_times=1"),
      input: "one two",
    });
    const next = await gateway.openai.responses.create({
      model: "simulator?mode=transcript",
      input: "And?",
      previous_response_id: first.id,
    });
    expect(JSON.parse(next.output_text)).toMatchObject([
      { role: "user", content: "one two" },
      { role: "assistant", content: "You said: one two" },
      { role: "user", content: "And?" },
    ]);
    expect(generationsOf(gateway, "simulator?mode=transcript").at(-1)?.body).toMatchObject({
      messages: [{ role: "user" }, { role: "assistant", reasoning: thought }, { role: "user" }],
    });
  });
});

type Lost = [string, string, Partial<ResponseCreateParamsNonStreaming>];

/** Output that cannot resume, because a client must not see it twice. */
const LOST: Lost[] = [["a refusal", "simulator?refusal=1&fault=cut:3&fault_times=1", {}]];

const CALL: Lost = [
  "a strict function call",
  "simulator?fault=cut:12&fault_times=1",
  { input: "Call get_weather.", tools: [{ ...weatherTool, strict: true }] },
];

const FORMATS: [string, object][] = [
  ["json_schema", { text: { format: { type: "json_schema", name: "answer", schema: { type: "object" } } } }],
  ["json_object", { text: { format: { type: "json_object" } } }],
  ["structured_outputs", { structured_outputs: { choice: ["one two three four"] } }],
];

describe.concurrent("shown output that cannot be continued fails, and says why", () => {
  it.each(LOST)("%s, as a stream: error and response.failed", async (_, model, body) => {
    const text = await failingStream({ input: "Hello!", ...body, model: own(model) });
    expect(typesOf(text).slice(-2)).toEqual(["error", "response.failed"]);
    expect(text).toMatch(/connection to the model server was lost.*cannot resume in the middle/);
    expect(isWhole(text)).toBe(true);
  });

  it.each(LOST)("%s, in the background, with the partial output", async (_, model, body) => {
    const response = await create("background", { input: "Hello!", ...body, model: own(model) });
    expect(response).toMatchObject({
      status: "failed",
      error: { code: "server_error", message: expect.stringContaining("cannot resume in the middle") },
      output: [{ type: "message", status: "incomplete" }],
    });
    expect(typesOf(await replay(gateway, response.id)).slice(-2)).toEqual(["error", "response.failed"]);
  });
});

describe.concurrent("shown output that is bound is completed within its format", () => {
  it.each(FORMATS)("text under a grammar: %s", async (_, format) => {
    const body = { model: own("simulator?fault=cut:2&fault_times=1"), input: "one two", ...format };
    const response = await create("stream", body);
    expect(response.status).toBe("completed");
    if ("text" in format) expect(JSON.parse(response.output_text)).toEqual(expect.any(Object));
    else expect(response.output_text).toBe("one two three four");
  });

  it("a strict function call", async () => {
    const [, model, body] = CALL;
    const response = await create("stream", { ...body, input: "Call get_weather.", model: own(model) });
    expect(response).toMatchObject({ status: "completed", output: [{ type: "function_call", status: "completed" }] });
    const [call] = response.output;
    expect(JSON.parse(call?.type === "function_call" ? call.arguments : "")).toEqual(expect.any(Object));
  });
});

describe.concurrent("output that no client has seen begins again", () => {
  it.each([...LOST, CALL])("%s, as JSON", async (_, model, body) => {
    const settings = { input: "Hello!", ...body };
    const whole = await create("json", { ...settings, model: own(model.replace(/fault=.*$/, "ttft=0")) });
    const response = await create("json", { ...settings, model: own(model) });
    const said = ({ output }: Response) => output.map((item) => ({ ...item, id: "", call_id: "" }));
    expect(said(response)).toEqual(said(whole));
  });

  it.each(FORMATS)("text under a grammar, as JSON: %s", async (_, format) => {
    const body = { input: "one two", ...format };
    const whole = await create("json", { ...body, model: own("simulator?ttft=0") });
    const response = await create("json", { ...body, model: own("simulator?fault=cut:2&fault_times=1") });
    expect(response.output_text).toBe(whole.output_text);
    expect(response.output).toHaveLength(1);
  });

  it.each(FORMATS)("text under a grammar of which only the reasoning was shown: %s", async (_, format) => {
    const body = { input: "one two", ...format };
    const whole = await create("stream", { ...body, model: own("simulator-reasoning?ttft=0") });
    const model = own("simulator-reasoning?fault=cut:4&fault_times=1");
    const response = await create("stream", { ...body, model });
    expect(response.output_text).toBe(whole.output_text);
    expect(generationsOf(gateway, model)[1]?.body).toEqual(generationsOf(gateway, model)[0]?.body);
  });
});

describe.concurrent("a model server that dies before its first word", () => {
  it.each(WAYS)("is asked again, as %s", async (way) => {
    const model = own("simulator?fault=cut:0&fault_times=2");
    const response = await create(way, { model, input: "Hello!" });
    expect(response).toMatchObject({ status: "completed", output_text: "You said: Hello!" });
    expect(generationsOf(gateway, model)).toHaveLength(3);
  });

  it.each(WAYS)("every time is not asked for ever, as %s", async (way) => {
    const model = own("simulator?fault=cut:0");
    const body = { model, input: "Hello!" };
    if (way === "json") {
      await expect(create(way, body)).rejects.toMatchObject({ status: 502, code: "upstream_connection_lost" });
    } else if (way === "stream") expect(await failingStream(body)).toContain("upstream_connection_lost");
    else expect(await create(way, body)).toMatchObject({ status: "failed", error: { code: "server_error" } });
    expect(generationsOf(gateway, model)).toHaveLength(5);
  });

  it.each(["json", "stream"] as const)(
    "or closes a connection that was kept open is asked again, as %s",
    async (way) => {
      const model = own("simulator?fault=refuse&fault_times=1");
      expect(await create(way, { model, input: "Hello!" })).toMatchObject({ output_text: "You said: Hello!" });
    },
  );
});

describe.concurrent("a model server that dies again and again", () => {
  it.each(["stream", "background"] as const)(
    "ends in failure, in bounded time, with the text so far (%s)",
    async (way) => {
      const model = own("simulator?words=1000&fault=cut:1");
      const response =
        way === "stream"
          ? JSON.parse(
              /"response":(\{.*\})\}\n\ndata: \[DONE\]/.exec(await failingStream({ model, input: "Go on." }))?.[1] ??
                "",
            )
          : await create(way, { model, input: "Go on." });
      expect(response).toMatchObject({ status: "failed", error: { code: "server_error" } });
      const said = textOf(response.output);
      expect("the quick brown fox jumps over a lazy dog while seven small wizards mix strong potions and").toContain(
        said.slice(0, 60),
      );
      expect(said.split(" ").length).toBe(generationsOf(gateway, model).length);
      expect(generationsOf(gateway, model).length).toBeLessThan(50);
    },
  );

  it("is a 502 as JSON", async () => {
    const body = { model: own("simulator?words=1000&fault=cut:1"), input: "Go on." };
    await expect(create("json", body)).rejects.toMatchObject({ status: 502 });
  });
});

describe.concurrent("a model server that dies after the whole output", () => {
  /** Cuts the connection after the chunk with the finish reason, before the usage and `[DONE]`. */
  async function cuttingServer(): Promise<{ url: string; requests: () => number; close(): void }> {
    let requests = 0;
    const server = createServer((request, response) => {
      // It does not list its models.
      if (request.method === "GET") return void response.writeHead(404).end();
      requests += 1;
      response.writeHead(200, { "content-type": "text/event-stream" });
      const chunk = (delta: object, finish_reason: string | null, sent?: () => void) =>
        response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`, sent);
      chunk({ role: "assistant", content: "" }, null);
      chunk({ content: "All of it." }, null);
      chunk({}, "stop", () => response.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { url, requests: () => requests, close: () => server.close() };
  }

  it("has not failed its response", async () => {
    const server = await cuttingServer();
    const cutting = await startGateway({ VLLM_BASE_URL: `${server.url}/v1` });
    try {
      for (const way of WAYS) {
        const response = await create(way, { model: "cutting", input: "Hello!" }, cutting);
        expect(response).toMatchObject({ status: "completed", output_text: "All of it.", error: null });
      }
      expect(server.requests()).toBe(WAYS.length);
    } finally {
      await cutting.close();
      server.close();
    }
  });
});

it("a prompt that was truncated to fit stays truncated when its answer is resumed", async () => {
  const turns = Array.from({ length: 8 }, (_, turn) => [
    { role: "user" as const, content: `Question ${turn}: ${"word ".repeat(20)}` },
    { role: "assistant" as const, content: `Answer ${turn}.` },
  ]);
  const last = "one two three four five six seven eight nine ten";
  const model = "simulator?max_model_len=140&fault=cut:3&fault_times=3";
  const input = [...turns.flat(), { role: "user" as const, content: last }];
  const response = await gateway.openai.responses.create({ model, input, truncation: "auto" });
  expect(response.output_text).toBe(`You said: ${last}`);
  const prompts = generationsOf(gateway, model).map(({ body }) => JSON.stringify(body));
  expect(prompts.length).toBeGreaterThan(1);
  for (const prompt of prompts) expect(prompt).not.toContain("Question 0");
});
