import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isObject, type JsonObject } from "../../dev/simulator/json.ts";
import { type Fleet, startFleet } from "./fleet.ts";
import { create, makeKey, newTenant, startWithKeys } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";

/** The settings of a model that repeats itself, its measurements, and other kinds of servers. */

const LINE = "Wait, let me think about the second case once more. ";
const LOOP = `SCRIPT[[‹think›\nA number? ${LINE.repeat(100)}\n‹/think›\n\nThe number is 42.‹|im_end|›]]`;
const SONG = `SCRIPT[[‹think›\nA song.\n‹/think›\n\n${"Rain falls on that roof, evermore. ".repeat(200)}‹|im_end|›]]`;

type Told = Response & { cut_items?: { id: string | null; reason: string }[] };

function reasoningIn({ output }: Pick<Response, "output">): string {
  const parts = output.flatMap((item) => (item.type === "reasoning" ? (item.content ?? []) : []));
  return parts.map(({ text }) => text).join("");
}

describe("REPETITION_GUARD and a key's repetition_guard", () => {
  let gateway: Gateway;
  beforeAll(async () => {
    const telemetry = { PROMETHEUS_METRICS: "true", PROMETHEUS_TOKEN: "scrape-me", TELEMETRY_LOG: "all" };
    gateway = await startWithKeys({ REPETITION_GUARD: "thoughts", ...telemetry });
  });
  afterAll(() => gateway.close());

  const cuts = async (limits: object | undefined, input: string): Promise<number> => {
    const key = await makeKey(gateway, newTenant(), limits);
    const answer = await create(gateway, key, { model: "tiny-qwen3", input });
    expect(answer.status).toBe(200);
    return ((await answer.json()) as Told).cut_items?.length ?? 0;
  };

  it("look only for repetition in reasoning, everywhere, or nowhere", async () => {
    expect(await cuts(undefined, LOOP)).toBe(1);
    expect(await cuts(undefined, SONG)).toBe(0);
    expect(await cuts({ repetition_guard: "on" }, SONG)).toBeGreaterThan(0);
    expect(await cuts({ repetition_guard: "off" }, LOOP)).toBe(0);
  });

  it("hold for runs as they were accepted", async () => {
    const key = await makeKey(gateway, newTenant(), { repetition_guard: "off" });
    const client = gateway.client({ apiKey: key.value });
    const { id } = await client.responses.create({ model: "tiny-qwen3", input: LOOP, background: true });
    const response = await eventually(async () => {
      const read = await client.responses.retrieve(id);
      return read.status === "queued" || read.status === "in_progress" ? undefined : (read as Told);
    });
    expect(response.cut_items).toBeUndefined();
    expect(reasoningIn(response).length).toBeGreaterThan(5_000);
  });

  it("are a 400 with any other value", async () => {
    await expect(makeKey(gateway, newTenant(), { repetition_guard: "maybe" } as never)).rejects.toThrow("400");
  });

  it("let a cut be counted, in the wide event and the metrics", async () => {
    const key = await makeKey(gateway, newTenant());
    const { id } = (await (await create(gateway, key, { model: "tiny-qwen3", input: LOOP })).json()) as Told;
    const event = await eventually(() => {
      const line = gateway
        .logs()
        .split("\n")
        .find((each) => each.includes(`"response_id":"${id}"`));
      return line === undefined ? undefined : (JSON.parse(line) as JsonObject);
    });
    expect(event).toMatchObject({ cuts: 1, take_ups: 1, outcome: "completed" });
    const metrics = await fetch(`${gateway.url}/metrics`, { headers: { authorization: "Bearer scrape-me" } });
    const counted = (await metrics.text()).split("\n").filter((line) => line.startsWith("responses_edge_cuts_total{"));
    expect(counted.join("\n")).toMatch(/responses_edge_text="thought",responses_edge_reason="repetition"\} [1-9]/);
  });
});

describe("a thought that is not shown", () => {
  let hidden: Gateway;
  beforeAll(async () => {
    hidden = await startWithKeys({ REASONING_CONTENT: "hidden", ALLOW_ANONYMOUS: "true" });
  });
  afterAll(() => hidden.close());

  const ofGptOss = `SCRIPT[[‹|channel|›analysis‹|message|›A number? ${LINE.repeat(100)}‹|end|›]]`;
  it.each([
    ["by the operator", { model: "tiny-qwen3", input: LOOP }, "The number is 42."],
    ["by the request", { model: "tiny-gpt-oss", input: ofGptOss, include_reasoning: false }, " (continued)"],
  ])("is closed, too (%s)", async (_, body, said) => {
    const key = await makeKey(hidden, newTenant());
    const answer = await create(hidden, key, body);
    const response = (await answer.json()) as Told;
    expect(response.status).toBe("completed");
    expect(response.cut_items?.map(({ reason }) => reason)).toEqual(["repetition"]);
    expect(JSON.stringify(response.output)).toContain(said);
    expect(JSON.stringify(response.output)).not.toContain(LINE);
  });
});

describe("another kind of server", () => {
  let fleet: Fleet;
  const kinds = ["llamacpp", "sglang", "ollama"] as const;
  beforeAll(async () => {
    const server = (kind: (typeof kinds)[number]) => {
      // llama.cpp continues after a thought, which only a scripted model knows.
      const models = [kind === "llamacpp" ? "tiny-qwen3" : kind];
      return { kind, models, fields: { models } };
    };
    fleet = await startFleet({ servers: Object.fromEntries(kinds.map((kind) => [kind, server(kind)])) });
  });
  afterAll(() => fleet.close());

  /** Lets a server's model output these texts, one after another. Gives the bodies of its requests. */
  async function ask(kind: string, texts: string[], body: object = {}, isStreamed = false) {
    const server = fleet.replicas.find(({ name }) => name === kind);
    if (!server) throw new Error(`There is no server ${kind}.`);
    fleet.clear();
    server.trouble = texts.length === 0 ? "" : `says=${encodeURIComponent(texts.join("\u001e"))}`;
    const asked = { model: kind, input: "2+2?", ...body } as ResponseCreateParamsNonStreaming;
    let response: Told | undefined;
    if (isStreamed) {
      for await (const event of await fleet.openai.responses.create({ ...asked, stream: true })) {
        if ("response" in event) response = event.response as Told;
      }
    } else response = (await fleet.openai.responses.create(asked)) as Told;
    const bodies = server.asked.map((each) => (isObject(each.body) ? each.body : {}));
    return { response: response as Told, bodies };
  }

  /** The last message of the last prompt. */
  const lastMessage = (bodies: readonly JsonObject[]): unknown => {
    const messages = bodies.at(-1)?.messages;
    return Array.isArray(messages) ? messages.at(-1) : undefined;
  };

  it.each(["sglang", "ollama"])("answers after a note that quotes a thought: %s", async (kind) => {
    const { response, bodies } = await ask(kind, [`<think>Hm. ${LINE.repeat(200)}</think>Five.`, "Four."]);
    expect(response.status).toBe("completed");
    expect(response.cut_items).toHaveLength(1);
    expect(reasoningIn(response).length).toBeLessThan(4_000);
    expect(lastMessage(bodies)).toMatchObject({ role: "user", content: expect.stringContaining(`Hm. ${LINE}`) });
  });

  it("answers after its thought: llama.cpp, whose template closes it before a line feed", async () => {
    const { response, bodies } = await ask("llamacpp", [], { model: "tiny-qwen3", input: LOOP });
    expect(response.output_text).toContain("The number is 42.");
    expect(response.cut_items).toHaveLength(1);
    expect(bodies.at(-1)).toMatchObject({ continue_final_message: true });
    expect(lastMessage(bodies)).toMatchObject({
      role: "assistant",
      reasoning_content: expect.stringMatching(/A number\? Wait, .{40,60}\.$/s),
      content: "\n",
    });
  });

  it.each(["sglang", "ollama"])("has its thinking budget enforced: %s", async (kind) => {
    const words = Array.from({ length: 400 }, (_, index) => `w${index}`).join(" ");
    const { response, bodies } = await ask(kind, [`<think>${words}</think>Five.`, "Four."], {
      thinking_token_budget: 20,
    });
    expect(response.cut_items?.map(({ reason }) => reason)).toEqual(["thinking_token_budget"]);
    expect(reasoningIn(response).length).toBeLessThan(200);
    expect(JSON.stringify(response.output)).toContain("Four.");
    for (const body of bodies) expect(body).not.toHaveProperty("thinking_token_budget");
  });

  it("that does not continue a text begins an answer anew if nobody has seen it, and else ends it", async () => {
    const song = "Rain falls on that roof, evermore. ".repeat(300);
    const { response, bodies } = await ask("ollama", [song, "It rains."]);
    expect(response).toMatchObject({ status: "completed", output_text: "It rains." });
    expect(bodies.map(({ frequency_penalty }) => frequency_penalty)).toEqual([undefined, 0.3]);
    const { response: seen } = await ask("ollama", [`Well. ${song}`, "It rains."], {}, true);
    expect(seen).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(seen.cut_items).toHaveLength(1);
  });
});
