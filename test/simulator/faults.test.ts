import { connect } from "node:net";
import { describe, expect, test } from "vitest";
import { createSimulator } from "../../dev/simulator/handler.ts";
import {
  CHAT,
  chat,
  chatEvents,
  deltas,
  events,
  joined,
  message,
  object,
  post,
  server,
  until,
  user,
} from "./support.ts";

const running = server();

function ask(settings: string, body: object = {}, signal?: AbortSignal): Promise<Response> {
  return fetch(`${running().url}${CHAT}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-simulator": settings },
    body: JSON.stringify({ model: "simulator", stream: true, messages: user("one two three four"), ...body }),
    signal: signal ?? null,
  });
}

/** The received part of a body, and whether it ended regularly. */
async function drain(response: Response): Promise<{ text: string; broken: boolean }> {
  let text = "";
  const decoder = new TextDecoder();
  try {
    for await (const bytes of response.body ?? []) text += decoder.decode(bytes, { stream: true });
    return { text, broken: false };
  } catch {
    return { text, broken: true };
  }
}

function lastRequest() {
  const last = running().simulator.lastAsked;
  if (last === undefined) throw new Error("No request arrived");
  return last;
}

/** The chunks of a raw HTTP/1.1 answer, as the socket had them. */
async function rawChunks(settings: string): Promise<string[]> {
  const { hostname, port } = new URL(running().url);
  const body = JSON.stringify({ model: "simulator", stream: true, messages: user("hi é") });
  const socket = connect(Number(port), hostname);
  socket.end(
    `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\nx-simulator: ${settings}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  const parts: Buffer[] = [];
  for await (const part of socket) parts.push(part as Buffer);
  const all = Buffer.concat(parts).toString("latin1");
  let rest = all.slice(all.indexOf("\r\n\r\n") + 4);
  const found: string[] = [];
  for (;;) {
    const line = rest.indexOf("\r\n");
    const length = Number.parseInt(rest.slice(0, line), 16);
    if (!(length > 0)) return found;
    found.push(Buffer.from(rest.slice(line + 2, line + 2 + length), "latin1").toString());
    rest = rest.slice(line + 2 + length + 2);
  }
}

describe("faults over HTTP", () => {
  test("refuse: no headers arrive", async () => {
    await expect(ask("fault=refuse")).rejects.toThrow("fetch failed");
  });

  test("http: that status with vLLM's error, or the flat one", async () => {
    const response = await ask("fault=http:503");
    expect([response.status, await response.json()]).toEqual([
      503,
      { error: { message: "Simulated fault.", type: "ServiceUnavailableError", param: null, code: 503 } },
    ]);
    expect(await (await ask("fault=http:500&flat=1")).json()).toEqual({
      object: "error",
      message: "Simulated fault.",
      type: "InternalServerError",
      param: null,
      code: 500,
    });
  });

  test("cut: the deltas arrive, then the connection breaks", async () => {
    const { text, broken } = await drain(await ask("fault=cut:3"));
    expect(broken).toBe(true);
    expect(joined(events(text), "content")).toBe("You said:");
    expect(lastRequest()).toMatchObject({ state: "completed", deltasSent: 3 });
  });

  test("end: the deltas arrive, then the body ends cleanly", async () => {
    const { text, broken } = await drain(await ask("fault=end:3"));
    expect([broken, text.includes("[DONE]"), joined(events(text), "content")]).toEqual([false, false, "You said:"]);
  });

  test("error: an error event, then [DONE]", async () => {
    const data = events((await drain(await ask("fault=error:1"))).text);
    expect(data).toHaveLength(4);
    expect(data.slice(2)).toEqual([
      '{"error": {"message": "Simulated fault.", "type": "InternalServerError", "param": null, "code": 500}}',
      "[DONE]",
    ]);
  });

  test("engine: the error event of an EngineCore that has died, then [DONE]", async () => {
    const data = events((await drain(await ask("fault=engine:1"))).text);
    expect(data.slice(-2)).toEqual([
      '{"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}',
      "[DONE]",
    ]);
    expect((await chat({ model: "simulator?fault=engine:0", messages: user("hi") })).error).toMatchObject({
      code: 500,
    });
  });

  test("garbage: invalid JSON in the middle, then the rest", async () => {
    const data = events((await drain(await ask("fault=garbage:2"))).text);
    expect(data[3]).toBe("{not json");
    expect(data.at(-1)).toBe("[DONE]");
  });

  test("html and json: bodies of another type than requested", async () => {
    expect((await ask("fault=html")).headers.get("content-type")).toMatch(/^text\/html/);
    const body = object(await (await ask("fault=json")).json());
    expect(message(body).content).toBe("You said: one two three four");
  });

  test("a fault beyond the answer comes before its finish chunk", async () => {
    const { text, broken } = await drain(await ask("fault=cut:1000"));
    expect([broken, joined(events(text), "content"), text.includes('"stop"')]).toEqual([
      true,
      "You said: one two three four",
      false,
    ]);
  });

  test("fault_times: the next request is spared", async () => {
    const settings = "fault=http:503&fault_times=1";
    expect([(await ask(settings)).status, (await ask(settings)).status]).toEqual([503, 200]);
  });

  test("cut and end without stream give half a body", async () => {
    const cut = await drain(await ask("fault=cut:1", { stream: false }));
    const ended = await drain(await ask("fault=end:1", { stream: false }));
    expect([cut.broken, ended.broken]).toEqual([true, false]);
    expect(() => JSON.parse(ended.text)).toThrow();
  });
});

describe("a client that disconnects", () => {
  test("during a stall is noticed at once, and the deltas had arrived", async () => {
    const response = await ask("fault=stall:2");
    const reader = response.body?.getReader();
    await until(() => lastRequest().deltasSent === 2);
    expect(lastRequest().state).toBe("open");
    await reader?.cancel();
    await until(() => lastRequest().state === "aborted");
    expect(lastRequest().endedAt).toBeTypeOf("number");
  });

  test.each(["ttft=60000", "headers_delay=60000", "fault=stall_headers"])(
    "while it waits (%s) is noticed at once",
    async (settings) => {
      const left = new AbortController();
      running().simulator.clear();
      const asked = ask(settings, {}, left.signal).then((response) => response.text());
      asked.catch(() => {});
      await until(() => running().simulator.requests[0]?.body !== undefined);
      left.abort();
      await until(() => lastRequest().state === "aborted");
      await expect(asked).rejects.toThrow();
    },
  );

  test("from an answer in one piece is noticed, too", async () => {
    const left = new AbortController();
    running().simulator.clear();
    const asked = ask("ttft=60000", { stream: false }, left.signal);
    asked.catch(() => {});
    await until(() => running().simulator.requests[0]?.body !== undefined);
    left.abort();
    await until(() => lastRequest().state === "aborted");
  });

  test("after the last event has completed its request", async () => {
    const response = await createAndRead("");
    expect(response).toBe("completed");
  });

  test("is noticed without HTTP, too: by cancel and by the request's signal", async () => {
    const simulator = createSimulator();
    const response = await simulator.fetch(
      post(CHAT, { model: "simulator?ttft=60000", stream: true, messages: user("hi") }),
    );
    await response.body?.cancel();
    expect(simulator.requests[0]?.state).toBe("aborted");
    const left = new AbortController();
    const body = { model: "simulator?ttft=60000", stream: true, messages: user("hi") };
    const reading = (await simulator.fetch(post(CHAT, body, {}, left.signal))).text();
    left.abort();
    await expect(reading).rejects.toThrow();
    expect(simulator.requests[1]?.state).toBe("aborted");
  });
});

/** Reads a stream up to `[DONE]`, and cancels the rest. Gives the simulator's record of it. */
async function createAndRead(settings: string): Promise<string | undefined> {
  const simulator = createSimulator({ settings });
  const response = await simulator.fetch(post(CHAT, { stream: true, messages: user("hi") }));
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  for (let text = ""; reader !== undefined && !text.includes("[DONE]"); )
    text = decoder.decode((await reader.read()).value);
  await reader?.cancel();
  return simulator.requests[0]?.state;
}

describe("the bytes of a stream", () => {
  test("each event is one HTTP chunk; chunk=N joins the events of N tokens", async () => {
    const single = await rawChunks("usage=1");
    expect(single.every((chunk) => /^data: .*\n\n$/.test(chunk))).toBe(true);
    expect(single).toHaveLength(8);
    expect(await rawChunks("chunk=100")).toHaveLength(1);
    expect((await rawChunks("per_delta=100")).length).toBe(3);
  });

  test("bytes=N cuts through characters and events, and loses nothing", async () => {
    const simulator = createSimulator({ settings: "bytes=7" });
    const response = await simulator.fetch(post(CHAT, { stream: true, messages: user("é日本👩‍👩‍👧") }));
    const sizes: number[] = [];
    let text = "";
    const decoder = new TextDecoder();
    for await (const bytes of response.body ?? []) {
      sizes.push(bytes.length);
      text += decoder.decode(bytes, { stream: true });
    }
    expect(sizes.slice(0, -1).every((size) => size === 7)).toBe(true);
    expect(joined(events(text), "content")).toBe("You said: é日本👩‍👩‍👧");
    expect(await createAndRead("bytes=100000")).toBe("completed");
  });

  test("a held-back piece still leaves before a fault", async () => {
    const response = await ask("bytes=1000&fault=cut:3");
    expect(joined(events((await drain(response)).text), "content")).toBe("You said:");
  });

  test("crlf, comments, done=0 and usage=0", async () => {
    const text = await (await ask("crlf=1&comments=1")).text();
    expect(text).toMatch(/^: simulator\r\n\r\ndata: \{.*\}\r\n\r\n: simulator\r\n\r\ndata: /);
    expect(text.replaceAll("\r\n", "")).not.toContain("\n");
    const bare = await chatEvents({
      model: "simulator?done=0&usage=0&cached=0",
      messages: user("hi"),
      stream_options: { include_usage: true },
    });
    expect(deltas(bare)).toHaveLength(bare.length);
    expect(bare).not.toContain("[DONE]");
    const { usage } = await chat({ model: "simulator?cached=0", messages: user("hi") });
    expect(usage).toEqual({
      prompt_tokens: 12,
      total_tokens: 17,
      completion_tokens: 5,
      prompt_tokens_details: null,
      completion_tokens_details: { reasoning_tokens: 0 },
    });
  });

  test("ttft and tps pace it", async () => {
    const started = performance.now();
    const response = await ask("ttft=40&tps=100");
    const arrivals: number[] = [];
    for await (const _ of response.body ?? []) arrivals.push(performance.now() - started);
    expect(arrivals[0]).toBeGreaterThan(35);
    // Seven tokens: the last comes 60 ms after the first.
    expect(arrivals.at(-1)).toBeGreaterThan(95);
  });

  test("headers_delay holds the headers back", async () => {
    const started = performance.now();
    await (await ask("headers_delay=40")).text();
    expect(performance.now() - started).toBeGreaterThan(35);
  });
});
