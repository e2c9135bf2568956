import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ConversationLock, type Lease } from "../../../src/store/home/conversation-lock.ts";
import { TenantLoad } from "../../../src/store/limits/permits.ts";

afterEach(() => {
  vi.useRealTimers();
});

function newLock(load = new TenantLoad().of("tenant", "home", {})): ConversationLock {
  return new ConversationLock(load);
}

/** A lock that somebody holds. */
async function heldLock(): Promise<{ lock: ConversationLock; holder: Lease }> {
  const lock = newLock();
  const holder = await lock.acquire("holder", 0);
  if (!holder) throw new Error("A free lock was refused.");
  return { lock, holder };
}

/** Notes who was granted or refused the lock. */
function wait(lock: ConversationLock, ticket: string, waitMs: number, seen: string[]): Promise<Lease | undefined> {
  return lock.acquire(ticket, waitMs).then((lease) => {
    seen.push(lease ? ticket : `${ticket} refused`);
    return lease;
  });
}

/** More than a granted lock takes to reach the one who has waited for it. */
const MICROTASKS = 20;

describe("the conversation lock", () => {
  it("is granted at once while it is free", async () => {
    const { lock, holder } = await heldLock();
    expect(lock.isHeld).toBe(true);
    holder.release();
    expect(lock.isHeld).toBe(false);
    expect(await lock.acquire("next", 0)).toBeDefined();
  });

  it("is refused at once to a turn that does not wait", async () => {
    const { lock } = await heldLock();
    expect(await lock.acquire("hasty", 0)).toBeUndefined();
  });

  it("is handed over in the order of requests", async () => {
    const { lock, holder } = await heldLock();
    const seen: string[] = [];
    const waiting = ["a", "b", "c"].map((ticket) => wait(lock, ticket, 1_000, seen));
    holder.release();
    for (const next of waiting) (await next)?.release();
    expect(seen).toEqual(["a", "b", "c"]);
    expect(lock.isHeld).toBe(false);
  });

  it("is refused to a turn after its maximum wait, and then granted to the next", async () => {
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
    // Its wait would end long after it has got the lock.
    await vi.advanceTimersByTimeAsync(60_000);
    expect(seen).toEqual(["short refused", "long"]);
    expect(lock.isHeld).toBe(true);
  });

  it("skips a turn that has left", async () => {
    const { lock, holder } = await heldLock();
    const seen: string[] = [];
    const waiting = ["a", "b"].map((ticket) => wait(lock, ticket, 1_000, seen));
    lock.leave("a");
    lock.leave("nobody");
    holder.release();
    await Promise.all(waiting);
    expect(seen).toEqual(["a refused", "b"]);
  });

  it("is not taken from its holder by an earlier holder's second release", async () => {
    const { lock, holder } = await heldLock();
    holder.release();
    const next = await lock.acquire("next", 0);
    holder.release();
    expect(holder.released).toBe(true);
    expect(next?.released).toBe(false);
    expect(await lock.acquire("third", 0)).toBeUndefined();
  });

  it("is released at the end of the scope that holds it, also when that throws", async () => {
    const lock = newLock();
    const hold = async (work: () => void) => {
      using lease = await lock.acquire("holder", 0);
      expect(lease?.released).toBe(false);
      work();
    };
    await hold(() => expect(lock.isHeld).toBe(true));
    expect(lock.isHeld).toBe(false);
    const fail = hold(() => {
      throw new Error("Failed.");
    });
    await expect(fail).rejects.toThrow("Failed.");
    expect(lock.isHeld).toBe(false);
  });

  it("is not released at the end of a scope that has moved it", async () => {
    const lock = newLock();
    const enter = async () => {
      using scope = new DisposableStack();
      scope.use(await lock.acquire("holder", 0));
      return scope.move();
    };
    const holder = await enter();
    expect(lock.isHeld).toBe(true);
    holder.dispose();
    expect(lock.isHeld).toBe(false);
  });

  it("has at most one holder, and no waiter overtakes another, whatever happens", async () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("ask" as const), waits: fc.boolean() }),
      fc.record({ kind: fc.constant("release" as const) }),
      fc.record({ kind: fc.constant("leave" as const), who: fc.nat(20) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const lock = newLock();
        /** The expected state: the holder, and the waiters. */
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
          for (let left = MICROTASKS; left > 0; left -= 1) await Promise.resolve();
          const holders = [...leases].filter(([, lease]) => lease && !lease.released).map(([who]) => who);
          expect(holders).toEqual(holder === undefined ? [] : [holder]);
          expect(lock.isHeld).toBe(holder !== undefined);
          for (const waiting of queue) expect(leases.has(waiting)).toBe(false);
        }
      }),
    );
  });
});

describe("a tenant's turns that hold a conversation or wait for one", () => {
  it("are bounded over all its conversations, and no other tenant's", async () => {
    const process = new TenantLoad();
    const [a, b, other] = [
      newLock(process.of("ann", "a", {})),
      newLock(process.of("ann", "b", {})),
      newLock(process.of("bob", "a", {})),
    ];
    const holder = await a.acquire("holder", 0, 3);
    const waiting = a.acquire("waiter", 1_000, 3);
    const second = await b.acquire("second", 0, 3);
    await expect(b.acquire("late", 1_000, 3)).rejects.toMatchObject({ status: 429, code: "rate_limit_exceeded" });
    expect(await other.acquire("bob", 0, 3)).toBeDefined();
    // One gets the lock, the other leaves: each slot is freed once.
    holder?.release();
    holder?.release();
    const lease = await waiting;
    const late = b.acquire("late", 1_000, 3);
    await expect(b.acquire("later", 1_000, 3)).rejects.toMatchObject({ status: 429 });
    b.leave("late");
    expect(await late).toBeUndefined();
    lease?.release();
    second?.release();
    for (const ticket of ["x", "y", "z"]) void b.acquire(ticket, 1_000, 3);
    await expect(b.acquire("late", 1_000, 3)).rejects.toMatchObject({ status: 429 });
  });

  it("free their slots after their maximum wait", async () => {
    vi.useFakeTimers();
    const lock = newLock();
    await lock.acquire("holder", 0, 2);
    const waiting = lock.acquire("waiter", 1_000, 2);
    await expect(lock.acquire("late", 1_000, 2)).rejects.toMatchObject({ status: 429 });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await waiting).toBeUndefined();
    const late = lock.acquire("late", 1_000, 2);
    lock.leave("late");
    expect(await late).toBeUndefined();
  });

  it("do not include those of an earlier life of their object", async () => {
    const process = new TenantLoad();
    const dead = newLock(process.of("ann", "a", {}));
    const orphan = await dead.acquire("orphan", 0, 1);
    const alive = newLock(process.of("ann", "a", {}));
    const holder = await alive.acquire("holder", 0, 1);
    expect(holder).toBeDefined();
    // The dead life's slots do not count in the new one.
    orphan?.release();
    await expect(alive.acquire("late", 1_000, 1)).rejects.toMatchObject({ status: 429 });
  });

  it("count, and are not refused, after they were accepted", async () => {
    const process = new TenantLoad();
    const [a, b] = [newLock(process.of("ann", "a", {})), newLock(process.of("ann", "b", {}))];
    await a.acquire("holder", 0, 1);
    expect(await b.acquire("orphan", Number.POSITIVE_INFINITY)).toBeDefined();
    await expect(a.acquire("late", 1_000, 2)).rejects.toMatchObject({ status: 429 });
  });
});
