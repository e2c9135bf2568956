import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type OpenAI from "openai";
import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type McpTestServer, startMcpServer } from "../tools/mcp-server.ts";
import { ask as admin, makeKey, startWithKeys } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";
import { ask, EVERY_WAY, REPEATER, scripts, textOf, WAYS, written } from "./tool-support.ts";

/** Moderation, by a guard model and by the operator's hook. */

interface Asked {
  path: string;
  authorization: string | undefined;
  body: {
    messages?: { role: string; content: string | { type: string; text?: string }[] }[];
    type?: string;
    text?: string;
    images?: string[];
    tenant?: string;
    model?: string;
  };
}

/** Texts with this word are flagged. */
const BAD = "arson";

let server: Server;
let guarded: Gateway;
let hooked: Gateway;
let openai: OpenAI;
const asked: Asked[] = [];
let mcp: McpTestServer;
/** An answer instead of a judgement. */
let other: ((asked: Asked) => { status?: number; body?: string } | "lost" | undefined) | undefined;

beforeAll(async () => {
  mcp = await startMcpServer();
  server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const { authorization } = request.headers;
      const text = Buffer.concat(chunks).toString();
      const one = { path: request.url ?? "", authorization, body: (text ? JSON.parse(text) : {}) as Asked["body"] };
      if (one.path.endsWith("/models")) {
        response.end(JSON.stringify({ data: [{ id: "llama-guard-4", owned_by: "vllm" }] }));
        return;
      }
      asked.push(one);
      const told = other?.(one);
      if (told === "lost") {
        request.socket.destroy();
        return;
      }
      response.writeHead(told?.status ?? 200, { "content-type": "application/json" });
      response.end(told?.body ?? judgement(one));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const own = { GUARD_TIMEOUT_MS: "2000", GUARD_API_KEY: "guards-key" };
  guarded = await startWithKeys({ ...own, GUARD_MODEL: "llama-guard-4", GUARD_BASE_URL: `${url}/v1` });
  hooked = await startWithKeys({
    ...own,
    GUARD_URL: `${url}/hook`,
    GUARD_INPUT: "block",
    GUARD_OUTPUT: "block",
    VLLM_EXTRAS: "all",
    MCP_SERVERS: mcp.url,
  });
  openai = guarded.client({ apiKey: (await makeKey(guarded, "acme", {})).value });
});
afterAll(async () => {
  await guarded?.close();
  await hooked?.close();
  await mcp?.close();
  server.close();
  server.closeAllConnections();
});
afterEach(() => {
  asked.length = 0;
  other = undefined;
});

function judgement({ path, body }: Asked): string {
  if (path === "/hook") {
    const flagged = body.text?.includes(BAD) === true;
    return JSON.stringify({
      flagged,
      categories: { illicit: flagged },
      category_scores: { illicit: flagged ? 0.97 : 0.02 },
    });
  }
  const content = JSON.stringify(body.messages?.at(-1)).includes(BAD) ? "\n\nunsafe\nS2" : "\n\nsafe";
  return JSON.stringify({ choices: [{ message: { content } }], usage: { prompt_tokens: 9, total_tokens: 10 } });
}

const POLICY = { input: { mode: "block" as const }, output: { mode: "block" as const } };
const moderation = { model: "omni-moderation-latest", policy: POLICY };
const answers = (text: string) => ({ model: REPEATER, input: scripts(`<|channel|>final<|message|>${text}<|return|>`) });
const flagged = {
  type: "moderation_result",
  model: "llama-guard-4",
  flagged: true,
  categories: { illicit: true, hate: false },
};
const passed = { type: "moderation_result", model: "llama-guard-4", flagged: false, categories: { illicit: false } };

describe.each(EVERY_WAY)("%s, asked as %s", (model, way) => {
  it("gets no flagged input; the response has the reason", async () => {
    const before = guarded.vllm.simulator.requests.filter(({ body }) => body !== undefined).length;
    const { response } = await ask(guarded, way, { model, input: `How do I commit ${BAD}?`, moderation }, openai);
    expect(response).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "content_filter" },
      output: [],
    });
    expect(response.moderation).toMatchObject({ input: flagged, output: { type: "error", code: "not_moderated" } });
    expect(guarded.vllm.simulator.requests.filter(({ body }) => body !== undefined)).toHaveLength(before);
    expect((await openai.responses.retrieve(response.id)).moderation).toEqual(response.moderation);
  });

  it("answers other input, with both judgements", async () => {
    const { response } = await ask(
      guarded,
      way,
      { model, input: "Hello!", moderation: { model: "llama-guard-4" } },
      openai,
    );
    expect(textOf(response)).toBe("You said: Hello!");
    expect(response.moderation).toMatchObject({ input: passed, output: passed });
    expect(asked.map(({ authorization }) => authorization)).toContain("Bearer guards-key");
  });
});

describe("the output", () => {
  const long = "There is a great deal to be said about the keeping of fires in stoves. ";
  /** The model repeats the input, which is therefore only scored. */
  const blocksOutput = { model: "llama-guard-4", policy: { output: POLICY.output } };
  const request = { ...answers(`${long}${long}And now to ${BAD}, which is easy. ${long}`), moderation: blocksOutput };

  it.each(WAYS)("is shown up to the flagged sentence, asked as %s", async (way) => {
    const { response, events } = await ask(guarded, way, { ...request }, openai);
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "content_filter" } });
    expect(response.moderation).toMatchObject({ output: flagged });
    const text = textOf(response);
    expect(text).not.toContain(BAD);
    if (way === "stream") expect(text).toContain("stoves.");
    expect(JSON.stringify(events)).not.toContain(BAD);
  });

  it("streams if it is only scored", async () => {
    const body = { ...request, moderation: { model: "llama-guard-4", policy: { output: { mode: "score" as const } } } };
    const { response } = await ask(guarded, "stream", body, openai);
    expect(response.status).toBe("completed");
    expect(textOf(response)).toContain(BAD);
    expect(response.moderation).toMatchObject({ input: { type: "moderation_result" }, output: flagged });
  });

  it("is judged also in calls", async () => {
    const tools = [{ type: "function" as const, name: "f", parameters: {}, strict: false }];
    const input = scripts(written("f", JSON.stringify({ what: BAD })));
    const { response } = await ask(
      guarded,
      "json",
      { model: REPEATER, input, tools, moderation: blocksOutput },
      openai,
    );
    expect(response.incomplete_details).toEqual({ reason: "content_filter" });
    expect(JSON.stringify(response.output)).not.toContain(BAD);
  });
});

describe("a guard that is not available", () => {
  const failures: [string, typeof other][] = [
    ["fails", () => ({ status: 500, body: "{}" })],
    [
      "answers another thing",
      () => ({ body: JSON.stringify({ choices: [{ message: { content: "I am an assistant." } }] }) }),
    ],
    ["answers no JSON", () => ({ body: "<html>" })],
  ];
  it.each(failures)("ends a turn that it may block: it %s", async (_name, answer) => {
    other = answer;
    const body: ResponseCreateParamsNonStreaming = { model: "simulator", input: "Hello!", moderation };
    await expect(openai.responses.create(body)).rejects.toMatchObject({ status: 503, code: "moderation_unavailable" });
  });

  it("is asked again if the connection is lost before its answer", async () => {
    other = () => (asked.length === 1 ? "lost" : undefined);
    const { results } = await openai.moderations.create({ input: BAD });
    expect(results[0]?.flagged).toBe(true);
    expect(asked).toHaveLength(2);
    other = () => "lost";
    await expect(openai.moderations.create({ input: BAD })).rejects.toMatchObject({ code: "moderation_unavailable" });
  });

  it("is reported if a turn is only scored", async () => {
    other = () => ({ status: 500, body: "{}" });
    const response = await openai.responses.create({
      model: "simulator",
      input: "Hello!",
      moderation: { model: "llama-guard-4" },
    });
    expect(textOf(response)).toBe("You said: Hello!");
    const unavailable = { type: "error", code: "moderation_unavailable" };
    expect(response.moderation).toMatchObject({ input: unavailable, output: unavailable });
  });
});

it("an unknown guard or mode is refused by its name", async () => {
  const wrong = (more: object) =>
    openai.responses.create({ model: "simulator", input: "x", moderation: { ...moderation, ...more } } as never);
  await expect(wrong({ model: "gpt-5" })).rejects.toMatchObject({ status: 400, param: "moderation.model" });
  const mode = { policy: { input: { mode: "nag" } } };
  await expect(wrong(mode)).rejects.toMatchObject({ status: 400, param: "moderation.policy.input.mode" });
});

describe("/v1/moderations", () => {
  it("judges a text, several texts one by one, and parts together", async () => {
    const one = await openai.moderations.create({ input: `All about ${BAD}.` });
    expect(one).toMatchObject({ id: expect.stringMatching(/^modr_/), model: "llama-guard-4" });
    expect(one.results).toMatchObject([
      { flagged: true, categories: { illicit: true, violence: false }, category_scores: { illicit: 1 } },
    ]);
    const two = await openai.moderations.create({ model: "omni-moderation-latest", input: ["Tea.", BAD] });
    expect(two.results.map(({ flagged }) => flagged)).toEqual([false, true]);
    const parts = [
      { type: "text" as const, text: "Tea." },
      { type: "text" as const, text: BAD },
    ];
    const together = await openai.moderations.create({ input: parts });
    expect(together.results.map(({ flagged }) => flagged)).toEqual([true]);
  });

  it("judges images together with the text beside them, and says so", async () => {
    const image = { type: "image_url" as const, image_url: { url: "https://owls.dev/a.png" } };
    const text = { type: "text" as const, text: BAD };
    const { results } = await openai.moderations.create({ input: [text, image] });
    expect(results).toMatchObject([{ flagged: true, category_applied_input_types: { violence: ["text", "image"] } }]);
    expect(asked.map(({ body }) => body.messages)).toEqual([[{ role: "user", content: [image, text] }]]);
    const inside = { ...image, image_url: { url: "http://169.254.169.254/a.png" } };
    const refused = openai.moderations.create({ input: [text, inside] });
    await expect(refused).rejects.toMatchObject({ status: 400, param: "input[1].image_url.url", code: "invalid_url" });
    const scored = { model: "llama-guard-4", policy: { output: { mode: "score" as const } } };
    const content = [{ type: "input_image" as const, detail: "auto" as const, image_url: image.image_url.url }];
    const input = [{ role: "user" as const, content }];
    asked.length = 0;
    const response = await openai.responses.create({ model: "simulator", input, moderation: scored });
    expect(response.moderation?.input).toMatchObject({ category_applied_input_types: { violence: ["text", "image"] } });
    expect(asked[0]?.body.messages).toEqual([{ role: "user", content: [image, { type: "text", text: "" }] }]);
  });

  it("refuses other models and empty lists by name, and reports an unavailable guard", async () => {
    const other_ = openai.moderations.create({ input: "x", model: "gpt-5" });
    await expect(other_).rejects.toMatchObject({ status: 400, param: "model" });
    await expect(openai.moderations.create({ input: [] })).rejects.toMatchObject({ status: 400, param: "input" });
    other = () => ({ status: 500, body: "{}" });
    await expect(openai.moderations.create({ input: "x" })).rejects.toMatchObject({ code: "moderation_unavailable" });
  });

  it("is counted by tenants, together with the moderation of creates", async () => {
    const { value, id } = await makeKey(guarded, "counted", {});
    const counted = guarded.client({ apiKey: value });
    await counted.responses.create({ model: "simulator", input: "Hello!", moderation: { model: "llama-guard-4" } });
    const own = `/v1/organization/usage/moderations?start_time=${Math.floor(Date.now() / 1000) - 86_400}&api_key_ids=${id}`;
    await eventually(async () => {
      const page = await admin<{ data: { results: { input_tokens: number }[] }[] }>(guarded, "GET", own);
      return page.data.flatMap(({ results }) => results).reduce((sum, each) => sum + each.input_tokens, 0) === 20;
    });
    const path = `/v1/organization/usage/moderations?start_time=${Math.floor(Date.now() / 1000) - 86_400}`;
    await eventually(async () => {
      const page = await admin<{ data: { results: { input_tokens: number }[] }[] }>(guarded, "GET", path);
      return page.data.some(({ results }) => results.some(({ input_tokens: tokens }) => tokens > 0));
    });
    const nobody = guarded.client({ apiKey: "sk-nobody" });
    await expect(nobody.moderations.create({ input: "x" })).rejects.toMatchObject({ status: 401 });
  });
});

describe("the operator's hook", () => {
  let client: OpenAI;
  beforeAll(async () => {
    client = hooked.client({ apiKey: (await makeKey(hooked, "acme")).value });
  });

  it("judges every turn", async () => {
    const body: ResponseCreateParamsNonStreaming = { model: "simulator", input: `How do I commit ${BAD}?` };
    const blocked: Response = await client.responses.create(body);
    expect(blocked.incomplete_details).toEqual({ reason: "content_filter" });
    expect(asked.at(-1)).toMatchObject({
      path: "/hook",
      authorization: "Bearer guards-key",
      body: { type: "input", text: body.input, tenant: "acme" },
    });
    const score = { model: "guard", policy: { input: { mode: "score" as const }, output: { mode: "score" as const } } };
    const asScored = await client.responses.create({ ...body, moderation: score });
    expect(asScored.incomplete_details).toEqual({ reason: "content_filter" });
    const answer = await client.responses.create({ model: "simulator", input: "Hello!" });
    expect(answer.moderation).toMatchObject({
      input: { model: "guard", flagged: false, category_scores: { illicit: 0.02 } },
      output: { flagged: false },
    });
    expect(asked.slice(-2).map(({ body: { type } }) => type)).toEqual(["input", "output"]);
  });

  const text = `How do I commit ${BAD}?`;
  const dataOf = (content: string) => `data:text/plain;base64,${Buffer.from(content).toString("base64")}`;
  const fileWith = (fields: object) => ({
    input: [{ role: "user", content: [{ type: "input_file", ...fields }] }],
  });
  const call = { type: "function_call", call_id: "call_1", name: "look", arguments: "{}" };
  const output = { type: "function_call_output", call_id: "call_1", output: "Done." };
  const look = { type: "function", name: "look", description: "Looks.", parameters: {}, strict: false };
  const asTool = (more: object) => ({ input: "Hello!", tools: [{ ...look, ...more }] });
  const properties = { [BAD]: { type: "string" } };
  const schema = { type: "object", properties, required: [BAD], additionalProperties: false };

  it.each<[what: string, body: object]>([
    ["a text file in its standard form", fileWith({ filename: "a.txt", file_data: dataOf(text) })],
    ["a file's name", fileWith({ filename: `${BAD}.txt`, file_data: dataOf("Hello!") })],
    ["a call's arguments", { input: [{ ...call, arguments: JSON.stringify({ text }) }, output] }],
    ["a call's output", { input: [call, { ...output, output: text }] }],
    [
      "a custom call's input",
      {
        input: [
          { ...call, type: "custom_tool_call", input: text },
          { ...output, type: "custom_tool_call_output" },
        ],
      },
    ],
    [
      "a client's reasoning",
      {
        input: [
          { type: "reasoning", id: "rs_1", summary: [], content: [{ type: "reasoning_text", text }] },
          { role: "user", content: "Go on." },
        ],
      },
    ],
    [
      "an assistant's message",
      {
        input: [
          { role: "assistant", content: text },
          { role: "user", content: "Go on." },
        ],
      },
    ],
    ["the instructions", { input: "Hello!", instructions: text }],
    [
      "earlier messages in the server's own form",
      {
        input: "Hello!",
        model: REPEATER,
        previous_input_messages: [{ author: { role: "user" }, content: [{ type: "text", text }] }],
      },
    ],
    ["a tool's name", asTool({ name: BAD })],
    ["a tool's description", asTool({ description: text })],
    ["the name of a tool's argument", asTool({ parameters: schema })],
    [
      "a tool of a namespace",
      {
        input: "Hello!",
        tools: [{ type: "namespace", name: "n", description: "N.", tools: [{ ...look, description: text }] }],
      },
    ],
    [
      "the format of the answer",
      { input: "Hello!", text: { format: { type: "json_schema", name: "n", schema, strict: true } } },
    ],
    ["values of the template", { input: "Hello!", chat_template_kwargs: { system: text } }],
  ])("judges %s", async (_, body) => {
    const answer = await client.responses.create({ model: "simulator", ...body } as ResponseCreateParamsNonStreaming);
    expect(answer.incomplete_details).toEqual({ reason: "content_filter" });
  });

  const goOn = async (fields: object) =>
    (await client.responses.create({
      model: "simulator",
      input: "Go on.",
      ...fields,
    } as ResponseCreateParamsNonStreaming)) as Response;
  const isBlocked = { status: "incomplete", incomplete_details: { reason: "content_filter" }, output: [] };

  it.each([true, false])(
    "judges items that were put into a conversation before, each once (background: %s)",
    async (background) => {
      const harmless = { role: "user" as const, content: "Hello!" };
      const { id: conversation } = await client.conversations.create({ items: [harmless] });
      const whole = async (fields: object) => {
        const { id } = await goOn({ ...fields, background });
        return eventually(async () => {
          const response = await client.responses.retrieve(id);
          return ["queued", "in_progress"].includes(response.status ?? "") ? undefined : response;
        });
      };
      expect((await whole({ conversation })).status).toBe("completed");
      expect(asked[0]?.body.text).toBe("Hello!\nGo on.");
      asked.length = 0;
      expect((await whole({ conversation })).status).toBe("completed");
      expect(asked[0]?.body.text).toBe("Go on.");
      await client.conversations.items.create(conversation, { items: [{ role: "user", content: text }] });
      expect(await whole({ conversation })).toMatchObject(isBlocked);
    },
  );

  it("judges a blocked input again with each response that continues it", async () => {
    const first = await goOn({ input: text });
    const next = await goOn({ previous_response_id: first.id });
    expect(next).toMatchObject(isBlocked);
    expect(await goOn({ previous_response_id: next.id })).toMatchObject(isBlocked);
  });

  it("judges the input of a response that was only prepared with the first one that continues it, whatever ids it names", async () => {
    const real = await goOn({ input: "Hello!" });
    const [message] = real.output;
    for (const input of [text, [{ role: "user", content: text }, message]]) {
      const prepared = await goOn({ input, generate: false });
      expect(await goOn({ previous_response_id: prepared.id })).toMatchObject(isBlocked);
    }
  });

  it("judges the tools of an MCP server, and what they put out", async () => {
    const tools = [
      { type: "mcp" as const, server_label: "docs", server_url: mcp.url, require_approval: "never" as const },
    ];
    const answer = await goOn({ input: "Call docs__add.", tools });
    expect(answer.output.map(({ type }) => type)).toEqual(["mcp_list_tools", "mcp_call", "message"]);
    const call = answer.output[1] as Extract<(typeof answer.output)[number], { type: "mcp_call" }>;
    const inputs = asked.filter(({ body: { type } }) => type === "input").map(({ body }) => body.text ?? "");
    expect(inputs).toHaveLength(3);
    expect(inputs[0]).toBe("Call docs__add.");
    expect(inputs[1]).toContain('"name":"docs__add"');
    expect(inputs[2]).toContain(call.output);
  });

  it("judges tools that a turn repeats once", async () => {
    const tools = [{ ...look, description: "Looks everywhere." }];
    await goOn({ tools });
    await goOn({ tools });
    const inputs = asked.filter(({ body: { type } }) => type === "input").map(({ body }) => body.text);
    expect(inputs.filter((each) => each?.includes("Looks everywhere."))).toHaveLength(1);
    expect(inputs.filter((each) => each === "Go on.")).toHaveLength(2);
  });

  it("gets a turn's images beside its text", async () => {
    const image = "data:image/png;base64,iVBORw0KGgo=";
    const content = [
      { type: "input_text" as const, text: "Is this an owl?" },
      { type: "input_image" as const, detail: "auto" as const, image_url: image },
    ];
    await client.responses.create({ model: "simulator", input: [{ role: "user", content }] });
    expect(asked[0]?.body).toEqual({ type: "input", text: "Is this an owl?", images: [image], tenant: "acme" });
  });

  it("has GUARD_TIMEOUT_MS to answer, and must answer in OpenAI's shape", async () => {
    other = () => ({ body: JSON.stringify({ verdict: "fine" }) });
    await expect(client.responses.create({ model: "simulator", input: "x" })).rejects.toMatchObject({
      status: 503,
      code: "moderation_unavailable",
    });
    other = () => ({ body: JSON.stringify({ flagged: false, categories: "x".repeat(100_000) }) });
    await expect(client.moderations.create({ input: "x" })).rejects.toMatchObject({ status: 503 });
  });
});

it("/v1/moderations can be asked in a batch", async () => {
  const url = "/v1/moderations";
  const lines = ["Hello!", `How do I commit ${BAD}?`].map((input, index) =>
    JSON.stringify({ custom_id: `line-${index}`, method: "POST", url, body: { input } }),
  );
  const file = new File([lines.join("\n")], "batch.jsonl");
  const { id: input_file_id } = await openai.files.create({ file, purpose: "batch" });
  const begun = await openai.batches.create({ input_file_id, endpoint: url, completion_window: "24h" });
  const ended = await eventually(async () => {
    const batch = await openai.batches.retrieve(begun.id);
    return ["completed", "failed"].includes(batch.status) ? batch : undefined;
  });
  expect(ended).toMatchObject({ status: "completed", request_counts: { total: 2, completed: 2, failed: 0 } });
  const text = await (await openai.files.content(ended.output_file_id ?? "")).text();
  const answers = text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { response: { body: object } });
  expect(answers.map(({ response }) => response.body)).toMatchObject([
    { model: "llama-guard-4", results: [{ flagged: false }] },
    { model: "llama-guard-4", results: [{ flagged: true, categories: { illicit: true } }] },
  ]);
});
