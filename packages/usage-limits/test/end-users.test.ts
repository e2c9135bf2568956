import { type Account, EndUsers, type Limits, NOTHING, type Report } from "@responses-edge/usage-limits";
import { describe, expect, it } from "vitest";

const T0 = Date.UTC(2026, 10, 22, 12, 0, 0);
const LIMITS: Limits = { requests_per_minute: 2 };

let reports = 0;

/** A request of an end user, which counts at once. */
function request(endUser: string, key = "k", ofTenant: Limits | null = null): Report {
  reports += 1;
  const want = { ...NOTHING, requests: 1 };
  return {
    ...{ key, endUser, holder: `h${reports}`, report: reports, lifetimeMs: 60_000 },
    limits: { key: LIMITS, tenant: ofTenant },
    held: { ...NOTHING },
    used: { ...NOTHING },
    want: { least: want, needed: want, soon: NOTHING },
  };
}

const isLetIn = (users: EndUsers, report: Report, now = T0) => users.take(report, now).obstacle === undefined;

/** The changes as a store keeps them. */
function kept(rows: Map<string, Account>, users: EndUsers): Map<string, Account> {
  const { accounts, forgotten } = users.takeChanges();
  for (const [name, account] of accounts) rows.set(name, JSON.parse(JSON.stringify(account)));
  const beginnings = new Set(forgotten);
  for (const name of rows.keys()) if (beginnings.has(name.slice(0, name.indexOf("/") + 1))) rows.delete(name);
  return rows;
}

describe("end users", () => {
  it("have a limit each, through each key and through all keys of a tenant", () => {
    const users = new EndUsers();
    const letIn = (user: string, key?: string, tenant?: Limits) => isLetIn(users, request(user, key, tenant));
    expect([letIn("a"), letIn("a"), letIn("a"), letIn("b")]).toEqual([true, true, false, true]);
    const three = { requests_per_minute: 3 };
    expect(["x", "x", "y", "y"].map((key) => letIn("c", key, three))).toEqual([true, true, true, false]);
  });

  it("are unchanged after all stored accounts are read again", () => {
    const users = new EndUsers();
    expect([isLetIn(users, request("a")), isLetIn(users, request("a"))]).toEqual([true, true]);
    const again = new EndUsers(kept(new Map(), users), T0);
    expect([isLetIn(again, request("a")), isLetIn(again, request("b"))]).toEqual([false, true]);
  });

  it("are dropped with their rows after two minutes without a request", () => {
    const users = new EndUsers();
    const rows = new Map<string, Account>();
    users.take(request("a"), T0);
    expect(kept(rows, users).size).toBe(1);
    users.take(request("b"), T0 + 121_000);
    expect([...kept(rows, users).keys()]).toEqual(["b/k"]);
  });

  it("are at most 10,000, for any ids: the one idle for longest is dropped", () => {
    const users = new EndUsers();
    const rows = new Map<string, Account>();
    for (let user = 0; user < 25_000; user += 1) {
      users.take(request(`u${user}`), T0);
      // One that goes on asking stays counted.
      if (user % 5_000 === 0) users.take(request("often"), T0);
    }
    expect(kept(rows, users).size).toBe(10_000);
    expect(isLetIn(users, request("often"))).toBe(false);
  });
});
