import { treeOf } from "@responses-edge/responses-api/ids";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { closeHome, type NewTree, newTree } from "../../src/store/home/home-client.ts";

/** The homes of new trees. */

/** Each test has its own tenants, because the isolate caches them. */
let tenants = 0;
const newTenant = () => `tenant ${tenants++}`;

function places(tenant: string, count: number, treesPerHome: number): NewTree[] {
  return Array.from({ length: count }, () => newTree(tenant, treesPerHome)());
}

const homesOf = (trees: readonly NewTree[]) => [...new Set(trees.map(({ home }) => home))];

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
});
afterEach(() => {
  vi.useRealTimers();
});

describe("new trees of a tenant", () => {
  it("share a home up to its maximum, and then the next one", () => {
    const trees = places(newTenant(), 40, 16);
    const homes = homesOf(trees);
    expect(homes).toHaveLength(3);
    expect(trees.map(({ home }) => homes.indexOf(home))).toEqual([
      ...Array(16).fill(0),
      ...Array(16).fill(1),
      ...Array(8).fill(2),
    ]);
    expect(new Set(trees.map(({ home, tree }) => home + tree)).size).toBe(40);
    expect(trees.flatMap(({ isFirst }, index) => (isFirst ? [index] : []))).toEqual([0, 16, 32]);
    for (const { home, tree } of trees) expect(treeOf({ home, turn: `${tree}12345678` })).toEqual({ home, tree });
  });

  it("do not exceed a home's maximum, with any number at once", () => {
    const tenant = newTenant();
    const draws = Array.from({ length: 5_000 }, () => newTree(tenant, 16));
    const homes = [
      ...Map.groupBy(
        draws.map((draw) => draw()),
        ({ home }) => home,
      ).values(),
    ];
    for (const trees of homes.slice(0, -1)) expect(trees).toHaveLength(16);
    for (const trees of homes) expect(trees.filter(({ isFirst }) => isFirst)).toHaveLength(1);
  });

  it("never share a home with another tenant's", () => {
    const [one, other] = [newTenant(), newTenant()];
    const mixed = [places(one, 3, 16), places(other, 3, 16), places(one, 3, 16)];
    const [first = [], second = [], third = []] = mixed.map(homesOf);
    expect(first).toHaveLength(1);
    expect(third).toEqual(first);
    expect(second).not.toEqual(first);
  });

  it("have a home each if a home has at most one", () => {
    const trees = places(newTenant(), 3, 1);
    expect(homesOf(trees)).toHaveLength(3);
    for (const { home, tree, isFirst } of trees) {
      expect({ tree, isFirst }).toEqual({ tree: "", isFirst: true });
      expect(treeOf({ home, turn: "t".repeat(10) }).tree).toBe("");
    }
  });

  it("get another home after an hour", () => {
    const tenant = newTenant();
    const [first] = homesOf(places(tenant, 2, 16));
    vi.setSystemTime(Date.now() + 3_599_000);
    expect(homesOf(places(tenant, 1, 16))).toEqual([first]);
    vi.setSystemTime(Date.now() + 1_000);
    const [later] = places(tenant, 1, 16);
    expect(later?.home).not.toBe(first);
    expect(later?.isFirst).toBe(true);
  });

  it("get another home if theirs cannot be written to", () => {
    const tenant = newTenant();
    const [first = ""] = homesOf(places(tenant, 2, 16));
    closeHome(newTenant(), first);
    closeHome(tenant, "another");
    expect(homesOf(places(tenant, 1, 16))).toEqual([first]);
    closeHome(tenant, first);
    expect(homesOf(places(tenant, 1, 16))).not.toEqual([first]);
  });

  it("may be chosen several times, and count once", () => {
    const tenant = newTenant();
    const draw = newTree(tenant, 2);
    const drawn = Array.from({ length: 200 }, () => draw());
    expect(homesOf(drawn)).toHaveLength(1);
    expect(new Set(drawn.map(({ tree }) => tree)).size).toBeGreaterThan(100);
    const [beside] = places(tenant, 1, 2);
    expect(beside?.home).toBe(drawn[0]?.home);
    expect(beside?.tree).not.toBe(drawn.at(-1)?.tree);
    expect(places(tenant, 1, 2)[0]?.home).not.toBe(drawn[0]?.home);
  });

  it("of ten thousand tenants are not all cached", () => {
    const first = newTenant();
    const [home] = homesOf(places(first, 1, 16));
    for (let tenant = 0; tenant < 1_000; tenant += 1) places(newTenant(), 1, 16);
    const [later] = places(first, 1, 16);
    expect(later?.home).not.toBe(home);
  });
});
