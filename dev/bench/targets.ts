import { fileURLToPath } from "node:url";
import { V8_FLAGS } from "../../cli/workerd.ts";
import { Connection, post, type Request } from "./load.ts";
import { start, stop } from "./processes.ts";
import type { UpstreamLog } from "./upstream.ts";
import { startWorker, type WorkerKind, type WorkerOptions } from "./workers.ts";

/**
 * What is compared, side by side in every row: the model server, Workers that do less than ours, ours asked in two ways,
 * and other gateways (`peers.ts`).
 */

/** What can be started and asked. Each is a process of its own, so that what one has made does not count against another. */
export interface TargetKind {
  name: string;
  /** A gateway of others, and what runs it. What it cannot do is left out of the tables. */
  peer?: "javascript" | "native";
  start(upstream: Upstream): Promise<Running>;
  request(question: Question): Request;
}

export interface Running {
  port: number;
  readonly pid: number;
  stop(): Promise<void>;
}

function worker(name: string, kind: WorkerKind, request: TargetKind["request"], options?: WorkerOptions): TargetKind {
  return { name, start: ({ port }) => startWorker(kind, port, options), request };
}

const unstored = (question: Question) => responsesRequest(question, { store: false });
const stored = (question: Question) => responsesRequest(question, { store: true });

export const DIRECT: TargetKind = {
  name: "direct",
  start: async ({ port, pid }) => ({ port, pid, stop: async () => {} }),
  request: chatRequest,
};

/**
 * Workers; `reads` copies the bytes in JavaScript, `translates` makes an event of each delta and nothing else. `mixed` is
 * the transport to the model server.
 */
export const WORKERS: readonly TargetKind[] = [
  worker("pipe", "pipe", chatRequest),
  worker("reads", "reads", chatRequest),
  worker("translates", "translate", unstored),
  worker("store:false", "ours", unstored),
  worker("store:false, mixed", "ours", unstored, { variables: { VLLM_TRANSPORT: "mixed" } }),
  worker("store:true", "ours", stored),
];

/** Those of which only the memory is measured: with V8's flags of `npm start`. */
export const FLAGGED: readonly TargetKind[] = [
  worker("reads, flags", "reads", chatRequest, { flags: V8_FLAGS }),
  worker("store:false, flags", "ours", unstored, { flags: V8_FLAGS }),
  worker("store:true, flags", "ours", stored, { flags: V8_FLAGS }),
];

/** One question, however a target wants to be asked. */
export interface Question {
  /** Name and settings of the simulated model. */
  model: string;
  stream: boolean;
  history?: readonly Message[];
}

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export const HELLO: readonly Message[] = [{ role: "user", content: "Hello" }];

/** What marks a delta in either stream. The chat stream has it once more, empty, beside its finish reason. */
const CHAT_DELTA = '"delta":{"content":"';
export const RESPONSES_DELTA = "event: response.output_text.delta";

/** Behind it, up to a semicolon, a request to `/v1/responses` may name its model a second time. */
export const ASKED = "asked:";

export interface Upstream {
  port: number;
  pid: number;
  /** Bytes of the last request body. */
  promptBytes(): Promise<number>;
  /** The requests since the log was begun. */
  log(begin?: "reset"): Promise<UpstreamLog>;
  stop(): Promise<void>;
}

/** `models` are those that it lists; it answers for any. */
export async function startUpstream(core: number, models: readonly string[]): Promise<Upstream> {
  const script = fileURLToPath(new URL("upstream.ts", import.meta.url));
  const child = start(process.execPath, [script, "0", ...models], core);
  const port = await new Promise<number>((resolve, reject) => {
    child.once("exit", () => reject(new Error("the model server did not start")));
    child.stdout?.once("data", (data: Buffer) => resolve(JSON.parse(data.toString()).port));
  });
  const asked = async (path: string) => (await fetch(`http://127.0.0.1:${port}${path}`)).json();
  return {
    port,
    pid: child.pid ?? 0,
    promptBytes: async () => ((await asked("/prompt-bytes")) as { bytes: number }).bytes,
    log: async (begin) => (await asked(begin ? "/log?reset" : "/log")) as UpstreamLog,
    stop: () => stop(child),
  };
}

/** A target that runs; CPU and memory of the process are its own. */
export interface Target extends TargetKind, Running {}

export async function startTarget(kind: TargetKind, upstream: Upstream): Promise<Target> {
  const running = await kind.start(upstream);
  return { ...kind, ...running };
}

export function chatRequest({ model, stream, history }: Question): Request {
  const options = stream ? { stream_options: { include_usage: true } } : {};
  return post("/v1/chat/completions", { model, stream, ...options, messages: history ?? HELLO }, CHAT_DELTA);
}

export function responsesRequest(
  { model, stream, history }: Question,
  extra: { store: boolean; previous_response_id?: string },
): Request {
  const input = history ?? HELLO;
  return post("/v1/responses", { model, stream, input, ...extra }, RESPONSES_DELTA);
}

/** Asks once and gives the answer's text. */
export async function ask(port: number, request: Request): Promise<string> {
  const connection = await Connection.open(port);
  try {
    return (await connection.read(request)).text;
  } finally {
    connection.close();
  }
}

export function responseIdIn(text: string): string {
  const id = /"id":"(resp_[0-9A-Za-z]+)"/.exec(text)?.[1];
  if (id === undefined) throw new Error(`no response id in ${text.slice(0, 300)}`);
  return id;
}
