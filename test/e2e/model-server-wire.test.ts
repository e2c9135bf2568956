import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { chunk } from "./scripted-vllm.ts";
import { eventually } from "./support.ts";

/** HTTP/1.1 answers of model servers, byte by byte, over each transport (vitest.config.ts sets it for the project). */

const isSocket = process.env.VLLM_TRANSPORT === "socket";

/** A received request: its head and its connection. */
interface Received {
  head: string;
  socket: Socket;
}

/** The functions that answer requests, by the model's name. */
const answers = new Map<string, (socket: Socket) => unknown>();
const received = new Map<string, Received>();

const EVENTS = [chunk({ role: "assistant", content: "" }), chunk({ content: "Hello" }), chunk({}, "stop")];
const SSE = `${EVENTS.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")}data: [DONE]\n\n`;
const OK = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`;
const chunked = (size: number, extension = "") =>
  (SSE.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [])
    .map((text) => `${text.length.toString(16)}${extension}\r\n${text}\r\n`)
    .join("");

/** Answers requests for a model with the test's function for its name; other requests get JSON. */
function serve(socket: Socket): void {
  let text = "";
  socket.on("error", () => {});
  socket.on("data", (data) => {
    text += data.toString("latin1");
    const [head = "", body] = text.split("\r\n\r\n", 2);
    if (body === undefined) return;
    const model = /"model":"([^"]+)"/.exec(body)?.[1];
    if (head.startsWith("POST") && model === undefined) return;
    // The next request may arrive on the same connection.
    text = "";
    const answer = answers.get(model ?? "");
    if (answer) {
      received.set(model ?? "", { head, socket });
      answer(socket);
    } else socket.end('HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\n{"data":[]}');
  });
}

async function listen(host: string): Promise<{ server: Server; port: number }> {
  const server = createServer({ allowHalfOpen: true }, serve).listen(0, host);
  await once(server, "listening");
  const address = server.address();
  if (typeof address !== "object" || !address) throw new Error("No port.");
  return { server, port: address.port };
}

const start = (origin: string, variables: Record<string, string> = {}) =>
  startWorkerd(
    {
      VLLM_BASE_URL: `${origin}/v1`,
      ALLOW_ANONYMOUS: "true",
      VLLM_MAX_RETRIES: "0",
      UPSTREAM_DIALECT: "vllm",
      ...variables,
    },
    { readsFormats: false },
  );

let server: Server;
let worker: WorkerdProcess;
beforeAll(async () => {
  const listening = await listen("127.0.0.1");
  server = listening.server;
  worker = await start(`http://127.0.0.1:${listening.port}`);
});
afterAll(async () => {
  await worker.close();
  server.close();
});

let models = 0;

/** Gives the gateway's answer when the model server answers like this. */
async function ask(answer: (socket: Socket) => unknown, { input = "Hi", url = worker.url } = {}) {
  const model = `wire-${models++}`;
  answers.set(model, answer);
  const response = await fetch(`${url}/v1/responses`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, input, store: false }),
  });
  const body = (await response.json()) as {
    status?: string;
    output?: { content: { text: string }[] }[];
    error?: { code: string } | null;
  };
  return { model, status: response.status, code: body.error?.code, text: body.output?.[0]?.content[0]?.text };
}

async function writeByByte(socket: Socket, text: string): Promise<void> {
  for (const character of text) {
    socket.write(character);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("an answer", () => {
  it.each<[what: string, answer: (socket: Socket) => unknown]>([
    ["in one chunk", (socket) => socket.end(`${CHUNKED}${chunked(100_000)}0\r\n\r\n`)],
    [
      "in chunks of seven bytes, with extensions and trailers",
      (socket) => socket.end(`${CHUNKED}${chunked(7, ";a=b")}0\r\nx: y\r\n\r\n`),
    ],
    ["byte by byte", (socket) => writeByByte(socket, `${CHUNKED}${chunked(50)}0\r\n\r\n`).then(() => socket.end())],
    ["whose server keeps the connection", (socket) => socket.write(`${CHUNKED}${chunked(50)}0\r\n\r\n`)],
    ["with a length", (socket) => socket.end(`${OK}content-length: ${SSE.length}\r\n\r\n${SSE}`)],
    [
      "with a length, whose server keeps the connection",
      (socket) => socket.write(`${OK}content-length: ${SSE.length}\r\n\r\n${SSE}`),
    ],
    [
      "up to the end of the connection",
      (socket) => socket.end(`HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n${SSE}`),
    ],
    [
      "behind an interim one",
      (socket) => socket.end(`HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n${CHUNKED}${chunked(50)}0\r\n\r\n`),
    ],
  ])("%s is read", async (_what, answer) => {
    expect(await ask(answer)).toMatchObject({ status: 200, text: "Hello" });
  });

  it.each<[what: string, answer: (socket: Socket) => unknown]>([
    ["nothing", (socket) => socket.end()],
    ["what is no HTTP", (socket) => socket.end("SSH-2.0-OpenSSH_9.6\r\n\r\n")],
    ["half a head", (socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-ty")],
    ["a head without an end", (socket) => socket.end(`${OK}a: ${"b".repeat(1_000_000)}`)],
    ["a length and less", (socket) => socket.end(`${OK}content-length: ${SSE.length}\r\n\r\n${SSE.slice(0, 300)}`)],
    ["chunks without the last one", (socket) => socket.end(`${CHUNKED}${chunked(50).slice(0, 400)}`)],
    ["a chunk whose size is none", (socket) => socket.end(`${CHUNKED}xyz\r\n${SSE}\r\n0\r\n\r\n`)],
    ["a reset", (socket) => socket.write(`${CHUNKED}${chunked(300).slice(0, 200)}`, () => socket.resetAndDestroy())],
  ])("of %s is a 502", async (_what, answer) => {
    expect((await ask(answer)).status).toBe(502);
  });

  it("that arrives before the request was read is read", async () => {
    const error = JSON.stringify({
      error: { message: "stop is too long", type: "BadRequestError", param: "stop", code: 400 },
    });
    const answer = `HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: ${error.length}\r\nconnection: close\r\n\r\n${error}`;
    const early = (socket: Socket) => {
      socket.pause();
      socket.write(answer);
    };
    const { model, ...told } = await ask(early, { input: "x".repeat(8_000_000) });
    expect(told).toMatchObject({ status: 400, code: "invalid_request" });
    received.get(model)?.socket.destroy();
  });
});

/** A client and the part of its stream that it has read. */
interface Client {
  /** The text of the deltas so far. */
  text(): string;
  /** The last event of the ended stream; undefined until its end. */
  last(): string | undefined;
  leave(): void;
}

/** Begins a stream, and reads it unless the client does not read. */
async function beginStream(answer: (socket: Socket) => unknown, { reads = true } = {}) {
  const model = `wire-${models++}`;
  answers.set(model, answer);
  const left = new AbortController();
  const response = await fetch(`${worker.url}/v1/responses`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, input: "Hi", store: false, stream: true }),
    signal: left.signal,
  });
  let text = "";
  let last: string | undefined;
  const read = async () => {
    let held = "";
    for await (const bytes of response.body as ReadableStream<Uint8Array>) {
      const events = (held + Buffer.from(bytes).toString()).split("\n\n");
      held = events.pop() ?? "";
      for (const event of events) {
        const { type, delta } = JSON.parse(event.slice(event.indexOf("data: ") + 6).replace("[DONE]", "{}"));
        if (type === "response.output_text.delta") text += delta;
        else if (/^response\.(completed|incomplete|failed)$/.test(type)) last = type;
      }
    }
  };
  if (reads) read().catch(() => {});
  const client: Client = { text: () => text, last: () => last, leave: () => left.abort() };
  return { client, socket: received.get(model)?.socket as Socket };
}

const word = (index: number) => `word ${index} `;
const words = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => word(from + index));
/** A delta, in an HTTP chunk of its own. */
const httpChunk = (event: object) => {
  const text = `data: ${JSON.stringify(event)}\n\n`;
  return `${text.length.toString(16)}\r\n${text}\r\n`;
};
const deltas = (from: number, to: number) =>
  words(from, to)
    .map((content) => httpChunk(chunk({ content })))
    .join("");
const END = `${httpChunk(chunk({}, "stop"))}0\r\n\r\n`;

describe("an answer that arrives faster than it is read", () => {
  it("is shown up to its last word whenever the model pauses", async () => {
    const { client, socket } = await beginStream((socket) => socket.write(CHUNKED + deltas(0, 1)));
    const sizes = [1, 3, 40, 9, 200, 1, 1, 17, 500, 2];
    let said = 1;
    for (const size of sizes) {
      socket.write(deltas(said, said + size));
      said += size;
      // The server sends no more until the client has all of it.
      await eventually(() => client.text() === words(0, said).join(""));
    }
    socket.end(END);
    await eventually(() => client.last() === "response.completed");
    expect(client.text()).toBe(words(0, said).join(""));
  });

  it("is shown up to its last word when the connection breaks", async () => {
    const { client, socket } = await beginStream((socket) => socket.write(CHUNKED + deltas(0, 700)));
    await eventually(() => client.text().length > 0);
    socket.end(deltas(700, 1_000));
    await eventually(() => client.last() === "response.failed");
    expect(client.text()).toBe(words(0, 1_000).join(""));
  });

  it("is read no further for a client that does not read", async () => {
    const { client, socket } = await beginStream((socket) => socket.write(CHUNKED), { reads: false });
    let index = 0;
    const write = () => {
      while (socket.write(deltas(index, index + 100))) index += 100;
      index += 100;
    };
    socket.on("drain", write);
    write();
    // Bytes that nobody reads stay in the connection.
    let before = -1;
    await eventually(async () => {
      const taken = index;
      const isStill = taken === before;
      before = taken;
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      return isStill;
    });
    client.leave();
    socket.destroy();
  });

  it("is given up when the client disconnects", async () => {
    const { client, socket } = await beginStream((socket) => socket.write(CHUNKED));
    let index = 0;
    const speaking = setInterval(() => {
      socket.write(deltas(index, index + 50));
      index += 50;
    }, 5);
    await eventually(() => client.text().length > 5_000);
    client.leave();
    // The connection may be reset during a write.
    await new Promise((resolve) => socket.once("close", resolve));
    clearInterval(speaking);
  });
});

describe.runIf(isSocket)("with mixed transports", () => {
  let mixed: WorkerdProcess;
  beforeAll(async () => {
    const { port } = server.address() as AddressInfo;
    mixed = await start(`http://127.0.0.1:${port}`, { VLLM_TRANSPORT: "mixed" });
  });
  afterAll(() => mixed.close());

  const look = { type: "function", name: "look", parameters: null, strict: null };
  it.each<[what: string, body: object, isOverSocket: boolean]>([
    ["a stream comes over a socket", { stream: true }, true],
    ["a background run, too", { background: true, store: true }, true],
    ["an answer as JSON comes by fetch: several tokens an event", {}, false],
    ["– but over a socket where its tokens come one by one", { tools: [look] }, true],
    ["– and by fetch where it comes whole", { kv_transfer_params: { do_remote_decode: true } }, false],
  ])("%s", async (_what, body, isOverSocket) => {
    const model = `wire-${models++}`;
    const whole = { id: "c", object: "chat.completion", created: 1, model, kv_transfer_params: {} };
    const choices = [{ index: 0, message: { role: "assistant", content: "Hello" }, finish_reason: "stop" }];
    const text = JSON.stringify({ ...whole, choices, usage: { prompt_tokens: 1, completion_tokens: 1 } });
    const json = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
    answers.set(model, (socket) =>
      socket.end("kv_transfer_params" in body ? json : `${CHUNKED}${chunked(50)}0\r\n\r\n`),
    );
    const answer = await fetch(`${mixed.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, input: "Hi", store: false, ...body }),
    });
    expect(answer.status).toBe(200);
    await answer.text();
    const { head } = await eventually(() => received.get(model));
    if (isOverSocket) expect(head).toMatch(/\r\nconnection: close\r\n/i);
    else expect(head).not.toMatch(/\r\nconnection: close\r\n/i);
  });
});

describe.runIf(isSocket)("over a socket", () => {
  it("a request announces a single use of its connection, which ends with it", async () => {
    const { model } = await ask((socket) => socket.write(`${CHUNKED}${chunked(50)}0\r\n\r\n`));
    const { head, socket } = received.get(model) ?? {};
    expect(head).toMatch(/^POST \/v1\/chat\/completions HTTP\/1\.1\r\nhost: 127\.0\.0\.1:\d+\r\n/);
    expect(head).toMatch(/\r\nconnection: close\r\ncontent-length: \d+$/);
    await eventually(() => socket?.readableEnded);
    socket?.destroy();
  });

  it("no redirect is followed", async () => {
    const redirect = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /v1/elsewhere\r\ncontent-length: 0\r\n\r\n";
    expect(await ask((socket) => socket.end(redirect))).toMatchObject({ status: 502, code: "upstream_error" });
  });

  const hasIpv6 = Object.values(networkInterfaces()).some((each) => each?.some(({ address }) => address === "::1"));
  it.runIf(hasIpv6)("an IPv6 address is accepted", async () => {
    const other = await listen("::1");
    const gateway = await start(`http://[::1]:${other.port}`);
    const answer = (socket: Socket) => socket.end(`${CHUNKED}${chunked(50)}0\r\n\r\n`);
    expect(await ask(answer, { url: gateway.url })).toMatchObject({ status: 200, text: "Hello" });
    await gateway.close();
    other.server.close();
  });
});
