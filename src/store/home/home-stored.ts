import { NOTHING_STORED, type Stored } from "@responses-edge/usage-limits";
import type { Env } from "../../env.ts";
import type { StoredByKey } from "../limits/quota-object.ts";
import { latestChange, noteReport } from "../limits/unreported-homes.ts";
import type { Tables } from "./tables.ts";
import { TEXT_BYTES } from "./turn-store.ts";

/**
 * How much a home stores, as its outbox reports it to the quota of its tenant: always the whole amount. A home is counted if one of its
 * rows has an `owner`: the key of a caller whose storage is counted. A counted home counts everything that it stores,
 * including earlier rows.
 */

/** Bytes that each turn and each conversation counts beside its texts: a page of the file, because each takes at least one. */
export const ROW_BYTES = 4_096;

const TURNS = `SELECT ifnull(owner, '') AS key, SUM(${TEXT_BYTES} + iif(part = 0, ${ROW_BYTES}, 0)) AS bytes,
  SUM(part = 0 AND response IS NOT NULL) AS responses FROM turns GROUP BY owner`;

/** The event logs of ended runs, without the parts in their turns' rows. */
const LOGS = `SELECT ifnull(owner, '') AS key, SUM(octet_length(body)) AS bytes, 0 AS responses
  FROM turns JOIN events USING (turn) WHERE turns.part = 0 GROUP BY owner`;

const CONVERSATIONS = `SELECT ifnull(owner, '') AS key, SUM(octet_length(metadata)) + ${ROW_BYTES} * COUNT(*) AS bytes,
  COUNT(*) AS conversations FROM conversation GROUP BY owner`;

type Sums = { key: string; bytes: number; responses?: number; conversations?: number };

export class HomeStored {
  readonly #tables: Tables;
  readonly #who: { tenant: string; home: string };
  readonly #env: Env;
  readonly #isEmpty: () => boolean;
  /** Counts the changes of the stored amounts. Whoever may have changed them adds one. */
  changes = 1;
  /** The changes that the quota knows. */
  #reported = 0;

  /** `isEmpty` tells whether nothing needed is left in the home, which is then about to be removed. */
  constructor(
    tables: Tables,
    who: { tenant: string; home: string },
    { env, isEmpty }: { env: Env; isEmpty: () => boolean },
  ) {
    this.#tables = tables;
    this.#who = who;
    this.#env = env;
    this.#isEmpty = isEmpty;
  }

  /** Tells whether the home is counted. Reads its rows up to the first counted one. */
  isCounted(): boolean {
    const has = (table: "turns" | "conversation") =>
      this.#tables.rows(table, `SELECT 1 FROM ${table} WHERE owner IS NOT NULL LIMIT 1`).length > 0;
    return has("turns") || has("conversation");
  }

  /** Tells whether the quota may not know the amounts. */
  isPending(): boolean {
    return this.changes !== this.#reported && this.isCounted();
  }

  /** Reports the amounts. Rejects if the quota does not answer. */
  async report(): Promise<void> {
    const { tenant, home } = this.#who;
    const changes = this.changes;
    const upTo = latestChange();
    const stored = this.#isEmpty() ? {} : this.byKey();
    await this.#env.QUOTAS?.getByName(tenant).takeStored(home, stored);
    this.#reported = changes;
    noteReport(tenant, home, upTo);
  }

  /** The stored amounts, by the key that stored them. */
  byKey(): StoredByKey {
    const stored: Record<string, Stored> = {};
    const sums = (table: "turns" | "events" | "conversation", select: string) =>
      this.#tables.has("turns") || table === "conversation" ? this.#tables.rows<Sums>(table, select) : [];
    for (const sum of [...sums("turns", TURNS), ...sums("events", LOGS), ...sums("conversation", CONVERSATIONS)]) {
      const before = stored[sum.key] ?? NOTHING_STORED;
      stored[sum.key] = {
        stored_bytes: before.stored_bytes + sum.bytes,
        stored_responses: before.stored_responses + (sum.responses ?? 0),
        stored_conversations: before.stored_conversations + (sum.conversations ?? 0),
      };
    }
    return stored;
  }
}
