import OpenAI from "openai";
import { describe, expect, test } from "vitest";
import { type ConformantFetch, conformantFetch } from "./client.ts";
import { Draft, goodItems, goodResponse } from "./fixtures.ts";
import type { JsonObject } from "./violations.ts";

const BASE = "http://server.invalid/v1";
const NOT_FOUND = { error: { message: "Not found.", type: "invalid_request_error", param: null, code: null } };
const STREAMED = { stream: true, include: ["message.output_text.logprobs"] };

describe("streams", () => {
  test("a good stream passes through openai-node", async () => {
    const checked = answering(sse(Draft.good()));
    const client = new OpenAI({ apiKey: "none", baseURL: BASE, maxRetries: 0, fetch: checked });
    const stream = client.responses.stream({ model: "m", input: "hi", include: ["message.output_text.logprobs"] });
    expect((await stream.finalResponse()).output_text).toBe("Hi there");
    await checked.settled();
  });

  test("bytes pass unchanged, chunk by chunk, before the end", async () => {
    const draft = Draft.good().text();
    const chunks = [draft.slice(0, 1000), draft.slice(1000, 1001), draft.slice(1001)];
    let release = (): void => undefined;
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const chunk = chunks.shift();
        if (chunks.length === 1) await gate;
        if (chunk === undefined) controller.close();
        else controller.enqueue(encoder.encode(chunk));
      },
    });
    const checked = answering(new Response(body, { headers: { "content-type": "text/event-stream" } }));
    const answer = await post(checked, STREAMED);
    const reader = answer.body?.getReader();
    const first = new TextDecoder().decode((await reader?.read())?.value);
    expect(first).toBe(draft.slice(0, 1000));
    release();
    let rest = "";
    for (let next = await reader?.read(); next !== undefined && !next.done; next = await reader?.read()) {
      rest += new TextDecoder().decode(next.value);
    }
    expect(first + rest).toBe(draft);
    await checked.settled();
  });

  test("a broken stream is reported once, with its request", async () => {
    const draft = Draft.good();
    draft.remove("response.output_text.delta");
    const checked = answering(sse(draft));
    await (await post(checked, STREAMED)).text();
    await expect(checked.settled()).rejects.toThrow("POST /v1/responses: #12 deltasAddUpToText");
    await checked.settled();
  });

  test("options are read from the request", async () => {
    const checked = answering(sse(Draft.good()));
    await (await post(checked, { stream: true, stream_options: { include_obfuscation: false } })).text();
    const found = await violations(checked);
    expect(found).toContain("#19 logprobsOnlyWhenAsked");
    expect(found).toContain("#20 obfuscationOnlyOnDeltas");
    const background = answering(sse(Draft.good()));
    await (await post(background, { ...STREAMED, background: true })).text();
    expect(await violations(background)).toContain("#2 inProgressNext");
  });

  test("the terminal response must echo the request", async () => {
    const checked = answering(sse(Draft.good()));
    await (await post(checked, { ...STREAMED, temperature: 0.1 })).text();
    expect(await violations(checked)).toContain("#21 echo: temperature");
  });

  test("a stream that ends early is reported, one that its reader cancels is not", async () => {
    const draft = Draft.good();
    draft.events.length = 5;
    draft.done = false;
    const ended = answering(sse(draft));
    await (await post(ended, STREAMED)).text();
    expect(await violations(ended)).toContain("#5 oneTerminalEventLast");

    const left = answering(sse(draft));
    const reader = (await post(left, STREAMED)).body?.getReader();
    await reader?.read();
    await reader?.cancel();
    await left.settled();
  });

  test("the received part of a stream is checked if the network cut it off, or it is still open", async () => {
    for (const end of ["error", "open"] as const) {
      const draft = Draft.good();
      draft.data("response.in_progress").sequence_number = 7;
      const text = draft.text().slice(0, 6000);
      const checked = answering(cut(text, end));
      const reader = (await post(checked, STREAMED)).body?.getReader();
      await reader?.read();
      if (end === "error") await expect(reader?.read()).rejects.toThrow("network");
      const found = await violations(checked);
      expect(found).toContain("#3 sequenceCounts");
      expect(found).not.toContain("#5");
      expect(found).not.toContain("framing");
    }
  });

  test("a replay must give the same events, as a whole or in part", async () => {
    const other = Draft.good();
    other.data("response.output_text.delta").delta = "Ho";
    for (const [replayed, expected] of [
      [Draft.good(), ""],
      [other, "#36 replay: event"],
    ] as const) {
      const tail = new Draft();
      tail.events = replayed.events.slice(6);
      const checked = answering(sse(Draft.good()), sse(tail));
      await (await post(checked, STREAMED)).text();
      await (await checked(`${BASE}/responses/resp_1?stream=true&starting_after=5`)).text();
      expect(await violations(checked)).toContain(expected);
      if (expected === "") expect(await violations(checked)).toBe("");
    }
  });

  test("a replay without a known beginning is checked from its first event", async () => {
    const tail = new Draft();
    tail.events = Draft.good().events.slice(6);
    const good = answering(sse(tail));
    await (await good(`${BASE}/responses/resp_1?stream=true&starting_after=5`)).text();
    await good.settled();
    const bad = answering(sse(tail));
    await (await bad(`${BASE}/responses/resp_1?stream=true&starting_after=4`)).text();
    expect(await violations(bad)).toContain("#3 sequenceCounts");
  });

  test("a cancelled response may end without a terminal event", async () => {
    const draft = Draft.good();
    draft.events.length = 5;
    const cancelled = goodResponse({ status: "cancelled", completed_at: null, output: [], usage: null });
    const checked = answering(json(cancelled), sse(draft));
    await checked(`${BASE}/responses/resp_1/cancel`, { method: "POST" });
    await (await checked(`${BASE}/responses/resp_1?stream=true`)).text();
    await checked.settled();
  });

  test("a missing end is reported after a refused cancellation", async () => {
    const draft = Draft.good();
    draft.events.length = 5;
    const checked = answering(json(NOT_FOUND, 400), sse(draft));
    await checked(`${BASE}/responses/resp_1/cancel`, { method: "POST" });
    await (await checked(`${BASE}/responses/resp_1?stream=true`)).text();
    expect(await violations(checked)).toContain("#5 oneTerminalEventLast");
  });

  test("a requested stream must be a stream", async () => {
    const checked = answering(json(goodResponse()));
    await post(checked, { stream: true });
    expect(await violations(checked)).toContain("#7 a stream was asked for");
  });
});

describe("bodies", () => {
  test("a response is checked, and compared with the stream before it", async () => {
    const later = goodResponse({ metadata: { changed: "yes" } });
    for (const [body, expected] of [
      [goodResponse(), ""],
      [goodResponse({ temperature: null }), "#21 requiredKeysFilled"],
      [later, "#18 final object: metadata"],
    ] as const) {
      const checked = answering(sse(Draft.good()), json(body));
      await (await post(checked, STREAMED)).text();
      const answer = await checked(`${BASE}/responses/resp_1`);
      expect(await answer.json()).toEqual(body);
      const found = await violations(checked);
      if (expected === "") expect(found).toBe("");
      else expect(found).toContain(expected);
    }
  });

  test("a response whose metadata were changed has these, and is otherwise as before", async () => {
    const changed = goodResponse({ metadata: { a: "b" } });
    for (const [bodies, expected] of [
      [[changed, changed], ""],
      [[goodResponse(), goodResponse()], "#18 final object: metadata"],
      [[changed, goodResponse()], "#18 final object: metadata"],
      [[{ ...changed, model: "another" }, changed], "#18 final object: model"],
    ] as const) {
      const checked = answering(sse(Draft.good()), ...bodies.map((body) => json(body)));
      await (await post(checked, STREAMED)).text();
      const body = JSON.stringify({ metadata: { a: "b" } });
      await (await checked(`${BASE}/responses/resp_1`, { method: "POST", body })).json();
      await (await checked(`${BASE}/responses/resp_1`)).json();
      const found = await violations(checked);
      if (expected === "") expect(found).toBe("");
      else expect(found).toContain(expected);
    }
  });

  test.each<[string, JsonObject, string, string]>([
    ["good", {}, "", ""],
    ["empty", { data: [], first_id: null, last_id: null }, "", ""],
    ["without last_id", { last_id: undefined }, "", "#37 list schema"],
    ["a wrong first_id", { first_id: "msg_9" }, "", "#37 list: first_id"],
    ["a wrong last_id", { last_id: "msg_9" }, "", "#37 list: last_id"],
    ["empty, but more", { data: [], first_id: null, last_id: null, has_more: true }, "", "an empty page has more"],
    ["too long", {}, "?limit=1", "the limit is 1"],
    ["from its own item", {}, "?after=msg_1", "after which it begins"],
    [
      "an item twice",
      { data: [goodItems()[1], goodItems()[1]], first_id: "msg_1", last_id: "msg_1" },
      "",
      "of another",
    ],
    ["a bad item", { data: [{ type: "message", id: "msg_1", role: "user" }], last_id: "msg_1" }, "", "'content'"],
    ["no id", { data: [{ ...goodItems()[1], id: "" }], first_id: "", last_id: "" }, "", "has no id"],
  ])("a list of items: %s", async (_what, changes, query, expected) => {
    const user = {
      type: "message",
      id: "msg_2",
      role: "user",
      content: [{ type: "input_text", text: "hi" }],
      status: "completed",
    };
    const list = { object: "list", data: [goodItems()[1], user], first_id: "msg_1", last_id: "msg_2", has_more: false };
    const checked = answering(json({ ...list, ...changes }));
    await checked(`${BASE}/responses/resp_1/input_items${query}`);
    const found = await violations(checked);
    if (expected === "") expect(found).toBe("");
    else expect(found).toContain(expected);
  });

  test.each<[string, JsonObject, boolean]>([
    ["good", { id: "resp_1", object: "response", deleted: true }, true],
    ["another id", { id: "resp_2", object: "response", deleted: true }, false],
    ["not deleted", { id: "resp_1", object: "response", deleted: false }, false],
    ["another object", { id: "resp_1", object: "thing", deleted: true }, false],
    ["an extra key", { id: "resp_1", object: "response", deleted: true, extra: 1 }, false],
  ])("a deletion: %s", async (_what, body, good) => {
    const checked = answering(json(body));
    await checked(`${BASE}/responses/resp_1`, { method: "DELETE" });
    expect((await violations(checked)) === "").toBe(good);
  });

  test.each<[string, JsonObject, string]>([
    ["input tokens", { object: "response.input_tokens", input_tokens: 3 }, ""],
    ["input tokens without a count", { object: "response.input_tokens" }, "#39 InputTokenCountResponse"],
    ["a compaction without output", { object: "response.compaction" }, "#39 CompactedResponse"],
    ["an unknown object", { object: "thing" }, "unknown object"],
  ])("%s", async (_what, body, expected) => {
    const checked = answering(json(body));
    await post(checked, {}, "/responses/compact");
    const found = await violations(checked);
    if (expected === "") expect(found).toBe("");
    else expect(found).toContain(expected);
  });

  test("JSON needs its content type", async () => {
    const checked = answering(new Response(JSON.stringify(goodResponse())));
    await post(checked, {});
    expect(await violations(checked)).toContain("content-type");
  });
});

describe("errors", () => {
  const error = NOT_FOUND.error;
  test.each<[string, unknown, string]>([
    ["good", NOT_FOUND, ""],
    ["not nested", error, "is not {error"],
    ["beside something", { ...NOT_FOUND, detail: 1 }, "is not {error"],
    ["without param", { error: { message: "x", type: "y", code: null } }, "has keys"],
    ["with a fifth key", { error: { ...error, status: 404 } }, "has keys"],
    ["an empty message", { error: { ...error, message: " " } }, "message is"],
    ["a null type", { error: { ...error, type: null } }, "type is null"],
    ["a numeric code", { error: { ...error, code: 404 } }, "code is 404"],
    ["a list as param", { error: { ...error, param: [] } }, "param is []"],
    ["a stack trace", { error: { ...error, message: "Error: x\n    at run (worker.js:10:20)" } }, "stack trace"],
  ])("%s", async (_what, body, expected) => {
    const checked = answering(json(body, 404));
    await checked(`${BASE}/responses/resp_1`);
    const found = await violations(checked);
    if (expected === "") expect(found).toBe("");
    else expect(found).toContain(expected);
  });

  test("text is reported as an invalid error body", async () => {
    const checked = answering(new Response("Internal Server Error", { status: 500 }));
    await post(checked, {});
    const found = await violations(checked);
    expect(found).toContain("content-type");
    expect(found).toContain("is not {error");
  });

  test("other paths are not checked", async () => {
    const checked = answering(new Response("nope", { status: 500 }));
    await checked("http://server.invalid/health");
    await checked.settled();
  });
});

/** A checked fetch whose server gives these answers, one after the other. */
function answering(...answers: Response[]): ConformantFetch {
  return conformantFetch(async () => {
    const answer = answers.shift();
    if (answer === undefined) throw new Error("no answer left");
    return answer;
  });
}

async function post(checked: ConformantFetch, body: JsonObject, path = "/responses"): Promise<Response> {
  return checked(BASE + path, { method: "POST", body: JSON.stringify(body) });
}

/** All violations, as one text; empty if there are none. */
async function violations(checked: ConformantFetch): Promise<string> {
  try {
    await checked.settled();
    return "";
  } catch (error) {
    return String(error);
  }
}

function json(body: unknown, status = 200): Response {
  return Response.json(body, { status });
}

function sse(draft: Draft): Response {
  return new Response(draft.text(), { headers: { "content-type": "text/event-stream; charset=utf-8" } });
}

/** A stream that sends some text, and then fails or hangs. */
function cut(text: string, end: "error" | "open"): Response {
  let sent = false;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (!sent) controller.enqueue(new TextEncoder().encode(text));
      else if (end === "error") controller.error(new Error("network"));
      else return new Promise<void>(() => undefined);
      sent = true;
      return undefined;
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}
