import type { ApiError } from "../protocol/errors.ts";

/**
 * When a generation that broke off is tried again. A model server that is gone is waited for, because a restart takes
 * minutes; one that takes the prompt and dies of it is not asked for ever, because it serves others, too.
 */

export interface RecoveryOptions {
  /** Generations of one round that may break off; 0 lets the first one fail. */
  maxRetries: number;
  /** Generations in a row that may be begun and break off before their first word. */
  maxFruitless: number;
  /** How long an outage may last, in milliseconds. */
  timeMs: number;
  /** Now, in Unix milliseconds. */
  clock: () => number;
  /** When the outage began that a turn was in before a crash. Unix milliseconds. */
  since?: number | undefined;
}

/**
 * Generations in a row that may be begun and break off before their first word: the prompt may be what the server dies of.
 * Where there are several servers, each try may cost another one.
 */
export const MAX_FRUITLESS = { alone: 4, inPool: 2 };

/** The first wait; it doubles, up to the longest. Each is shortened by chance, so that not all come back at once. */
const BASE_WAIT_MS = 100;
const MAX_WAIT_MS = 5_000;

/** Faults of the way to the model server, and its being overloaded, restarting or dead: worth another try. */
const TRANSIENT = new Set([
  "upstream_aborted",
  "upstream_connection_lost",
  "upstream_engine_dead",
  "upstream_timeout",
  "upstream_unreachable",
  "server_is_overloaded",
  "rate_limit_exceeded",
]);

/** A failure of the server that may be its end: its health tells. */
const MAY_BE_GONE = new Set(["upstream_error"]);

export class Recovery {
  readonly #options: RecoveryOptions;
  #brokenOff = 0;
  #fruitless = 0;
  #tries = 0;
  #since: number | undefined;
  /** The last try, and not the first one, found nobody. */
  #isAway = false;

  constructor(options: RecoveryOptions) {
    this.#options = options;
    this.#since = options.since;
  }

  /** The outage that lasts: when it began, and when it is waited for no longer. Unix milliseconds. */
  get outage(): { since: number; until: number } | undefined {
    return this.#since === undefined || !this.#isAway
      ? undefined
      : { since: this.#since, until: this.#since + this.#options.timeMs };
  }

  /**
   * How long to wait before the next try, in milliseconds; undefined where the fault is to be the end. `taken`: the
   * server had taken the prompt; `spoke`: and had said something.
   */
  next({ headers }: ApiError, { taken, spoke }: { taken: boolean; spoke: boolean }): number | undefined {
    const { maxRetries, maxFruitless, timeMs, clock } = this.#options;
    if (spoke) {
      this.#fruitless = 0;
      this.#tries = 0;
      this.#since = undefined;
    } else if (taken) this.#fruitless += 1;
    if (taken) this.#brokenOff += 1;
    this.#since ??= clock();
    this.#tries += 1;
    this.#isAway = !taken && this.#tries > 1;
    const left = this.#since + timeMs - clock();
    if (maxRetries === 0 || this.#brokenOff > maxRetries || this.#fruitless > maxFruitless || left <= 0) {
      return undefined;
    }
    const wait = Math.min(MAX_WAIT_MS, BASE_WAIT_MS * 2 ** (this.#tries - 1)) * (1 - Math.random() / 2);
    const asked = Number(headers["retry-after"] ?? 0) * 1000;
    return Math.min(Math.max(wait, asked || 0), left);
  }
}

/** Whether a fault passes: by itself, or because the server is gone and will come back. */
export async function isTransient(fault: ApiError, isServerGone: () => Promise<boolean>): Promise<boolean> {
  if (TRANSIENT.has(fault.code)) return true;
  return MAY_BE_GONE.has(fault.code) && isServerGone();
}
