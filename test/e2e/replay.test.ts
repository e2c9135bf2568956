import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ResponseCreateParamsNonStreaming, ResponseStreamEvent } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Refusal } from "../../cli/serve/refusal.ts";
import { replayRun } from "../../cli/tools/replay-run.ts";
import { parseEventStream } from "../conformance/event-stream.ts";
import { streamFrom, typesOf, withoutHeartbeats } from "./event-streams.ts";
import { expectError } from "./expectations.ts";
import { GPT_OSS } from "./harmony-support.ts";
import { type Gateway, startGateway } from "./support.ts";
import { generations, MODELS, mcp, startTools, type ToolServer } from "./tool-support.ts";

/** Replays: a stored response's events once more. */

let gateway: Gateway;
let server: ToolServer;
beforeAll(async () => {
  server = await startTools({ add: { properties: { a: { const: 1 }, b: { const: 2 } }, run: () => "3" } });
  gateway = await startGateway({ MCP_SERVERS: server.url, CITATIONS: "true" });
});
afterAll(async () => {
  await gateway?.close();
  await server?.close();
});

const look = { type: "function", name: "look", parameters: { type: "object", properties: {} }, strict: false } as const;
const note = { type: "custom", name: "note" } as const;

function replayOf(id: string, body: object | undefined = undefined): Promise<Response> {
  return gateway.fetch(`${gateway.url}/v1/responses/${id}/replay`, {
    method: "POST",
    ...(body && { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
  });
}

async function replayed(id: string, body?: object): Promise<{ kind: string | null; text: string }> {
  const answer = await replayOf(id, body);
  expect(answer.status, await (answer.ok ? "" : answer.clone().text())).toBe(200);
  return { kind: answer.headers.get("x-replay"), text: withoutHeartbeats(await answer.text()) };
}

/** The number of requests for an answer, and of calls of tools, so far. */
const asked = () => [generations(gateway).length, server.calls.length];

/** A stream of a run, as its first reader got it. */
async function runStream(body: object): Promise<{ id: string; text: string }> {
  const answer = await gateway.post({ ...body, background: true, stream: true });
  const text = withoutHeartbeats(await answer.text());
  return { id: /"id":"(resp_\w+)"/.exec(text)?.[1] ?? "", text };
}

describe.each(MODELS)("a background response of %s", (model) => {
  it("is replayed with the same bytes, and no model and no tool is asked", async () => {
    const { id, text } = await runStream({ model, input: "Call docs__add.", tools: [mcp(server)] });
    const before = asked();
    expect(await replayed(id)).toEqual({ kind: "exact", text });
    expect(await replayed(id, { speed: 1000 })).toEqual({ kind: "exact", text });
    expect(await replayed(id, { starting_after: 3 })).toEqual({ kind: "exact", text: streamFrom(text, 4) });
    expect((await replayed(id, { include_obfuscation: false })).text).not.toContain('"obfuscation"');
    expect(asked()).toEqual(before);
  });
});

const OTHERS: [string, ResponseCreateParamsNonStreaming][] = [
  [
    "a text",
    { model: "simulator", input: "Hello, how are you today? 你好，今天过得怎么样，我们一起去吃饭吧好不好呀朋友们." },
  ],
  [
    "log probabilities",
    { model: "simulator", input: "Hi!", top_logprobs: 2, include: ["message.output_text.logprobs"] },
  ],
  ["a thought", { model: "simulator-reasoning", input: "Hello!" }],
  ["a summary", { model: "simulator-reasoning", input: "Hello!", reasoning: { summary: "auto" } }],
  ["a refusal", { model: "simulator?refusal=1", input: "Hello!" }],
  ["a call of a function", { model: "simulator", input: "Call look.", tools: [look] }],
  ["a call of a custom tool", { model: "simulator", input: "Call note.", tools: [note] }],
  ["an incomplete text", { model: "simulator", input: "Go on and on.", max_output_tokens: 3 }],
  ["a hosted call", { model: "simulator", input: "Call docs__add.", tools: [] }],
  ["a hosted call of gpt-oss", { model: GPT_OSS, input: "Call docs__add.", tools: [] }],
];

describe("another response", () => {
  it.each(OTHERS)("with %s has the events that its items imply, always the same", async (_, fields) => {
    const body = { ...fields, ...(fields.tools?.length === 0 && { tools: [mcp(server)] }) };
    const response = await gateway.openai.responses.create(body);
    const stored = await gateway.openai.responses.retrieve(response.id, { include: ["reasoning.encrypted_content"] });
    const before = asked();
    const { kind, text } = await replayed(response.id);
    expect(kind).toBe("rebuilt");
    expect(await replayed(response.id)).toEqual({ kind, text });
    expect(await replayed(response.id, { starting_after: 2 })).toEqual({ kind, text: streamFrom(text, 3) });
    expect(asked()).toEqual(before);
    // The end is the stored response, and each item that is done is its item.
    const events = parseEventStream(text).events.map(({ data }) => data as ResponseStreamEvent);
    const { output_text: _text, ...plain } = stored;
    expect(events.at(-1)).toMatchObject({ response: plain });
    const done = events.flatMap((event) => (event.type === "response.output_item.done" ? [event.item] : []));
    expect(done).toEqual(stored.output);
    // A stream of the same request has the same kinds of events in the same order.
    const live = await (await gateway.post({ ...body, stream: true })).text();
    expect(typesOf(text)).toEqual(typesOf(live));
  });

  it("begins with the head that a stream of it begins with", async () => {
    const body = { model: "simulator", input: "Call docs__add.", tools: [mcp(server)], metadata: { a: "b" } };
    const { id } = await gateway.openai.responses.create(body);
    const first = (text: string) => {
      const [event] = parseEventStream(text).events;
      const { response } = (event?.data ?? {}) as { response?: Record<string, unknown> };
      return { ...response, id: "", created_at: 0 };
    };
    const live = await (await gateway.post({ ...body, stream: true })).text();
    expect(first((await replayed(id)).text)).toEqual(first(live));
  });
});

describe("the pace of a replay", () => {
  it("needs a speed from 0.01 to 1000", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    for (const speed of [0, -1, 1001, "fast"]) {
      await expectError(await replayOf(id, { speed }), { status: 400, param: "speed" });
    }
  });
});

describe("an exported response", () => {
  /** The file of an export, as the command reads it. */
  async function fileOf(id: string, change = (text: string) => text): Promise<string> {
    const answer = await gateway.fetch(`${gateway.url}/v1/responses/${id}/export`);
    expect(answer.headers.get("content-type")).toBe("application/jsonl");
    const file = join(mkdtempSync(join(tmpdir(), "replay-")), "run.jsonl");
    writeFileSync(file, change(await answer.text()));
    return file;
  }

  /** What the command prints, and its exit code. */
  async function command(file: string): Promise<{ lines: string[]; exitCode: number }> {
    const lines: string[] = [];
    let exitCode = 0;
    await replayRun({ file, against: `${gateway.url}/v1`, key: undefined }, (line) => lines.push(line)).catch(
      (error) => {
        ({ exitCode } = error as Refusal);
      },
    );
    return { lines, exitCode };
  }

  it("is asked for again, with the outputs of the client's tools, and each item is compared", async () => {
    const { id: conversation } = await gateway.openai.conversations.create();
    const fields = { model: "simulator", tools: [look, mcp(server)], conversation };
    const first = await gateway.openai.responses.create({ ...fields, input: "Call look." });
    const call = first.output.find((item) => item.type === "function_call");
    const output = { type: "function_call_output", call_id: call?.call_id ?? "", output: "sun" } as const;
    const second = await gateway.openai.responses.create({ ...fields, input: [output] });
    const third = await gateway.openai.responses.create({
      ...{
        model: "simulator-reasoning",
        input: "Call docs__add.",
        tools: [mcp(server)],
        previous_response_id: second.id,
      },
    });
    const same = await command(await fileOf(third.id));
    expect(
      same.lines.map((line) => line.split(" ")[0]),
      same.lines.join("\n"),
    ).toEqual(["equal", "equal", "equal", "3"]);
    expect(same.exitCode, same.lines.join("\n")).toBe(0);
    const other = (text: string) => text.replaceAll("returned: sun", "returned: rain");
    const changed = await command(await fileOf(third.id, other));
    expect(changed.exitCode).toBe(1);
    expect(changed.lines.filter((line) => line.startsWith("differs"))).toHaveLength(1);
    expect(changed.lines.join("\n")).toMatch(/output\[0\]:\n {4}- .*returned: rain.*\n {4}\+ .*returned: sun/);
  });

  it("that is not whole is refused", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    const cut = await fileOf(id, (text) => text.slice(0, text.lastIndexOf("{")));
    expect(await command(cut)).toEqual({ lines: [], exitCode: 65 });
  });
});

describe("a replay of a response that does not exist", () => {
  it("is the 404 of an unknown one, also after it was deleted", async () => {
    const { id } = await gateway.openai.responses.create({ model: "simulator", input: "Hello!" });
    await gateway.openai.responses.delete(id);
    for (const each of [id, `resp_${"0".repeat(32)}`]) await expectError(await replayOf(each), { status: 404 });
  });
});
