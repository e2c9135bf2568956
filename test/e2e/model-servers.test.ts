import { createHash } from "node:crypto";
import { APIError } from "openai";
import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { isObject, type JsonObject } from "../../dev/simulator/json.ts";
import type { KindName } from "../../dev/simulator/kinds.ts";
import { type Fleet, type Replica, startFleet } from "./fleet.ts";
import { ended } from "./turns.ts";

/**
 * One gateway in front of a model server of every kind: each gets only requests that it can serve, and only a complete
 * answer counts as completed.
 */

const KINDS = ["vllm", "llamacpp", "sglang", "ollama", "transformers"] as const satisfies KindName[];
type Kind = (typeof KINDS)[number];

/** The kinds whose servers parse calls out of a text. */
const CALLING = KINDS.filter((kind) => kind !== "transformers");

const WINDOW = 2048;

let fleet: Fleet;

beforeAll(async () => {
  const server = (kind: Kind) => ({
    kind,
    models: [kind],
    ...(kind !== "vllm" && { maxModelLen: WINDOW }),
    fields: { models: [kind] },
  });
  fleet = await startFleet({
    servers: {
      ...Object.fromEntries(KINDS.map((kind) => [kind, server(kind)])),
      lora: { kind: "sglang", models: ["base"], adapters: { tuned: "base" }, maxModelLen: WINDOW },
      harmony: { kind: "vllm", models: ["gpt-oss-20b"], fields: { models: ["gpt-oss-20b"] } },
      untagged: { kind: "vllm", models: ["gpt-oss-120b"], fields: { models: ["gpt-oss-120b"] } },
    },
  });
});

afterAll(() => fleet.close());
afterEach(() => fleet.clear());

function serverOf(name: string): Replica {
  const found = fleet.replicas.find((replica) => replica.name === name);
  if (!found) throw new Error(`There is no server ${name}.`);
  return found;
}

/** Lets a server's model output these texts from now on, one after another. No grammar binds it. */
function says(name: string, ...texts: string[]): void {
  const setting = name === "harmony" ? "harmony" : "says";
  serverOf(name).trouble = `${setting}=${encodeURIComponent(texts.join("\u001e"))}`;
}

/** The bodies of requests to a server. */
function bodies(name: string): JsonObject[] {
  return serverOf(name).asked.map(({ body }) => (isObject(body) ? body : {}));
}

const WAYS = ["whole", "streamed", "in the background", "streamed in the background"] as const;
type Way = (typeof WAYS)[number];

/**
 * The tested ways at a kind of server: all for one kind that parses calls and for one that does not; half of them for
 * the others.
 */
const waysAt = (kind: Kind): readonly Way[] =>
  kind === "llamacpp" || kind === "transformers" ? WAYS : ["streamed", "in the background"];
type Body = ResponseCreateParamsNonStreaming & JsonObject;

/** Creates a response in one of the ways. */
async function ask(given: object, way: Way = "whole"): Promise<Response> {
  const { openai } = fleet;
  const body = { ...given, background: way.includes("background") } as unknown as Body;
  if (way === "whole") return openai.responses.create(body);
  if (way === "in the background") return ended(fleet, (await openai.responses.create(body)).id);
  let last: Response | undefined;
  for await (const event of await openai.responses.create({ ...body, stream: true })) {
    if ("response" in event) last = event.response;
  }
  if (!last) throw new Error("The stream has no response.");
  return last;
}

/** The end of a request: a response's status and code, or the code of the error. */
async function outcome(given: object, way: Way) {
  try {
    const { status, error } = await ask(given, way);
    return { status, code: error?.code as string | undefined };
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    return { status: "failed", code: error.code ?? undefined };
  }
}

const weather = {
  type: "function",
  name: "get_weather",
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
  strict: false,
};
const time = { ...weather, name: "get_time" };
const move = {
  type: "custom",
  name: "move",
  format: { type: "grammar", syntax: "regex", definition: "^(left|right) [0-9]+$" },
};
const format = {
  type: "json_schema",
  name: "answer",
  schema: {
    type: "object",
    properties: { answer: { type: "integer" } },
    required: ["answer"],
    additionalProperties: false,
  },
};

const call = (name: string, given: object) =>
  `<tool_call>\n${JSON.stringify({ name, arguments: given })}\n</tool_call>`;

const callsOf = ({ output }: Response) =>
  output.flatMap((item) =>
    item.type === "function_call"
      ? [[item.name, item.arguments]]
      : item.type === "custom_tool_call"
        ? [[item.name, item.input]]
        : [],
  );

const textOf = ({ output }: Response) =>
  output
    .flatMap((item) => (item.type === "message" ? item.content : []))
    .map((part) => ("text" in part ? part.text : ""));

/** The error of a refused request. */
async function refusal(given: object) {
  const error = await ask(given).catch((reason: unknown) => reason);
  if (!(error instanceof APIError)) throw new Error(`It was not refused: ${JSON.stringify(error)}`);
  return { status: error.status, code: error.code, param: error.param };
}

describe.each(KINDS)("a server of the kind %s", (model) => {
  it.each(WAYS)("answers with a text and its usage, %s", async (way) => {
    const response = await ask({ model, input: "Hello" }, way);
    expect(response.status).toBe("completed");
    expect(textOf(response)).toEqual(["You said: Hello"]);
    expect(response.usage).toMatchObject({ input_tokens: 12, output_tokens: 5, total_tokens: 17 });
  });

  it("continues a conversation", async () => {
    const { id } = await ask({ model, input: "Hello" });
    const next = await ask({ model, input: "Again", previous_response_id: id });
    expect(textOf(next)).toEqual(["You said: Again"]);
    expect(bodies(model)[1]?.messages).toEqual([
      { role: "user", content: "Hello" },
      { role: "assistant", content: "You said: Hello" },
      { role: "user", content: "Again" },
    ]);
  });

  it("ends at the limit of the output and at stop strings", async () => {
    const cut = await ask({ model, input: "x", max_output_tokens: 3 });
    expect(cut).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(textOf(await ask({ model, input: "x", stop: ["said"] }))).toEqual(["You "]);
  });

  it("gets no request for a model that it does not have", async () => {
    expect(await refusal({ model: `${model}-x`, input: "x" })).toEqual({
      status: 400,
      code: "model_not_found",
      param: "model",
    });
    expect(bodies(model)).toEqual([]);
  });

  it("is recognised", async () => {
    const health = await fleet.fetch(`${fleet.url}/health/upstream`);
    expect(await health.text()).toContain(model === "transformers" ? "openai" : model);
  });
});

describe.each(CALLING)("tools at a server of the kind %s", (model) => {
  it.each([
    ["of the model's own", { input: "use get_time" }],
    ["of a required tool", { input: "get_time", tool_choice: "required" }],
    ["of a named tool", { input: "Go", tool_choice: { type: "function", name: "get_time" } }],
  ])("has a call %s", async (_, body) => {
    for (const way of ["whole", "streamed"] as const) {
      const response = await ask({ model, tools: [weather, time], ...body }, way);
      expect(response.status).toBe("completed");
      expect(callsOf(response)).toContainEqual(["get_time", '{"city":"city"}']);
    }
  });

  it("makes a custom tool's input that matches its grammar", async () => {
    for (const tool_choice of ["required", { type: "custom", name: "move" }]) {
      const response = await ask({ model, tools: [move], input: "move", tool_choice });
      expect(callsOf(response)).toEqual([["move", "left 0"]]);
    }
  });

  it("makes a text that matches its format, and calls beside a format", async () => {
    expect(textOf(await ask({ model, text: { format }, input: "x" }))).toEqual(['{"answer":1}']);
    const response = await ask({ model, text: { format }, tools: [time], input: "get_time" });
    expect(callsOf(response)).toEqual([["get_time", '{"city":"city"}']]);
  });

  it("continues after a tool's result", async () => {
    const first = await ask({ model, tools: [time], input: "get_time" });
    const [item] = first.output;
    if (item?.type !== "function_call") throw new Error("There is no call.");
    const input = [{ type: "function_call_output", call_id: item.call_id, output: "noon" }];
    const second = await ask({ model, tools: [time], previous_response_id: first.id, input });
    expect(textOf(second)).toEqual(["The tool get_time returned: noon"]);
  });
});

it.each(["vllm", "llamacpp", "sglang", "ollama"] as const)(
  "shows the reasoning of %s, and counts it",
  async (model) => {
    serverOf(model).trouble = "reasoning=1";
    for (const way of ["whole", "streamed"] as const) {
      const { output, usage } = await ask({ model, input: "x", reasoning: { effort: "low" } }, way);
      expect(output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
      expect(JSON.stringify(output[0])).toContain("effort low.");
      const { output_tokens = 0, output_tokens_details: { reasoning_tokens } = { reasoning_tokens: 0 } } = usage ?? {};
      expect(reasoning_tokens).toBeGreaterThan(5);
      expect(reasoning_tokens).toBeLessThan(output_tokens);
    }
  },
);

it.each(["vllm", "llamacpp", "sglang", "transformers"] as const)(
  "counts no tokens of %s behind a stop string",
  async (model) => {
    for (const way of ["whole", "streamed"] as const) {
      const response = await ask({ model, input: "a b c d e f g ".repeat(20), stop: ["b"] }, way);
      expect([response.status, textOf(response)]).toEqual(["completed", ["You said: a "]]);
      expect(response.usage?.input_tokens).toBeGreaterThan(140);
      expect(response.usage?.output_tokens).toBeLessThan(12);
    }
  },
);

const UNSUPPORTED = { status: 400, code: "unsupported_parameter" };
const LOGPROBS = { include: ["message.output_text.logprobs"], tools: [time] };

it.each<[Kind, string, object]>([
  ["llamacpp", "min_tokens", { min_tokens: 3 }],
  ["llamacpp", "include", LOGPROBS],
  ["llamacpp", "stop_token_ids", { stop_token_ids: [1] }],
  ["ollama", "min_tokens", { min_tokens: 3 }],
  ["ollama", "top_k", { top_k: 3 }],
  ["ollama", "include", LOGPROBS],
  ["ollama", "structured_outputs", { structured_outputs: { regex: "[a-z]+" } }],
  ["transformers", "min_tokens", { min_tokens: 3 }],
  ["transformers", "top_k", { top_k: 3 }],
  ["transformers", "structured_outputs", { structured_outputs: { choice: ["yes", "no"] } }],
])("refuses a field that %s does not support by its name: %s", async (model, param, body) => {
  expect(await refusal({ model, input: "x", ...body })).toEqual({ ...UNSUPPORTED, param });
  expect(bodies(model)).toEqual([]);
});

it("sends a strict server only fields that it knows", async () => {
  await ask({ model: "transformers", input: "x", service_tier: "priority", tools: [time], text: { format } }).catch(
    () => {},
  );
  await ask(
    { model: "transformers", input: "x", prompt_cache_key: "k", stream_options: { include_obfuscation: false } },
    "streamed",
  );
  expect(serverOf("transformers").asked.map(({ state }) => state)).not.toContain("open");
  for (const body of bodies("transformers")) {
    for (const field of ["cache_salt", "stream_interval", "priority", "include_reasoning", "structured_outputs"]) {
      expect(body).not.toHaveProperty(field);
    }
  }
});

it.each(["llamacpp", "sglang"] as const)("answers that a prompt is too long for %s", async (model) => {
  const long = "x ".repeat(WINDOW);
  expect(await refusal({ model, input: long })).toEqual({
    status: 400,
    code: "context_length_exceeded",
    param: "input",
  });
  expect(bodies(model)).toHaveLength(1);
});

it.each(["llamacpp", "sglang"] as const)(
  "answers that more output is requested than the window of %s has",
  async (model) => {
    const refused = await refusal({ model, input: "x", max_output_tokens: WINDOW + 1 });
    expect(refused).toEqual({ status: 400, code: "above_max_value", param: "max_output_tokens" });
    expect(bodies(model)).toEqual([]);
  },
);

it("answers that a model of llama.cpp reads no images", async () => {
  const image = { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=" };
  const refused = await refusal({ model: "llamacpp", input: [{ role: "user", content: [image] }] });
  expect(refused).toEqual({ status: 400, code: "invalid_request", param: "input[0].content[0]" });
  expect(bodies("llamacpp")).toHaveLength(1);
});

it.each(["vllm", "llamacpp", "sglang"] as const)("counts a prompt as %s does", async (model) => {
  const { input_tokens: counted } = await fleet.openai.responses.inputTokens.count({ model, input: "Hello" });
  const { usage } = await ask({ model, input: "Hello" });
  expect(counted).toBe(usage?.input_tokens);
});

it("has llama.cpp's log probabilities if only the tokens' own are requested", async () => {
  const { output } = await ask({ model: "llamacpp", input: "x", include: LOGPROBS.include, top_logprobs: 0 });
  expect(JSON.stringify(output)).toContain('"logprobs":[{"token":"You"');
});

it("limits the output to what the prompt leaves of SGLang's window, and does not blame the prompt", async () => {
  const input = "x ".repeat(WINDOW / 2 - 10);
  const { usage, max_output_tokens: echoed } = await ask({ model: "sglang", input, max_output_tokens: WINDOW });
  expect(echoed).toBe(WINDOW);
  const limits = bodies("sglang").map((body) => body.max_tokens ?? body.max_completion_tokens);
  expect(limits).toEqual([WINDOW, WINDOW - (usage?.input_tokens ?? 0)]);
});

it("lists models of every kind with the fields of OpenAI and vLLM, and no others of their servers", async () => {
  const shown = new Set(["id", "object", "created", "owned_by", "root", "parent", "max_model_len"]);
  const { data } = await fleet.openai.models.list();
  expect(data.map(({ owned_by }) => owned_by)).toEqual(expect.arrayContaining(["llamacpp", "sglang", "library"]));
  expect(data.flatMap((model) => Object.keys(model)).filter((field) => !shown.has(field))).toEqual([]);
  expect(await fleet.openai.models.retrieve("llamacpp")).toEqual({
    ...{ id: "llamacpp", object: "model", created: expect.any(Number), owned_by: "llamacpp", max_model_len: WINDOW },
  });
});

describe("the models of an SGLang that answers for any name", () => {
  it.each(["tuned", "base:other", "other"])("are those of its list (%s)", async (model) => {
    expect(await refusal({ model, input: "x" })).toMatchObject({ status: 400, code: "model_not_found" });
    expect(bodies("lora")).toEqual([]);
  });

  it("include adapters by the names that it accepts in requests", async () => {
    const response = await ask({ model: "base:tuned", input: "Hello" });
    expect([response.model, textOf(response)]).toEqual(["base:tuned", ["You said: Hello"]]);
    expect(bodies("lora")).toMatchObject([{ model: "base:tuned" }]);
    const listed = (await fleet.openai.models.list()).data.map(({ id }) => id);
    expect(listed).toContain("base:tuned");
    expect(listed).not.toContain("tuned");
  });
});

describe("an open message at SGLang", () => {
  const open = { type: "message", role: "assistant", status: "in_progress", id: "msg_1", content: "You" };

  it("continues", async () => {
    await ask({ model: "sglang", input: [{ role: "user", content: "abc" }, open] });
    expect(bodies("sglang")).toMatchObject([
      { continue_final_message: true, messages: [{ role: "user" }, { role: "assistant", content: "You" }] },
    ]);
  });

  it("is refused after reasoning, which SGLang would drop", async () => {
    const thoughts = { type: "reasoning", id: "rs_1", summary: [], content: [{ type: "reasoning_text", text: "Hm." }] };
    const input = [{ role: "user", content: "abc" }, thoughts, open];
    expect(await refusal({ model: "sglang", input })).toEqual({ ...UNSUPPORTED, param: "input" });
    expect(bodies("sglang")).toEqual([]);
  });
});

it("does not complete an answer of an Ollama that has read less than half of the prompt", async () => {
  const input = "river ".repeat(3 * WINDOW);
  for (const way of ["whole", "in the background"] as const) {
    const { status, code } = await outcome({ model: "ollama", input }, way);
    expect([way, status, code]).toEqual([way, "failed", way === "whole" ? "context_length_exceeded" : code]);
  }
  const { status } = await ask({ model: "ollama", input: "river ".repeat(WINDOW / 8) });
  expect(status).toBe("completed");
});

const MISREADING = ["llamacpp", "sglang", "ollama"] as const;

it.each(MISREADING)("begins a new answer after the client's own at %s", async (model) => {
  await ask({
    model,
    input: [
      { role: "user", content: "a" },
      { role: "assistant", content: "You" },
    ],
  });
  expect(bodies(model)[0]?.messages).toMatchObject([
    { role: "user" },
    { role: "assistant" },
    { role: "user", content: "" },
  ]);
});

const named = { tool_choice: { type: "function", name: "get_time" } };
const moves = { tools: [move], tool_choice: { type: "custom", name: "move" } };
const TEXT = "Just a text.";

/** Requests, and model outputs that violate them. */
const WRONG: Record<string, [object, string]> = {
  "a named choice without its call": [{ tools: [weather, time], ...named }, TEXT],
  "a named choice with another call": [{ tools: [weather, time], ...named }, call("get_weather", { city: "Rome" })],
  "a required choice without a call": [{ tools: [weather, time], tool_choice: "required" }, TEXT],
  "a call that was not offered": [{ tools: [weather], tool_choice: "required" }, call("launch", {})],
  "a text outside its schema": [{ text: { format } }, '{"answer": "five"}'],
  "a text that is no JSON": [{ text: { format } }, "It is five."],
  "a text that is no object": [{ text: { format: { type: "json_object" } } }, "[5]"],
  "a text outside its schema, beside tools": [{ text: { format }, tools: [weather] }, "It is five."],
  "an input outside its grammar": [moves, call("move", { input: "up 3" })],
  "a text instead of an input": [moves, TEXT],
  "an input outside its grammar, of a required choice": [
    { tools: [move], tool_choice: "required" },
    call("move", { input: "up 3" }),
  ],
};

/** The codes of a violated request. Stored responses have only OpenAI's codes. */
const CODES = ["upstream_disregarded_request", "server_error"];

describe.each(KINDS)("without enforcement at a server of the kind %s", (model) => {
  it.each(Object.keys(WRONG))("%s is not called completed", async (what) => {
    const [body, text] = WRONG[what] ?? [{}, ""];
    for (const way of waysAt(model)) {
      fleet.clear();
      says(model, text);
      const { status, code } = await outcome({ model, input: "Go", ...body }, way);
      expect([way, status]).toEqual([way, "failed"]);
      expect(CODES).toContain(code);
      expect(bodies(model).length).toBeLessThan(6);
    }
  });
});

describe.each(CALLING)("when the model of %s is right at the second request", (model) => {
  it.each<[string, object, string, string[]]>([
    ["a named call comes", { tools: [weather, time], ...named }, TEXT, ["get_time", '{"city":"Rome"}']],
    ["a required call comes", { tools: [time], tool_choice: "required" }, TEXT, ["get_time", '{"city":"Rome"}']],
    ["an offered call comes", { tools: [time] }, call("launch", {}), ["get_time", '{"city":"Rome"}']],
    ["an input keeps to its grammar", { tools: [move] }, call("move", { input: "up 3" }), ["move", "left 3"]],
  ])("%s", async (_, body, wrong, wanted) => {
    const given = wanted[0] === "move" ? { input: "left 3" } : { city: "Rome" };
    for (const way of waysAt(model)) {
      fleet.clear();
      says(model, wrong, call(wanted[0] ?? "", given));
      const response = await ask({ model, input: "Go", ...body }, way);
      expect(response.status).toBe("completed");
      const whole = response.output.filter((item) => !("status" in item) || item.status === "completed");
      expect(callsOf({ ...response, output: whole })).toEqual([wanted]);
      // The wrong text is not shown.
      expect(textOf(response).join("")).toBe("");
    }
  });
});

it("asks a server without enforcement again, until the text matches the format", async () => {
  for (const way of WAYS) {
    fleet.clear();
    says("transformers", "It is five.", '{"answer": 5}');
    const response = await ask({ model: "transformers", input: "Go", text: { format } }, way);
    expect([response.status, textOf(response)]).toEqual(["completed", ['{"answer": 5}']]);
  }
});

it("asks a server again that claims to enforce a format, if no client has seen the text", async () => {
  for (const model of KINDS) {
    fleet.clear();
    says(model, "It is five.", '{"answer": 5}');
    const response = await ask({ model, input: "Go", text: { format } });
    expect([model, response.status, textOf(response)]).toEqual([model, "completed", ['{"answer": 5}']]);
    const last = bodies(model).at(-1) as { messages: { role: string; content: string }[] };
    if (model !== "transformers") expect(last.messages.at(-1)?.content).toContain("'text.format'");
  }
});

it("does not complete an answer without the requested log probabilities", async () => {
  const body = { model: "transformers", input: "Go", include: ["message.output_text.logprobs"], top_logprobs: 2 };
  for (const way of ["whole", "in the background"] as const) {
    const { status, code } = await outcome(body, way);
    expect([way, status]).toEqual([way, "failed"]);
    expect(CODES).toContain(code);
  }
});

describe("without enforcement at a gpt-oss", () => {
  const final = (text: string) => `<|channel|>final<|message|>${text}<|return|>`;
  const toolCall = (name: string, given: object) =>
    `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>${JSON.stringify(given)}<|call|>`;
  it.each<[string, object, string]>([
    ["a named choice without its call", { tools: [weather, time], ...named }, final(TEXT)],
    ["a required choice without a call", { tools: [weather, time], tool_choice: "required" }, final(TEXT)],
    [
      "a named choice with another call",
      { tools: [weather, time], ...named },
      toolCall("get_weather", { city: "Rome" }),
    ],
    ["a call that was not offered", { tools: [weather] }, toolCall("launch", {})],
    ["a text outside its schema", { text: { format } }, final('{"answer": "five"}')],
    ["a text that is no JSON", { text: { format } }, final("It is five.")],
    ["an input outside its grammar", moves, toolCall("move", { input: "up 3" })],
  ])("%s is not called completed", async (_, body, text) => {
    for (const way of WAYS) {
      fleet.clear();
      says("harmony", ...Array.from({ length: 12 }, () => text));
      const { status, code } = await outcome({ model: "gpt-oss-20b", input: "Go", ...body }, way);
      expect([way, status]).toEqual([way, "failed"]);
      expect(CODES).toContain(code);
    }
  });
});

it("asks a gpt-oss again that has output a text instead of a required call, at a server without structural tags", async () => {
  const server = serverOf("untagged");
  for (const way of WAYS) {
    fleet.clear();
    server.trouble = "structural_tags=0";
    const response = await ask({ model: "gpt-oss-120b", input: "Go", tools: [time], tool_choice: "required" }, way);
    expect([way, response.status, callsOf(response).map(([name]) => name)]).toEqual([way, "completed", ["get_time"]]);
    expect(textOf(response).join("")).toBe("");
    const [last = {}] = bodies("untagged").slice(-1);
    expect(String(last.prompt)).toContain("Call a tool. The tools are: functions.get_time.");
  }
});

describe("several tenants", () => {
  const hash = (key: string) => createHash("sha256").update(key).digest("hex");
  let keyed: Fleet;

  beforeAll(async () => {
    keyed = await startFleet({
      servers: {
        llamacpp: { kind: "llamacpp", models: ["alone"], fields: { models: ["alone"] } },
        ollama: { kind: "ollama", models: ["silent"], fields: { models: ["silent"] } },
        shared: { kind: "llamacpp", models: ["shared"], fields: { models: ["shared"], shared_cache: true } },
        sglang: { kind: "sglang", models: ["salted"], fields: { models: ["salted"] } },
      },
      variables: { ALLOW_ANONYMOUS: "false", API_KEYS: `a:${hash("key-a")},b:${hash("key-b")}` },
    });
  });
  afterAll(() => keyed.close());

  const asked = (model: string) =>
    keyed
      .client({ apiKey: "key-a" })
      .responses.create({ model, input: "x" })
      .catch((error: unknown) => error);

  it.each(["alone", "silent"])("send no prompt to a server that shares its cache (%s)", async (model) => {
    expect(await asked(model)).toMatchObject({ status: 503, code: "tenants_not_separated" });
    expect(keyed.servers(model)).toEqual([]);
  });

  it.each(["shared", "salted"])(
    "are served if the operator accepts that, or their caches are separate (%s)",
    async (model) => {
      expect(await asked(model)).toMatchObject({ status: "completed" });
      const salts = keyed.replicas.flatMap(({ asked }) => asked.map(({ body }) => isObject(body) && body.cache_salt));
      expect(salts.at(-1)).toEqual(model === "salted" ? expect.any(String) : undefined);
      keyed.clear();
    },
  );
});
