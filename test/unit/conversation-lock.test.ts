import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ConversationLock, type Lease } from "../../src/store/conversation-lock.ts";

afterEach(() => {
  vi.useRealTimers();
});

/** A lock that somebody holds. */
async function heldLock(): Promise<{ lock: ConversationLock; holder: Lease }> {
  const lock = new ConversationLock();
  const holder = await lock.acquire("holder", 0);
  if (!holder) throw new Error("A free lock was refused.");
  return { lock, holder };
}

/** Notes who was granted the lock, or who was told that it was not. */
function wait(lock: ConversationLock, ticket: string, waitMs: number, seen: string[]): Promise<Lease | undefined> {
  return lock.acquire(ticket, waitMs).then((lease) => {
    seen.push(lease ? ticket : `${ticket} refused`);
    return lease;
  });
}

describe("the conversation lock", () => {
  it("is granted at once while it is free", async () => {
    const { lock, holder } = await heldLock();
    expect(lock.isHeld).toBe(true);
    holder.release();
    expect(lock.isHeld).toBe(false);
    expect(await lock.acquire("next", 0)).toBeDefined();
  });

  it("is refused at once to who does not wait", async () => {
    const { lock } = await heldLock();
    expect(await lock.acquire("hasty", 0)).toBeUndefined();
  });

  it("is handed over in the order in which it was asked for", async () => {
    const { lock, holder } = await heldLock();
    const seen: string[] = [];
    const waiting = ["a", "b", "c"].map((ticket) => wait(lock, ticket, 1_000, seen));
    holder.release();
    for (const next of waiting) (await next)?.release();
    expect(seen).toEqual(["a", "b", "c"]);
    expect(lock.isHeld).toBe(false);
  });

  it("is refused to who has waited long enough, and then granted to the next", async () => {
    vi.useFakeTimers();
    const { lock, holder } = await heldLock();
    const seen: string[] = [];
    void wait(lock, "short", 1_000, seen);
    void wait(lock, "long", 5_000, seen);
    await vi.advanceTimersByTimeAsync(999);
    expect(seen).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(seen).toEqual(["short refused"]);
    holder.release();
    await vi.advanceTimersByTimeAsync(0);
    expect(seen).toEqual(["short refused", "long"]);
    // Its time is up long after it has got the lock.
    await vi.advanceTimersByTimeAsync(60_000);
    expect(seen).toEqual(["short refused", "long"]);
    expect(lock.isHeld).toBe(true);
  });

  it("is not kept for who has left", async () => {
    const { lock, holder } = await heldLock();
    const seen: string[] = [];
    const waiting = ["a", "b"].map((ticket) => wait(lock, ticket, 1_000, seen));
    lock.leave("a");
    lock.leave("nobody");
    holder.release();
    await Promise.all(waiting);
    expect(seen).toEqual(["a refused", "b"]);
  });

  it("is not taken from its holder by who gives it back twice", async () => {
    const { lock, holder } = await heldLock();
    holder.release();
    const next = await lock.acquire("next", 0);
    holder.release();
    expect(holder.released).toBe(true);
    expect(next?.released).toBe(false);
    expect(await lock.acquire("third", 0)).toBeUndefined();
  });

  it("has one holder at most, and no waiter overtakes another, whatever happens", async () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("ask" as const), waits: fc.boolean() }),
      fc.record({ kind: fc.constant("release" as const) }),
      fc.record({ kind: fc.constant("leave" as const), who: fc.nat(20) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const lock = new ConversationLock();
        /** What should be: who holds it, and who waits. */
        let holder: string | undefined;
        let queue: string[] = [];
        const leases = new Map<string, Lease | undefined>();
        for (const [index, action] of steps.entries()) {
          const ticket = String(index);
          if (action.kind === "ask") {
            void lock.acquire(ticket, action.waits ? Number.POSITIVE_INFINITY : 0).then((lease) => {
              leases.set(ticket, lease);
            });
            if (holder === undefined) holder = ticket;
            else if (action.waits) queue.push(ticket);
          } else if (action.kind === "leave") {
            const who = queue[action.who % Math.max(1, queue.length)] ?? "nobody";
            lock.leave(who);
            queue = queue.filter((waiting) => waiting !== who);
          } else if (holder !== undefined) {
            leases.get(holder)?.release();
            holder = queue.shift();
          }
          await Promise.resolve();
          await Promise.resolve();
          const holders = [...leases].filter(([, lease]) => lease && !lease.released).map(([who]) => who);
          expect(holders).toEqual(holder === undefined ? [] : [holder]);
          expect(lock.isHeld).toBe(holder !== undefined);
          for (const waiting of queue) expect(leases.has(waiting)).toBe(false);
        }
      }),
    );
  });
});
