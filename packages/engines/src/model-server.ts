import { type ReadBounds, ReadFault, readBoundedText } from "@responses-edge/bounded-io/body";
import { type HttpAnswer, readerOf, setTellingTimeout, socketFetch } from "@responses-edge/outgoing-fetch/socket";
import { ApiError } from "@responses-edge/responses-api/errors";
import { noteAnswer, STATUSES, sawDown, sawNoAnswer, statusOf } from "./server-status.ts";
import type { ModelServerConfig, ServerBounds } from "./settings.ts";
import {
  connectionLost,
  ENGINE_DEAD,
  malformedAnswer,
  parsedAnswer,
  readFault,
  timedOut,
  toFaultError,
  toPassedError,
  type UpstreamFault,
  unreachable,
  withUpstream,
} from "./upstream-faults.ts";

/** Most bytes of an error. A longer one is not read or passed on. */
const MAX_ERROR_BYTES = 64 * 1024;

/** The longest whole answer; the tokens of a million-token prompt are 8 MB. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;

/** The longest wait for the server's health, and for the body of an error, in milliseconds. */
const HEALTH_TIMEOUT_MS = 2_000;
const ERROR_TIMEOUT_MS = 5_000;

/**
 * The first check of a stream's timeouts, in milliseconds. It is early because the lateness of this timer shows that the
 * thread is overloaded, as when many streams begin at once.
 */
const FIRST_CHECK_MS = 50;

/** The statuses of `/health` if the engine behind it is gone: from vLLM itself, or from a proxy before it. */
const GONE_STATUSES = new Set([502, 503, 504]);

/** The parts in which requests differ. */
export interface RequestOptions {
  /** The longest wait for headers, in milliseconds, if not `VLLM_CONNECT_TIMEOUT_MS`. */
  withinMs?: number | undefined;
  /** The headers come only when the whole answer is ready. */
  isWhole?: boolean | undefined;
  /** The answer comes in many small pieces; false: it is read as a whole, or in large ones. */
  isTokenStream?: boolean | undefined;
  /** The tokens in each event of a stream; undefined: one. */
  interval?: number | undefined;
  /** The content type of a body other than JSON. */
  contentType?: string | undefined;
  /** It goes beside a request that shows itself whether the server is there: its own failure does not count. */
  isAside?: boolean | undefined;
  /** The client uses the server's own API, and gets its errors in that form. */
  isPassedOn?: boolean | undefined;
}

export type Body = string | Uint8Array<ArrayBuffer>;

/** The model servers' statuses behind errors. Clients see less. */
const statuses = new WeakMap<ApiError, number>();

/** The status of the answer behind an error; undefined without an answer. */
export function answeredStatus(error: ApiError): number | undefined {
  return statuses.get(error);
}

/** A request that was answered. */
interface Asked {
  /** Aborts it: cancelling only the body leaves the connection to the runtime. */
  abort: AbortController;
  /** When it was sent, if the answer is streamed and its client gets it as a whole. Unix milliseconds. */
  unwatchedSince: number | undefined;
}

/** Headers that tell a server which requests belong together. */
export interface RequestMarks {
  /** Identifies the requests that a router before the server should keep together. */
  serverKey?: { id: string | undefined } | undefined;
  /** Gives the headers of the request's trace, if the server should get them. */
  trace?: (() => Record<string, string> | undefined) | undefined;
}

/**
 * One model server: a URL, or a binding (a service binding, or a Workers VPC service for a private GPU). Every failure
 * on the way becomes an ApiError with the right 4xx or 5xx.
 */
export class ModelServer {
  readonly config: ModelServerConfig;
  /** The cache key of the server; never shown to anybody. */
  readonly baseUrl: string;
  readonly #bounds: ServerBounds;
  readonly #marks: RequestMarks;
  /** The requests behind responses. */
  readonly #requests = new WeakMap<HttpAnswer, Asked>();

  /** `marks` may change between two requests. */
  constructor(config: ModelServerConfig, bounds: ServerBounds, marks: RequestMarks = {}) {
    this.config = config;
    this.baseUrl = config.baseUrl;
    this.#bounds = bounds;
    this.#marks = marks;
  }

  /** Since when the server has been down, or has left requests unanswered, as far as this isolate knows. Unix milliseconds. */
  get downSince(): number | undefined {
    const { downSince, unansweredSince } = statusOf(this.baseUrl);
    return downSince ?? unansweredSince;
  }

  /**
   * Sends a request and waits for its headers, at most `VLLM_CONNECT_TIMEOUT_MS`. `path` is below `/v1`, or from the
   * server's root if it begins with `//`. Throws ApiError 502/504 if vLLM cannot be reached, and otherwise that of its
   * error answer; aborting `signal` closes the request and throws the signal's reason.
   */
  async request(
    path: string,
    signal: AbortSignal,
    body?: Body,
    { withinMs = this.#bounds.connectTimeoutMs, contentType, isPassedOn, isTokenStream, isAside }: RequestOptions = {},
  ): Promise<HttpAnswer> {
    const { silenceMs } = this.#bounds;
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
      const leftMs = since + withinMs - Date.now();
      if (leftMs <= 0) return abort.abort();
      void ask();
      timer = setTimeout(look, Math.min(silenceMs, leftMs));
    };
    // One timer, which rarely rings: at the end of the request's time, or at the next health question before it.
    let timer = setTimeout(look, Math.min(silenceMs, withinMs));
    let response: HttpAnswer;
    try {
      response = await this.#send(path, abort.signal, body, { contentType, isTokenStream });
    } catch {
      if (signal.aborted) throw signal.reason;
      if (abort.signal.aborted && !isGone) {
        if (!isAside) sawNoAnswer(this);
        throw timedOut("did not answer", withinMs);
      }
      if (!isAside) sawDown(this);
      throw unreachable();
    } finally {
      clearTimeout(timer);
    }
    const status = STATUSES.get(this.baseUrl);
    if (status) status.unansweredSince = undefined;
    this.#requests.set(response, { abort, unwatchedSince: isTokenStream === false ? since : undefined });
    if (!response.ok) throw await this.#errorOf(response, signal, isPassedOn ? toPassedError : toFaultError);
    if (status) noteAnswer(this);
    return response;
  }

  #send(
    path: string,
    signal: AbortSignal,
    body?: Body,
    { contentType = "application/json", isTokenStream }: RequestOptions = {},
  ): Promise<HttpAnswer> {
    const { baseUrl, fetch, transport, connector, apiKey, headers: own } = this.config;
    const url = path.startsWith("//") ? baseUrl.replace(/\/v1$/, "") + path.slice(1) : baseUrl + path;
    const headers: Record<string, string> = { accept: "text/event-stream, application/json", ...own };
    if (body !== undefined) headers["content-type"] = contentType;
    const { serverKey, trace } = this.#marks;
    if (serverKey?.id !== undefined) headers["x-session-id"] = serverKey.id;
    if (trace) Object.assign(headers, trace());
    if (apiKey) headers.authorization = `Bearer ${apiKey}`;
    const request = { method: body === undefined ? "GET" : "POST", headers, body, signal };
    if (transport === "socket" || (transport === "mixed" && isTokenStream)) return socketFetch(url, request, connector);
    return fetch(url, request);
  }

  /** The fault of a response. A body that is too long, or takes too long, is dropped. */
  async #errorOf(response: HttpAnswer, signal: AbortSignal, toError: typeof toFaultError): Promise<ApiError> {
    let fault: UpstreamFault | undefined;
    let text: string | undefined;
    const bounds = { maxBytes: MAX_ERROR_BYTES, timeoutMs: ERROR_TIMEOUT_MS, signal };
    try {
      text = await readBoundedText(response, bounds);
      fault = readFault(JSON.parse(text));
    } catch {
      this.close(response);
      if (signal.aborted) throw signal.reason;
    }
    const error = withUpstream(toError(response.status, fault, response.headers.get("retry-after")), text);
    statuses.set(error, response.status);
    if (error.code === ENGINE_DEAD) sawDown(this);
    return error;
  }

  /** The JSON answer of a request. Throws as `request` and `text` do, and ApiError 502 when the answer is not JSON. */
  async json(path: string, signal: AbortSignal, body?: string, options?: RequestOptions): Promise<unknown> {
    const response = await this.request(path, signal, body, options);
    return parsedAnswer(await this.text(response, signal, this.#bounds.connectTimeoutMs));
  }

  /**
   * A whole body, read within `VLLM_FIRST_BYTE_TIMEOUT_MS`, or `timeoutMs`. Throws ApiError 502 if it is too long or
   * breaks off, 504 if it takes too long, and the signal's reason when that is aborted.
   */
  async text(response: HttpAnswer, signal: AbortSignal, timeoutMs = this.#bounds.firstByteTimeoutMs): Promise<string> {
    const bounds: ReadBounds = { maxBytes: MAX_ANSWER_BYTES, timeoutMs, signal };
    try {
      return await readBoundedText(response, bounds);
    } catch (error) {
      this.close(response);
      if (signal.aborted || !(error instanceof ReadFault)) throw error;
      if (error.kind === "timeout") throw timedOut("did not complete its answer", timeoutMs);
      throw error.kind === "lost" ? connectionLost() : malformedAnswer();
    }
  }

  /** Closes the request behind an answer that is no longer wanted. */
  close(response: HttpAnswer): void {
    this.#requests.get(response)?.abort.abort();
  }

  /**
   * Tells whether the engine is gone, by the server's answer or its silence: `/health` refuses the connection or
   * answers 502, 503 or 504. A server that only takes too long may be busy. Throws the signal's reason when it is
   * aborted.
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
    if (isGone) sawDown(this);
    return isGone;
  }

  /**
   * The same, at any time since a stream fell silent: a server that was away in between has forgotten the stream, even
   * if it is back. Many streams may fall silent at once; one of them asks for all.
   */
  async #hasBeenGone(since: number, signal: AbortSignal): Promise<boolean> {
    const { health, askedAt, downAt } = statusOf(this.baseUrl);
    const { silenceMs } = this.#bounds;
    const now = Date.now();
    if (downAt !== undefined && downAt >= since) return true;
    if (health && health.at >= since && now - health.at < silenceMs) return false;
    if (askedAt !== undefined && now - askedAt < Math.min(silenceMs, HEALTH_TIMEOUT_MS)) return false;
    return this.isGone(signal);
  }

  /**
   * The reads of a streamed body. The server may be silent for `VLLM_FIRST_BYTE_TIMEOUT_MS` before its first word and
   * for `VLLM_IDLE_TIMEOUT_MS` between two; after `VLLM_SILENCE_MS` it is asked whether it is still there. Only time in
   * which a read is pending counts, so that a slow reader does not count as silence. Comments do not end a silence: a
   * server keeps sending them when its engine is gone (`--sse-keep-alive-interval`).
   *
   * The bytes of a read are valid until the next one.
   *
   * Ends cleanly at the end of the body; throws ApiError 502/504 when the connection breaks or falls silent, and the
   * signal's reason when it is aborted. Leaving the iteration closes the upstream request. `onEnd` is called however it
   * ends.
   */
  async *reads(response: HttpAnswer, signal: AbortSignal, onEnd?: () => void): AsyncGenerator<Uint8Array> {
    const { firstByteTimeoutMs, idleTimeoutMs, silenceMs } = this.#bounds;
    const reader = readerOf(response, this.#requests.get(response)?.unwatchedSince);
    if (!reader) return onEnd?.();
    /** Aborts the health question, if one is pending. */
    let asking: AbortController | undefined;
    const close = () => {
      reader.cancel();
      this.close(response);
    };
    let limit = firstByteTimeoutMs;
    /** When the wait for the next read began; undefined while the reader is busy. */
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
    // One timer per stream that checks periodically, rather than one per read.
    const everyMs = Math.max(10, Math.min(firstByteTimeoutMs, idleTimeoutMs, silenceMs, 4000) / 4);
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const watch = () => {
      watchdog = setTellingTimeout(watch, everyMs);
      if (waitingSince === undefined) return;
      const silentFor = Date.now() - waitingSince;
      if (silentFor >= limit) giveUp(timedOut("went silent", limit));
      else if (silentFor >= silenceMs) void ask(waitingSince);
    };
    watchdog = setTellingTimeout(watch, Math.min(everyMs, FIRST_CHECK_MS));
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
      if (error instanceof ApiError) throw error;
      statusOf(this.baseUrl).doubtedAt = Date.now();
      throw connectionLost();
    } finally {
      clearTimeout(watchdog);
      asking?.abort();
      signal.removeEventListener("abort", close);
      if (!ended) close();
      onEnd?.();
    }
  }
}

/** Recognises reads of a stream that hold only SSE comments and blank lines. */
class CommentFilter {
  /** The last read ended with a complete line. */
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
