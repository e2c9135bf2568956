import { ReadFault, readBoundedText } from "@responses-edge/bounded-io/body";

/**
 * Sends telemetry of one kind to a collector, beside the requests that it is about: none of them waits for it, and none
 * fails with it. No timer runs between requests: a request that ends sends the waiting data, unless another one is
 * already sending, which then sends the new data, too. So an isolate has one export of a kind in progress, however many
 * requests end at once. Data that a collector refuses is kept within bounds, sent again after a pause, and finally
 * dropped.
 */

/** The target for telemetry of one kind. */
export interface ExportTarget {
  url: string;
  headers: Readonly<Record<string, string>>;
  /** The type of bodies that are not OTLP. Then every 2xx is a success. */
  contentType?: string;
  fetch: (url: string, init: RequestInit) => Promise<Response>;
}

/** The reason of a failure, and the number of batches dropped since the last report. */
export interface ExportFault {
  why: string;
  dropped: number;
}

export interface ExporterOptions {
  target: ExportTarget;
  /** The timeout of one export, in milliseconds. */
  timeoutMs: number;
  /** Gives the body of the next export, and forgets its content; undefined without data. */
  take: () => string | undefined;
  /** Called with the number of dropped batches. */
  onDropped: () => void;
  /** Gets failures of a collector, at most once a minute. */
  onFailed: (fault: ExportFault) => void;
}

/** The host to keep alive for an export, and whether that costs while it waits: then one export must suffice, unless more data comes during it. */
export interface ExportHost {
  waitUntil: (promise: Promise<unknown>) => void;
  isBrief: boolean;
}

/** Work after an answer may take 30 s on Cloudflare; an export begins only if it will have ended by then. */
const AFTER_ANSWER_MS = 28_000;

/** The time after which an exporter without a sign counts as ended by the platform. */
const STALE_MARGIN_MS = 2_000;

/** The number of attempts of a batch, and the pauses after failures, doubled each time. */
const MAX_OFFERS = 4;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;

/** The maximum of a collector's answer that is read. */
const MAX_ANSWER_BYTES = 64 * 1024;

/** The interval of reports about a failing collector, in milliseconds. */
const TOLD_EVERY_MS = 60_000;

/** The statuses of a collector that is busy or restarting (OTLP/HTTP, "Retryable Response Codes"). */
const RETRYABLE = new Set([429, 502, 503, 504]);

/** The reason why a batch was refused; `isFinal`: a retry would not help. */
interface Refusal {
  why: string;
  isFinal: boolean;
  /** Milliseconds. */
  retryAfter?: number;
}

export class Exporter {
  readonly #options: ExporterOptions;
  /** The start of the present export. */
  #sendingSince: number | undefined;
  /** A flush came during the present export. */
  #hasMore = false;
  /** The body that is being sent, or was refused. */
  #body: string | undefined;
  #offers = 0;
  #pausedUntil = 0;
  #toldAt = Number.NEGATIVE_INFINITY;
  #dropped = 0;

  constructor(options: ExporterOptions) {
    this.#options = options;
  }

  /** Sends waiting data, unless an export is running, or the collector has a pause. Never throws. */
  flush({ waitUntil, isBrief }: ExportHost): void {
    const now = Date.now();
    const { timeoutMs } = this.#options;
    const isSending = this.#sendingSince !== undefined && now - this.#sendingSince < timeoutMs + STALE_MARGIN_MS;
    this.#hasMore = isSending;
    if (isSending || now < this.#pausedUntil) return;
    waitUntil(this.#send(isBrief ? now : now + AFTER_ANSWER_MS - timeoutMs));
  }

  /** Sends one batch after another, none that would begin after `until`, except for a flush that came meanwhile. Never rejects. */
  async #send(until: number): Promise<void> {
    try {
      do {
        if (this.#body === undefined) this.#offers = 0;
        this.#body ??= this.#options.take();
        if (this.#body === undefined) return;
        this.#sendingSince = Date.now();
        this.#hasMore = false;
        const refusal = await this.#offer(this.#body);
        if (!refusal) this.#body = undefined;
        else if (this.#isRefused(refusal)) return;
      } while (this.#hasMore || Date.now() < until);
    } finally {
      this.#sendingSince = undefined;
    }
  }

  /** Sends a batch once. Gives the reason of a failure. */
  async #offer(body: string): Promise<Refusal | undefined> {
    const { target, timeoutMs } = this.#options;
    const signal = AbortSignal.timeout(timeoutMs);
    try {
      const headers = { ...target.headers, "content-type": target.contentType ?? "application/json" };
      const response = await target.fetch(target.url, { method: "POST", headers, body, signal });
      const { status } = response;
      const answer = await readBoundedText(response, { maxBytes: MAX_ANSWER_BYTES, timeoutMs, signal });
      if (target.contentType !== undefined && response.ok) return undefined;
      if (status === 200) return refusalIn(answer);
      const seconds = Number(response.headers.get("retry-after") ?? 0);
      return {
        why: `status ${status}`,
        isFinal: !RETRYABLE.has(status),
        ...(seconds > 0 && { retryAfter: seconds * 1000 }),
      };
    } catch (error) {
      if (error instanceof ReadFault && error.kind === "too_large") return noOtlp();
      return { why: signal.aborted ? "timeout" : "unreachable", isFinal: false };
    }
  }

  /** Notes a refusal: true if the exporter must wait before it tries again. Drops a body that the collector will never accept. */
  #isRefused({ why, isFinal, retryAfter = 0 }: Refusal): boolean {
    this.#offers += 1;
    if (isFinal || this.#offers >= MAX_OFFERS) {
      this.#body = undefined;
      this.#dropped += 1;
      this.#options.onDropped();
    }
    const pause = Math.max(retryAfter, FIRST_PAUSE_MS * 2 ** (this.#offers - 1));
    const now = Date.now();
    if (!isFinal) this.#pausedUntil = now + Math.min(MAX_PAUSE_MS, pause);
    if (now - this.#toldAt >= TOLD_EVERY_MS) {
      this.#toldAt = now;
      this.#options.onFailed({ why, dropped: this.#dropped });
      this.#dropped = 0;
    }
    return !isFinal;
  }
}

/** The refusal in a collector's answer: a part that it has not taken (`partialSuccess`), or that it is no collector. */
function refusalIn(answer: string): Refusal | undefined {
  if (answer.trim() === "") return undefined;
  try {
    const { partialSuccess: partial } = JSON.parse(answer) as { partialSuccess?: Record<string, unknown> };
    const rejected = Number(partial?.rejectedSpans ?? partial?.rejectedDataPoints ?? partial?.rejectedLogRecords ?? 0);
    return rejected > 0 ? { why: "partial success", isFinal: true } : undefined;
  } catch {
    return noOtlp();
  }
}

function noOtlp(): Refusal {
  return { why: "an answer that is not OTLP", isFinal: true };
}
