import { boundedCopy, logLine } from "@responses-edge/bounded-io/json-text";
import { Exporter, type ExportHost, logRecord, logsBody, TextQueue } from "@responses-edge/otlp";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { TurnResult } from "@responses-edge/turn/turn";
import type { Config, ContentLogConfig } from "../config/index.ts";
import type { Policy } from "../contract/grants.ts";
import { SCOPE } from "./instruments.ts";
import { QUEUED } from "./telemetry.ts";

/**
 * The content log (docs/telemetry.md): the texts of turns of keys and tenants that have `log_content`, sent to the
 * operator's own sink when a turn has ended. Nothing else in the project sends content to anybody.
 */

interface SaidBy {
  tenant: string;
  keyId: string | undefined;
  /** Unix milliseconds. */
  createdAt: number;
}

/** A turn that has ended. */
export interface SaidTurn extends SaidBy {
  /** The id of its response. */
  id: string;
  request: Omit<CreateRequest, "input">;
  /** Its own input, without the history. */
  input: readonly unknown[];
  result: Pick<TurnResult, "outcome" | "closed">;
}

/** A request to a model that is no turn, and has ended. */
export interface SaidRequest extends SaidBy {
  /** Such as `POST /v1/decisions`. */
  endpoint: string;
  model: string | null | undefined;
  input: unknown;
  output: unknown;
  status: "completed" | "incomplete";
  /** The output is longer. */
  isCut?: boolean;
}

const REDACTED = "[redacted]";

/** A data URL, of which only the media type is logged. */
const DATA_URL = /^(data:[\w.+/;=-]{0,255},).+$/s;

/** The beginning of an image or a sound without such a type, which is left out. */
const BASE64 = /^[\w+/-]{1000}/;

class ContentLog {
  readonly #config: ContentLogConfig;
  readonly #queue = new TextQueue(QUEUED);
  readonly #exporter: Exporter | undefined;
  #dropped = 0;

  constructor(config: ContentLogConfig) {
    this.#config = config;
    const { target, timeoutMs } = config;
    this.#exporter =
      target &&
      new Exporter({
        target,
        timeoutMs,
        take: () => this.#take(),
        onDropped: () => {},
        onFailed: (fault) => this.#failed(fault),
      });
  }

  tell(said: SaidTurn | SaidRequest, host: ExportHost): void {
    const entry = this.#entryOf(said);
    if (!this.#exporter) {
      console.log(logLine(entry));
      return;
    }
    if (!this.#queue.add(this.#config.isOtlp ? recordOf(entry, said.createdAt) : logLine(entry))) this.#dropped += 1;
    this.#exporter.flush(host);
  }

  #entryOf(said: SaidTurn | SaidRequest) {
    const { tenant, keyId, createdAt } = said;
    const { texts, hasMore = false, ...facts } = "endpoint" in said ? ofRequest(said) : ofTurn(said);
    const { copy, isCut } = boundedCopy(texts, {
      maxLength: this.#config.maxLength,
      change: (text) => this.#redact(text),
    });
    return {
      level: "info",
      event: "content",
      tenant,
      ...(keyId !== undefined && { key_id: keyId }),
      created_at: Math.floor(createdAt / 1000),
      ...facts,
      ...(copy as typeof texts),
      ...((isCut || hasMore) && { truncated: true }),
    };
  }

  #redact(text: string): string {
    const plain = BASE64.test(text) ? "…" : text.replace(DATA_URL, "$1…");
    return this.#config.patterns.reduce((redacted, pattern) => redacted.replace(pattern, REDACTED), plain);
  }

  #take(): string | undefined {
    const { isOtlp, resource } = this.#config;
    const entries = this.#queue.take();
    if (!entries) return undefined;
    return isOtlp ? logsBody(resource, SCOPE, entries) : entries.map((entry) => `${entry}\n`).join("");
  }

  #failed(fault: { why: string; dropped: number }): void {
    console.warn(logLine({ level: "warn", event: "export_failed", kind: "contents", ...fault, full: this.#dropped }));
    this.#dropped = 0;
  }
}

interface Told {
  texts: { instructions?: unknown; input: unknown; output: unknown };
  /** The output is longer. */
  hasMore?: boolean;
  [fact: string]: unknown;
}

function ofTurn({ id, request, input, result: { outcome, closed } }: SaidTurn): Told {
  const { model, instructions, tools } = request;
  return {
    response_id: id,
    ...(model != null && { model }),
    status: outcome.status,
    ...(tools && { tools: tools.length }),
    texts: { instructions, input, output: JSON.parse(closed.output) as unknown },
  };
}

function ofRequest({ endpoint, model, input, output, status, isCut }: SaidRequest): Told {
  return {
    endpoint,
    ...(model != null && { model }),
    status,
    texts: { input, output },
    ...(isCut && { hasMore: true }),
  };
}

function recordOf(
  { level: _, event, instructions, input, output, ...attributes }: object & Record<string, unknown>,
  at: number,
) {
  return logRecord({
    name: `responses_edge.${String(event)}`,
    at,
    body: JSON.stringify({ instructions, input, output }),
    attributes: attributes as Record<string, string | number | boolean>,
  });
}

/** The caller of a request. */
interface Asker {
  config: Pick<Config, "contentLog">;
  tenant: string;
  identity: { keyId?: string | undefined; policy?: Policy | undefined };
  waitUntil: ExportHost["waitUntil"];
}

/** Logs a request that is no turn, as `tellContent` does. */
export function tellRequest(
  { config, tenant, identity: { keyId, policy }, waitUntil }: Asker,
  said: Omit<SaidRequest, keyof SaidBy> & Pick<SaidBy, "createdAt">,
): void {
  tellContent(config, policy, { ...said, tenant, keyId }, { waitUntil, isBrief: false });
}

const logs = new WeakMap<ContentLogConfig, ContentLog>();

/**
 * Logs the texts of a turn or another request to a model, beside its answer, if its caller has agreed and the deployment has a sink. Never throws: no
 * request fails because of it.
 */
export function tellContent(
  { contentLog: config }: Pick<Config, "contentLog">,
  policy: Policy | undefined,
  said: SaidTurn | SaidRequest,
  host: ExportHost,
): void {
  if (!config || !policy?.logsContent) return;
  const log = logs.get(config) ?? new ContentLog(config);
  logs.set(config, log);
  const tell = async () => {
    await scheduler.wait(0);
    log.tell(said, host);
  };
  host.waitUntil(
    tell().catch((error: unknown) => {
      const name = error instanceof Error ? error.name : typeof error;
      console.error(logLine({ level: "error", event: "content_log_failed", error: name }));
    }),
  );
}
