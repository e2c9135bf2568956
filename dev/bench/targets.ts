import { fileURLToPath } from "node:url";
import { V8_FLAGS } from "../../cli/serve/workerd.ts";
import { Connection, post, type Request } from "./load.ts";
import { start, stop } from "./processes.ts";
import type { UpstreamLog } from "./upstream.ts";
import { startWorker, type WorkerKind, type WorkerOptions } from "./workers.ts";

/**
 * The compared targets, side by side in every row: the model server, Workers that do less than ours, ours in two forms,
 * and other gateways (`peers.ts`).
 */

/**
 * A target that can be started and asked. Each is its own process, so that the memory of one does not affect another.
 */
export interface TargetKind {
  name: string;
  /** Another project's gateway, and its runtime. Scenarios that it does not support are left out of the tables. */
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
 * Workers. `reads` copies the bytes in JavaScript. `translates` only makes an event of each delta. `mixed` is the
 * transport to the model server.
 */
export const WORKERS: readonly TargetKind[] = [
  worker("pipe", "pipe", chatRequest),
  worker("reads", "reads", chatRequest),
  worker("translates", "translate", unstored),
  worker("store:false", "ours", unstored),
  worker("store:false, mixed", "ours", unstored, { variables: { VLLM_TRANSPORT: "mixed" } }),
  worker("store:true", "ours", stored),
];

/** Targets of which only the memory is measured, with V8's flags of `npm start`. */
export const FLAGGED: readonly TargetKind[] = [
  worker("reads, flags", "reads", chatRequest, { flags: V8_FLAGS }),
  worker("store:false, flags", "ours", unstored, { flags: V8_FLAGS }),
  worker("store:true, flags", "ours", stored, { flags: V8_FLAGS }),
];

/** One question, in the form that each target expects. */
export interface Question {
  /** The name and the settings of the simulated model. */
  model: string;
  stream: boolean;
  history?: readonly Message[];
}

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export const HELLO: readonly Message[] = [{ role: "user", content: "Hello" }];

/**
 * The text that marks a delta in each kind of stream. The chat stream has one more, empty, beside its finish reason.
 */
const CHAT_DELTA = '"delta":{"content":"';
export const RESPONSES_DELTA = "event: response.output_text.delta";

/** After this mark, up to a semicolon, a request to `/v1/responses` may name its model a second time. */
export const ASKED = "asked:";

export interface Upstream {
  port: number;
  pid: number;
  /** The size of the last request body in bytes. */
  promptBytes(): Promise<number>;
  /** The requests since the log was reset. */
  log(begin?: "reset"): Promise<UpstreamLog>;
  stop(): Promise<void>;
}

/** `models` are the listed models. The server answers for any model. */
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

/** A running target. CPU and memory of its process are its alone. */
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

/** Sends one request and gives the answer's text. */
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
