import { badRequest, errorBody, VllmError } from "./errors.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";

/** The kinds of model servers that the simulator plays: the paths, fields and texts in which each differs from vLLM. */

export type KindName = "vllm" | "llamacpp" | "sglang" | "ollama" | "transformers";

/** The facts of a kind of server. The simulated engine uses vLLM's words: each request is translated into them. */
export type Kind = {
  /** `owned_by` of its model cards. */
  owner: string;
  /** More fields of a card besides its id and its owner. An adapter's card has a `parent`. */
  card(id: string, window: number, parent: string | null): JsonObject;
  /** The paths of vLLM that it has too. */
  paths: readonly string[];
  /** Paths with facts about the server that vLLM does not have. */
  probes(model: string, window: number): Record<string, JsonObject>;
  headers: Record<string, string>;
  /** Settings that apply to its answers. */
  settings: string;
  /** The fields that it reads, with vLLM's names for them. Undefined: vLLM's fields. */
  fields?: Record<string, string>;
  /** True if an unknown field is a 422. */
  refusesUnknown?: boolean;
  /** The request in vLLM's words, made of the fields that it reads. Throws the kind's error for a bad request. */
  read(body: JsonObject): JsonObject;
  /** True if it answers every request with its only model, whatever name the request has. */
  answersAny?: boolean;
  /** It cuts a prompt that is too long without an error, or refuses it with this text. */
  overflow: "truncated" | ((prompt: number, wanted: number | undefined, window: number) => VllmError | undefined);
  /** Its body of an error. */
  error(error: VllmError): JsonObject;
  /** The path and the field for counting a prompt's tokens, and the field of `/detokenize`. */
  counts?: { path: string; field: string };
  detokenized?: string;
  /** Names of its gauges. A text is the 501 of a server that was started without them. */
  gauges?: readonly [string, string] | string;
};

const same = (...fields: string[]) => Object.fromEntries(fields.map((field) => [field, field]));

const OPENAI = same(
  ...["model", "messages", "stream", "stream_options", "temperature", "top_p", "seed", "stop", "n", "user", "tools"],
  ...["tool_choice", "parallel_tool_calls", "response_format", "max_tokens", "max_completion_tokens", "logit_bias"],
  ...["logprobs", "top_logprobs", "presence_penalty", "frequency_penalty", "reasoning_effort", "store", "metadata"],
);

const MORE = same("top_k", "min_p", "ignore_eos", "chat_template_kwargs", "continue_final_message");

const COMMON = ["/health", "/v1/models", "/v1/chat/completions", "/v1/completions"];

const vllm: Kind = {
  owner: "vllm",
  card: () => ({}),
  paths: [...COMMON, "/version", "/metrics", "/tokenize", "/detokenize", "/v1/embeddings", "/v1/rerank"],
  probes: () => ({}),
  headers: {},
  settings: "",
  read: (body) => body,
  overflow: () => undefined,
  error: (error) => errorBody(error, false),
};

const LLAMA_TYPES: Record<number, string> = { 404: "not_found_error", 501: "not_supported_error", 500: "server_error" };

/** llama.cpp's `llama-server`, build 11549, by its answers. */
const llamacpp: Kind = {
  ...vllm,
  owner: "llamacpp",
  card: (id, window) => ({
    aliases: [id],
    tags: [],
    architecture: { input_modalities: ["text"], output_modalities: ["text"] },
    meta: { n_vocab: 512, n_ctx: window, n_ctx_train: window, n_embd: 64 },
  }),
  paths: [...COMMON, "/metrics", "/tokenize"],
  probes: (model, window) => ({
    "/props": {
      default_generation_settings: { n_ctx: window, params: { temperature: 0.8, top_k: 40 } },
      total_slots: 1,
      model_alias: model,
      modalities: { vision: false, video: false, audio: false },
      chat_template_caps: { supports_tools: true, supports_parallel_tool_calls: true },
      build_info: "b11549-unknown",
    },
  }),
  headers: { server: "llama.cpp" },
  settings: "reasoning_field=reasoning_content&token_ids=0&thought_tokens=0&thoughts_end=1",
  fields: {
    ...OPENAI,
    ...MORE,
    ...same("add_generation_prompt", "grammar", "timings_per_token"),
    repeat_penalty: "repetition_penalty",
  },
  read(body) {
    const { grammar, parallel_tool_calls: _, reasoning_effort: effort, ...read } = body;
    const tools = Array.isArray(body.tools) && body.tools.length > 0;
    if (typeof body.n === "number" && body.n > 1) {
      throw badRequest(`Field 'n': Value must be between 1 <= value <= 1, but got ${body.n}`);
    }
    if (tools && body.logprobs === true && body.stream === true) {
      throw badRequest("logprobs is not supported with tools + stream");
    }
    if (!tools) delete read.tools;
    if (!tools) delete read.tool_choice;
    if (isObject(read.tool_choice)) read.tool_choice = "auto";
    const calls = tools && read.tool_choice !== "none";
    const format = isObject(body.response_format) && body.response_format.type !== "text";
    if (grammar !== undefined && calls) throw badRequest("Cannot use custom grammar constraints with tools.");
    if (grammar !== undefined && !format) read.structured_outputs = { grammar };
    // The schema binds the whole output.
    if (format && calls) read.tool_choice = "none";
    if (body.top_logprobs === 0) delete read.logprobs;
    if (effort === "none") read.reasoning_effort = effort;
    return continued({ ...read, messages: messagesRead(body.messages) }, body);
  },
  answersAny: true,
  overflow(prompt, _, window) {
    if (prompt < window) return undefined;
    const message = `request (${prompt} tokens) exceeds the available context size (${window} tokens), try increasing it`;
    return new VllmError(400, message, null, "exceed_context_size_error");
  },
  error({ status, message, type }) {
    const own = type === "exceed_context_size_error" ? type : (LLAMA_TYPES[status] ?? "invalid_request_error");
    return { error: { code: status, message, type: own } };
  },
  counts: { path: "/v1/chat/completions/input_tokens", field: "input_tokens" },
  gauges: "This server does not support metrics endpoint. Start it with `--metrics`",
};

/** The model continues a last assistant message, with every setting of the request. */
function continued(read: JsonObject, { messages, ...body }: JsonObject): JsonObject {
  const list = Array.isArray(messages) ? messages.filter(isObject) : [];
  const isLast = (back: number) => list.at(-back)?.role === "assistant";
  if (body.continue_final_message === true && body.add_generation_prompt !== false) {
    throw badRequest("Cannot set both add_generation_prompt and continue_final_message to true.");
  }
  if (!isLast(1)) return read;
  if (isLast(2)) throw badRequest("Cannot have 2 or more assistant messages at the end of the list.");
  if (list.at(-1)?.tool_calls != null) {
    throw badRequest("Cannot continue an assistant message that contains tool calls.");
  }
  return { ...read, continue_final_message: true, add_generation_prompt: false };
}

/** The messages as llama.cpp reads them: thoughts in one field alone, calls with JSON, and text. */
function messagesRead(messages: Json | undefined): Json {
  if (!Array.isArray(messages)) throw badRequest("'messages' is required");
  return messages.map((message) => {
    if (!isObject(message)) return message;
    const { reasoning: _, ...read } = message;
    for (const part of Array.isArray(read.content) ? read.content : []) {
      const kind = isObject(part) && /^(?:input_)?(image|audio)/.exec(String(part.type))?.[1];
      const hint = "hint: if this is unexpected, you may need to provide the mmproj";
      if (kind) throw new VllmError(500, `${kind} input is not supported - ${hint}`);
    }
    for (const call of Array.isArray(read.tool_calls) ? read.tool_calls : []) expectJson(call);
    return read;
  });
}

function expectJson(call: Json): void {
  const given = isObject(call) && isObject(call.function) ? call.function.arguments : undefined;
  try {
    if (typeof given === "string") JSON.parse(given);
  } catch {
    throw new VllmError(500, "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]");
  }
}

/** SGLang 0.5.23, by its source (`srt/entrypoints/openai/protocol.py`, `srt/managers/tokenizer_manager.py`). */
const sglang: Kind = {
  ...vllm,
  owner: "sglang",
  card: (id, window, parent) => ({ root: id, parent, max_model_len: parent === null ? window : null }),
  paths: [...COMMON, "/metrics", "/tokenize", "/detokenize"],
  probes: (model) => ({
    "/server_info": { model_path: model, internal_states: [{}], version: "0.5.23", startup_time: 0 },
  }),
  settings: "reasoning_field=reasoning_content",
  fields: {
    ...OPENAI,
    ...MORE,
    ...same("ebnf", "regex", "repetition_penalty", "min_tokens", "stop_token_ids", "skip_special_tokens"),
    ...same("cache_salt", "priority", "return_token_ids"),
  },
  read({ ebnf, regex, ...read }) {
    if (ebnf != null) read.structured_outputs = { grammar: ebnf };
    if (regex != null) read.structured_outputs = { regex };
    const messages = Array.isArray(read.messages) ? read.messages : [];
    const last = messages.at(-1);
    if (!isObject(last) || last.role !== "assistant") return { ...read, continue_final_message: false };
    if (read.continue_final_message !== true)
      return { ...read, messages: [...messages.slice(0, -1), { ...last, role: "user" }] };
    // The model continues only the text of the message. Its reasoning is dropped.
    const { reasoning: _, reasoning_content: __, ...text } = last;
    return { ...read, messages: [...messages.slice(0, -1), text], add_generation_prompt: false };
  },
  answersAny: true,
  overflow(prompt, wanted, window) {
    const isLong = prompt >= window;
    const least = `The input (${prompt} tokens) is longer than the model's context length (${window} tokens).`;
    if (isLong) return badRequest(least);
    const total = prompt + (wanted ?? 0);
    if (total <= window) return undefined;
    return badRequest(
      `Requested token count exceeds the model's maximum context length of ${window} tokens. You requested a total of ${total} tokens: ${prompt} tokens from the input messages and ${wanted} tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.`,
    );
  },
  error: (error) => errorBody(error, true),
  detokenized: "text",
  gauges: ["sglang:num_running_reqs", "sglang:num_queue_reqs"],
};

/** Ollama 0.17.4, by its source (`openai/openai.go`). */
const ollama: Kind = {
  ...vllm,
  owner: "library",
  paths: COMMON.slice(1),
  probes: () => ({ "/api/version": { version: "0.17.4" } }),
  settings: "token_ids=0&cached=0&thought_tokens=0",
  fields: same(
    ...["model", "messages", "stream", "stream_options", "max_tokens", "seed", "stop", "temperature", "top_p", "tools"],
    ...["frequency_penalty", "presence_penalty", "response_format", "reasoning_effort", "logprobs", "top_logprobs"],
  ),
  read: (body) => continued(body, { messages: body.messages ?? null }),
  overflow: "truncated",
  error: ({ status, message }) => ({
    error: { message, type: status === 404 ? "not_found_error" : "invalid_request_error", param: null, code: null },
  }),
};

/** `transformers serve` 5.23: it refuses every field that OpenAI does not have, and ignores most of the others. */
const transformers: Kind = {
  ...vllm,
  owner: "simulated",
  paths: COMMON.slice(0, 3),
  probes: () => ({ "/openapi.json": { openapi: "3.1.0", paths: { "/load_model": {} } } }),
  settings: "parsers=0&usage=finish&token_ids=0&thought_tokens=0&cached=0",
  fields: { ...OPENAI, ...same("generation_config", "chat_template_kwargs") },
  refusesUnknown: true,
  read({ response_format: _, tool_choice: __, parallel_tool_calls: ___, logprobs: ____, ...read }) {
    delete read.top_logprobs;
    delete read.reasoning_effort;
    delete read.stream_options;
    return read;
  },
  overflow: "truncated",
  error: ({ message }) => ({ detail: message }),
};

const KINDS: Record<KindName, Kind> = { vllm, llamacpp, sglang, ollama, transformers };

export function kindOf(name: KindName = "vllm"): Kind {
  return KINDS[name];
}

/**
 * A request as the engine takes it, in vLLM's words. Throws the 422 of a strict server, and the other refusals of the
 * kind.
 */
export function readRequest(kind: Kind, body: JsonObject): JsonObject {
  const { fields } = kind;
  if (fields === undefined) return body;
  const unknown = Object.keys(body).filter((field) => !Object.hasOwn(fields, field));
  if (kind.refusesUnknown && unknown.length > 0) {
    throw new VllmError(422, `Unexpected fields in the request: {${unknown.map((name) => `'${name}'`).join(", ")}}`);
  }
  const known = Object.entries(body).filter(([field]) => Object.hasOwn(fields, field));
  return kind.read(Object.fromEntries(known.map(([field, value]) => [fields[field] ?? field, value])));
}

/**
 * The tokens of the prompt that fit the window, and the maximum of the answer. Throws the kind's error for too many.
 */
export function fitted(kind: Kind, prompt: number, wanted: number | undefined, window: number) {
  if (kind.overflow === "truncated") {
    const kept = Math.min(prompt, window - 1);
    return { prompt: kept, wanted: wanted === undefined ? undefined : Math.min(wanted, window - kept) };
  }
  const refused = kind.overflow(prompt, wanted, window);
  if (refused) throw refused;
  if (wanted === undefined || kind.fields === undefined) return { prompt, wanted };
  return { prompt, wanted: Math.min(wanted, window - prompt) };
}

/** The error for a model that the server does not have. */
export function unknownModel(kind: Kind, name: string, models: readonly string[]): VllmError {
  if (kind.owner === "library") return new VllmError(404, `model '${name}' not found`);
  const aliases = models.join(", ");
  return new VllmError(404, `The model \`${name}\` does not exist. Valid aliases: ${aliases}.`, "model");
}
