import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Semaphore, TenantLoad } from "../../src/store/limits/permits.ts";

/** Owners that the code under test sees as garbage-collected. */
const lost = new Set<object>();

class FakeRef<T extends object> {
  readonly #target: T;

  constructor(target: T) {
    this.#target = target;
  }

  deref(): T | undefined {
    return lost.has(this.#target) ? undefined : this.#target;
  }
}

beforeEach(() => {
  vi.stubGlobal("WeakRef", FakeRef);
});
afterEach(() => {
  vi.unstubAllGlobals();
  lost.clear();
});

/** A holder without permits, which lives as long as `owner`. */
const holderOf = <Label>(tenant: string, owner: object, label: Label) => ({
  ...{ tenant, owner: new WeakRef(owner), label },
  ...{ permits: 0, hasEnded: false },
});

describe("a semaphore", () => {
  it("counts the permits of each tenant's holders until their end", () => {
    const semaphore = new Semaphore<string>();
    const [one, two, other] = [holderOf("a", {}, "one"), holderOf("a", {}, "two"), holderOf("b", {}, "other")];
    semaphore.set(one, 2);
    semaphore.set(two, 0.5);
    semaphore.set(other, 1);
    expect([semaphore.taken, semaphore.takenBy.get("a"), semaphore.takenBy.get("b")]).toEqual([3.5, 2.5, 1]);
    semaphore.set(one, 1);
    semaphore.end(two);
    semaphore.end(two);
    semaphore.set(two, 5);
    expect([semaphore.taken, semaphore.takenBy.get("a"), [...semaphore.labels()]]).toEqual([2, 1, ["one", "other"]]);
  });

  it("takes back the permits of lost holders", () => {
    const semaphore = new Semaphore();
    const owner = {};
    semaphore.set(holderOf("a", owner, undefined), 3);
    semaphore.forgetLost();
    expect(semaphore.taken).toBe(3);
    lost.add(owner);
    semaphore.forgetLost();
    expect([semaphore.taken, semaphore.takenBy.get("a")]).toEqual([0, undefined]);
  });
});

describe("the load of a tenant's objects", () => {
  it("is that of their present lives, without lost ones", () => {
    const load = new TenantLoad();
    const [first, second] = [{}, {}];
    const giveBack = load.of("ann", "a", first).take(2);
    expect(load.of("ann", "b", second).take(2)).toBeDefined();
    const next = load.of("ann", "a", {});
    expect(next.take(2)).toBeDefined();
    // The dead life releases nothing of the new one.
    giveBack?.();
    expect(next.take(2)).toBeUndefined();
    lost.add(second);
    expect(next.take(2)).toBeDefined();
    expect(next.take(2)).toBeUndefined();
  });
});
