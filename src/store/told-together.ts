/**
 * Reports of this isolate's homes to an object of their tenant: one call at a time, with all reports that have come in
 * the meantime. Only the latest of several reports under one name counts.
 */

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
  /** When the call under way has begun, Unix milliseconds. The object that made it may have ended since. */
  askingSince: number | undefined;
}

export class ToldTogether<Value> {
  readonly #queues = new Map<string, Queue<Value>>();
  readonly #most: number;

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
    if (queue.askingSince !== undefined && Math.abs(now - queue.askingSince) < CALL_WITHIN_MS) return;
    while (queue.waiting.size > 0) {
      const batch = [...queue.waiting.values()];
      queue.waiting.clear();
      const since = Date.now();
      queue.askingSince = since;
      const isHeard = await send(batch.map(({ value }) => value));
      if (isHeard) for (const each of batch) each.onTold();
      // Another object has taken over.
      if (queue.askingSince !== since) return;
    }
    this.#queues.delete(tenant);
  }
}
