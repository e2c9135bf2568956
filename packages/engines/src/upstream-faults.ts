import { ApiError, contextLengthExceeded, invalidRequest } from "@responses-edge/responses-api/errors";
import { clientMessage, clientParam } from "./client-faults.ts";
import { SEPARATION_REMEDY } from "./tenant-rules.ts";

/** The faults of model servers, as errors of this API. */

/** The code of a dead engine whose server still answers. */
export const ENGINE_DEAD = "upstream_engine_dead";

/** vLLM's error texts for it (`EngineDeadError`), since 0.6; after other failures the engine lives. */
const ENGINE_DEAD_WORDS = /EngineCore encountered an issue|engine core .*died|engine loop .*(not running|has died)/i;

/** The code of a model's answer that its server could not parse. */
export const UNREADABLE_ANSWER = "upstream_unreadable_answer";

/** Error texts for it, of llama.cpp (`common/chat.cpp`) and of Ollama (`model/parsers`): calls that are truncated or malformed. */
const UNREADABLE_WORDS =
  /output that does not match the expected .*format|Failed to parse input at pos|error parsing tool call|XML syntax error on line/i;

/** 502: the server cannot be reached. */
export function unreachable(): ApiError {
  return new ApiError({
    status: 502,
    message: "The model server could not be reached.",
    code: "upstream_unreachable",
  });
}

/** 504. `what` names the step that took too long. */
export function timedOut(what: string, afterMs: number): ApiError {
  return new ApiError({
    status: 504,
    message: `The model server ${what} within ${afterMs} ms.`,
    code: "upstream_timeout",
  });
}

/** 502: the connection to vLLM broke in the middle of an answer. */
export function connectionLost(): ApiError {
  return new ApiError({
    status: 502,
    message: "The connection to the model server was lost in the middle of the response.",
    code: "upstream_connection_lost",
  });
}

/** 502: vLLM has aborted its answer. */
export function answerAborted(): ApiError {
  return new ApiError({ status: 502, message: "The model server aborted the request.", code: "upstream_aborted" });
}

/** 502: vLLM's answer does not match its API. */
export function malformedAnswer(): ApiError {
  return new ApiError({
    status: 502,
    message: "The model server sent a malformed response.",
    code: "upstream_malformed_response",
  });
}

/** An answer as JSON. Throws ApiError 502 if it is invalid. */
export function parsedAnswer(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw malformedAnswer();
  }
}

/** 502: a prompt is to fit an unknown window. */
export function windowNotTold(): ApiError {
  const message = "The model server does not report the context window of this model: set CONTEXT_WINDOWS.";
  return new ApiError({ status: 502, message, code: "unknown_context_window" });
}

/** 503: the server is not known to keep the prompts of different tenants apart, which the operator requires. */
export function tenantsNotSeparated(): ApiError {
  return new ApiError({
    status: 503,
    message: `The model server does not separate the prompts of different tenants. ${SEPARATION_REMEDY}`,
    code: "tenants_not_separated",
  });
}

/** 502: a request was made for a server that was away then, and turns out to be of another kind. */
export function unsuited(kind: string): ApiError {
  return new ApiError({
    status: 502,
    message: `The model server is of another kind (${kind}) than this request was prepared for. Create the response again.`,
    code: "upstream_error",
  });
}

/** 503: a server's answers do not show its kind, so that no request is sure to be understood. */
export function kindUnknown(): ApiError {
  return new ApiError({
    status: 503,
    message:
      "The model server has not shown yet which kind of server it is, because its /v1/models failed, or the paths that show a kind. Try again, or set UPSTREAM_DIALECT.",
    code: "model_server_unknown",
  });
}

/**
 * A model server's description of a fault: nested (`{error:{…}}`, vLLM since 0.10 and most others), flat
 * (`{object:"error",…}`, vLLM before), or FastAPI's (`{detail:…}`).
 */
export interface UpstreamFault {
  message: string;
  type?: string;
  param?: string | null;
  status?: number;
}

/** vLLM's longest texts quote the field at fault; the rest of such a message is not useful. In characters. */
const MAX_FAULT_MESSAGE = 4_000;

/** Reads a fault from a body or a stream payload; undefined if there is none. */
export function readFault(body: unknown): UpstreamFault | undefined {
  if (typeof body !== "object" || body === null) return undefined;
  if ("detail" in body) return readDetail(body.detail);
  const fault = "error" in body ? body.error : "object" in body && body.object === "error" ? body : undefined;
  if (typeof fault === "string") return { message: fault.slice(0, MAX_FAULT_MESSAGE) };
  if (typeof fault !== "object" || fault === null) return undefined;
  const { message, type, param, code } = fault as Record<string, unknown>;
  return {
    message: typeof message === "string" ? message.slice(0, MAX_FAULT_MESSAGE) : "unknown error",
    type: typeof type === "string" ? type : undefined,
    param: typeof param === "string" ? param : null,
    status: typeof code === "number" ? code : undefined,
  };
}

/** FastAPI's `detail`: a text, or the findings of its validation, with their fields. */
function readDetail(detail: unknown): UpstreamFault | undefined {
  if (typeof detail === "string") return { message: detail.slice(0, MAX_FAULT_MESSAGE) };
  const first: unknown = Array.isArray(detail) ? detail[0] : undefined;
  if (typeof first !== "object" || first === null || !("msg" in first) || typeof first.msg !== "string")
    return undefined;
  const path = "loc" in first && Array.isArray(first.loc) ? first.loc.filter((part) => part !== "body") : [];
  const field = path.join(".");
  const message = field === "" ? first.msg : `${field}: ${first.msg}`;
  return { message: message.slice(0, MAX_FAULT_MESSAGE), param: field === "" ? null : field };
}

/**
 * `max_output_tokens` alone is too large: these texts also mention the window, although the prompt need not fill it.
 */
const OUTPUT_LIMIT =
  /max_(completion_)?tokens=\d+ cannot be greater than max_model_len|'max_tokens'.* is too large: \d+\. This model's maximum context length is (\d+) tokens(?: and your request has (\d+) input tokens)?/i;

/** The prompt fills the window: vLLM ≥ 0.20 then sets the limit itself, and refuses it. */
const FULL_WINDOW = /^max_(completion_)?tokens must be at least 1, got/i;

/** vLLM before 0.12, and SGLang, add the two up: the prompt is at fault only if it fills the window by itself. */
const BOTH =
  /maximum context length (?:is|of) (\d+) tokens.*?[(:] ?(\d+) (?:in the (?:messages|prompt),|tokens from the input messages and) \d+ (?:in the|tokens for the) completion/i;

/** In the texts of vLLM, llama.cpp (`exceed_context_size_error`), SGLang and Ollama. */
const CONTEXT_LENGTH =
  /maximum context length|max_model_len|longer than the maximum model length|context length of|exceeds? the available context size|longer than the model's context length|exceeds? (the )?(maximum|model's|available) (allowed |context )?(length|size|window)|input length .*exceeds|prompt is too long/i;

/** llama.cpp's 500 of a prompt with tools, if it does not run the model's chat template. */
const NO_TEMPLATES = /requires? --jinja/i;

/** The code of that fault. */
export const WITHOUT_TEMPLATES = "upstream_misconfigured";

/** llama.cpp reports with a 500 that a model takes no media, vLLM with a 400. */
const NO_MEDIA = /(image|audio|video) input is not supported/i;

/**
 * A fault of vLLM as this API's error. Its text is passed on if it is about the request (4xx); for a fault of the
 * server (5xx) or of this server's credentials there (401, 403), only the kind is, and the operator gets the text (`upstream`).
 */
export function toFaultError(status: number, fault: UpstreamFault | undefined, retryAfter?: string | null): ApiError {
  return withUpstream(faultError(status, fault, retryAfter), fault?.message);
}

/** The error with the model server's own text, if it is a fault of the server: all others are told to the client. */
export function withUpstream(error: ApiError, text: string | undefined): ApiError {
  const isServers = error.status >= 500 || error.status === 429;
  if (!isServers || text === undefined || text === "" || error.upstream !== undefined) return error;
  // The rest quotes the model's output.
  const found = error.code === UNREADABLE_ANSWER ? UNREADABLE_WORDS.exec(text) : null;
  const upstream = found ? text.slice(0, found.index + found[0].length) : text;
  return new ApiError({ ...error.toFields(), upstream });
}

function faultError(status: number, fault: UpstreamFault | undefined, retryAfter?: string | null): ApiError {
  const message = messageOf(status, fault);
  const headers: Record<string, string> = retryAfter ? { "retry-after": atMostAMinute(retryAfter) } : {};
  if (status >= 500 && ENGINE_DEAD_WORDS.test(message)) {
    return new ApiError({ status: 502, message: "The model server's engine has died.", code: ENGINE_DEAD });
  }
  if (status >= 500 && UNREADABLE_WORDS.test(message)) {
    const said = "The model server could not parse its model's output.";
    return new ApiError({ status: 502, message: said, code: UNREADABLE_ANSWER });
  }
  if (NO_TEMPLATES.test(message)) {
    const said = "The model server runs without --jinja, so that its model gets no tools.";
    return new ApiError({ status: 502, message: said, code: WITHOUT_TEMPLATES });
  }
  if (NO_MEDIA.test(message)) return toRefusal(message.replace(/ - hint:.*/s, "."), fault?.param);
  if (isOfModel(status, fault)) return invalidRequest("model", message, "model_not_found");
  if (status === 400 || status === 413 || status === 422) return toRefusal(message, fault?.param);
  if (status === 429) {
    return new ApiError({
      status,
      type: "rate_limit_error",
      message: "The model server is receiving too many requests.",
      code: "rate_limit_exceeded",
      headers,
    });
  }
  // A proxy that cannot reach its server.
  if (status === 502) return unreachable();
  if (status === 503) {
    return new ApiError({ status, message: "The model server is overloaded.", code: "server_is_overloaded", headers });
  }
  if (status === 504) {
    return new ApiError({ status, message: "The model server timed out.", code: "upstream_timeout" });
  }
  if (status === 501) return invalidRequest(null, message, "unsupported_parameter");
  if (status >= 300 && status < 400) {
    const message = `The model server answered with a redirect (status ${status}), which this server does not follow.`;
    return new ApiError({ status: 502, message, code: "upstream_error" });
  }
  const why =
    status === 401 || status === 403
      ? "The model server refused this server's credentials (VLLM_API_KEY)."
      : `The model server failed with status ${status}.`;
  return new ApiError({ status: 502, message: why, code: "upstream_error" });
}

/** The SDKs ignore times longer than a minute. `retryAfter` in seconds; a date stays as it is. */
function atMostAMinute(retryAfter: string): string {
  return Number(retryAfter) > 60 ? "60" : retryAfter;
}

/** The 400 of a request that vLLM refuses, in the terms of this API. */
function toRefusal(message: string, param: string | null | undefined): ApiError {
  const said = clientMessage(message);
  const limit = OUTPUT_LIMIT.exec(message);
  const [, window, prompt] = BOTH.exec(message) ?? [undefined, limit?.[2], limit?.[3]];
  const fits = window !== undefined ? Number(prompt ?? 0) < Number(window) : limit !== null;
  if (fits) return invalidRequest("max_output_tokens", said, "above_max_value");
  if (FULL_WINDOW.test(message)) {
    return contextLengthExceeded("The prompt fills the model's context window: no token is left for an answer.");
  }
  if (CONTEXT_LENGTH.test(message)) return contextLengthExceeded(said);
  return invalidRequest(clientParam(param), said, "invalid_request");
}

/** Statuses that are about the request, as vLLM's routes have them. */
const REFUSALS = new Set([400, 404, 405, 413, 415, 422, 501]);

/**
 * The same for a client that uses vLLM's own API: an error about the request is passed on unchanged, with its status.
 * So is the 404 of a route that the server lacks.
 */
export function toPassedError(status: number, fault: UpstreamFault | undefined, retryAfter?: string | null): ApiError {
  if (!REFUSALS.has(status)) return toFaultError(status, fault, retryAfter);
  const isModel = isOfModel(status, fault);
  const code = isModel ? "model_not_found" : status === 404 || status === 405 ? "not_served" : "invalid_request";
  return new ApiError({
    status,
    message: messageOf(status, fault),
    param: isModel ? "model" : (fault?.param ?? null),
    code,
  });
}

function messageOf(status: number, fault: UpstreamFault | undefined): string {
  return fault?.message ?? `The model server answered with status ${status}.`;
}

/** Tells whether a 404 is about the model, by the server's text. Without a text it is about the route. */
function isOfModel(status: number, fault: UpstreamFault | undefined): boolean {
  return status === 404 && fault !== undefined && (fault.param === "model" || /model/i.test(fault.message));
}
