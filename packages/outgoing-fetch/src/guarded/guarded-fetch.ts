import { isPublicUrl } from "./public-url.ts";

/**
 * Calls to URLs of clients or models (server-side request forgery, CWE-918): only to allowed addresses, each redirect
 * checked like the first URL, bounded in time and bytes. A Worker cannot see the address of a name before it connects,
 * and reaches no private network without a binding to one; visible private addresses are refused all the same, for
 * Workers that run elsewhere (workerd on your own machine).
 */

/** Follows no redirect: the answer is the 3xx itself. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

const globalFetch: Fetch = (url, init) => fetch(url, { ...init, redirect: "manual" });

/**
 * Kinds of faults of a call:
 * - `refused_address`: the URL, or one it redirects to, may not be called from here;
 * - `timeout`: no complete answer in the time allowed;
 * - `too_large`: an answer beyond the bytes allowed;
 * - `unreachable`: no connection, or one that was lost;
 * - `protocol`: redirects that lead nowhere.
 */
export type FetchFaultKind = "refused_address" | "timeout" | "too_large" | "unreachable" | "protocol";

/** Its message may be shown to anyone: it has only the caller's own values, and no credentials. */
export class FetchFault extends Error {
  override readonly name = "FetchFault";
  readonly kind: FetchFaultKind;

  constructor(kind: FetchFaultKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** The addresses of a name, as text: `1.2.3.4`, `2606:4700::1111`. None when the name does not exist. */
export type Resolve = (hostname: string, signal: AbortSignal) => Promise<string[]>;

export interface GuardOptions {
  /** URLs that the operator has listed: no further check applies to them. */
  allow?: (url: URL) => boolean;
  /** Makes the requests to these: they may use a network that other calls must not. */
  fetchListed?: Fetch;
  /** Allows public https (see {@link isPublicUrl}), which is the default without `allow`, beside the listed URLs. */
  allowPublic?: boolean;
  /** Allows public http beside public https. */
  allowHttp?: boolean;
  /** URLs that are refused, also if they are listed. */
  deny?: (url: URL) => boolean;
  /** A further condition for any URL. */
  limit?: (url: URL) => boolean;
  /** Resolves public names before a call; each address must be public. */
  resolve?: Resolve;
  /** From the call to the last byte of the body, redirects included. */
  timeoutMs: number;
  /** The longest body, after decompression. */
  maxBytes: number;
  /** The maximum of redirects; default 5. */
  maxRedirects?: number;
  /** Makes the other requests, instead of the global one. */
  fetch?: Fetch;
  /** Called once at the end, with the error of a failure. */
  onEnd?: (error?: unknown) => void;
}

const MAX_REDIRECTS = 5;

/** The maximum bytes of one answer about a name. */
const MAX_DNS_BYTES = 64 * 1024;
const DNS_TIMEOUT_MS = 10_000;

/** Headers that another origin gets, too: none that identifies the sender or was meant for the first origin alone. */
const CROSS_ORIGIN_HEADERS = new Set(["accept", "accept-language", "content-type", "user-agent"]);

/** Statuses whose body is forbidden to be a stream, even an empty one. */
const NULL_BODY_STATUSES = new Set([101, 204, 205, 304]);

/**
 * Names through DNS over HTTPS (`application/dns-json`, as Cloudflare and Google serve it), both IPv4 and IPv6. `endpoint` is such as
 * `https://cloudflare-dns.com/dns-query`. A name's addresses may have changed when the connection is made: this narrows rebinding, and
 * cannot rule it out. Throws FetchFault `unreachable` when it gets no answer.
 */
export function dohResolver(endpoint: string, fetcher: Fetch = globalFetch): Resolve {
  async function ask(hostname: string, type: "A" | "AAAA", signal: AbortSignal): Promise<string[]> {
    const url = new URL(endpoint);
    url.searchParams.set("name", hostname);
    url.searchParams.set("type", type);
    const response = await fetcher(url.href, {
      headers: { accept: "application/dns-json" },
      signal,
    });
    if (!response.ok) throw new Error("no answer");
    const inTime = AbortSignal.any([signal, AbortSignal.timeout(DNS_TIMEOUT_MS)]);
    const body = limitBody(response, { maxBytes: MAX_DNS_BYTES, signal: inTime });
    const answer: { Answer?: { type: number; data: string }[] } = await body.json();
    const wanted = type === "A" ? 1 : 28;
    return (answer.Answer ?? []).filter((record) => record.type === wanted).map((record) => record.data);
  }
  return async (hostname, signal) => {
    try {
      return (await Promise.all([ask(hostname, "A", signal), ask(hostname, "AAAA", signal)])).flat();
    } catch {
      if (signal.aborted) throw signal.reason;
      throw new FetchFault("unreachable", "A name could not be looked up.");
    }
  };
}

/**
 * Calls a URL that is not ours. Redirects are followed by hand (RFC 9110 §15.4, as the Fetch standard does it), unless
 * `init.redirect` is `manual`; on the way to another origin all headers but harmless ones are left behind. The
 * response has the body's bytes counted and carries its final `url`.
 *
 * Throws FetchFault `refused_address`, `timeout`, `unreachable`, or `protocol` for redirects that lead nowhere; reading
 * the body throws `timeout`, `too_large` or `unreachable`. Any HTTP status is a response. Aborting `init.signal`
 * ends the call and the body at once with the signal's reason.
 */
export async function guardedFetch(target: string | URL, init: RequestInit, options: GuardOptions): Promise<Response> {
  // Cancelling a body leaves its connection to the runtime; aborting the request closes it.
  const request = new AbortController();
  const signal = init.signal ? AbortSignal.any([init.signal, request.signal]) : request.signal;
  const timer = setTimeout(
    () =>
      request.abort(new FetchFault("timeout", `There was no complete answer within ${seconds(options.timeoutMs)}.`)),
    options.timeoutMs,
  );
  const settle = (error?: unknown) => {
    clearTimeout(timer);
    request.abort();
    options.onEnd?.(error);
  };
  try {
    const { response, url } = await follow(String(target), init, options, signal);
    const length = Number(response.headers.get("content-length") ?? 0);
    if (response.body && length > options.maxBytes) throw tooLarge(options.maxBytes);
    const limited = limitBody(response, { maxBytes: options.maxBytes, signal, onEnd: settle });
    if (!limited.body) settle();
    return Object.defineProperty(limited, "url", { value: url, configurable: true });
  } catch (error) {
    settle(error);
    throw error;
  }
}

/** Follows redirects to the response that is none. Throws as `guardedFetch` does. */
async function follow(
  target: string,
  init: RequestInit,
  options: GuardOptions,
  signal: AbortSignal,
): Promise<{ response: Response; url: string }> {
  const maxRedirects = options.maxRedirects ?? MAX_REDIRECTS;
  const first = await admitted(target, options, signal);
  if (!first) throw new FetchFault("refused_address", "The URL is not an allowed address.");
  let { url, isListed } = first;
  const headers = new Headers(init.headers);
  let { method = "GET", body } = init;
  for (let redirects = 0; ; redirects++) {
    const fetcher = (isListed ? options.fetchListed : options.fetch) ?? options.fetch ?? globalFetch;
    let response: Response;
    try {
      const request: RequestInit = { ...init, method, headers, body, redirect: "manual", signal };
      response = await unlessAborted(fetcher(url.href, request), signal);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (error instanceof FetchFault) throw error;
      throw new FetchFault("unreachable", `${url.host} could not be reached.`);
    }
    const location = response.headers.get("location");
    const isRedirect = [301, 302, 303, 307, 308].includes(response.status) && location !== null;
    if (!isRedirect || init.redirect === "manual") return { response, url: url.href };
    // Reading on would only serve to keep the connection, and the body is not bounded here.
    response.body?.cancel().catch(() => {});
    if (redirects === maxRedirects) {
      throw new FetchFault("protocol", `The URL redirects more than ${maxRedirects} times.`);
    }
    const next: Admitted | undefined = URL.canParse(location, url.href)
      ? await admitted(new URL(location, url.href).href, options, signal)
      : undefined;
    if (!next) throw new FetchFault("refused_address", "The URL redirects to an address that is not allowed.");
    const becomesGet =
      response.status === 303
        ? method !== "GET" && method !== "HEAD"
        : method === "POST" && (response.status === 301 || response.status === 302);
    if (becomesGet) {
      method = "GET";
      body = undefined;
      for (const name of [...headers.keys()]) if (name.startsWith("content-")) headers.delete(name);
    } else if (body instanceof ReadableStream) {
      throw new FetchFault("protocol", "The URL redirects a request that cannot be sent twice.");
    }
    if (next.url.origin !== url.origin) {
      for (const name of [...headers.keys()]) if (!CROSS_ORIGIN_HEADERS.has(name)) headers.delete(name);
    }
    ({ url, isListed } = next);
  }
}

/**
 * True if this server may send a client's request to the URL. False also for a name that does not exist, or that cannot be
 * looked up in time.
 */
export async function mayCall(
  text: string,
  options: Omit<GuardOptions, "timeoutMs" | "maxBytes">,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    return (await admitted(text, options, signal)) !== undefined;
  } catch {
    return false;
  }
}

/** A URL that may be called. `isListed`: because somebody who may has listed it. */
interface Admitted {
  url: URL;
  isListed: boolean;
}

/** The URL, if it may be called. */
async function admitted(
  text: string,
  options: Omit<GuardOptions, "timeoutMs" | "maxBytes">,
  signal: AbortSignal,
): Promise<Admitted | undefined> {
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  const { allow, allowPublic = allow === undefined, deny, limit } = options;
  if (!/^https?:$/.test(url.protocol) || deny?.(url) || limit?.(url) === false) return undefined;
  if (allow?.(url)) return { url, isListed: true };
  if (!allowPublic) return undefined;
  if (!isPublicUrl(url.href, options)) return undefined;
  const isAddress = url.hostname.startsWith("[") || /^[\d.]+$/.test(url.hostname);
  if (!options.resolve || isAddress) return { url, isListed: false };
  const addresses = await unlessAborted(options.resolve(url.hostname, signal), signal);
  if (addresses.length === 0) throw new FetchFault("unreachable", `${url.host} does not exist.`);
  const isPublic = (address: string) => isPublicUrl(`https://${address.includes(":") ? `[${address}]` : address}/`);
  return addresses.every(isPublic) ? { url, isListed: false } : undefined;
}

/**
 * The response with a body that fails with FetchFault `too_large` beyond `maxBytes`, with `unreachable` when the
 * connection is lost, and with the signal's reason as soon as it is aborted. `onEnd` is called once at the end of the
 * body, with the error of a failure.
 */
export function limitBody(
  response: Response,
  { maxBytes, signal, onEnd }: { maxBytes: number; signal: AbortSignal; onEnd?: (error?: unknown) => void },
): Response {
  if (!response.body || NULL_BODY_STATUSES.has(response.status)) return response;
  const reader = response.body.getReader();
  let bytes = 0;
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { value, done } = await unlessAborted(reader.read(), signal);
          if (isCancelled) return;
          if (done) {
            controller.close();
            onEnd?.();
            return;
          }
          bytes += value.byteLength;
          if (bytes > maxBytes) throw tooLarge(maxBytes);
          controller.enqueue(value);
        } catch (error) {
          if (isCancelled) return;
          const fault: unknown = signal.aborted ? signal.reason : asFault(error);
          reader.cancel().catch(() => {});
          controller.error(fault);
          onEnd?.(fault);
        }
      },
      async cancel(reason) {
        isCancelled = true;
        reader.cancel(reason).catch(() => {});
        onEnd?.();
      },
    },
    { highWaterMark: 0 },
  );
  const headers = new Headers(response.headers);
  // The bytes are already decoded, so these headers would be wrong.
  headers.delete("content-encoding");
  headers.delete("content-length");
  const limited = new Response(body, { status: response.status, statusText: response.statusText, headers });
  return Object.defineProperty(limited, "url", { value: response.url, configurable: true });
}

function asFault(error: unknown): FetchFault {
  return error instanceof FetchFault ? error : new FetchFault("unreachable", "The connection was lost.");
}

function tooLarge(maxBytes: number): FetchFault {
  return new FetchFault("too_large", `The answer is larger than ${maxBytes} bytes.`);
}

function seconds(ms: number): string {
  return `${Math.ceil(ms / 100) / 10} s`;
}

/** The promise, or the signal's reason as soon as it is aborted, because some operations ignore their signal. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    // It may fail later, without a handler.
    promise.catch(() => {});
    throw signal.reason;
  }
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
