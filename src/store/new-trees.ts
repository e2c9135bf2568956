import { newHome, newSharedHome, newTreeName, type TreeAddress } from "@responses-edge/responses-api/ids";

/**
 * Where new conversation trees go. Making an object and its tables costs more than all rows of a short tree, so trees of one
 * tenant that begin one after the other in an isolate share a home. Which one that is, nobody needs to agree on or to
 * remember: ids carry it.
 *
 * A home takes few trees, and for a limited time: so it stays small, and what is in it expires, and is given back, together.
 */

/** How long a home takes new trees, in milliseconds. */
const OPEN_MS = 3_600_000;

/** Tenants whose homes are remembered. One that is forgotten begins another home. */
const MAX_TENANTS = 1_000;

interface OpenHome {
  key: string;
  /** Unix milliseconds. */
  since: number;
  trees: Set<string>;
}

/** By tenant; the home that was begun first comes first. */
const open = new Map<string, OpenHome>();

/** A place for a new tree. `isFirst`: nothing has been put into its home before. */
export interface NewTree extends TreeAddress {
  isFirst: boolean;
}

/**
 * Draws a place for a new tree of a tenant's, and another one with each call, of which the last counts. A home takes
 * `treesPerHome` of them. The first call takes the place: whoever waits before it takes none from the others.
 */
export function newTree(tenant: string, treesPerHome: number): () => NewTree {
  if (treesPerHome === 1) return () => ({ home: newHome(), tree: "", isFirst: true });
  let home: OpenHome | undefined;
  let last = "";
  return () => {
    if (!home) {
      const now = Date.now();
      const known = open.get(tenant);
      if (known && known.trees.size < treesPerHome && now - known.since < OPEN_MS) home = known;
      else home = openHome(tenant, now);
    }
    const { key, trees } = home;
    trees.delete(last);
    const isFirst = trees.size === 0;
    do last = newTreeName();
    while (trees.has(last));
    trees.add(last);
    return { home: key, tree: last, isFirst };
  };
}

/** A home that could not take what it was given takes no new trees from this isolate. */
export function closeHome(tenant: string, home: string): void {
  if (open.get(tenant)?.key === home) open.delete(tenant);
}

function openHome(tenant: string, now: number): OpenHome {
  const begun = { key: newSharedHome(), since: now, trees: new Set<string>() };
  open.delete(tenant);
  open.set(tenant, begun);
  const oldest = open.size > MAX_TENANTS ? open.keys().next().value : undefined;
  if (oldest !== undefined) open.delete(oldest);
  return begun;
}
