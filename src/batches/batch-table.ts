import type { BatchEndpoint, BatchFault, BatchStatus } from "@responses-edge/responses-api/platform/batches";
import type { Identity } from "../contract/grants.ts";
import { DEATHS_TABLE } from "../store/objects/deaths.ts";
import { OUTBOX_TABLE } from "../store/objects/outbox.ts";
import type { Schema } from "../store/objects/schema.ts";

/** The batches of a tenant, and the answers of unfinished ones. */

export const BATCH_TABLES = [
  "CREATE TABLE batch (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, is_over INTEGER NOT NULL, body TEXT NOT NULL)",
  "CREATE INDEX batch_open ON batch (seq) WHERE is_over = 0",
  // The answer to a line; a long one continues in further parts. `input` to `reasoning` are its tokens.
  `CREATE TABLE answer (
      batch TEXT NOT NULL, line INTEGER NOT NULL, part INTEGER NOT NULL, is_ok INTEGER NOT NULL, body TEXT NOT NULL,
      input INTEGER NOT NULL, cached INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL,
      PRIMARY KEY (batch, line, part)) WITHOUT ROWID`,
  OUTBOX_TABLE,
  `CREATE TABLE attempt (
      batch TEXT NOT NULL, line INTEGER NOT NULL, tries INTEGER NOT NULL,
      PRIMARY KEY (batch, line)) WITHOUT ROWID`,
  // The keys are those of `BatchHost`.
  DEATHS_TABLE,
];

/** Most UTF-16 units of an answer in one row: at most 1.8 MB. */
const PART_LENGTH = 600_000;

/** Most batches of a tenant's list. The oldest finished ones are removed. */
const MAX_KEPT = 10_000;

export interface Tokens {
  input: number;
  cached: number;
  output: number;
  reasoning: number;
}

export interface Counts {
  total: number;
  completed: number;
  failed: number;
}

/** A batch as it is stored. Times are Unix seconds. */
export interface BatchRecord {
  id: string;
  endpoint: BatchEndpoint;
  inputFile: string;
  metadata: Record<string, string> | null;
  /** Seconds after its creation at which its files expire; null: never. */
  outputExpiry: number | null;
  /** The key that created it. */
  owner: Identity;
  status: BatchStatus;
  /** When it entered each status. */
  at: Partial<Record<BatchStatus, number>>;
  expiresAt: number;
  model?: string;
  total: number;
  errors?: BatchFault[];
  /** The keys of its files, chosen before the files exist. */
  outputKey?: string;
  errorKey?: string;
  /** The files that exist. */
  outputFile?: string;
  errorFile?: string;
  /** Set once its answers are in its files. */
  counts?: Counts;
  usage?: Tokens;
  /** Its tenant has cancelled it: it ends after the requests in progress. */
  isCancelled?: boolean;
}

const END_STATUSES = ["completed", "failed", "expired", "cancelled"] as const;
export type EndStatus = (typeof END_STATUSES)[number];
export const OVER: ReadonlySet<BatchStatus> = new Set(END_STATUSES);

type Row = { body: string };

interface Tally {
  counts: Counts;
  usage: Tokens;
}

export class BatchTable {
  readonly #schema: Schema;
  /** Counts of the answers of unfinished batches: read from the rows once, then updated as answers are added. */
  readonly #tallies = new Map<string, Tally>();

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  add(batch: BatchRecord): void {
    this.#schema.write("INSERT INTO batch (id, is_over, body) VALUES (?, 0, ?)", batch.id, JSON.stringify(batch));
    const [excess] = this.#schema.rows<{ seq: number }>(
      "SELECT seq FROM batch ORDER BY seq DESC LIMIT 1 OFFSET ?",
      MAX_KEPT,
    );
    if (excess) this.#schema.write("DELETE FROM batch WHERE seq <= ? AND is_over = 1", excess.seq);
  }

  write(batch: BatchRecord): void {
    const isOver = OVER.has(batch.status) ? 1 : 0;
    this.#schema.write("UPDATE batch SET is_over = ?, body = ? WHERE id = ?", isOver, JSON.stringify(batch), batch.id);
  }

  find(id: string): BatchRecord | null {
    const [row] = this.#schema.rows<Row>("SELECT body FROM batch WHERE id = ?", id);
    return row ? toRecord(row) : null;
  }

  /** Unfinished batches, oldest first. */
  open(): BatchRecord[] {
    return this.#schema.rows<Row>("SELECT body FROM batch WHERE is_over = 0 ORDER BY seq").map(toRecord);
  }

  /** Newest first, after the batch `after`. Null if that does not exist. */
  page(after: string | undefined, limit: number): BatchRecord[] | null {
    const [cursor] = this.#schema.rows<{ seq: number }>("SELECT seq FROM batch WHERE id = ?", after ?? "");
    if (after !== undefined && !cursor) return null;
    const select = "SELECT body FROM batch WHERE seq < ? ORDER BY seq DESC LIMIT ?";
    return this.#schema.rows<Row>(select, cursor?.seq ?? Number.MAX_SAFE_INTEGER, limit).map(toRecord);
  }

  /** Stores the answer to a line, unless it has one. `line` counts from 1. Within a transaction. */
  answer(batch: string, line: number, isOk: boolean, body: string, used: Tokens): void {
    const { input, cached, output, reasoning } = used;
    if (this.hasAnswer(batch, line)) return;
    this.#schema.write("DELETE FROM attempt WHERE batch = ? AND line = ?", batch, line);
    const insert = `INSERT INTO answer (batch, line, part, is_ok, body, input, cached, output, reasoning)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`;
    for (let part = 0; part * PART_LENGTH < body.length; part += 1) {
      const text = body.slice(part * PART_LENGTH, (part + 1) * PART_LENGTH);
      const tokens = part === 0 ? [input, cached, output, reasoning] : [0, 0, 0, 0];
      this.#schema.write(insert, batch, line, part, isOk ? 1 : 0, text, ...tokens);
    }
    const tally = this.#tallies.get(batch);
    if (tally) add(tally, isOk, used);
  }

  /** How often a line without an answer has failed, except for faults that pass. */
  tries(batch: string, line: number): number {
    const select = "SELECT tries FROM attempt WHERE batch = ? AND line = ?";
    return this.#schema.rows<{ tries: number }>(select, batch, line)[0]?.tries ?? 0;
  }

  noteTries(batch: string, line: number, tries: number): void {
    this.#schema.write("INSERT OR REPLACE INTO attempt (batch, line, tries) VALUES (?, ?, ?)", batch, line, tries);
  }

  /** The first lines of a batch without an answer, at most `limit`. Reads all answers before them. */
  unanswered({ id, total }: BatchRecord, limit: number): number[] {
    const answered = "SELECT line FROM answer WHERE batch = ? AND part = 0 ORDER BY line";
    const known = new Set(this.#schema.rows<{ line: number }>(answered, id).map(({ line }) => line));
    const lines: number[] = [];
    for (let line = 1; line <= total && lines.length < limit; line += 1) if (!known.has(line)) lines.push(line);
    return lines;
  }

  hasAnswer(batch: string, line: number): boolean {
    const select = "SELECT 1 FROM answer WHERE batch = ? AND line = ? AND part = 0";
    return this.#schema.rows(select, batch, line).length > 0;
  }

  /** The number of requests of a batch, and of answered ones. */
  counts(batch: BatchRecord): Counts {
    if (batch.counts) return batch.counts;
    return { ...this.#tally(batch.id).counts, total: batch.total };
  }

  /** The tokens that its answers took. */
  usage(batch: BatchRecord): Tokens {
    return batch.usage ?? { ...this.#tally(batch.id).usage };
  }

  #tally(batch: string): Tally {
    const known = this.#tallies.get(batch);
    if (known) return known;
    const select = `SELECT TOTAL(input) AS input, TOTAL(cached) AS cached, TOTAL(output) AS output, TOTAL(reasoning) AS reasoning,
      COUNT(*) AS answers, TOTAL(is_ok) AS completed FROM answer WHERE batch = ? AND part = 0`;
    type Sums = Tokens & { answers: number; completed: number };
    const [sums] = this.#schema.rows<Sums & Record<string, SqlStorageValue>>(select, batch);
    const { answers = 0, completed = 0, input = 0, cached = 0, output = 0, reasoning = 0 } = sums ?? {};
    const counts = { total: 0, completed, failed: answers - completed };
    const tally = { counts, usage: { input, cached, output, reasoning } };
    this.#tallies.set(batch, tally);
    return tally;
  }

  /** The answers of one kind after a line, in order, at most about `limit` rows. */
  answers(batch: string, isOk: boolean, after: number, limit: number): { line: number; body: string }[] {
    const select =
      "SELECT line, body FROM answer WHERE batch = ? AND line > ? AND is_ok = ? ORDER BY line, part LIMIT ?";
    const rows = this.#schema.rows<{ line: number; body: string }>(select, batch, after, isOk ? 1 : 0, limit);
    const whole = new Map<number, string>();
    for (const { line, body } of rows) whole.set(line, (whole.get(line) ?? "") + body);
    const last = rows.at(-1)?.line;
    // The last answer may have more parts.
    if (rows.length === limit && last !== undefined && whole.size > 1) whole.delete(last);
    return [...whole].map(([line, body]) => ({ line, body }));
  }

  forgetAnswers(batch: string): void {
    this.#tallies.delete(batch);
    this.#schema.write("DELETE FROM answer WHERE batch = ?", batch);
    this.#schema.write("DELETE FROM attempt WHERE batch = ?", batch);
  }

  /** Forgets the counts, because a transaction was rolled back or everything was removed. */
  forgetTallies(): void {
    this.#tallies.clear();
  }
}

function add({ counts, usage }: Tally, isOk: boolean, { input, cached, output, reasoning }: Tokens): void {
  if (isOk) counts.completed += 1;
  else counts.failed += 1;
  usage.input += input;
  usage.cached += cached;
  usage.output += output;
  usage.reasoning += reasoning;
}

function toRecord({ body }: Row): BatchRecord {
  return JSON.parse(body) as BatchRecord;
}
