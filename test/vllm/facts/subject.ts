import OpenAI from "openai";
import type {
  Response as ApiResponse,
  ResponseCreateParamsNonStreaming,
  ResponseFunctionToolCall,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { expect } from "vitest";
import { type ConformantFetch, conformantFetch } from "../../conformance/client.ts";
import { startWorkerd, type WorkerdProcess } from "../../workerd/process.ts";
import type { Engine, ModelServer } from "../model-server.ts";
import { type Speech, saying } from "../speech.ts";

/** The subject of the facts: a gateway on plain workerd in front of a model server, and a client of it. */
export interface Subject {
  engine: Engine;
  server: ModelServer;
  gateway: Gateway;
  /** Creates a response, with the fields that a test adds. */
  ask(input: string | Speech, fields?: Fields): Promise<ApiResponse>;
  /** The events of a streamed response. */
  stream(input: string | Speech, fields?: Fields): Promise<ResponseStreamEvent[]>;
}

export type Fields = Omit<Partial<ResponseCreateParamsNonStreaming>, "stream"> & Record<string, unknown>;

export interface Gateway {
  url: string;
  /** A gateway that can be killed and started again on its storage. */
  process: WorkerdProcess;
  fetch: ConformantFetch;
  openai: OpenAI;
  /** Stops it, and throws the errors that the conformance checks found. */
  close(): Promise<void>;
}

/** The options of a group of facts. */
export interface Run {
  engine: Engine;
  /** Starts a model server, or connects to an existing one. */
  serve(engine: Engine): Promise<ModelServer>;
  /** True if the tests own the server: they may kill it, and no one else uses it. */
  owned: boolean;
  /** The maximum time of a model server's restart, in milliseconds. */
  restartMs: number;
  /** The model's pause before each token if a fact needs the middle of an answer, in milliseconds. */
  tokenMs: number;
  /** More variables of the gateway, in addition to those that all facts need. */
  variables?: Record<string, string>;
}

/** The maximum time of a model server's restart on a busy machine. */
const RECOVERY_MS = "3600000";

/** A server of a pool: its URL without `/v1`, and the operator's other settings. */
export type PoolServer = { url: string } & Record<string, unknown>;

/**
 * Starts a gateway in front of a model server or a balancer, by URL, or in front of several model servers as a pool, in which each has
 * the name of its place: `0`, `1`, …
 */
export async function startGateway(
  urls: string | readonly (string | PoolServer)[],
  variables: Record<string, string> = {},
): Promise<Gateway> {
  const worker = await startWorkerd({
    ...(typeof urls === "string"
      ? { VLLM_BASE_URL: `${urls}/v1` }
      : { UPSTREAMS: JSON.stringify(urls.map(poolServer)) }),
    ALLOW_ANONYMOUS: "true",
    PASSTHROUGH_ENDPOINTS: "chat/completions,completions",
    // A client's disconnection is noticed at a write.
    HEARTBEAT_MS: "2000",
    VLLM_RECOVERY_TIME_MS: RECOVERY_MS,
    VLLM_FOREGROUND_RECOVERY_TIME_MS: RECOVERY_MS,
    ...variables,
  });
  const fetch = conformantFetch();
  return {
    url: worker.url,
    process: worker,
    fetch,
    // A client that waits as long as the gateway does.
    openai: new OpenAI({
      apiKey: "any",
      baseURL: `${worker.url}/v1`,
      maxRetries: 0,
      fetch,
      timeout: Number(RECOVERY_MS),
    }),
    async close() {
      try {
        await fetch.settled();
      } finally {
        await worker.close();
      }
    },
  };
}

function poolServer(server: string | PoolServer, place: number): PoolServer {
  const known = typeof server === "string" ? { url: server } : server;
  return { name: `${place}`, ...known, url: `${known.url}/v1` };
}

export function subjectOf(server: ModelServer, gateway: Gateway): Subject {
  const { engine, model } = server;
  const bodyOf = (input: string | Speech, fields: Fields = {}) => {
    // llama.cpp's grammars apply from the first token, so that the model does not reason first.
    const noThought = server.kind === "llamacpp" && typeof input !== "string" && input.input?.isForced;
    const said = typeof input === "string" ? input : saying(engine, noThought ? { ...input, thought: "" } : input);
    return { model, input: said, ...fields } as ResponseCreateParamsNonStreaming;
  };
  return {
    engine,
    server,
    gateway,
    ask: (input, fields) => gateway.openai.responses.create(bodyOf(input, fields)),
    stream: async (input, fields) =>
      Array.fromAsync(await gateway.openai.responses.create({ ...bodyOf(input, fields), stream: true })),
  };
}

/** The response of the last event. That event must end the stream. */
export function finalOf(events: readonly ResponseStreamEvent[]): ApiResponse {
  const last = events.at(-1);
  if (last && /^response\.(completed|incomplete|failed)$/.test(last.type) && "response" in last) return last.response;
  throw new Error(`The stream ends with ${JSON.stringify(last)}`);
}

/** All text deltas of an answer. */
export function textOf(events: readonly ResponseStreamEvent[]): string {
  return events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join("");
}

/** The model's reasoning. */
export function thoughtOf({ output }: Pick<ApiResponse, "output">): string {
  const parts = output.flatMap((item) => (item.type === "reasoning" ? (item.content ?? []) : []));
  return parts.map(({ text }) => text).join("");
}

/** The text of the messages; `output_text` is the client's own, and not in what a stream ends with. */
export function messageTextOf({ output }: Pick<ApiResponse, "output">): string {
  const parts = output.flatMap((item) => (item.type === "message" ? item.content : []));
  return parts.map((part) => (part.type === "output_text" ? part.text : "")).join("");
}

/** The text without the blank lines of a chat model between reasoning and answer. */
export function answerOf(response: Pick<ApiResponse, "output">): string {
  return messageTextOf(response).replace(/^\n+/, "");
}

export function callsOf({ output }: Pick<ApiResponse, "output">): ResponseFunctionToolCall[] {
  return output.filter((item) => item.type === "function_call");
}

export function typesOf({ output }: Pick<ApiResponse, "output">): string[] {
  return output.map(({ type }) => type);
}

/** The error of a refused request. */
export async function refusalOf(asked: Promise<unknown>) {
  const outcome = await asked.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if (!("error" in outcome) || !(outcome.error instanceof OpenAI.APIError)) {
    throw new Error(`Not refused: ${JSON.stringify(outcome)}`);
  }
  const { status, code, param, message } = outcome.error;
  return { status, code, param, message };
}

/** Fails unless a response completed, and shows the other fields. */
export function expectCompleted(response: ApiResponse): void {
  const { status, error, incomplete_details } = response;
  expect({ status, error, incomplete_details }).toEqual({ status: "completed", error: null, incomplete_details: null });
}
