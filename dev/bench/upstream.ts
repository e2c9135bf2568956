/**
 * The model server of the benchmark: the project's simulator, recorded once per model name and then replayed.
 *
 * The simulator decides every byte (so the wire shape is vLLM's), but a simulator that makes its tokens anew would be
 * slower than what is measured. A replay costs one write of bytes that are already framed as HTTP chunks. This server
 * adds the settings `tps` (a chunk per tick instead of all at once) and `live=TAG` (no replay: the simulator itself
 * answers, and can continue a broken answer). It adds the paths `GET /log` (the times of each request and of its end,
 * since the first `GET /log` or the last `GET /log?reset`), and `/v1/responses` (vllm-responses.ts), which other
 * gateways use.
 *
 * npx node dev/bench/upstream.ts PORT [MODEL...]      the models are those that `/v1/models` lists
 */
import { createServer, type Socket } from "node:net";
import { createSimulator } from "../simulator/handler.ts";
import { RECORDED_ID, responsesBody, responsesChunks } from "./vllm-responses.ts";

interface Recording {
  head: Buffer;
  /** The body in the form of the wire: each entry is one HTTP chunk, the last one includes the terminating chunk. */
  chunks: Buffer[];
  whole: Buffer;
}

const simulator = createSimulator({ record: false });
const recordings = new Map<string, Promise<Recording>>();
const served = process.argv.slice(3);

function recording(path: string, model: string, stream: boolean, interval: number): Promise<Recording> {
  const key = `${path} ${stream} ${interval} ${model}`;
  let found = recordings.get(key);
  if (found === undefined) {
    found = record(path, model, stream, interval);
    recordings.set(key, found);
  }
  return found;
}

async function record(path: string, model: string, stream: boolean, interval: number): Promise<Recording> {
  if (path === "/v1/responses") return recordResponses(model, stream);
  const response = await simulate(path, model, stream, interval);
  if (!stream) return whole(response, Buffer.from(await response.arrayBuffer()));
  const bodies: Uint8Array[] = [];
  if (response.body) for await (const bytes of response.body) bodies.push(bytes);
  return streamed(response, bodies);
}

async function recordResponses(model: string, stream: boolean): Promise<Recording> {
  const response = await simulate("/v1/chat/completions", model, stream, 1);
  if (!stream) {
    const { choices } = (await response.json()) as { choices: { message: { content: string } }[] };
    const body = responsesBody(choices[0]?.message.content ?? "", model, "completed");
    return whole(response, Buffer.from(JSON.stringify(body)));
  }
  const chunks: string[] = [];
  if (response.body) for await (const bytes of response.body) chunks.push(Buffer.from(bytes).toString());
  return streamed(response, responsesChunks(chunks, model));
}

function simulate(path: string, model: string, stream: boolean, interval: number): Promise<Response> {
  const messages = [{ role: "user", content: "Hello" }];
  const request = { model, messages, stream, stream_interval: interval };
  const body = JSON.stringify(stream ? { ...request, stream_options: { include_usage: true } } : request);
  const headers = { "content-type": "application/json" };
  return simulator.fetch(new Request(`http://simulator${path}`, { method: "POST", headers, body }));
}

function whole(response: Response, bytes: Buffer): Recording {
  const head = httpHead(response, `content-length: ${bytes.length}`);
  return { head, chunks: [bytes], whole: Buffer.concat([head, bytes]) };
}

/** Each of `bodies` is an HTTP chunk. */
function streamed(response: Response, bodies: readonly Uint8Array[]): Recording {
  const chunks = bodies.map(httpChunk);
  const last = chunks.pop() ?? Buffer.alloc(0);
  chunks.push(Buffer.concat([last, Buffer.from("0\r\n\r\n")]));
  const head = httpHead(response, "transfer-encoding: chunked");
  return { head, chunks, whole: Buffer.concat([head, ...chunks]) };
}

function httpHead(response: Response, framing: string): Buffer {
  const type = response.headers.get("content-type") ?? "";
  return Buffer.from(`HTTP/1.1 ${response.status} OK\r\ncontent-type: ${type}\r\n${framing}\r\n\r\n`);
}

function httpChunk(bytes: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]);
}

/** Separates `tps` from a model name. */
function splitPace(name: string): { model: string; tps: number } {
  const [base = "", query = ""] = name.split("?", 2);
  const settings = new URLSearchParams(query);
  const tps = Number(settings.get("tps") ?? 0);
  settings.delete("tps");
  return { model: settings.size > 0 ? `${base}?${settings}` : base, tps };
}

/** One request for tokens. Unix milliseconds, with fractions. `tag` is the model's `live`. */
export interface LoggedRequest {
  tag: string;
  receivedAt: number;
  /** Null while it runs. */
  endedAt: number | null;
}

export interface UpstreamLog {
  requests: LoggedRequest[];
  /** The maximum number that ran at the same time. */
  mostOpen: number;
  /** The messages in the body of the last request, of each role. */
  messages: number;
}

let log: Omit<UpstreamLog, "messages"> | undefined;
let lastBody: Buffer = Buffer.alloc(0);
let open = 0;

function now(): number {
  return performance.timeOrigin + performance.now();
}

/** Logs a request for tokens. The returned function logs its end. */
function noteRequest(tag: string): () => void {
  const entry: LoggedRequest = { tag, receivedAt: now(), endedAt: null };
  open += 1;
  if (log) {
    log.requests.push(entry);
    log.mostOpen = Math.max(log.mostOpen, open);
  }
  return () => {
    if (entry.endedAt !== null) return;
    entry.endedAt = now();
    open -= 1;
  };
}

function own(path: string): unknown {
  if (path === "/v1/models") return { object: "list", data: served.map(modelCard) };
  if (!path.startsWith("/log")) return {};
  if (log === undefined || path.endsWith("?reset")) log = { requests: [], mostOpen: open };
  return { ...log, messages: lastBody.toString("latin1").split('"role":').length - 1 };
}

function modelCard(id: string) {
  return { id, object: "model", created: 0, owned_by: "vllm", root: "simulator", parent: null, max_model_len: 131_072 };
}

const MODEL = Buffer.from('"model":"');
/** `ASKED` in targets.ts. */
const ASKED = Buffer.from("asked:");
const STREAM = Buffer.from('"stream":true');
/** vLLM applies it to every request. */
const INTERVAL = /"stream_interval":(\d+)/;

async function answer(socket: Socket, method: string, path: string, body: Buffer): Promise<void> {
  if (method === "GET") {
    const text = JSON.stringify(own(path));
    socket.write(
      `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
    );
    return;
  }
  lastBody = body;
  const name =
    (path === "/v1/responses" ? textBehind(body, ASKED, ";") : undefined) ?? textBehind(body, MODEL, '"') ?? "";
  const tag = LIVE.exec(name)?.[1];
  if (tag !== undefined) return answerLive(socket, path, body, tag);
  const { model, tps } = splitPace(name);
  const ended = noteRequest("");
  // With a pace each chunk has one token.
  const interval = tps === 0 ? Number(INTERVAL.exec(body.toString("latin1"))?.[1] ?? 1) : 1;
  const recorded = await recording(path, model, body.includes(STREAM), interval);
  const { head, chunks, whole } = path === "/v1/responses" ? withOwnIds(recorded) : recorded;
  if (tps !== 0) return pace(socket, head, chunks, tps, ended);
  socket.write(whole);
  ended();
}

/** A server that starts again on the same port gives no id a second time. */
let answers = Date.now();

/** The same answer with new ids of the same length, because a gateway stores no item twice. */
function withOwnIds({ head, chunks, whole }: Recording): Recording {
  answers += 1;
  const id = answers.toString(36).padStart(RECORDED_ID.length, "0");
  const renamed = (bytes: Buffer) => Buffer.from(bytes.toString("latin1").replaceAll(RECORDED_ID, id), "latin1");
  return { head, chunks: chunks.map(renamed), whole: renamed(whole) };
}

/** The text between `mark` and the next `end`. */
function textBehind(body: Buffer, mark: Buffer, end: string): string | undefined {
  const at = body.indexOf(mark);
  if (at === -1) return undefined;
  const from = at + mark.length;
  return body.toString("latin1", from, body.indexOf(end, from));
}

const LIVE = /\blive=(\w+)&/;

/** Answers with the simulator itself, while it generates. */
async function answerLive(socket: Socket, path: string, body: Buffer, tag: string): Promise<void> {
  const left = new AbortController();
  const leave = () => left.abort();
  socket.once("close", leave);
  const ended = path.endsWith("/completions") ? noteRequest(tag) : () => {};
  const headers = { "content-type": "application/json" };
  const text = body.toString().replace(LIVE, "");
  try {
    const response = await simulator.fetch(
      new Request(`http://simulator${path}`, { method: "POST", headers, body: text, signal: left.signal }),
    );
    socket.write(httpHead(response, "transfer-encoding: chunked"));
    if (response.body) for await (const bytes of response.body) socket.write(httpChunk(bytes));
    socket.write("0\r\n\r\n");
  } catch (error) {
    if (!left.signal.aborted) throw error;
  } finally {
    socket.off("close", leave);
    ended();
  }
}

function pace(socket: Socket, head: Buffer, chunks: readonly Buffer[], tps: number, ended: () => void): void {
  const start = performance.now();
  let sent = 0;
  socket.write(head);
  tick();
  function tick(): void {
    if (socket.destroyed) {
      ended();
      return;
    }
    // The role chunk and the first token are sent together, as after a prefill.
    const due = Math.floor(((performance.now() - start) * tps) / 1000) + 2;
    while (sent < chunks.length && sent < due) socket.write(chunks[sent++] ?? "");
    if (sent < chunks.length) setTimeout(tick, Math.max(0, start + ((sent - 1) * 1000) / tps - performance.now()));
    else ended();
  }
}

const HEAD_END = Buffer.from("\r\n\r\n");

/** A keep-alive HTTP/1.1 server without pipelining: node:http would cost more than everything that it measures. */
const server = createServer((socket) => {
  let held: Buffer[] = [];
  let length = 0;
  let needed = 0;
  let head: { method: string; path: string; end: number } | undefined;
  socket.setNoDelay(true);
  socket.on("error", () => {});
  socket.on("data", (data: Buffer) => {
    held.push(data);
    length += data.length;
    if (head === undefined) {
      const all = held.length === 1 ? data : Buffer.concat(held);
      const end = all.indexOf(HEAD_END);
      if (end === -1) return;
      const text = all.toString("latin1", 0, end);
      const [method = "", path = ""] = text.split(" ", 2);
      head = { method, path, end: end + HEAD_END.length };
      if (/^transfer-encoding: *chunked/im.test(text)) throw new Error("a request without content-length");
      needed = head.end + Number(/^content-length: *(\d+)/im.exec(text)?.[1] ?? 0);
    }
    if (length < needed) return;
    const all = held.length === 1 ? data : Buffer.concat(held);
    const { method, path, end } = head;
    held = [];
    length = 0;
    head = undefined;
    answer(socket, method, path, all.subarray(end, needed)).catch((error: unknown) => socket.destroy(error as Error));
  });
});

server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === "object" ? address?.port : address }));
});
