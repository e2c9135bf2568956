/**
 * Reports of this isolate's homes to an object of their tenant's: one call at a time, with all that has come meanwhile. Only the latest of
 * several reports under one name counts.
 */

/** How long reports are gathered before a call: a call and its commit cost as much as the storing of a short turn. Milliseconds. */
const GATHER_MS = 50;

/** A call that lasts longer is taken for one of an object that has ended. */
export const CALL_WITHIN_MS = 10_000;

interface Told<Value> {
  value: Value;
  /** Called when it was heard. */
  onTold: () => void;
}

/** The values of one tenant that wait to be told. */
interface Queue<Value> {
  waiting: Map<string, Told<Value>>;
  /** Since when a call is under way, or gathered for, Unix milliseconds. The object that makes it may have been ended since. */
  askingSince: number | undefined;
}

export class ToldTogether<Value> {
  readonly #queues = new Map<string, Queue<Value>>();
  readonly #most: number;

  /** `most`: values of a tenant that may wait. Values beyond them are not told. */
  constructor(most = Number.POSITIVE_INFINITY) {
    this.#most = most;
  }

  /** The value that waits under a name. */
  waiting(tenant: string, name: string): Value | undefined {
    return this.#queues.get(tenant)?.waiting.get(name)?.value;
  }

  /** Takes back what waits under a name. */
  withdraw(tenant: string, name: string): void {
    this.#queues.get(tenant)?.waiting.delete(name);
  }

  /** Tells a value with the next call. `send` says whether it was heard, and never rejects. */
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
      const since = Date.now();
      queue.askingSince = since;
      await scheduler.wait(GATHER_MS);
      const batch = [...queue.waiting.values()];
      queue.waiting.clear();
      const isHeard = await send(batch.map(({ value }) => value));
      if (isHeard) for (const each of batch) each.onTold();
      // Another object has taken over.
      if (queue.askingSince !== since) return;
    }
    this.#queues.delete(tenant);
  }
}
