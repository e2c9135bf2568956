import { fileURLToPath } from "node:url";
import { Connection, post, type Request } from "./load.ts";
import { start, stop } from "./processes.ts";
import type { UpstreamLog } from "./upstream.ts";

/**
 * A target that can be started and asked. Each is its own process, so that the memory of one does not affect another.
 */
export interface TargetKind {
  name: string;
  /** True for another project's gateway (`peers.ts`). Rows that it does not support are left out of the tables. */
  isPeer?: boolean;
  /** Starts it on a new data folder, or on `state`, that of a process before it. */
  start(upstream: Upstream, state?: string): Promise<Running>;
  request(question: Question): Request;
}

export interface Running {
  port: number;
  /** The process whose CPU is measured. */
  readonly pid: number;
  /** The process that has started all others of the target, where that is not `pid`. */
  readonly root?: number;
  /** The data folder, where it has one. */
  readonly state?: string;
  /** `kill -9`. */
  stop(): Promise<void>;
}

export const DIRECT: TargetKind = {
  name: "direct",
  start: async ({ port, pid }) => ({ port, pid, stop: async () => {} }),
  request: chatRequest,
};

/** One question, in the form that each target expects. */
export interface Question {
  /** The name and the settings of the simulated model. */
  model: string;
  stream: boolean;
  history?: readonly Message[];
  /** The id of the stored response that it continues. */
  previous?: string | undefined;
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
  /** The requests since the log was reset. */
  log(begin?: "reset"): Promise<UpstreamLog>;
  stop(): Promise<void>;
}

/** `models` are the listed models. The server answers for any model. Port 0: a free one. */
export async function startUpstream(core: number, models: readonly string[], at = 0): Promise<Upstream> {
  const script = fileURLToPath(new URL("upstream.ts", import.meta.url));
  const child = start(process.execPath, [script, String(at), ...models], core);
  const port = await new Promise<number>((resolve, reject) => {
    child.once("exit", () => reject(new Error("the model server did not start")));
    child.stdout?.once("data", (data: Buffer) => resolve(JSON.parse(data.toString()).port));
  });
  // The gateways would wait for it to come back, and the benchmark for them.
  const ended = () => {
    throw new Error("the model server has ended");
  };
  child.once("exit", ended);
  const log = async (begin = "") => (await fetch(`http://127.0.0.1:${port}/log?${begin}`)).json();
  return {
    port,
    pid: child.pid ?? 0,
    log: (begin) => log(begin) as Promise<UpstreamLog>,
    stop: () => {
      child.off("exit", ended);
      return stop(child);
    },
  };
}

/** A running target. CPU and memory of its process are its alone. */
export interface Target extends TargetKind, Running {}

export async function startTarget(kind: TargetKind, upstream: Upstream, state?: string): Promise<Target> {
  const running = await kind.start(upstream, state);
  return { ...kind, ...running };
}

/** The measurements of a target in one round, by the metric's name. */
export type Measurement = Record<string, number>;

/** The length of one measurement of one target, in milliseconds. */
export interface Scale {
  windowMs: number;
  warmUpMs: number;
  rounds: number;
}

/** A row of the table, with a measurement for each target that supports it. */
export interface Row {
  name: string;
  /** The name of each metric, with its number of decimals. "Added" is the value beyond that of a direct request. */
  metrics: Record<string, number>;
  /** False if its values are not compared as ratios. */
  hasRatios?: boolean;
  /** True if it is measured in the first round alone. */
  isOnce?: boolean;
  measure(target: Target, scale: Scale): Promise<Measurement>;
}

export function chatRequest({ model, stream, history }: Question): Request {
  const options = stream ? { stream_options: { include_usage: true } } : {};
  return post("/v1/chat/completions", { model, stream, ...options, messages: history ?? HELLO }, CHAT_DELTA);
}

export function responsesRequest(
  { model, stream, history, previous }: Question,
  extra: { store: boolean; background?: boolean },
  headers: Record<string, string> = {},
): Request {
  const body = { model, stream, input: history ?? HELLO, previous_response_id: previous, ...extra };
  return post("/v1/responses", body, RESPONSES_DELTA, headers);
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
  const id = /"id": ?"(resp_[\w-]+)"/.exec(text)?.[1];
  if (id === undefined) throw new Error(`no response id in ${text.slice(0, 300)}`);
  return id;
}
