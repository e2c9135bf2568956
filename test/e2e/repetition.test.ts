import type { Response, ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { completions, decode, idsOf } from "./harmony-support.ts";
import { type Asked, chunk, MODEL, type Reply, type ScriptedGateway, startScripted, stream } from "./scripted-vllm.ts";
import { type Gateway, joinGateway } from "./support.ts";

/** A model that repeats itself answers all the same, and the response tells what was cut. */

const LINE = "Wait, let me think about the second case once more. ";
const THOUGHT = `The user wants a number. ${LINE.repeat(100)}`;
const KEPT = `The user wants a number. ${LINE}`;
const WORDS = "The bell rings, and the door opens. ";

let gateway: Gateway;
let scripted: ScriptedGateway;
beforeAll(async () => {
  gateway = await joinGateway();
  scripted = await startScripted();
});
afterAll(async () => {
  await gateway.close();
  await scripted.close();
});

/** A response with the field that OpenAI's type does not have. */
type Told = Response & { cut_items?: { id: string | null; reason: string }[] };

async function create(body: ResponseCreateParamsNonStreaming, through: Pick<Gateway, "openai"> = gateway) {
  const response = (await through.openai.responses.create(body)) as Told;
  return { response, items: response.output.map(({ type }) => type), text: response.output_text };
}

/** The same from the last event of a stream. */
async function streamed(body: ResponseCreateParamsNonStreaming, through: Pick<Gateway, "openai"> = gateway) {
  for await (const event of await through.openai.responses.create({ ...body, stream: true })) {
    if (event.type === "response.completed" || event.type === "response.incomplete") return event.response as Told;
  }
  throw new Error("The response failed.");
}

function reasoningIn({ output }: Response): string {
  return output
    .flatMap((item) => (item.type === "reasoning" ? (item.content ?? []) : []))
    .map(({ text }) => text)
    .join("");
}

function textIn({ output }: Response): string {
  const parts = output.flatMap((item) => (item.type === "message" ? item.content : []));
  return parts.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}

/** The text in pieces, as a server streams it. */
function pieces(field: "reasoning" | "content", text: string): object[] {
  return (text.match(/.{1,6}/gs) ?? []).map((piece) => ({ [field]: piece }));
}

/** A generation that does not end by itself. */
function endless(field: "reasoning" | "content", beginning: string, line: string): Reply {
  function* events() {
    yield chunk({ role: "assistant", content: "" });
    for (const delta of pieces(field, beginning)) yield chunk(delta);
    // More than the gateway reads of it.
    for (let count = 0; count < 20_000; count += 1) yield chunk({ [field]: line });
  }
  return { events: { [Symbol.iterator]: events } };
}

/** A request to a gpt-oss that says this, token by token. */
function ofGptOss(script: string) {
  const said = script.replaceAll("<", "‹").replaceAll(">", "›");
  return { model: "tiny-gpt-oss", input: `SCRIPT[[${said}‹|return|›]]` };
}

/** The prompts of gpt-oss that `work` makes, and what it gives. */
async function prompted<Result>(
  work: () => Promise<Result>,
): Promise<{ result: Result; bodies: Asked[]; prompts: string[] }> {
  const before = completions(gateway).length;
  const result = await work();
  const bodies = completions(gateway)
    .slice(before)
    .map(({ body }) => body);
  const prompts = await Promise.all(bodies.map(async (body) => decode(await idsOf(body))));
  return { result, bodies, prompts };
}

const chats = (asked: readonly Asked[]) => asked.filter(({ stream: isStream }) => isStream === true);

/** Answers prompts to be counted, and the others one after another. */
function answering(...replies: Reply[]): (body: Asked) => Reply {
  let next = 0;
  return (body) => {
    if (body.stream === undefined) return { status: 200, body: { count: 20, max_model_len: 4096, tokens: [] } };
    const reply = replies[Math.min(next, replies.length - 1)];
    next += 1;
    return reply ?? { status: 500, body: {} };
  };
}

describe("a thought that repeats itself", () => {
  const script = `SCRIPT[[‹think›\n${THOUGHT}\n‹/think›\n\nThe number is 42.‹|im_end|›]]`;

  it.each(["json", "stream"])("is closed, and the model answers (%s)", async (way) => {
    const body = { model: "tiny-qwen3", input: script };
    const response = way === "json" ? (await create(body)).response : await streamed(body);
    expect(response.status).toBe("completed");
    expect(textIn(response)).toBe("The number is 42.");
    const thought = reasoningIn(response);
    expect(THOUGHT.startsWith(thought.trim())).toBe(true);
    expect(thought.length).toBeLessThan(3_000);
    const [reasoning] = response.output;
    expect(response.cut_items).toEqual([{ id: reasoning?.id, reason: "repetition" }]);
    expect(reasoning).toMatchObject({ type: "reasoning", status: "completed" });
    const [, continued] = gateway.vllm.simulator.requests
      .filter(({ path }) => path === "/v1/chat/completions")
      .slice(-2);
    expect(continued?.body).toMatchObject({
      continue_final_message: true,
      messages: [{ role: "user" }, { role: "assistant", reasoning: expect.stringContaining(KEPT.trim()), content: "" }],
    });
    // Once in each of the two fields for reasoning.
    expect(JSON.stringify(continued?.body).split(LINE.trim()).length - 1).toBe(102);
  });

  it("counts the repetitions as output, once", async () => {
    const { response } = await create({ model: "tiny-qwen3", input: script });
    const { usage } = response;
    const own = await create({ model: "tiny-qwen3", input: "SCRIPT[[‹think›\nA\n‹/think›\n\nB‹|im_end|›]]" });
    // The prompt is the script itself; its thought has 100 lines, of which about half were generated.
    expect(usage?.input_tokens).toBeGreaterThan(1_000);
    expect(usage?.input_tokens).toBeLessThan(1_300);
    expect(usage?.output_tokens_details.reasoning_tokens).toBeGreaterThan(300);
    expect(usage?.output_tokens).toBeLessThan(700);
    expect(usage?.total_tokens).toBe((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0));
    expect(own.response.cut_items).toBeUndefined();
  });

  it("is quoted in a note to a server that does not continue after reasoning", async () => {
    scripted.replies(answering(endless("reasoning", "Hm. ", LINE), stream([{ content: "Four." }], "stop")));
    const body = { model: MODEL, input: "2+2?", text: { format: { type: "json_object" as const } } };
    scripted.replies(answering(endless("reasoning", "Hm. ", LINE), stream([{ content: '{"a":4}' }], "stop")));
    const { response, text } = await create(body, scripted);
    expect(text).toBe('{"a":4}');
    expect(response.status).toBe("completed");
    const [, note] = chats(scripted.asked);
    expect(note).toMatchObject({ chat_template_kwargs: { enable_thinking: false } });
    expect(note?.messages.at(-1)).toEqual({
      role: "user",
      content: `You have reasoned so far:\n\nHm. ${LINE}\n\nYour reasoning ends here. Answer now, without reasoning any further.`,
    });
  });

  it("ends the response after two attempts", async () => {
    scripted.replies(answering(endless("reasoning", "Hm. ", LINE)));
    const { response } = await create(
      { model: MODEL, input: "2+2?", text: { format: { type: "json_object" } } },
      scripted,
    );
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response.cut_items?.map(({ reason }) => reason)).toEqual(["repetition", "repetition"]);
    expect(chats(scripted.asked)).toHaveLength(3);
  });

  it("of gpt-oss goes on from its exact tokens", async () => {
    const thought = `<|channel|>analysis<|message|>${THOUGHT}<|end|>`;
    const { result, bodies, prompts } = await prompted(() => create(ofGptOss(thought)));
    expect(result.items).toEqual(["reasoning", "message"]);
    expect(result.response.status).toBe("completed");
    expect(result.text).toBe(" (continued)");
    const [before = "", after] = prompts;
    expect(bodies).toHaveLength(2);
    expect(Array.isArray(bodies[1]?.prompt)).toBe(true);
    const cut = `<|channel|>analysis<|message|>${KEPT.trimEnd()}<|end|>`;
    expect(after).toBe(`${before}${cut}<|start|>assistant<|channel|>final<|message|>`);
    const { usage } = result.response;
    const [{ prompt }] = bodies as [Asked];
    expect(usage?.input_tokens).toBe((await idsOf({ prompt })).length);
    expect(usage?.output_tokens_details.reasoning_tokens).toBeGreaterThan(300);
  });

  it("of gpt-oss may be followed by a call", async () => {
    const thought = `<|channel|>analysis<|message|>${THOUGHT}<|end|>`;
    const tools = [{ type: "function", name: "f", parameters: null, strict: false } as const];
    const { prompts } = await prompted(() => create({ ...ofGptOss(thought), tools }));
    expect(prompts[1]).toMatch(/second case once more\.<\|end\|><\|start\|>assistant$/);
  });
});

describe("an answer that repeats itself", () => {
  it("is cut, and goes on with another seed and penalties", async () => {
    scripted.replies(answering(endless("content", "Once. ", WORDS), stream([{ content: "The end." }], "stop")));
    const response = await streamed({ model: MODEL, input: "A story.", seed: 7 } as never, scripted);
    expect(response.status).toBe("completed");
    const text = textIn(response);
    expect(text.startsWith(`Once. ${WORDS.repeat(100)}`)).toBe(true);
    expect(text.endsWith("The end.")).toBe(true);
    expect(text.length).toBeLessThan(6_000);
    const [, continued] = chats(scripted.asked);
    expect(continued).toMatchObject({ seed: 8, frequency_penalty: 0.3, repetition_penalty: 1.05 });
    expect(continued?.messages.at(-1)).toEqual({ role: "assistant", content: `Once. ${WORDS.trimEnd()}` });
    expect(response.cut_items).toEqual([{ id: response.output[0]?.id, reason: "repetition" }]);
  });

  it("ends the response after two attempts", async () => {
    scripted.replies(answering(endless("content", "Once. ", WORDS)));
    const response = await streamed({ model: MODEL, input: "A story." }, scripted);
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(chats(scripted.asked).map(({ frequency_penalty }) => frequency_penalty)).toEqual([undefined, 0.3, 0.6]);
    expect(response.cut_items).toHaveLength(2);
  });

  it("of gpt-oss goes on from its exact tokens", async () => {
    const script = ofGptOss(`<|channel|>final<|message|>Once. ${WORDS.repeat(300)}`);
    const { result, bodies, prompts } = await prompted(() => streamed(script));
    const [before, after] = prompts;
    expect(after).toBe(`${before}<|channel|>final<|message|>Once. ${WORDS.trimEnd()}`);
    expect(bodies[1]).toMatchObject({ frequency_penalty: 0.3, repetition_penalty: 1.05 });
    expect(result.cut_items?.[0]).toEqual({ id: result.output.at(-1)?.id, reason: "repetition" });
  });

  it("is left alone in a block of code", async () => {
    const code = `\`\`\`\n${"x = step(x)\n".repeat(800)}\`\`\``;
    scripted.replies(answering(stream(pieces("content", code), "stop")));
    const { response, text } = await create({ model: MODEL, input: "Code." }, scripted);
    expect(text).toBe(code);
    expect(response.cut_items).toBeUndefined();
  });

  it("is left alone where the client turns detection off", async () => {
    const answer = WORDS.repeat(400);
    scripted.replies(answering(stream(pieces("content", answer), "stop")));
    const body = { model: MODEL, input: "A story.", repetition_detection: { max_pattern_size: 0 } };
    expect((await create(body as never, scripted)).text).toBe(answer);
  });
});

describe("vLLM's own repetition_detection", () => {
  const body = { input: "2+2?", repetition_detection: { max_pattern_size: 20, min_count: 4 } };

  it("ends a thought, and the model answers", async () => {
    const thought = pieces("reasoning", `Hm. ${LINE.repeat(4)}`);
    scripted.replies(answering(stream(thought, "repetition"), stream([{ content: "Four." }], "stop")));
    const response = await streamed({ ...body, model: MODEL } as never, scripted);
    expect(textIn(response)).toBe("Four.");
    const [first, second] = chats(scripted.asked);
    expect(first).toMatchObject({ repetition_detection: body.repetition_detection });
    expect(second?.messages.at(-1)).toMatchObject({ reasoning: `Hm. ${LINE}`, content: "" });
    expect(response.usage).toMatchObject({ input_tokens: 20 });
    expect(response.cut_items).toHaveLength(1);
  });
});

describe("a thinking budget", () => {
  it("is enforced here where a vLLM does not know its model's reasoning", async () => {
    const refusal = "thinking_token_budget is set but reasoning_config is not configured.";
    const thought = Array.from({ length: 500 }, (_, index) => ({ reasoning: ` n${index}` }));
    const error = { error: { message: refusal, type: "BadRequestError", param: null, code: 400 } };
    scripted.replies(
      answering({ status: 400, body: error }, stream(thought, "stop"), stream([{ content: "Four." }], "stop")),
    );
    const { response, text } = await create(
      { model: MODEL, input: "2+2?", thinking_token_budget: 50 } as never,
      scripted,
    );
    expect(text).toBe("Four.");
    const [, free, last] = chats(scripted.asked);
    expect(free?.thinking_token_budget).toBeUndefined();
    expect(reasoningIn(response).endsWith(" n49")).toBe(true);
    expect(last?.messages.at(-1)).toMatchObject({ reasoning: reasoningIn(response), content: "" });
    expect(response.cut_items).toEqual([{ id: response.output[0]?.id, reason: "thinking_token_budget" }]);
  });

  it("is enforced here for gpt-oss", async () => {
    const words = Array.from({ length: 300 }, (_, index) => `w${index}`).join(" ");
    const script = ofGptOss(`<|channel|>analysis<|message|>${words}`);
    const { result, bodies, prompts } = await prompted(() => create({ ...script, thinking_token_budget: 20 } as never));
    expect(result.items).toEqual(["reasoning", "message"]);
    // Events of an answer that nobody watches have 16 tokens.
    expect(reasoningIn(result.response).length).toBeGreaterThan(40);
    expect(reasoningIn(result.response).length).toBeLessThan(120);
    expect(bodies[0]).not.toHaveProperty("thinking_token_budget");
    expect(prompts[1]).toBe(
      `${prompts[0]}<|channel|>analysis<|message|>${reasoningIn(result.response)}<|end|><|start|>assistant<|channel|>final<|message|>`,
    );
  });
});
