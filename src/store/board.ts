import { DurableObject } from "cloudflare:workers";
import { askServers, type BoardReport } from "../assembly/model-server.ts";
import { loadConfig, type Variables } from "../config/index.ts";
import { type AnnouncedRun, type RunQuery, RunRegister } from "./run-register.ts";

/**
 * The board: one Durable Object that asks all model servers how they are, so that isolates need not each find out for
 * themselves, and asks nobody while no isolate wants to know. Where there is an operator it knows which runs live. It
 * keeps nothing but these and its alarm.
 */

/** The name of the only one. */
export const BOARD = "board";

/** So many intervals after it was last read, the board stops asking. */
const IDLE_INTERVALS = 12;

export class Board extends DurableObject<Variables> {
  #report: BoardReport | undefined;
  #readAt = Number.NEGATIVE_INFINITY;
  readonly #runs: RunRegister;

  constructor(state: DurableObjectState, env: Variables) {
    super(state, env);
    this.#runs = new RunRegister(state.storage);
  }

  /** The last report; null where there is none yet. */
  async read(): Promise<BoardReport | null> {
    this.#readAt = Date.now();
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now());
    return this.#report ?? null;
  }

  announceRun(run: AnnouncedRun): void {
    this.#runs.add(run, Date.now());
  }

  forgetRuns(ids: readonly string[]): void {
    this.#runs.remove(ids);
  }

  /** A run that was announced and has not been forgotten; it may have ended. */
  run(id: string): AnnouncedRun | null {
    return this.#runs.get(id);
  }

  runs(query: RunQuery): AnnouncedRun[] {
    return this.#runs.list(query);
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
