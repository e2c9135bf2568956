import type { Config } from "../config.ts";
import { type ReadBounds, ReadFault, readBoundedText } from "../protocol/bounded-read.ts";
import { ApiError, contextLengthExceeded, invalidRequest } from "../protocol/errors.ts";
import { readerOf } from "./byte-reader.ts";
import { clientMessage, clientParam } from "./fault-names.ts";
import { sawDown, sawUp, statusOf } from "./server-status.ts";
import { socketFetch } from "./socket-fetch.ts";

/** An error is told in a few words: more than this of one is nothing to read, or to pass on. */
const MAX_ERROR_BYTES = 64 * 1024;

/** Of an answer that comes whole; the tokens of a million-token prompt are 8 MB. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;

/** How long the server may take to say how it is, and what is wrong with a request, in milliseconds. */
const HEALTH_TIMEOUT_MS = 2_000;
const ERROR_TIMEOUT_MS = 5_000;

/** What `/health` is answered with where no engine lives behind it: by vLLM itself, or by a proxy before it. */
const GONE_STATUSES = new Set([502, 503, 504]);

/**
 * The seam to vLLM: a URL, or a binding named VLLM (a service binding, or a Workers VPC service for a private GPU).
 * Everything that can go wrong on the way comes out as an ApiError with the right 4xx or 5xx.
 */
export class Upstream {
  readonly #config: Config;
  readonly #session: string | undefined;
  readonly #trace: (() => Record<string, string> | undefined) | undefined;
  /** What closes the request behind a response: cancelling the body alone leaves the connection to the runtime. */
  readonly #requests = new WeakMap<Response, AbortController>();

  /**
   * `session`, where there is one, names the requests that a router before the model server is to keep together. `trace`
   * gives the headers that tell the server which trace a request belongs to, if it is to be told.
   */
  constructor(config: Config, session?: string, trace?: () => Record<string, string> | undefined) {
    this.#config = config;
    this.#session = session;
    this.#trace = trace;
  }

  /** Names the server, for caches; never shown to anybody. */
  get baseUrl(): string {
    return this.#config.vllmBaseUrl;
  }

  /** What the server is called where requests are told of: the one there is. */
  get name(): string {
    return "vllm";
  }

  /** Since when the server is down, as far as this isolate has seen. Unix milliseconds. */
  get downSince(): number | undefined {
    return statusOf(this.baseUrl).downSince;
  }

  /**
   * Sends a request and waits for its headers, at most `VLLM_CONNECT_TIMEOUT_MS`. `path` is below `/v1`, or from the
   * server's root when it begins with `//`. Throws ApiError 502/504 when vLLM cannot be reached, and that of its own
   * error answer otherwise; aborting `signal` closes the request and throws the signal's reason.
   */
  async request(path: string, signal: AbortSignal, body?: string): Promise<Response> {
    const { connectTimeoutMs, silenceMs } = this.#config;
    const abort = new AbortController();
    const onAbort = () => abort.abort(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    const since = Date.now();
    let isGone = false;
    const ask = async () => {
      isGone = await this.#hasBeenGone(since, abort.signal).catch(() => false);
      if (isGone) abort.abort();
    };
    const look = () => {
      const leftMs = since + connectTimeoutMs - Date.now();
      if (leftMs <= 0) return abort.abort();
      void ask();
      timer = setTimeout(look, Math.min(silenceMs, leftMs));
    };
    // One timer, which most requests never see: that of their time, or of the next question before it.
    let timer = setTimeout(look, Math.min(silenceMs, connectTimeoutMs));
    let response: Response;
    try {
      response = await this.#send(path, abort.signal, body);
    } catch {
      if (signal.aborted) throw signal.reason;
      if (abort.signal.aborted && !isGone) throw timedOut("did not answer", connectTimeoutMs);
      sawDown(this.baseUrl);
      throw unreachable();
    } finally {
      clearTimeout(timer);
    }
    this.#requests.set(response, abort);
    if (!response.ok) throw await this.#errorOf(response, signal);
    sawUp(this.baseUrl);
    return response;
  }

  #send(path: string, signal: AbortSignal, body?: string): Promise<Response> {
    const { vllmBaseUrl, vllmFetch, vllmTransport, vllmApiKey } = this.#config;
    const url = path.startsWith("//") ? vllmBaseUrl.replace(/\/v1$/, "") + path.slice(1) : vllmBaseUrl + path;
    const headers: Record<string, string> = { accept: "text/event-stream, application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (this.#session !== undefined) headers["x-session-id"] = this.#session;
    if (this.#trace) Object.assign(headers, this.#trace());
    if (vllmApiKey) headers.authorization = `Bearer ${vllmApiKey}`;
    const request = { method: body === undefined ? "GET" : "POST", headers, body, signal };
    return vllmTransport === "socket" ? socketFetch(url, request) : vllmFetch(url, request);
  }

  /** The fault that a response tells of. Of a body that is too long, or takes too long, nothing is kept. */
  async #errorOf(response: Response, signal: AbortSignal): Promise<ApiError> {
    let fault: UpstreamFault | undefined;
    const bounds = { maxBytes: MAX_ERROR_BYTES, timeoutMs: ERROR_TIMEOUT_MS, signal };
    try {
      fault = readFault(JSON.parse(await readBoundedText(response, bounds)));
    } catch {
      this.#close(response);
      if (signal.aborted) throw signal.reason;
    }
    const error = toFaultError(response.status, fault, response.headers.get("retry-after"));
    if (error.code === ENGINE_DEAD) sawDown(this.baseUrl);
    return error;
  }

  /** The JSON answer of a request. Throws as `request` and `text` do, and ApiError 502 when the answer is not JSON. */
  async json(path: string, signal: AbortSignal, body?: string): Promise<unknown> {
    const text = await this.text(await this.request(path, signal, body), signal, this.#config.connectTimeoutMs);
    try {
      return JSON.parse(text);
    } catch {
      throw malformedAnswer();
    }
  }

  /**
   * A body that comes whole, read within `VLLM_FIRST_BYTE_TIMEOUT_MS`, or `timeoutMs`. Throws ApiError 502 when it is
   * longer than any answer or breaks off, 504 when it takes too long, and the signal's reason when that is aborted.
   */
  async text(response: Response, signal: AbortSignal, timeoutMs = this.#config.firstByteTimeoutMs): Promise<string> {
    const bounds: ReadBounds = { maxBytes: MAX_ANSWER_BYTES, timeoutMs, signal };
    try {
      return await readBoundedText(response, bounds);
    } catch (error) {
      this.#close(response);
      if (signal.aborted || !(error instanceof ReadFault)) throw error;
      if (error.kind === "timeout") throw timedOut("did not complete its answer", timeoutMs);
      throw error.kind === "lost" ? connectionLost() : malformedAnswer();
    }
  }

  #close(response: Response): void {
    this.#requests.get(response)?.abort();
  }

  /**
   * Whether the server says itself, or its silence at the door does, that no engine is there: `/health` refuses the
   * connection or answers 502, 503 or 504. A server that does not answer in time may only be busy.
   * Throws the signal's reason when it is aborted.
   */
  async isGone(signal: AbortSignal): Promise<boolean> {
    const status = statusOf(this.baseUrl);
    status.askedAt = Date.now();
    const abort = new AbortController();
    const onAbort = () => abort.abort();
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    const timer = setTimeout(onAbort, HEALTH_TIMEOUT_MS);
    let isGone: boolean;
    try {
      const response = await this.#send("//health", abort.signal);
      isGone = GONE_STATUSES.has(response.status);
    } catch {
      if (signal.aborted) throw signal.reason;
      isGone = !abort.signal.aborted;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      // Its body is of no interest.
      abort.abort();
    }
    status.health = { isGone, at: Date.now() };
    if (isGone) sawDown(this.baseUrl);
    return isGone;
  }

  /**
   * The same of a server as it was `since` a stream has fallen silent: one that was away meanwhile has forgotten the
   * stream, though it may be back. Many may fall silent at once, and one of them asks for all.
   */
  async #hasBeenGone(since: number, signal: AbortSignal): Promise<boolean> {
    const { health, askedAt, downAt } = statusOf(this.baseUrl);
    const { silenceMs } = this.#config;
    const now = Date.now();
    if (downAt !== undefined && downAt >= since) return true;
    if (health && health.at >= since && now - health.at < silenceMs) return false;
    if (askedAt !== undefined && now - askedAt < Math.min(silenceMs, HEALTH_TIMEOUT_MS)) return false;
    return this.isGone(signal);
  }

  /**
   * The reads of a streamed body. The server may be silent for `VLLM_FIRST_BYTE_TIMEOUT_MS` before its first word and
   * for `VLLM_IDLE_TIMEOUT_MS` between two; after `VLLM_SILENCE_MS` it is asked whether it is still there. Only time in
   * which a read is waited for counts: a slow reader is no silence. Neither is a comment a word: a server keeps sending
   * these when its engine is gone (`--sse-keep-alive-interval`).
   *
   * The bytes of a read are valid until the next one.
   *
   * Ends cleanly at the end of the body; throws ApiError 502/504 when the connection breaks or falls silent, and the
   * signal's reason when it is aborted. Leaving the iteration closes the upstream request.
   */
  async *reads(response: Response, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    if (!response.body) return;
    const { firstByteTimeoutMs, idleTimeoutMs, silenceMs } = this.#config;
    const reader = readerOf(response.body);
    /** Ends the question whether the server is still there, where one was asked. */
    let asking: AbortController | undefined;
    const close = () => {
      reader.cancel();
      this.#close(response);
    };
    let limit = firstByteTimeoutMs;
    /** When the wait for the server's next word began; undefined while the reader is busy with the last one. */
    let waitingSince: number | undefined;
    let fault: ApiError | undefined;
    let ended = false;
    const giveUp = (error: ApiError) => {
      fault ??= error;
      close();
    };
    const ask = async (since: number) => {
      asking ??= new AbortController();
      const isGone = await this.#hasBeenGone(since, asking.signal).catch(() => false);
      if (isGone && waitingSince === since) giveUp(connectionLost());
    };
    // One timer per stream that looks now and then, rather than one per read.
    const watchdog = setInterval(
      () => {
        if (waitingSince === undefined) return;
        const silentFor = Date.now() - waitingSince;
        if (silentFor >= limit) giveUp(timedOut("went silent", limit));
        else if (silentFor >= silenceMs) void ask(waitingSince);
      },
      Math.max(10, Math.min(firstByteTimeoutMs, idleTimeoutMs, silenceMs, 4000) / 4),
    );
    signal.addEventListener("abort", close, { once: true });
    const comments = new CommentFilter();
    try {
      for (;;) {
        waitingSince ??= Date.now();
        const bytes = await reader.read();
        if (signal.aborted) throw signal.reason;
        if (fault) throw fault;
        ended = bytes.length === 0;
        if (ended) return;
        if (comments.isOnlyComments(bytes)) continue;
        limit = idleTimeoutMs;
        waitingSince = undefined;
        yield bytes;
      }
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (fault) throw fault;
      throw error instanceof ApiError ? error : connectionLost();
    } finally {
      clearInterval(watchdog);
      asking?.abort();
      signal.removeEventListener("abort", close);
      if (!ended) close();
    }
  }
}

/** Tells reads of a stream that hold nothing but whole SSE comments and blank lines. */
class CommentFilter {
  /** The last read ended with a line. */
  #atLineStart = true;

  isOnlyComments(bytes: Uint8Array): boolean {
    const startsLine = this.#atLineStart;
    this.#atLineStart = bytes.at(-1) === LINE_FEED;
    if (!startsLine || !this.#atLineStart || bytes[0] !== COLON) return false;
    for (let at = 0; at < bytes.length; at = bytes.indexOf(LINE_FEED, at) + 1) {
      const first = bytes[at];
      if (first !== COLON && first !== LINE_FEED && first !== CARRIAGE_RETURN) return false;
    }
    return true;
  }
}

const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;
const COLON = 58;

/** The code of an engine that has died while its server still answers. */
const ENGINE_DEAD = "upstream_engine_dead";

/** vLLM's words for it (`EngineDeadError`), since 0.6; its other failures leave the engine alive. */
const ENGINE_DEAD_WORDS = /EngineCore encountered an issue|engine core .*died|engine loop .*(not running|has died)/i;

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

/** vLLM's longest words quote the field at fault; the rest of such a message tells nothing. In characters. */
const MAX_FAULT_MESSAGE = 4_000;

/** Reads a fault out of a body or a stream payload, or gives undefined when there is none. */
export function readFault(body: unknown): UpstreamFault | undefined {
  if (typeof body !== "object" || body === null) return undefined;
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
  if (status >= 500 && ENGINE_DEAD_WORDS.test(message)) {
    return new ApiError({ status: 502, message: "The model server's engine has died.", code: ENGINE_DEAD });
  }
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
