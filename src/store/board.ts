import { DurableObject } from "cloudflare:workers";
import { askServers, type BoardReport } from "../assembly/model-server.ts";
import { loadConfig, type Variables } from "../config.ts";

/**
 * The board: one Durable Object that asks all model servers how they are, so that isolates need not each find out for
 * themselves. It keeps nothing but its alarm, and asks nobody while no isolate wants to know.
 */

/** The name of the only one. */
export const BOARD = "board";

/** So many intervals after it was last read, the board stops asking. */
const IDLE_INTERVALS = 12;

export class Board extends DurableObject<Variables> {
  #report: BoardReport | undefined;
  #readAt = Number.NEGATIVE_INFINITY;

  /** The last report; null where there is none yet. */
  async read(): Promise<BoardReport | null> {
    this.#readAt = Date.now();
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now());
    return this.#report ?? null;
  }

  override async alarm(): Promise<void> {
    const config = loadConfig(this.env);
    const servers = await askServers(config);
    this.#report = { at: Date.now(), servers };
    const next = nextAsking(this.#readAt, Date.now(), config.boardMs);
    if (next !== undefined) await this.ctx.storage.setAlarm(next);
  }
}

/** When the servers are to be asked next, in Unix milliseconds; undefined where nobody wants to know. */
export function nextAsking(readAt: number, now: number, everyMs: number): number | undefined {
  return everyMs > 0 && now - readAt <= IDLE_INTERVALS * everyMs ? now + everyMs : undefined;
}
