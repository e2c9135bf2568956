import { boundedCopy, logLine } from "@responses-edge/json-text";
import { Exporter, type ExportHost, logRecord, logsBody, TextQueue } from "@responses-edge/otlp";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import type { TurnResult } from "@responses-edge/turn/turn";
import type { Config, ContentLogConfig } from "../config/index.ts";
import type { Policy } from "../contract/grants.ts";
import { SCOPE } from "./instruments.ts";
import { QUEUED } from "./telemetry.ts";

/**
 * The content log (docs/telemetry.md): the texts of turns of keys and tenants that have `log_content`, sent to the
 * operator's own sink when a turn has ended. Nothing else in the project sends content to anybody.
 */

/** A turn that has ended. */
export interface SaidTurn {
  /** The id of its response. */
  id: string;
  tenant: string;
  keyId: string | undefined;
  request: Omit<CreateRequest, "input">;
  /** Its own input, without the history. */
  input: readonly unknown[];
  /** Unix milliseconds. */
  createdAt: number;
  result: TurnResult;
}

const REDACTED = "[redacted]";

/** A data URL, of which only the media type is logged. */
const DATA_URL = /^(data:[\w.+/;=-]{0,255},).+$/s;

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

  tell(turn: SaidTurn, host: ExportHost): void {
    const entry = this.#entryOf(turn);
    if (!this.#exporter) {
      console.log(logLine(entry));
      return;
    }
    if (!this.#queue.add(this.#config.isOtlp ? recordOf(entry, turn) : logLine(entry))) this.#dropped += 1;
    this.#exporter.flush(host);
  }

  #entryOf({ id, tenant, keyId, request, input, createdAt, result: { outcome, closed } }: SaidTurn) {
    const { model, instructions, tools } = request;
    const said = { instructions, input, output: JSON.parse(closed.output) as unknown };
    const { copy, isCut } = boundedCopy(said, {
      maxLength: this.#config.maxLength,
      change: (text) => this.#redact(text),
    });
    return {
      level: "info",
      event: "content",
      response_id: id,
      tenant,
      ...(keyId !== undefined && { key_id: keyId }),
      ...(model != null && { model }),
      created_at: Math.floor(createdAt / 1000),
      status: outcome.status,
      ...(tools && { tools: tools.length }),
      ...(copy as typeof said),
      ...(isCut && { truncated: true }),
    };
  }

  #redact(text: string): string {
    const plain = text.replace(DATA_URL, "$1…");
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

function recordOf(
  { level: _, event, instructions, input, output, ...attributes }: object & Record<string, unknown>,
  turn: SaidTurn,
) {
  return logRecord({
    name: `responses_edge.${String(event)}`,
    at: turn.createdAt,
    body: JSON.stringify({ instructions, input, output }),
    attributes: attributes as Record<string, string | number | boolean>,
  });
}

const logs = new WeakMap<ContentLogConfig, ContentLog>();

/**
 * Logs the texts of a turn, beside its answer, if its caller has agreed and the deployment has a sink. Never throws: no
 * request fails because of it.
 */
export function tellContent(
  { contentLog: config }: Pick<Config, "contentLog">,
  policy: Policy | undefined,
  turn: SaidTurn,
  host: ExportHost,
): void {
  if (!config || !policy?.logsContent) return;
  const log = logs.get(config) ?? new ContentLog(config);
  logs.set(config, log);
  const tell = async () => {
    await scheduler.wait(0);
    log.tell(turn, host);
  };
  host.waitUntil(
    tell().catch((error: unknown) => {
      const name = error instanceof Error ? error.name : typeof error;
      console.error(logLine({ level: "error", event: "content_log_failed", error: name }));
    }),
  );
}
