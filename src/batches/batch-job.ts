import { logLine } from "@responses-edge/bounded-io/json-text";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import { ApiError } from "@responses-edge/responses-api/errors";
import { fileId, newFileKey } from "@responses-edge/responses-api/ids";
import { checkBatch, readBatch } from "@responses-edge/responses-api/platform/batch-file";
import type { BatchStatus } from "@responses-edge/responses-api/platform/batches";
import { unixSeconds } from "@responses-edge/responses-api/response";
import type { Caller } from "../api/transport.ts";
import { type Deaths, diedOf } from "../store/objects/deaths.ts";
import { processState } from "../store/objects/process-state.ts";
import { fileLimitsOf } from "../store/tenant/files/file-limits.ts";
import type { AnalyticsWriter } from "../telemetry/analytics.ts";
import { type BatchRecord, type BatchTable, OVER } from "./batch-table.ts";
import { answerLine, tokensOf } from "./requests.ts";

/** Microseconds of work to check a byte of an input file. */
const UNITS_PER_BYTE = 0.05;

/** Rows of answers that are read at once, to be written to a file. */
const ROWS_AT_ONCE = 32;

/** The parts of the object that a batch needs. */
export interface BatchHost {
  table: BatchTable;
  /** The batch's caller, for a request of `length` UTF-16 units. Aborting the batch aborts its requests. */
  callerOf(batch: BatchRecord, length: number, signal: AbortSignal): Caller;
  /** Limits the concurrent requests of all batches. */
  permit(signal: AbortSignal): Promise<() => void>;
  /** The deaths in the middle of work on lines (`lineKey`), and on batches, by their ids. */
  deaths: Deaths;
  /** Writes the points of the requests. */
  analytics: AnalyticsWriter | undefined;
  /** Runs a transaction. */
  change<T>(body: () => T): T;
  /** Notes that the batch has ended, for its tenant's webhooks. Within the transaction that ends it. */
  noteEnd(batch: BatchRecord): void;
}

/**
 * One batch, continued from its stored state: its file is checked, its requests are asked, their answers are written to
 * files. Each step is stored in rows, so that after a crash every line is still answered once.
 */
export class BatchJob {
  readonly #host: BatchHost;
  readonly #batch: BatchRecord;
  readonly #abort = new AbortController();
  readonly #work: LongWork;

  constructor(host: BatchHost, batch: BatchRecord) {
    this.#host = host;
    this.#batch = batch;
    this.#work = new LongWork(batch.owner.tenant);
  }

  /** Aborts the work in progress, because the batch is to be cancelled. */
  cancel(): void {
    this.#batch.isCancelled = true;
    this.#host.change(() => this.#host.table.write(this.#batch));
    this.#abort.abort(new ApiError({ status: 499, message: "The batch was cancelled.", code: "cancelled" }));
  }

  /** Works until the batch is over, or until `end` (Unix milliseconds). True if it is over. */
  async run(end: number): Promise<boolean> {
    const batch = this.#batch;
    if (batch.isCancelled) this.cancel();
    try {
      if (this.#host.deaths.isOver(batch.id)) throw serverDied("The batch");
      if (batch.status === "validating") await this.#validate();
      if (batch.status === "in_progress" && !(await this.#answerAll(end))) return false;
      if (batch.status === "finalizing" || batch.status === "cancelling") await this.#finish();
    } catch (error) {
      if (!(error instanceof ApiError) || (error.status >= 500 && error.code !== SERVER_DIED)) throw error;
      const { code, message, param } = error.toFields();
      this.#fail([{ code: code ?? "invalid_request", message, param: param ?? null, line: null }]);
    }
    return true;
  }

  async #validate(): Promise<void> {
    const batch = this.#batch;
    const { total, model, faults } = await checkBatch(await this.#lines(), async (bytes) => {
      const slice = this.#work.spend(bytes * UNITS_PER_BYTE);
      if (slice) await slice;
    });
    if (faults.length > 0) return this.#fail(faults);
    batch.total = total;
    if (model !== undefined) batch.model = model;
    this.#enter(this.#abort.signal.aborted ? "cancelling" : "in_progress");
  }

  async #lines() {
    const { inputFile, endpoint } = this.#batch;
    const { files } = this.#host.callerOf(this.#batch, 0, this.#abort.signal);
    const { body } = await files.content(inputFile);
    return readBatch(body, endpoint);
  }

  /** Asks the unanswered requests concurrently. False if some are left at `end`. */
  async #answerAll(end: number): Promise<boolean> {
    const batch = this.#batch;
    const { table, permit } = this.#host;
    const expiry = batch.expiresAt * 1000;
    const { signal } = this.#abort;
    const asked = new Set<Promise<void>>();
    let isWhole = true;
    let fault: unknown;
    // A process that ends waits for the turns that have begun, and not for those of the rest of a batch.
    const isOver = () =>
      Date.now() >= Math.min(end, expiry) || processState.isEnding || signal.aborted || fault !== undefined;
    try {
      for await (const { no, line } of await this.#lines()) {
        if (!line || table.hasAnswer(batch.id, no)) continue;
        if (isOver()) {
          isWhole = false;
          break;
        }
        const release = await permit(signal);
        if (isOver()) {
          release();
          isWhole = false;
          break;
        }
        const answering = this.#answer(no, line, end)
          .then((isAnswered) => {
            isWhole &&= isAnswered;
          })
          .catch((error: unknown) => {
            if (!signal.aborted) fault ??= error;
            isWhole = false;
          })
          .finally(() => {
            release();
            asked.delete(answering);
          });
        asked.add(answering);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      await Promise.allSettled(asked);
    }
    if (fault !== undefined) throw fault;
    if (signal.aborted) this.#enter("cancelling");
    else if (isWhole) this.#enter("finalizing");
    else if (Date.now() >= expiry) this.#expire();
    else return false;
    return true;
  }

  /** Asks one request, and stores the answer. False if there was none by `end`. */
  async #answer(no: number, line: Parameters<typeof answerLine>[1], end: number): Promise<boolean> {
    const batch = this.#batch;
    const { table, change, callerOf, analytics, deaths } = this.#host;
    const { signal } = this.#abort;
    const key = lineKey(batch.id, no);
    const answered = deaths.isOver(key)
      ? { isOk: false, status: 500, body: JSON.stringify(serverDied("The request").toBody()) }
      : await answerLine((length) => callerOf(batch, length, signal), line, {
          name: { series: batch.id, no },
          requestId: requestId(batch, no),
          analytics,
          end,
          expiry: batch.expiresAt * 1000,
          signal,
          tries: table.tries(batch.id, no),
          noteTries: (tries) => change(() => table.noteTries(batch.id, no, tries)),
        });
    if (!answered) return false;
    const { isOk, status, body } = answered;
    const head = `{"id":${JSON.stringify(requestId(batch, no))},"custom_id":${JSON.stringify(line.custom_id)}`;
    const text = `${head},"response":{"status_code":${status},"request_id":${JSON.stringify(requestId(batch, no))},"body":${oneLine(body)}},"error":null}`;
    change(() => {
      table.answer(batch.id, no, isOk, text, isOk ? tokensOf(body) : NO_TOKENS);
      deaths.done(key);
    });
    return true;
  }

  /** Notes requests without an answer in the error file, because the batch's time is over. */
  #expire(): void {
    const batch = this.#batch;
    batch.at.expired = unixSeconds();
    this.#enter("finalizing");
  }

  /** Writes the answers to files. A repeated call finds the files that were written. */
  async #finish(): Promise<void> {
    const batch = this.#batch;
    const { table, change } = this.#host;
    const { completed, failed } = table.counts(batch);
    const isExpired = batch.at.expired !== undefined && batch.status === "finalizing";
    if (batch.outputKey === undefined || batch.errorKey === undefined) {
      batch.outputKey = newFileKey();
      batch.errorKey = newFileKey();
      change(() => table.write(batch));
    }
    if (completed > 0) batch.outputFile = await this.#write(batch.outputKey, "output", this.#answers(true));
    const hasErrors = failed > 0 || (isExpired && completed + failed < batch.total);
    if (hasErrors) {
      const errors = isExpired ? this.#withUnanswered() : this.#answers(false);
      batch.errorFile = await this.#write(batch.errorKey, "errors", errors);
    }
    change(() => {
      batch.counts = table.counts(batch);
      batch.usage = table.usage(batch);
      if (isExpired) batch.counts.failed = batch.total - batch.counts.completed;
      this.#enter(batch.status === "cancelling" ? "cancelled" : isExpired ? "expired" : "completed");
      table.forgetAnswers(batch.id);
    });
  }

  /** The lines of answers of one kind. */
  *#answers(isOk: boolean): Generator<string> {
    const { table } = this.#host;
    for (let after = 0; ; ) {
      const some = table.answers(this.#batch.id, isOk, after, ROWS_AT_ONCE);
      for (const { body } of some) yield body;
      const last = some.at(-1);
      if (!last) return;
      after = last.line;
    }
  }

  /** The lines of errors, and those of unanswered requests. */
  async *#withUnanswered(): AsyncGenerator<string> {
    yield* this.#answers(false);
    const batch = this.#batch;
    for await (const { no, line } of await this.#lines()) {
      if (!line || this.#host.table.hasAnswer(batch.id, no)) continue;
      const error = {
        code: "batch_expired",
        message: "This request could not be executed before the completion window expired.",
      };
      yield JSON.stringify({ id: requestId(batch, no), custom_id: line.custom_id, response: null, error });
    }
  }

  /** Writes a file of lines, unless it exists. Gives its id. */
  async #write(key: string, kind: string, lines: Iterable<string> | AsyncIterable<string>): Promise<string> {
    const batch = this.#batch;
    const caller = this.#host.callerOf(batch, 0, new AbortController().signal);
    const { files, config, identity, tenant } = caller;
    const limits = fileLimitsOf(identity, config);
    const receiver = { tenant, config, limits, field: "input_file_id", maxBytes: Number.MAX_SAFE_INTEGER };
    using part = await files.receiveAs(key, identity.keyId, receiver);
    if (part) {
      const encoder = new TextEncoder();
      for await (const line of lines) await part.write(encoder.encode(`${line}\n`));
      const createdAt = unixSeconds();
      const expiresAt = batch.outputExpiry === null ? null : createdAt + batch.outputExpiry;
      const filename = `${batch.id}_${kind}.jsonl`;
      const about = { filename, mimeType: "application/jsonl", purpose: "batch_output" as const, createdAt, expiresAt };
      await files.commit(part, about, limits);
    }
    return fileId(key);
  }

  #fail(errors: NonNullable<BatchRecord["errors"]>): void {
    const batch = this.#batch;
    console.log(logLine({ level: "info", batch: batch.id, failed: errors[0]?.code }));
    batch.errors = errors;
    this.#host.change(() => {
      batch.counts = this.#host.table.counts(batch);
      batch.usage = this.#host.table.usage(batch);
      this.#host.table.forgetAnswers(batch.id);
      this.#enter("failed");
    });
  }

  #enter(status: BatchStatus): void {
    const batch = this.#batch;
    batch.status = status;
    batch.at[status] ??= unixSeconds();
    this.#host.table.write(batch);
    this.#host.deaths.done(batch.id);
    if (OVER.has(status)) this.#host.noteEnd(batch);
  }
}

const SERVER_DIED = "server_restarted";

function serverDied(what: string): ApiError {
  return new ApiError({ status: 500, message: diedOf(what), code: SERVER_DIED });
}

/** Names a line among those of all batches. */
export function lineKey(batch: string, no: number): string {
  return `${batch}:${no}`;
}

const NO_TOKENS = { input: 0, cached: 0, output: 0, reasoning: 0 };

/** JSON on one line, because a model server may use several. */
function oneLine(json: string): string {
  return json.includes("\n") ? JSON.stringify(JSON.parse(json)) : json;
}

function requestId({ id }: BatchRecord, no: number): string {
  return `batch_req_${id.slice("batch_".length)}_${no}`;
}
