import { answerChat } from "./chat-answer.ts";
import {
  type ChatMessage,
  type ChatRequest,
  parseChatRequest,
  parseMessages,
  parseTools,
  type Tool,
} from "./chat-request.ts";
import { renderPrompt, withOldThoughts } from "./chat-template.ts";
import { chatBody, chatFrames } from "./chat-wire.ts";
import { renderChatml } from "./chatml-template.ts";
import { completionChoices } from "./completion-choices.ts";
import { parseCompletionRequest } from "./completion-request.ts";
import { completionBody, completionFrames, generatedTokens } from "./completion-wire.ts";
import { embeddingsBody, rerankBody } from "./embeddings.ts";
import {
  badRequest,
  ConnectionLost,
  engineError,
  errorBody,
  errorEvent,
  GrammarError,
  invalidBody,
  VllmError,
} from "./errors.ts";
import { booleanField, listField, missing, objectField, stringField } from "./fields.ts";
import { doneFrame, type Frame, withFault } from "./frames.ts";
import { rawSpeech } from "./generation.ts";
import { checkGrammar, compileText, isRefused } from "./grammar.ts";
import { harmonyChoices } from "./harmony-choices.ts";
import { harmonyTokenizer } from "./harmony-tokenizer.ts";
import { isObject, type Json, type JsonObject, parseJson } from "./json.ts";
import { fitted, type KindName, kindOf, readRequest, unknownModel } from "./kinds.ts";
import { DEFAULT_MODELS, isScripted, ownContextLength, rootOf, speaksHarmony } from "./models.ts";
import { PrefixCache } from "./prefix-cache.ts";
import type { AnswerFormat } from "./sampling.ts";
import { chatmlPrompt, chatmlTokenizer, scriptedSpeech } from "./scripted-chat.ts";
import { type Fault, parseSettings, type Settings, splitModel } from "./settings.ts";
import { streamBody } from "./stream-body.ts";
import { sleep, stall } from "./time.ts";
import { tokenLimit } from "./token-limit.ts";
import { hex, splitTokens, Vocabulary } from "./tokenizer.ts";

const KEPT_REQUESTS = 1000;
const DEFAULT_MAX_MODEL_LEN = 131_072;

/** The options of a simulator. */
export type SimulatorOptions = {
  /** The key that `Authorization: Bearer …` must have under /v1. */
  apiKey?: string;
  /** The served model names. Default DEFAULT_MODELS. */
  models?: string[];
  /** The served LoRA adapters: the name of each, and of its base model. */
  adapters?: Record<string, string>;
  /** The kind of server to simulate. Default "vllm". */
  kind?: KindName;
  /** `owned_by` of the model cards. Default: the kind's. Another name changes nothing else. */
  ownedBy?: string;
  /**
   * Settings for every request, or for requests to one path, as a query string. A model's and a header's settings
   * override them.
   */
  settings?: string | ((path: string) => string);
  /** Default 131072. The setting `max_model_len` overrides it. */
  maxModelLen?: number;
  /** False to keep no `requests`. Default true. */
  record?: boolean;
};

/** One request that the simulator received. `aborted`: its caller disconnected before the answer ended. */
export type SimulatedRequest = {
  path: string;
  headers: Record<string, string>;
  body: Json | undefined;
  state: "open" | "completed" | "aborted";
  /** The streamed SSE events with generated tokens so far. */
  deltasSent: number;
  /** Milliseconds since the epoch. */
  startedAt: number;
  endedAt?: number;
  /** Releases a request that stalls (`fault=stall:N`, `stall_headers`). One that has not stalled yet will not stall. */
  release(): void;
};

/** A simulated vLLM, as clients see it. */
export type Simulator = {
  /**
   * Answers a request. Rejects with ConnectionLost if a server would destroy the socket, or with the signal's reason.
   */
  fetch(request: Request): Promise<Response>;
  /** The last 1000 requests, oldest first. */
  requests: SimulatedRequest[];
  /** The last request with a body. Lists of models are not counted: clients request them at any time. */
  readonly lastAsked: SimulatedRequest | undefined;
  /** Clears the requests, the prefix cache and the counts of faults. */
  clear(): void;
};

/** Creates a simulator. Only `created` in its answers depends on time or chance. */
export function createSimulator(options: SimulatorOptions = {}): Simulator {
  const kind = kindOf(options.kind);
  const adapters = options.adapters ?? {};
  const bases = options.models ?? DEFAULT_MODELS;
  const models = [...bases, ...Object.keys(adapters)];
  const started = unixSeconds();
  const vocabulary = new Vocabulary();
  const cache = new PrefixCache();
  const faultsDone = new Map<string, number>();
  const requests: SimulatedRequest[] = [];
  const said = new Map<string, number>();
  let answered = 0;

  function ownSettings(path: string): string {
    return typeof options.settings === "function" ? options.settings(path) : (options.settings ?? "");
  }

  async function fetch(request: Request): Promise<Response> {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const record: SimulatedRequest = {
      path: new URL(request.url).pathname,
      headers: Object.fromEntries(request.headers),
      body: undefined,
      state: "open",
      deltasSent: 0,
      startedAt: Date.now(),
      release,
    };
    if (options.record !== false) {
      requests.push(record);
      if (requests.length > KEPT_REQUESTS) requests.shift();
    }
    const call: Call = { request, record, settings: parseSettings(), fault: undefined, streaming: false, released };
    try {
      const response = await route(call);
      for (const [name, value] of Object.entries(kind.headers)) response.headers.set(name, value);
      if (!call.streaming) end(record, "completed");
      return response;
    } catch (error) {
      if (request.signal.aborted) {
        end(record, "aborted");
        throw error;
      }
      end(record, "completed");
      if (error instanceof ConnectionLost) throw error;
      const known = error instanceof VllmError ? error : new VllmError(500, String(error));
      const body = call.settings.flat ? errorBody(known, true) : kind.error(known);
      return json(body, known.status, kind.headers);
    }
  }

  async function route(call: Call): Promise<Response> {
    const { request, record } = call;
    const handle = Object.hasOwn(routes, record.path) ? routes[record.path] : undefined;
    if (options.apiKey !== undefined && record.path.startsWith("/v1") && !authorized(request, options.apiKey)) {
      return json({ error: "Unauthorized" }, 401);
    }
    if (handle === undefined && kind.headers.server) throw new VllmError(404, "File Not Found");
    if (handle === undefined) return json({ detail: "Not Found" }, 404);
    if (request.method !== handle.method) return json({ detail: "Method Not Allowed" }, 405);
    const body = handle.method === "POST" ? await readBody(call) : {};
    const name = typeof body.model === "string" ? body.model : "";
    const model = splitModel(name);
    const queries = [kind.settings, ownSettings(record.path), model.query, request.headers.get("x-simulator") ?? ""];
    call.settings = parseSettings(...queries);
    // Prompts that are only counted have faults of their own.
    const counts = record.path === "/tokenize" || record.path === kind.counts?.path;
    call.fault = dueFault(call.settings, `${counts ? "count " : ""}${queries.join("&")}`);
    const failed = await failEarly(call);
    if (failed !== undefined) return failed;
    if (call.settings.headersDelay > 0) await sleep(call.settings.headersDelay, request.signal);
    const loaded = bases[0] ?? "simulator";
    if (name === "" || models.includes(model.base)) return handle.answer(call, body, name === "" ? loaded : name);
    if (!kind.answersAny) throw unknownModel(kind, name, models);
    return handle.answer(call, body, loaded);
  }

  const all: Record<string, Route> = {
    "/health": { method: "GET", answer: () => new Response(null, { status: 200 }) },
    "/version": {
      method: "GET",
      answer: () => json({ version: `${parseSettings(ownSettings("/version")).version}.0` }),
    },
    "/metrics": { method: "GET", answer: gauges },
    "/v1/models": {
      method: "GET",
      answer: ({ settings }) => json({ object: "list", data: models.map((id) => modelCard(id, settings)) }),
    },
    "/v1/chat/completions": { method: "POST", answer: chat },
    "/v1/completions": { method: "POST", answer: complete },
    "/v1/embeddings": {
      method: "POST",
      answer: (_, body, model) => json(embeddingsBody(body, model, unixSeconds())),
    },
    "/v1/rerank": { method: "POST", answer: (_, body, model) => json(rerankBody(body, model)) },
    "/tokenize": { method: "POST", answer: tokenize },
    "/detokenize": { method: "POST", answer: detokenize },
  };
  const probes = kind.probes(bases[0] ?? "simulator", options.maxModelLen ?? DEFAULT_MAX_MODEL_LEN);
  const routes: Record<string, Route> = {
    ...Object.fromEntries(Object.entries(all).filter(([path]) => kind.paths.includes(path))),
    ...Object.fromEntries(
      Object.entries(probes).map(([path, body]): [string, Route] => [
        path,
        { method: "GET", answer: () => json(body) },
      ]),
    ),
    ...(kind.counts && { [kind.counts.path]: { method: "POST", answer: tokenize } satisfies Route }),
  };

  /** Prometheus text with two of the server's metrics: the gauges of requests. */
  function gauges(): Response {
    if (typeof kind.gauges === "string") throw new VllmError(501, kind.gauges);
    const [runs, waits] = kind.gauges ?? ["vllm:num_requests_running", "vllm:num_requests_waiting"];
    const running = requests.filter(({ path, state }) => path.endsWith("/completions") && state === "open").length;
    const lines = [
      `# HELP ${runs} Number of requests in model execution batches.`,
      `# TYPE ${runs} gauge`,
      `${runs}{engine="0",model_name="${bases[0] ?? ""}"} ${running}.0`,
      `# HELP ${waits} Number of requests waiting to be processed.`,
      `# TYPE ${waits} gauge`,
      `${waits}{engine="0",model_name="${bases[0] ?? ""}"} 0.0`,
    ];
    return new Response(`${lines.join("\n")}\n`, { headers: { "content-type": "text/plain; version=0.0.4" } });
  }

  /** The scripted models read only text, wherever a prompt is made of messages. */
  function expectReadable(messages: readonly ChatMessage[], model: string): void {
    const base = engineOf(model);
    if (isScripted(base) && messages.some(({ media }) => media)) throw badRequest(`${base} is not a multimodal model`);
  }

  async function chat(call: Call, sent: JsonObject, model: string): Promise<Response> {
    const { settings } = call;
    const body = readRequest(kind, sent);
    const asked = withoutParsers(withSettings(parseChatRequest(body), settings), settings, kind);
    const variables = objectField(body, "chat_template_kwargs") ?? {};
    const request = { ...asked, messages: withOldThoughts(asked.messages, variables, settings) };
    expectReadable(request.messages, model);
    const ending = request.continueFinalMessage
      ? "open message"
      : request.addGenerationPrompt
        ? "generation prompt"
        : "closed message";
    const scripted = isScripted(engineOf(model));
    const prompt = scripted
      ? await chatmlPrompt(request, body.tools, ending)
      : echoPrompt(renderPrompt(request.messages, body.tools, ending));
    const { text, tokens } = prompt;
    const longest = contextLength(settings, model);
    const size = fitted(kind, tokens.length, request.maxTokens, longest);
    const maxTokens = tokenLimit(size.prompt, { ...request, maxTokens: size.wanted }, longest, settings);
    const refused = refusedGrammar(call, request);
    if (refused !== undefined) return refused;
    const speaks =
      settings.says !== undefined
        ? { speech: nextSpeech(settings.says, request), delayMs: 0 }
        : scripted
          ? await scriptedSpeech(request, text)
          : {
              speech: answerChat(request, engineOf(model), settings, body.messages ?? null, vocabulary),
              delayMs: 0,
            };
    if (speaks.delayMs > 0) call.settings = slowedDown(settings, speaks.delayMs);
    const { cached, created } = cache.lookUp(request.cacheSalt, tokens);
    const result = {
      id: `chatcmpl-${requestId(call, request.requestId, text)}`,
      created: unixSeconds(),
      model,
      request: { ...request, parsers: settings.parsers },
      settings,
      prompt: {
        promptTokens: size.prompt,
        cachedTokens: cached,
        createdCacheTokens: created,
        ids: prompt.ids,
      },
      maxTokens,
      speech: speaks.speech,
    };
    if (request.stream && call.fault?.kind !== "json") return stream(call, chatFrames(result));
    const answer = chatBody(result);
    return whole(call, answer.body, answer.tokens);
  }

  /** The model outputs several texts, one for each request, and then always the last one. No grammar binds them. */
  function nextSpeech(says: string, { continueFinalMessage, messages }: ChatRequest) {
    const texts = says.split("\u001e");
    const last = continueFinalMessage ? messages.at(-1)?.text : undefined;
    const count = said.get(says) ?? 0;
    // A request that continues a text does not begin the next one.
    if (!continueFinalMessage) said.set(says, count + 1);
    const at = Math.min(Math.max(0, continueFinalMessage ? count - 1 : count), texts.length - 1);
    return rawSpeech(texts[at] ?? "", vocabulary, last ?? "");
  }

  /** A prompt in the simulator's own vocabulary, which is cheap. */
  function echoPrompt(text: string): ChatPrompt {
    const tokens = splitTokens(text);
    return { text, tokens, ids: () => tokens.map((token) => vocabulary.id(token)) };
  }

  async function complete(call: Call, body: JsonObject, model: string): Promise<Response> {
    const { settings } = call;
    const request = withSettings(parseCompletionRequest(body, settings), settings);
    const longest = contextLength(settings, model);
    const base = engineOf(model);
    const choices = speaksHarmony(base)
      ? harmonyChoices(request, settings, longest, await harmonyTokenizer(), isScripted(base))
      : completionChoices(request, settings, longest, vocabulary);
    const delayMs = choices[0]?.delayMs ?? 0;
    if (delayMs > 0) call.settings = slowedDown(settings, delayMs);
    const prompts = choices.map((choice) => choice.prompt);
    const result = {
      id: `cmpl-${requestId(call, request.requestId, prompts[0]?.text ?? "")}`,
      created: unixSeconds(),
      model,
      request,
      settings,
      prompt: {
        promptTokens: prompts.reduce((sum, prompt) => sum + prompt.cacheKey.length, 0),
        cachedTokens: prompts.reduce((sum, prompt) => sum + cache.lookUp(request.cacheSalt, prompt.cacheKey).cached, 0),
        createdCacheTokens: 0,
      },
      choices,
    };
    const refused = refusedGrammar(call, request);
    if (refused !== undefined) return refused;
    if (request.stream && call.fault?.kind !== "json") return stream(call, completionFrames(result));
    return whole(call, completionBody(result), generatedTokens(result));
  }

  async function tokenize(call: Call, sent: JsonObject, model: string): Promise<Response> {
    const { counts } = kind;
    const body = sent.messages === undefined ? sent : readRequest(kind, sent);
    // llama.cpp reads only `content`, and ignores all other fields without an error.
    if (counts && call.record.path === "/tokenize") {
      const text = typeof sent.content === "string" ? sent.content : "";
      return json({ tokens: (await tokenizerOf(model)).encode(text) });
    }
    const chatMessages = body.messages !== undefined;
    const prompt = chatMessages ? undefined : stringField(body, "prompt");
    if (!chatMessages && prompt === undefined) {
      const wanted = { type: "missing", msg: "Field required", input: body };
      throw invalidBody({ ...wanted, loc: "body.prompt" }, { ...wanted, loc: "body.messages" });
    }
    let text = prompt ?? "";
    if (chatMessages) {
      parseTools(body);
      const open = booleanField(body, "continue_final_message") ?? false;
      const ending = open
        ? "open message"
        : body.add_generation_prompt === false
          ? "closed message"
          : "generation prompt";
      const variables = objectField(body, "chat_template_kwargs") ?? {};
      const messages = withOldThoughts(parseMessages(body), variables, call.settings);
      expectReadable(messages, model);
      text = isScripted(engineOf(model))
        ? renderChatml(messages, body.tools, ending, variables.enable_thinking !== false)
        : renderPrompt(messages, body.tools, ending);
    }
    const tokenizer = await tokenizerOf(model);
    const tokens = tokenizer.encode(text);
    if (counts) return json({ [counts.field]: tokens.length, object: "response.input_tokens" });
    return json({
      count: tokens.length,
      max_model_len: contextLength(call.settings, model),
      tokens,
      token_strs: body.return_token_strs === true ? tokens.map((id) => tokenizer.token(id)) : null,
    });
  }

  async function detokenize(_: Call, body: JsonObject, model: string): Promise<Response> {
    const tokens = listField(body, "tokens");
    if (tokens === undefined) throw missing("body.tokens", body);
    const tokenizer = await tokenizerOf(model);
    return json({ [kind.detokenized ?? "prompt"]: tokenizer.decode(tokens.filter((id) => typeof id === "number")) });
  }

  async function tokenizerOf(model: string): Promise<Pick<Vocabulary, "encode" | "decode" | "token">> {
    const base = engineOf(model);
    if (speaksHarmony(base)) return harmonyTokenizer();
    return isScripted(base) ? chatmlTokenizer() : vocabulary;
  }

  /** The card of a LoRA adapter has its path and its base model, and no context length. */
  function modelCard(id: string, settings: Settings): JsonObject {
    const parent = Object.hasOwn(adapters, id) ? (adapters[id] ?? null) : null;
    return {
      id,
      object: "model",
      created: started,
      owned_by: options.ownedBy ?? kind.owner,
      ...(kind.fields && kind.card(id, contextLength(settings, id), parent)),
      ...(kind.fields === undefined && vllmCard(id, parent, settings)),
    };
  }

  function vllmCard(id: string, parent: string | null, settings: Settings): JsonObject {
    return {
      root: parent === null ? rootOf(id) : `/adapters/${id}`,
      parent,
      max_model_len: parent === null ? contextLength(settings, id) : null,
      permission: [permission(id, started)],
    };
  }

  /** The model that answers: for an adapter, its base model. */
  function engineOf(model: string): string {
    const { base } = splitModel(model);
    return Object.hasOwn(adapters, base) ? (adapters[base] ?? base) : base;
  }

  function contextLength(settings: Settings, model: string): number {
    const own = options.maxModelLen ?? ownContextLength(engineOf(model));
    return settings.maxModelLen ?? own ?? DEFAULT_MAX_MODEL_LEN;
  }

  function requestId(call: Call, own: string | undefined, prompt: string): string {
    answered++;
    return call.request.headers.get("x-request-id") ?? own ?? hex(`${answered} ${prompt.slice(-200)}`, 16);
  }

  /** The request's fault, unless it has happened `fault_times` times already with these very settings. */
  function dueFault(settings: Settings, key: string): Fault | undefined {
    if (settings.fault === undefined || settings.faultTimes === undefined) return settings.fault;
    const done = faultsDone.get(key) ?? 0;
    faultsDone.set(key, done + 1);
    return done < settings.faultTimes ? settings.fault : undefined;
  }

  function clear(): void {
    requests.length = 0;
    cache.clear();
    faultsDone.clear();
    said.clear();
  }

  return {
    fetch,
    requests,
    get lastAsked() {
      return requests.findLast(({ body }) => body !== undefined);
    },
    clear,
  };
}

/** A rendered prompt: its tokens as the prefix cache compares them, and their ids. */
type ChatPrompt = { text: string; tokens: readonly (string | number)[]; ids(): readonly number[] };

type Call = {
  request: Request;
  record: SimulatedRequest;
  settings: Settings;
  fault: Fault | undefined;
  /** True once a streamed body has begun. The body then reports its own end. */
  streaming: boolean;
  /** Resolves when a stall must end. */
  released: Promise<void>;
};

type Route = {
  method: "GET" | "POST";
  answer(call: Call, body: JsonObject, model: string): Response | Promise<Response>;
};

/**
 * Gives the answer to a stream whose grammar is refused: the engine compiles the grammar when the stream already has
 * its 200. Throws the error for an answer in one piece.
 */
function refusedGrammar(
  call: Call,
  request: { stream: boolean; format: AnswerFormat; tools?: Tool[] },
): Response | undefined {
  try {
    if (request.format.kind === "json_schema") checkGrammar(request.format.schema);
    if (request.format.kind === "grammar") compileText(request.format);
    if (request.tools?.some((tool) => tool.strict && isRefused(tool.parameters)) === true) {
      throw new GrammarError(400, "Invalid grammar specification: 'triggers'");
    }
    return undefined;
  } catch (error) {
    if (!(error instanceof GrammarError) || !request.stream) throw error;
    const data = errorEvent(error, call.settings.flat);
    return stream(call, [{ data, tokens: 0, role: "after" }, doneFrame()]);
  }
}

/** Each token takes `ms`, the first one too. */
function slowedDown(settings: Settings, ms: number): Settings {
  return { ...settings, ttft: settings.ttft + ms, tps: 1000 / ms };
}

function permission(model: string, created: number): JsonObject {
  return {
    id: `modelperm-${hex(model, 16)}`,
    object: "model_permission",
    created,
    allow_create_engine: false,
    allow_sampling: true,
    allow_logprobs: true,
    allow_search_indices: false,
    allow_view: true,
    allow_fine_tuning: false,
    organization: "*",
    group: null,
    is_blocking: false,
  };
}

function withSettings<Request extends { returnTokenIds: boolean }>(request: Request, settings: Settings): Request {
  return settings.tokenIds ? request : { ...request, returnTokenIds: false };
}

/**
 * A request to a vLLM that runs without parsers. Under `none` the tools are in its prompt, and the model may call them.
 * Throws its 400 of any other choice of tools.
 */
function withoutParsers(request: ChatRequest, { parsers }: Settings, kind: ReturnType<typeof kindOf>): ChatRequest {
  const { tools, toolChoice } = request;
  if (parsers || kind.owner !== "vllm" || tools.length === 0) return request;
  if (toolChoice.kind === "none") return { ...request, toolChoice: { kind: "auto" } };
  throw badRequest(
    toolChoice.kind === "auto"
      ? '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
      : "tool_choice requires --tool-call-parser to be set",
  );
}

async function readBody(call: Call): Promise<JsonObject> {
  const type = call.request.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
  if (type !== "application/json") {
    const msg = "Unsupported Media Type: Only 'application/json' is allowed";
    throw invalidBody({ type: "", loc: "", msg });
  }
  let body: Json;
  try {
    body = parseJson(await call.request.text());
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    const at = /position (\d+)/.exec(error.message)?.[1] ?? "0";
    const why = at === "1" ? "Expecting property name enclosed in double quotes" : "Expecting value";
    throw invalidBody({
      type: "json_invalid",
      loc: `body.${at}`,
      msg: "JSON decode error",
      input: {},
      ctx: { error: why },
    });
  }
  call.record.body = body;
  if (!isObject(body)) {
    const msg = "Input should be a valid dictionary or object to extract fields from";
    throw invalidBody({ type: "model_attributes_type", loc: "body", msg, input: body });
  }
  return body;
}

/** Triggers faults that do not depend on the request: those that answer at once, and those that never answer. */
async function failEarly(call: Call): Promise<Response | undefined> {
  switch (call.fault?.kind) {
    case "refuse":
      throw new ConnectionLost("refuse");
    case "stall_headers":
      await stall(call.request.signal, call.released);
      return undefined;
    case "http":
      throw new VllmError(call.fault.status, "Simulated fault.");
    case "html":
      return new Response("<!doctype html><html><body><h1>Welcome</h1></body></html>", {
        headers: { "content-type": "text/html; charset=utf-8" },
      });
    default:
      return undefined;
  }
}

function stream(call: Call, frames: Iterable<Frame>): Response {
  const { record, settings, fault, request } = call;
  call.streaming = true;
  const body = streamBody(withFault(frames, fault, settings), settings, request.signal, {
    delta: () => void record.deltasSent++,
    completed: () => end(record, "completed"),
    aborted: () => end(record, "aborted"),
    released: call.released,
  });
  return new Response(body, { headers: { "content-type": "text/event-stream; charset=utf-8" } });
}

/**
 * An answer in one piece, after the time of its tokens. There are no deltas, so a fault with a count happens at once.
 */
async function whole(call: Call, body: JsonObject, tokens: number): Promise<Response> {
  const { settings, fault, request } = call;
  const time = settings.ttft + (settings.tps > 0 ? (tokens * 1000) / settings.tps : 0);
  if (time > 0) await sleep(time, request.signal);
  switch (fault?.kind) {
    case "stall":
      await stall(request.signal, call.released);
      return json(body);
    case "engine":
      throw engineError();
    case "error":
      throw new VllmError(500, "Simulated fault.");
    case "garbage":
      return new Response("{not json", { headers: { "content-type": "application/json" } });
    case "cut":
    case "end": {
      const text = JSON.stringify(body);
      return broken(call, text.slice(0, Math.ceil(text.length / 2)), fault.kind === "cut");
    }
    default:
      return json(body);
  }
}

function broken(call: Call, text: string, cut: boolean): Response {
  let sent = false;
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (sent) controller.error(new ConnectionLost("cut"));
        else controller.enqueue(new TextEncoder().encode(text));
        sent = true;
        if (!cut) controller.close();
      },
    },
    { highWaterMark: 0 },
  );
  end(call.record, "completed");
  return new Response(body, { headers: { "content-type": "application/json" } });
}

function json(body: JsonObject, status = 200, headers: Record<string, string> = {}): Response {
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  return new Response(bytes, {
    status,
    headers: { ...headers, "content-type": "application/json", "content-length": String(bytes.length) },
  });
}

function end(record: SimulatedRequest, state: "completed" | "aborted"): void {
  if (record.state !== "open") return;
  record.state = state;
  record.endedAt = Date.now();
}

function authorized(request: Request, apiKey: string): boolean {
  return request.method === "OPTIONS" || request.headers.get("authorization") === `Bearer ${apiKey}`;
}

function unixSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
