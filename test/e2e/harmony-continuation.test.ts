import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { harmonyTokenizer } from "../../dev/simulator/harmony-tokenizer.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { newSeed } from "../random.ts";
import { startWorkerd } from "../workerd/process.ts";
import { framesOf, isWhole, replay, typesOf } from "./event-streams.ts";
import { type Gateway, gatewayAt, TOKEN_BY_TOKEN } from "./support.ts";

/** gpt-oss continues wherever its server dies, and its response does not show that. */

type Prompt = string | number[];

/** A request for a completion. */
interface Asked {
  prompt: Prompt;
  max_tokens: number | null;
  structured_outputs?: unknown;
}

/** A simulator that fails as planned, in the first completions of each model name. */
interface FaultyServer {
  server: SimulatorServer;
  /** A model name that no other test uses. Its n-th completion has the n-th fault (`cut:5`), if there is one. */
  model(settings: string, faults?: readonly (string | undefined)[]): string;
  /** The completions that a model was asked for, in order. */
  asked(model: string): Asked[];
}

async function startFaultyServer(): Promise<FaultyServer> {
  const server = await serveSimulator({ record: false });
  const { simulator } = server;
  const plans = new Map<string, (string | undefined)[]>();
  const asked = new Map<string, Asked[]>();
  const answer = simulator.fetch;
  simulator.fetch = async (request) => {
    if (!request.url.endsWith("/v1/completions")) return answer(request);
    const { url, method, signal } = request;
    const body = await request.text();
    const given = JSON.parse(body) as Asked & { model: string };
    asked.set(given.model, [...(asked.get(given.model) ?? []), given]);
    const headers = new Headers(request.headers);
    const fault = plans.get(given.model)?.shift();
    if (fault !== undefined) headers.set("x-simulator", `fault=${fault}`);
    return answer(new Request(url, { method, headers, body, signal }));
  };
  let models = 0;
  return {
    server,
    model(settings, faults = []) {
      models += 1;
      const name = `simulator-gpt-oss?max_model_len=${1_000_000 + models}${settings === "" ? "" : `&${settings}`}`;
      plans.set(name, [...faults]);
      return name;
    },
    asked: (model) => asked.get(model) ?? [],
  };
}

let vllm: FaultyServer;
let gateway: Gateway;
/** A gateway that does not try again. */
let once: Gateway;
let encode: (text: string) => number[];

beforeAll(async () => {
  vllm = await startFaultyServer();
  const { server } = vllm;
  const variables = { VLLM_BASE_URL: `${server.url}/v1`, ALLOW_ANONYMOUS: "true", HARMONY_START_DATE: "2026-01-01" };
  const worker = await startWorkerd({ ...variables, VLLM_MAX_RETRIES: "50" }, { readsFormats: false });
  gateway = gatewayAt(worker, server);
  const other = await startWorkerd({ ...variables, VLLM_MAX_RETRIES: "0" }, { readsFormats: false });
  once = gatewayAt(other, server);
  const tokenizer = await harmonyTokenizer();
  encode = (text) => tokenizer.encode(text);
});
afterAll(async () => {
  await once.close();
  await gateway.close();
});

type Way = "json" | "stream" | "background";
const WAYS: Way[] = ["json", "stream", "background"];

type Body = Omit<ResponseCreateParamsNonStreaming, "model">;

/** The model server's faults, and the model's settings. */
interface Circumstances {
  faults?: readonly (string | undefined)[];
  settings?: string;
}

interface Answer {
  response: Response;
  asked: Asked[];
  /** The types of its events, in which consecutive deltas count once; empty for JSON. */
  types: string[];
  /** The deltas of each item, joined. */
  said: string[];
}

/** Creates a response in one of the ways. Gives it with its events and the model server's requests. */
async function create(way: Way, body: Body, { faults, settings = "" }: Circumstances = {}, through = gateway) {
  const model = vllm.model(settings, faults);
  const how = way === "json" ? TOKEN_BY_TOKEN : { stream: true, background: way === "background" };
  const whole = { ...how, ...body, model };
  const answer = await through.post(whole);
  const text = await answer.text();
  const asked = vllm.asked(model);
  if (way === "json") {
    if (answer.status !== 200) throw new Error(`Status ${answer.status}: ${text}`);
    return { response: JSON.parse(text) as Response, asked, types: [], said: [] } satisfies Answer;
  }
  expect(isWhole(text)).toBe(true);
  const events = framesOf(text)
    .slice(0, -1)
    .map((frame) => JSON.parse(frame.slice(frame.indexOf("\ndata: ") + 7)) as Record<string, unknown>);
  const said: string[] = [];
  for (const { delta, output_index: index } of events) {
    if (typeof delta === "string" && typeof index === "number") said[index] = (said[index] ?? "") + delta;
  }
  const response = events.at(-1)?.response as Response;
  return { response, asked, types: typesOf(text), said } satisfies Answer;
}

/** The parts of an answer that must be the same whether the model server died or not. */
function essence({ response, types, said }: Answer) {
  const { output, usage, status, incomplete_details, error } = response;
  return {
    output: output.map((item) => ({ ...item, id: "", ...("call_id" in item && { call_id: "" }) })),
    // Cached tokens may differ: the prompt was sent before.
    usage: usage && { ...usage, input_tokens_details: {}, cached_tokens_per_turn: [] },
    end: { status, incomplete_details, error },
    // `in_progress` is repeated while the model server is down, also between two deltas.
    types: types
      .filter((type, index) => type !== "response.in_progress" || types.indexOf(type) === index)
      .filter((type, index, all) => !type.endsWith(".delta") || type !== all[index - 1]),
    said,
  };
}

/** A prompt as token ids. */
const idsOf = (prompt: Prompt | undefined) => (typeof prompt === "string" ? encode(prompt) : (prompt ?? []));

/** The prompt of a turn that continues a response: with an output for each of its calls, else with a question. */
async function nextPrompt(way: Way, { response }: Answer): Promise<number[]> {
  const outputs = response.output.flatMap((item) =>
    item.type === "function_call" && item.status === "completed"
      ? [{ type: "function_call_output" as const, call_id: item.call_id, output: "It rains." }]
      : [],
  );
  const input = outputs.length > 0 ? outputs : "And then?";
  const next = await create(way, { input, previous_response_id: response.id, max_output_tokens: 1 });
  return idsOf(next.asked[0]?.prompt);
}

/**
 * Checks that each prompt is the one before plus the tokens that were sampled since: no token is lost or repeated.
 * `sizes`: the known numbers of sampled tokens of the completions.
 */
function expectGoesOn(asked: Asked[], whole: Asked[], sizes: number[] = []): void {
  const prompts = asked.map(({ prompt }) => idsOf(prompt));
  expect(prompts[0]).toEqual(idsOf(whole[0]?.prompt));
  for (const [index, before] of prompts.slice(0, -1).entries()) {
    const prompt = prompts[index + 1] ?? [];
    expect(prompt.slice(0, before.length)).toEqual(before);
    if (sizes[index] !== undefined) expect(prompt.length - before.length).toBe(sizes[index]);
  }
}

/** The raw messages of a response. */
function messagesOf({ response }: Answer) {
  const { input_messages, output_messages } = response as Response & Record<string, unknown>;
  return { input_messages, output_messages };
}

function textOf({ output }: Response): string {
  const parts = output.flatMap((item) => (item.type === "message" ? item.content : []));
  return parts.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}

/** The parts of an answer that stay the same if only the text is known, or several tokens arrive at once. */
function withoutReasoningTokens(answer: Answer) {
  const { usage, ...rest } = essence(answer);
  return { ...rest, usage: usage && { ...usage, output_tokens_details: {} } };
}

const getWeather = {
  type: "function" as const,
  name: "get_weather",
  strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

/** Script markers that the gateway treats as text. */
const script = (text: string) => text.replaceAll("<|", "‹|").replaceAll("|>", "|›");

const range = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index);

const ANSWERS: [[string, Body, string], [string, Body, string], [string, Body, string]] = [
  [
    "thoughts, a preamble and a function call",
    { input: "With a preamble, call get_weather.", tools: [getWeather] },
    "",
  ],
  ["an answer in many scripts", { input: "Grüße 🦜 你好 \n\n 👩‍👩‍👧 한 🇺🇳𓀀" }, ""],
  [
    "characters that their tokens cut in the middle, and headers of other forms",
    {
      input: script(
        "<|channel|>analysis<|message|>Hm 🧿𓂀?<|end|><|start|>assistant<|channel|>commentary<|message|>Ein\n\nMoment 🫠<|end|>" +
          '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Zürich 🏔️"}<|call|>',
      ),
      tools: [getWeather],
    },
    "script=user",
  ],
];

describe.concurrent.each(WAYS)("a gpt-oss whose server dies, as %s", (way) => {
  it.each(ANSWERS)("outputs %s as if its server had not died, wherever that was", async (_, body, settings) => {
    const whole = await create(way, body, { settings });
    expect(whole.asked).toHaveLength(1);
    const next = await nextPrompt(way, whole);
    const tokens = whole.response.usage?.output_tokens ?? 0;
    expect(tokens).toBeGreaterThan(25);
    await inGroups(chosen(range(1, tokens), way), async (after) => {
      // The connection alternately breaks and ends cleanly.
      const fault = `${after % 2 === 0 ? "end" : "cut"}:${after}`;
      const broken = await create(way, body, { settings, faults: [fault] });
      expect([fault, essence(broken)]).toEqual([fault, essence(whole)]);
      expect(broken.asked).toHaveLength(2);
      expectGoesOn(broken.asked, whole.asked, [after]);
      expect([fault, await nextPrompt(way, broken)]).toEqual([fault, next]);
    });
  });

  it("survives many deaths in a turn", async () => {
    const body = { input: "Grüße 🦜 👩‍👩‍👧 a b c d e f g h" };
    const whole = await create(way, body);
    const sizes = [1, 2, 3, 1, 5, 4, 7, 1, 1, 6, 2];
    const broken = await create(way, body, { faults: sizes.map((size) => `cut:${size}`) });
    expect(essence(broken)).toEqual(essence(whole));
    expectGoesOn(broken.asked, whole.asked, sizes);
    expect(await nextPrompt(way, broken)).toEqual(await nextPrompt(way, whole));
  });

  it("resumes in hidden reasoning", async () => {
    const body = { input: "a b c d e f g h", include_reasoning: false } as Body;
    const whole = await create(way, body);
    expect(whole.response.output.map(({ type }) => type)).toEqual(["message"]);
    const sizes = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    const broken = await create(way, body, { faults: sizes.map((size) => `cut:${size}`) });
    expect(essence(broken)).toEqual(essence(whole));
    expectGoesOn(broken.asked, whole.asked, sizes);
    expect(await nextPrompt(way, broken)).toEqual(await nextPrompt(way, whole));
  });

  it("obeys max_output_tokens, exactly", async () => {
    for (const limit of [3, 33]) {
      const body = { input: "one two three four five six", max_output_tokens: limit };
      const whole = await create(way, body);
      expect(whole.response).toMatchObject({ status: "incomplete", usage: { output_tokens: limit } });
      const next = await nextPrompt(way, whole);
      await inGroups(limit < 10 ? range(1, limit) : chosen(range(1, limit), way), async (after) => {
        const rest = limit - after;
        const faults = [`cut:${after}`, rest > 2 ? "end:1" : undefined];
        const broken = await create(way, body, { faults });
        expect([faults, essence(broken)]).toEqual([faults, essence(whole)]);
        const limits = [limit, rest, ...(rest > 2 ? [rest - 1] : [])];
        expect(broken.asked.map(({ max_tokens }) => max_tokens)).toEqual(limits);
        expect(await nextPrompt(way, broken)).toEqual(next);
      });
    }
  });

  it("continues between events of several tokens", async () => {
    const [, body] = ANSWERS[1];
    const settings = "per_delta=odd";
    const whole = await create(way, body, { settings });
    const next = await nextPrompt(way, whole);
    await inGroups(chosen(range(1, 15), way), async (after) => {
      const broken = await create(way, body, { settings, faults: [`cut:${after}`, "end:2"] });
      // The division of an event's tokens between reasoning and answer is a guess.
      expect([after, withoutReasoningTokens(broken)]).toEqual([after, withoutReasoningTokens(whole)]);
      expectGoesOn(broken.asked, whole.asked);
      expect([after, await nextPrompt(way, broken)]).toEqual([after, next]);
    });
  });

  it("continues by the text if the server gives no ids", async () => {
    for (const [, body, settings] of ANSWERS) {
      const circumstances = { settings: `token_ids=0&${settings}` };
      const whole = await create(way, body, circumstances);
      const next = await nextPrompt(way, whole);
      const tokens = whole.response.usage?.output_tokens ?? 0;
      await inGroups(chosen(range(1, tokens), way), async (after) => {
        const broken = await create(way, body, { ...circumstances, faults: [`cut:${after}`] });
        expect([after, withoutReasoningTokens(broken)]).toEqual([after, withoutReasoningTokens(whole)]);
        expectGoesOn(broken.asked, whole.asked);
        expect([after, await nextPrompt(way, broken)]).toEqual([after, next]);
      });
    }
  });

  it("continues in the middle of an answer in a format", async () => {
    const schema = {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "array", minItems: 2, items: { type: "integer" } } },
      required: ["city", "days"],
      additionalProperties: false,
    };
    const body = { input: "Go.", text: { format: { type: "json_schema" as const, name: "forecast", schema } } };
    const whole = await create(way, body);
    expect(JSON.parse(whole.said.at(-1) ?? textOf(whole.response))).toHaveProperty("city");
    const tokens = whole.response.usage?.output_tokens ?? 0;
    await inGroups(chosen(range(1, tokens), way), async (after) => {
      const broken = await create(way, body, { faults: [`cut:${after}`] });
      expect([after, essence(broken)]).toEqual([after, essence(whole)]);
      // The second grammar is that of the rest.
      expect(broken.asked.map((asked) => asked.structured_outputs !== undefined)).toEqual([true, true]);
    });
  });

  it("continues in a round in which it was asked again", async () => {
    const first =
      "<|channel|>analysis<|message|>I search.<|end|><|start|>assistant<|channel|>commentary to=functions.search<|message|>{}<|call|>";
    const second =
      "<|channel|>analysis<|message|>No 🦜 then.<|end|><|start|>assistant<|channel|>final<|message|>No idea.<|return|>";
    const body = { input: script(`${first}\u001e${second}`), enable_response_messages: way === "json" } as Body;
    const settings = "script=user";
    const whole = await create(way, body, { settings });
    expect(whole.asked).toHaveLength(2);
    expect(whole.response.output.map(({ type }) => type)).toEqual(["reasoning", "reasoning", "message"]);
    const next = await nextPrompt(way, whole);
    const tokens = [encode(first).length, encode(second).length];
    const faults = tokens.flatMap((count, round) =>
      range(1, count).map((after) => [...Array.from<undefined>({ length: round }), `cut:${after}`]),
    );
    await inGroups(
      chosen([...faults.keys()], way).map((index) => faults[index] ?? []),
      async (planned) => {
        const broken = await create(way, body, { settings, faults: planned });
        expect([planned, essence(broken)]).toEqual([planned, essence(whole)]);
        expect(messagesOf(broken)).toEqual(messagesOf(whole));
        expect(broken.asked).toHaveLength(3);
        const rounds =
          planned.length === 1
            ? [broken.asked.slice(0, 2), broken.asked.slice(2)]
            : [broken.asked.slice(0, 1), broken.asked.slice(1)];
        for (const [round, asked] of rounds.entries()) expectGoesOn(asked, whole.asked.slice(round));
        expect([planned, await nextPrompt(way, broken)]).toEqual([planned, next]);
      },
    );
    // The faults are in both rounds, several times.
    const broken = await create(way, body, {
      settings,
      faults: [...tokens.flatMap((count) => [2, 3, count - 6])].map((after) => `end:${after}`),
    });
    expect(essence(broken)).toEqual(essence(whole));
  });

  it("fails with an error if nothing may be tried again", async () => {
    const [, body] = ANSWERS[0];
    for (const after of [1, 10, 50]) {
      if (way === "json") {
        await expect(create(way, body, { faults: [`cut:${after}`] }, once)).rejects.toThrow("Status 502");
        continue;
      }
      const { response, asked, types } = await create(way, body, { faults: [`cut:${after}`] }, once);
      expect(response).toMatchObject({ status: "failed", error: { code: "server_error" } });
      expect(types.slice(-2)).toEqual(["error", "response.failed"]);
      expect(asked).toHaveLength(1);
      const last = response.output.at(-1);
      if (after === 1) expect(last).toBeUndefined();
      else expect(last).toHaveProperty("status", "incomplete");
    }
  });
});

describe("a gpt-oss whose server dies before its first token", () => {
  it.each(WAYS)("is asked again, as %s", async (way) => {
    const { response, asked } = await create(way, { input: "Hello!" }, { faults: ["cut:0", "end:0"] });
    expect(response).toMatchObject({ status: "completed", output: [{}, { content: [{ text: "You said: Hello!" }] }] });
    expect(asked.map(({ prompt }) => prompt)).toEqual([asked[0]?.prompt, asked[0]?.prompt, asked[0]?.prompt]);
  });

  it("again and again is given up", async () => {
    const faults = ["cut:9", "cut:0", "cut:0", "cut:0", "cut:0", "cut:0"];
    const { response, asked } = await create("stream", { input: "Hello!" }, { faults });
    expect(response).toMatchObject({ status: "failed", output: [{ type: "reasoning", status: "incomplete" }] });
    expect(asked).toHaveLength(6);
  });
});

it("a run without a reader is replayed as if its server had not died", async () => {
  const [, body] = ANSWERS[0];
  const whole = await create("background", body);
  const model = vllm.model("", ["cut:7", "cut:11", "end:20"]);
  const begun = (await (await gateway.post({ ...body, model, background: true })).json()) as Response;
  const stream = await replay(gateway, begun.id);
  expect(typesOf(stream)).toEqual(whole.types);
  expect(isWhole(stream)).toBe(true);
  expectGoesOn(vllm.asked(model), whole.asked, [7, 11, 20]);
});

/** The cases of a run: the next one has others. */
const offset = newSeed("deaths of gpt-oss") % 9;

/** A ninth of the cases for each way, which the seed chooses: every way has the same code. */
const chosen = (all: readonly number[], way: Way) =>
  all.filter((one) => one % 9 === (offset + 3 * WAYS.indexOf(way)) % 9);

/** Calls `each` for all items, some at a time. */
async function inGroups<T>(all: readonly T[], each: (one: T) => Promise<void>): Promise<void> {
  const waiting = [...all];
  const work = async () => {
    for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) await each(one);
  };
  await Promise.all(Array.from({ length: 12 }, work));
}
