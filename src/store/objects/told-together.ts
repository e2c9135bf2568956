/**
 * Reports of this isolate's homes to an object of their tenant: one call at a time, with all reports that have come in
 * the meantime. Only the latest of several reports under one name counts. Reports that come often are gathered before
 * each call: a call and its commit cost as much as storing a short turn.
 */

/** Reports come often if the isolate makes more than this many in `OFTEN_MS`. Milliseconds. */
const MANY = 16;
const OFTEN_MS = 100;

/** How long they are then gathered. Milliseconds. A killed process loses them: the alarms of their homes report again. */
const GATHER_MS = 50;

/** After this time, the object that made a call is assumed to have ended. */
export const CALL_WITHIN_MS = 10_000;

interface Told<Value> {
  value: Value;
  /** Called when it was received. */
  onTold: () => void;
}

/** The waiting values of one tenant. */
interface Queue<Value> {
  waiting: Map<string, Told<Value>>;
  /** When the call under way, or the gathering before it, has begun, Unix milliseconds. The object that does it may have ended since. */
  askingSince: number | undefined;
}

export class ToldTogether<Value> {
  readonly #queues = new Map<string, Queue<Value>>();
  readonly #most: number;
  /** When the last reports were made, Unix milliseconds; oldest first. */
  readonly #madeAt: number[] = [];
  #comeOften = false;

  /** `most`: most waiting values of a tenant. Further ones are dropped. */
  constructor(most = Number.POSITIVE_INFINITY) {
    this.#most = most;
  }

  /** The value that waits under a name. */
  waiting(tenant: string, name: string): Value | undefined {
    return this.#queues.get(tenant)?.waiting.get(name)?.value;
  }

  /** Withdraws the value that waits under a name. */
  withdraw(tenant: string, name: string): void {
    this.#queues.get(tenant)?.waiting.delete(name);
  }

  /** Sends a value with the next call. `send` tells whether it was received, and never rejects. */
  async tell(
    tenant: string,
    name: string,
    told: Told<Value>,
    send: (batch: readonly Value[]) => Promise<boolean>,
  ): Promise<void> {
    const queue = this.#queues.get(tenant) ?? { waiting: new Map(), askingSince: undefined };
    if (queue.waiting.size >= this.#most && !queue.waiting.has(name)) return;
    this.#queues.set(tenant, queue);
    queue.waiting.set(name, told);
    const now = Date.now();
    this.#count(now);
    if (queue.askingSince !== undefined && Math.abs(now - queue.askingSince) < CALL_WITHIN_MS) return;
    while (queue.waiting.size > 0) {
      const since = Date.now();
      queue.askingSince = since;
      if (this.#comeOften) await scheduler.wait(GATHER_MS);
      const batch = [...queue.waiting.values()];
      queue.waiting.clear();
      // All of them may have been withdrawn.
      const isHeard = batch.length > 0 && (await send(batch.map(({ value }) => value)));
      if (isHeard) for (const each of batch) each.onTold();
      // Another object has taken over.
      if (queue.askingSince !== since) return;
    }
    this.#queues.delete(tenant);
  }

  #count(now: number): void {
    this.#madeAt.push(now);
    const before = this.#madeAt.length > MANY ? this.#madeAt.shift() : undefined;
    this.#comeOften = before !== undefined && now - before < OFTEN_MS;
  }
}
