import { fileURLToPath } from "node:url";
import { Connection, post, type Request } from "./load.ts";
import { start, stop } from "./processes.ts";
import type { UpstreamLog } from "./upstream.ts";
import { type RunningWorker, startWorker } from "./workers.ts";

/** What is compared, side by side in every row. */

export type TargetName = "direct" | "pipe" | "store:false" | "store:true";

export const TARGETS: readonly TargetName[] = ["direct", "pipe", "store:false", "store:true"];

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

const HELLO: readonly Message[] = [{ role: "user", content: "Hello" }];

/** What marks a delta in either stream. The chat stream has it once more, empty, beside its finish reason. */
const CHAT_DELTA = '"delta":{"content":"';
const RESPONSES_DELTA = "event: response.output_text.delta";

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

/** A target that can be asked, and the process whose CPU and memory are its own. */
export interface Target {
  name: TargetName;
  port: number;
  pid: number;
  request(question: Question): Request;
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

/** The four targets: the model server, a pipe, and our Worker asked in two ways. */
export class TargetSet {
  readonly targets: Target[];
  readonly pipe: RunningWorker;
  readonly #workers: RunningWorker[];

  private constructor(targets: Target[], pipe: RunningWorker, workers: RunningWorker[]) {
    this.targets = targets;
    this.pipe = pipe;
    this.#workers = workers;
  }

  static async start(upstream: Upstream): Promise<TargetSet> {
    const pipe = await startWorker("pipe", upstream.port);
    const targets: Target[] = [
      { name: "direct", port: upstream.port, pid: upstream.pid, request: chatRequest },
      { name: "pipe", port: pipe.port, pid: pipe.pid, request: chatRequest },
    ];
    const workers = [pipe];
    // Two processes, so that objects which one has made and will put away do not count against the other.
    for (const store of [false, true] as const) {
      const { port, pid, ...worker } = await startWorker("ours", upstream.port);
      workers.push({ port, pid, ...worker });
      targets.push({ name: `store:${store}`, port, pid, request: (question) => responsesRequest(question, { store }) });
    }
    return new TargetSet(targets, pipe, workers);
  }

  async stop(): Promise<void> {
    for (const worker of this.#workers) await worker.stop();
  }
}

/** A single Worker in a process that has done nothing yet. */
export async function startFresh(
  name: Exclude<TargetName, "direct">,
  upstreamPort: number,
): Promise<{ target: Target; stop(): Promise<void> }> {
  const { port, pid, stop } = await startWorker(name === "pipe" ? "pipe" : "ours", upstreamPort);
  const store = name === "store:true";
  const request = (question: Question) =>
    name === "pipe" ? chatRequest(question) : responsesRequest(question, { store });
  return { target: { name, port, pid, request }, stop };
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
