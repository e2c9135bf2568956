/**
 * The requests that wait for a model server, in the order in which they may be sent. Tenants share the server's tokens by their
 * weights, the keys of a tenant its share, and the conversations of a key that one's: virtual token counters (Sheng et al. 2024,
 * "Fairness in Serving Large Language Models") at each level, as in hierarchical fair queueing (Bennett and Zhang 1996). The next
 * request is that of the flow which has had the fewest tokens for its weight. Pure data, without a clock.
 */

/** The priority classes, the first one before the others. */
export const PRIORITIES = ["interactive", "background", "batch"] as const;
export type Priority = (typeof PRIORITIES)[number];

/** The sender of a request, as the queue tells requests apart. */
export interface Flow {
  priority: Priority;
  tenant: string;
  /** The key of the tenant. */
  key: string;
  /** The conversation of the key; empty if it is unknown. */
  conversation: string;
  /** The share of the tenant among tenants, and of the key among the tenant's keys. Above 0. */
  tenantWeight: number;
  keyWeight: number;
}

/** While a class waits, at most this many requests of higher classes are taken before one of it: none starves. */
const MAX_PASSED_OVER = 15;

/**
 * The part of a tenant's mean tokens for a request that are counted when a request is taken. The rest is counted as it is spent.
 * A part, and nothing before any request has ended, because counting too much would give the tenant credit at the end of the request.
 */
const COUNTED_FIRST = 0.5;

/** The weight of the newest request in the mean. */
const NEWEST = 1 / 8;

/** Most tenants whose tokens are kept until they are taken. */
const MAX_COUNTED = 1_024;

/** Flows without requests are removed if there are more of them than of those with requests, and more than this number. */
const MIN_IDLE = 64;

/** A group of flows: all of a class, a tenant's, a key's, or a conversation's only one. */
interface Group<Item> {
  readonly name: string;
  readonly parent: Group<Item> | undefined;
  weight: number;
  /** Virtual tokens: those that were counted, divided by the weight. */
  counted: number;
  /** The virtual tokens of the group below this one that was taken from last: a new group begins with no fewer. */
  least: number;
  waiting: number;
  running: number;
  /** The mean tokens of a tenant's requests. */
  mean: number | undefined;
  readonly groups: Map<string, Group<Item>>;
  /** Those groups below this one with waiting requests. */
  readonly active: Set<Group<Item>>;
  /** The waiting requests of a conversation, the oldest first. */
  readonly queue: Set<Queued<Item>>;
}

/** A request in the queue, or one that was taken from it. */
export interface Queued<Item> {
  readonly item: Item;
  readonly tenant: string;
  /** The groups that it belongs to, from its conversation to its class. */
  readonly path: readonly Group<Item>[];
  /** The tokens that were counted for it. */
  counted: number;
  state: State;
}

type State = "waiting" | "running" | "ended";

/** Gives the tokens that a running request has spent so far. */
type SpentBy<Item> = (item: Item) => number;

export class FairQueue<Item> {
  readonly #classes: readonly Group<Item>[] = PRIORITIES.map((name) => newGroup<Item>(name, undefined, 1));
  /** How many requests of higher classes were taken while this class waited. */
  readonly #passedOver = PRIORITIES.map(() => 0);
  readonly #running = new Set<Queued<Item>>();
  readonly #waitingOf = new Map<string, number>();
  /** Tokens by tenant since they were last taken. */
  #counted = new Map<string, number>();
  readonly #spent: SpentBy<Item>;
  #mean: number | undefined;
  #size = 0;

  constructor(spent: SpentBy<Item>) {
    this.#spent = spent;
  }

  /** Requests that wait. */
  get size(): number {
    return this.#size;
  }

  /** Tenants with waiting requests. */
  get tenants(): number {
    return this.#waitingOf.size;
  }

  /** A tenant's requests that wait. */
  sizeOf(tenant: string): number {
    return this.#waitingOf.get(tenant) ?? 0;
  }

  /** Adds a request behind the others of its conversation. */
  add(flow: Flow, item: Item): Queued<Item> {
    const queued = this.#queued(flow, item, "waiting");
    const { tenant, path } = queued;
    path[0]?.queue.add(queued);
    for (const group of path) {
      if (group.waiting === 0 && group.parent) {
        forgetCredit(group, group.parent);
        group.parent.active.add(group);
      }
      group.waiting += 1;
    }
    this.#size += 1;
    this.#waitingOf.set(tenant, this.sizeOf(tenant) + 1);
    return queued;
  }

  /** Removes a request that waits; otherwise does nothing. */
  remove(queued: Queued<Item>): void {
    if (queued.state !== "waiting") return;
    this.#takeOut(queued, "ended");
    forgetIdle(queued.path);
  }

  /**
   * Takes the next request, of those that `may` allows, which is running then. Undefined if there is none. Tokens that running
   * requests have spent are counted first.
   */
  take(may?: (item: Item) => boolean): Queued<Item> | undefined {
    if (this.#size === 0) return undefined;
    for (const running of this.#running) {
      const spent = this.#spent(running.item);
      if (spent > running.counted) this.count(running, spent);
    }
    const queued = this.#next(may);
    if (!queued) return undefined;
    this.#takeOut(queued, "running");
    this.#begin(queued);
    return queued;
  }

  /** Counts a request that does not wait. It is running. */
  run(flow: Flow, item: Item): Queued<Item> {
    const queued = this.#queued(flow, item, "running");
    for (const group of queued.path) if (group.waiting === 0 && group.parent) forgetCredit(group, group.parent);
    this.#begin(queued);
    return queued;
  }

  /** Ends a request that was taken, which has spent this number of tokens in all. A repeated call does nothing. */
  end(queued: Queued<Item>, tokens: number): void {
    if (queued.state !== "running") return;
    queued.state = "ended";
    this.#running.delete(queued);
    this.count(queued, tokens);
    for (const group of queued.path) group.running -= 1;
    const ofTenant = queued.path[2];
    if (ofTenant) ofTenant.mean = meanWith(ofTenant.mean, tokens);
    this.#mean = meanWith(this.#mean, tokens);
    forgetIdle(queued.path);
  }

  /** Counts the tokens of a request so far, instead of those that were counted for it; also after its end. */
  count(queued: Queued<Item>, tokens: number): void {
    const more = tokens - queued.counted;
    queued.counted = tokens;
    for (const group of queued.path) group.counted += more / group.weight;
    const { tenant } = queued;
    if (this.#counted.has(tenant) || this.#counted.size < MAX_COUNTED) {
      this.#counted.set(tenant, (this.#counted.get(tenant) ?? 0) + more);
    }
  }

  /** The number of groups of flows that are kept. */
  get groups(): number {
    const below = ({ groups }: Group<Item>): number =>
      groups.values().reduce((sum, group) => sum + 1 + below(group), 0);
    return this.#classes.reduce((sum, top) => sum + below(top), 0);
  }

  /** The tokens of each tenant since the last call. */
  takeCounted(): ReadonlyMap<string, number> {
    const counted = this.#counted;
    this.#counted = new Map();
    return counted;
  }

  /** The requests of each tenant that wait, or that were taken and have not ended. */
  requests(): ReadonlyMap<string, number> {
    const requests = new Map<string, number>();
    for (const { groups } of this.#classes) {
      for (const { name, waiting, running } of groups.values()) {
        if (waiting + running > 0) requests.set(name, (requests.get(name) ?? 0) + waiting + running);
      }
    }
    return requests;
  }

  /** Counts tokens of a tenant that were spent elsewhere, if it has requests here. */
  countElsewhere(tenant: string, tokens: number): void {
    for (const top of this.#classes) {
      const group = top.groups.get(tenant);
      if (group) group.counted += tokens / group.weight;
    }
  }

  #queued(
    { priority, tenant, key, conversation, tenantWeight, keyWeight }: Flow,
    item: Item,
    state: State,
  ): Queued<Item> {
    const top = this.#classes[PRIORITIES.indexOf(priority)] as Group<Item>;
    const ofTenant = groupIn(top, tenant, tenantWeight);
    const ofKey = groupIn(ofTenant, key, keyWeight);
    return { item, tenant, path: [groupIn(ofKey, conversation, 1), ofKey, ofTenant, top], counted: 0, state };
  }

  #begin(queued: Queued<Item>): void {
    for (const group of queued.path) {
      group.running += 1;
      if (group.parent) group.parent.least = Math.max(group.parent.least, group.counted);
    }
    this.#running.add(queued);
    this.count(queued, COUNTED_FIRST * (queued.path[2]?.mean ?? this.#mean ?? 0));
  }

  #next(may?: (item: Item) => boolean): Queued<Item> | undefined {
    const waiting = this.#classes.keys().filter((index) => (this.#classes[index]?.waiting ?? 0) > 0);
    const order = [...waiting];
    const starving = order.find((index) => (this.#passedOver[index] ?? 0) >= MAX_PASSED_OVER);
    if (starving !== undefined) order.unshift(starving);
    for (const index of order) {
      const queued = firstIn(this.#classes[index] as Group<Item>, may);
      if (!queued) continue;
      this.#passedOver[index] = 0;
      for (const other of order) if (other > index) this.#passedOver[other] = (this.#passedOver[other] ?? 0) + 1;
      return queued;
    }
    return undefined;
  }

  #takeOut(queued: Queued<Item>, state: "running" | "ended"): void {
    queued.state = state;
    queued.path[0]?.queue.delete(queued);
    for (const group of queued.path) {
      group.waiting -= 1;
      if (group.waiting === 0) group.parent?.active.delete(group);
    }
    this.#size -= 1;
    const left = this.sizeOf(queued.tenant) - 1;
    if (left === 0) this.#waitingOf.delete(queued.tenant);
    else this.#waitingOf.set(queued.tenant, left);
  }
}

function newGroup<Item>(name: string, parent: Group<Item> | undefined, weight: number): Group<Item> {
  return {
    name,
    parent,
    weight,
    counted: 0,
    least: 0,
    waiting: 0,
    running: 0,
    mean: undefined,
    groups: new Map(),
    active: new Set(),
    queue: new Set(),
  };
}

/** The group of this name, which is made on first use. Its weight may have changed. */
function groupIn<Item>(parent: Group<Item>, name: string, weight: number): Group<Item> {
  let group = parent.groups.get(name);
  if (group) group.weight = weight;
  else {
    group = newGroup(name, parent, weight);
    parent.groups.set(name, group);
  }
  return group;
}

/** Lets a group without waiting requests compete with others: without credit for the time in which it had none. */
function forgetCredit<Item>(group: Group<Item>, parent: Group<Item>): void {
  let least = Number.POSITIVE_INFINITY;
  for (const { counted } of parent.active) least = Math.min(least, counted);
  group.counted = Math.max(group.counted, parent.active.size > 0 ? least : parent.least);
}

/** Tells whether a group comes before one that has waited longer. */
function precedes<Item>(group: Group<Item>, other: Group<Item>): boolean {
  if (group.counted !== other.counted) return group.counted < other.counted;
  return group.running / group.weight < other.running / other.weight;
}

/** The first request of the group that comes first and has one. */
function firstIn<Item>(group: Group<Item>, may?: (item: Item) => boolean): Queued<Item> | undefined {
  if (group.queue.size > 0) {
    for (const queued of group.queue) if (!may || may(queued.item)) return queued;
    return undefined;
  }
  if (!may) {
    let first: Group<Item> | undefined;
    for (const other of group.active) if (!first || precedes(other, first)) first = other;
    return first && firstIn(first);
  }
  for (const other of [...group.active].sort((a, b) => (precedes(a, b) ? -1 : precedes(b, a) ? 1 : 0))) {
    const queued = firstIn(other, may);
    if (queued) return queued;
  }
  return undefined;
}

function meanWith(mean: number | undefined, tokens: number): number {
  return mean === undefined ? tokens : mean + (tokens - mean) * NEWEST;
}

/**
 * Removes groups without requests, those first that would begin anew with as many tokens as they have. Others keep their count: a
 * tenant that comes back at once has what it had.
 */
function forgetIdle<Item>(path: readonly Group<Item>[]): void {
  for (const { parent } of path) {
    if (!parent) continue;
    const { groups, active, least } = parent;
    const isIdle = ({ waiting, running }: Group<Item>) => waiting === 0 && running === 0;
    if (groups.size <= MIN_IDLE + 2 * active.size) continue;
    for (const group of groups.values()) if (isIdle(group) && group.counted <= least) groups.delete(group.name);
    // The oldest of the others.
    for (const group of groups.values()) {
      if (groups.size <= MIN_IDLE + 2 * active.size) break;
      if (isIdle(group)) groups.delete(group.name);
    }
  }
}
