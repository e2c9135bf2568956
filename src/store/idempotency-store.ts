import type { Tables } from "./tables.ts";

/** Idempotency keys, each in the object that tenant and key name: which turn a key stands for, and for what request. */

export type IdempotencyClaim =
  /** The key is this request's now. */
  | { kind: "claimed" }
  /** The same request was made before: its turn, and whether that has begun. */
  | { kind: "known"; home: string; turn: string; begun: boolean }
  /** The key belongs to another request. */
  | { kind: "conflict" };

export class IdempotencyStore {
  /** How long a key is remembered. */
  static readonly LIFETIME_MS = 86_400_000;

  readonly #sql: SqlStorage;
  readonly #tables: Tables;

  constructor(sql: SqlStorage, tables: Tables) {
    this.#sql = sql;
    this.#tables = tables;
  }

  claim(fingerprint: string, home: string, turn: string, now: number): IdempotencyClaim {
    const known = this.#current(now);
    if (known) {
      if (known.fingerprint !== fingerprint) return { kind: "conflict" };
      return { kind: "known", home: known.home, turn: known.turn, begun: known.begun === 1 };
    }
    this.#insert(fingerprint, home, turn, now, false);
    return { kind: "claimed" };
  }

  #insert(fingerprint: string, home: string, turn: string, now: number, begun: boolean): void {
    this.#tables.make("idempotency");
    this.#sql.exec("DELETE FROM idempotency");
    this.#sql.exec(
      "INSERT INTO idempotency (fingerprint, home, turn, created_at, begun) VALUES (?, ?, ?, ?, ?)",
      fingerprint,
      home,
      turn,
      now,
      begun ? 1 : 0,
    );
  }

  /**
   * The key's turn has begun. When it is not there any more later, it was deleted, and does not begin again. Another of
   * the same requests may have been refused meanwhile, and have unclaimed the key: then the key stands for the turn again.
   */
  begin(fingerprint: string, home: string, turn: string, now: number): void {
    const known = this.#current(now);
    if (!known) this.#insert(fingerprint, home, turn, now, true);
    else if (known.turn === turn && known.begun === 0) {
      this.#sql.exec("UPDATE idempotency SET begun = 1 WHERE turn = ?", turn);
    }
  }

  /** Gives a key back whose turn has not begun. */
  unclaim(fingerprint: string, turn: string): void {
    if (!this.#tables.has("idempotency")) return;
    this.#sql.exec("DELETE FROM idempotency WHERE fingerprint = ? AND turn = ? AND begun = 0", fingerprint, turn);
  }

  /** Forgets an old key; returns when the present one will be old. */
  sweep(now: number): number | null {
    if (!this.#tables.has("idempotency")) return null;
    this.#sql.exec("DELETE FROM idempotency WHERE created_at <= ?", now - IdempotencyStore.LIFETIME_MS);
    const current = this.#current(now);
    return current ? current.created_at + IdempotencyStore.LIFETIME_MS : null;
  }

  isEmpty(): boolean {
    return !this.#tables.has("idempotency") || this.#sql.exec("SELECT 1 FROM idempotency").toArray().length === 0;
  }

  #current(now: number) {
    if (!this.#tables.has("idempotency")) return undefined;
    const [row] = this.#sql
      .exec<{ fingerprint: string; home: string; turn: string; created_at: number; begun: number }>(
        "SELECT * FROM idempotency WHERE created_at > ?",
        now - IdempotencyStore.LIFETIME_MS,
      )
      .toArray();
    return row;
  }
}
