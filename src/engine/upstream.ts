import type { Config } from "../config.ts";
import { ApiError, contextLengthExceeded, invalidRequest } from "../protocol/errors.ts";
import { clientMessage, clientParam } from "./fault-names.ts";

/**
 * The seam to vLLM: a URL, or a binding named VLLM (a service binding, or a Workers VPC service for a private GPU).
 * Everything that can go wrong on the way comes out as an ApiError with the right 4xx or 5xx.
 */
export class Upstream {
  readonly #config: Config;
  /** What closes the request behind a response: cancelling the body alone leaves the connection to the runtime. */
  readonly #requests = new WeakMap<Response, AbortController>();

  constructor(config: Config) {
    this.#config = config;
  }

  /** Names the server, for caches; never shown to anybody. */
  get baseUrl(): string {
    return this.#config.vllmBaseUrl;
  }

  /**
   * Sends a request and waits for its headers, at most `VLLM_CONNECT_TIMEOUT_MS`. `path` is below `/v1`, or from the
   * server's root when it begins with `//`. Throws ApiError 502/504 when vLLM cannot be reached, and that of its own
   * error answer otherwise; aborting `signal` closes the request and throws the signal's reason.
   */
  async request(path: string, signal: AbortSignal, body?: string): Promise<Response> {
    const { vllmBaseUrl, vllmFetch, vllmApiKey, connectTimeoutMs } = this.#config;
    const url = path.startsWith("//") ? vllmBaseUrl.replace(/\/v1$/, "") + path.slice(1) : vllmBaseUrl + path;
    const headers: Record<string, string> = { accept: "text/event-stream, application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (vllmApiKey) headers.authorization = `Bearer ${vllmApiKey}`;

    const abort = new AbortController();
    const onAbort = () => abort.abort(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    const timer = setTimeout(() => abort.abort(), connectTimeoutMs);
    const method = body === undefined ? "GET" : "POST";
    let response: Response;
    try {
      response = await vllmFetch(url, { method, headers, body, signal: abort.signal });
    } catch {
      if (signal.aborted) throw signal.reason;
      if (abort.signal.aborted) throw timedOut("did not answer", connectTimeoutMs);
      throw unreachable();
    } finally {
      clearTimeout(timer);
    }
    if (!response.ok) throw await toUpstreamError(response);
    this.#requests.set(response, abort);
    return response;
  }

  /** The JSON answer of a request. Throws as `request` does, and ApiError 502 when the answer is not JSON. */
  async json(path: string, signal: AbortSignal, body?: string): Promise<unknown> {
    const response = await this.request(path, signal, body);
    try {
      return await response.json();
    } catch {
      if (signal.aborted) throw signal.reason;
      throw malformedAnswer();
    }
  }

  /**
   * The reads of a streamed body, each bounded: the first by `VLLM_FIRST_BYTE_TIMEOUT_MS`, the later ones by
   * `VLLM_IDLE_TIMEOUT_MS`. Ends cleanly at the end of the body; throws ApiError 502/504 when the connection breaks
   * or falls silent, and the signal's reason when it is aborted. Leaving the iteration closes the upstream request.
   */
  async *reads(response: Response, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    if (!response.body) return;
    const { firstByteTimeoutMs, idleTimeoutMs } = this.#config;
    const reader = response.body.getReader();
    const close = () => {
      reader.cancel().catch(() => {});
      this.#requests.get(response)?.abort();
    };
    let limit = firstByteTimeoutMs;
    let last = Date.now();
    let silent = false;
    let ended = false;
    // One timer per stream that looks now and then, rather than one per read.
    const watchdog = setInterval(
      () => {
        if (Date.now() - last < limit) return;
        silent = true;
        close();
      },
      Math.max(10, Math.min(firstByteTimeoutMs, idleTimeoutMs, 4000) / 4),
    );
    signal.addEventListener("abort", close, { once: true });
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (signal.aborted) throw signal.reason;
        if (silent) throw timedOut("went silent", limit);
        ended = done;
        if (done) return;
        limit = idleTimeoutMs;
        last = Date.now();
        yield value;
      }
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (silent) throw timedOut("went silent", limit);
      throw error instanceof ApiError ? error : connectionLost();
    } finally {
      clearInterval(watchdog);
      signal.removeEventListener("abort", close);
      if (!ended) close();
    }
  }
}

function unreachable(): ApiError {
  return new ApiError({
    status: 502,
    message: "The model server could not be reached.",
    code: "upstream_unreachable",
  });
}

function timedOut(what: string, afterMs: number): ApiError {
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

/** 502: vLLM's answer is not what its API gives. */
export function malformedAnswer(): ApiError {
  return new ApiError({
    status: 502,
    message: "The model server sent a malformed response.",
    code: "upstream_malformed_response",
  });
}

/** What vLLM says of a fault, nested (`{error:{…}}`, since 0.10) or flat (`{object:"error",…}`, before). */
export interface UpstreamFault {
  message: string;
  type?: string;
  param?: string | null;
  status?: number;
}

/** Reads a fault out of a body or a stream payload, or gives undefined when there is none. */
export function readFault(body: unknown): UpstreamFault | undefined {
  if (typeof body !== "object" || body === null) return undefined;
  const fault = "error" in body ? body.error : "object" in body && body.object === "error" ? body : undefined;
  if (typeof fault === "string") return { message: fault };
  if (typeof fault !== "object" || fault === null) return undefined;
  const { message, type, param, code } = fault as Record<string, unknown>;
  return {
    message: typeof message === "string" ? message : "unknown error",
    type: typeof type === "string" ? type : undefined,
    param: typeof param === "string" ? param : null,
    status: typeof code === "number" ? code : undefined,
  };
}

/** `max_output_tokens` alone is too large: these words also speak of the window, which the prompt need not fill. */
const OUTPUT_LIMIT =
  /max_(completion_)?tokens=\d+ cannot be greater than max_model_len|'max_tokens'.* is too large: \d+\. This model's maximum context length is (\d+) tokens(?: and your request has (\d+) input tokens)?/i;

/** The prompt leaves nothing of the window: vLLM ≥ 0.20 then makes the limit itself, and refuses it. */
const FULL_WINDOW = /^max_(completion_)?tokens must be at least 1, got/i;

/** vLLM before 0.12 adds the two up: the prompt is at fault only where it fills the window by itself. */
const BOTH = /maximum context length is (\d+) tokens.*\((\d+) in the (?:messages|prompt), (\d+) in the completion\)/i;

const CONTEXT_LENGTH = /maximum context length|max_model_len|longer than the maximum model length|context length of/i;

/**
 * A fault of vLLM as this API's error. Its words are passed on where they are about the request (4xx); a fault of the
 * server (5xx) or of our credentials there (401, 403) says only that.
 */
export function toFaultError(status: number, fault: UpstreamFault | undefined, retryAfter?: string | null): ApiError {
  const message = fault?.message ?? `The model server answered with status ${status}.`;
  const headers: Record<string, string> = retryAfter ? { "retry-after": retryAfter } : {};
  if (status === 404 && /model/i.test(message)) return invalidRequest("model", message, "model_not_found");
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
  if (status === 503) {
    return new ApiError({ status, message: "The model server is overloaded.", code: "server_is_overloaded", headers });
  }
  if (status === 504) {
    return new ApiError({ status, message: "The model server timed out.", code: "upstream_timeout" });
  }
  if (status === 501) return invalidRequest(null, message, "unsupported_parameter");
  const why =
    status === 401 || status === 403
      ? "The model server refused this server's credentials (VLLM_API_KEY)."
      : `The model server failed with status ${status}.`;
  return new ApiError({ status: 502, message: why, code: "upstream_error" });
}

/** The 400 of what vLLM refuses, in the words of this API. */
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

async function toUpstreamError(response: Response): Promise<ApiError> {
  let fault: UpstreamFault | undefined;
  try {
    fault = readFault(await response.json());
  } catch {
    fault = undefined;
  }
  return toFaultError(response.status, fault, response.headers.get("retry-after"));
}
