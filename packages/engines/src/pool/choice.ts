import { type Hash, hashOf, mixed } from "../hash.ts";

/** Chooses the server of a turn among several. A pure function of the known facts about the servers. */

/** A server as the choice sees it. */
export interface Candidate {
  hash: Hash;
  /** Above 0. */
  weight: number;
  /** True if it gets no new conversations. */
  drains: boolean;
  /** True if its conversations stay there although it drains. */
  keepsConversations: boolean;
  /** True if it has failed too often lately. */
  isEjected: boolean;
  /** True if it is overloaded, by its own answer or its silence. */
  isBusy: boolean;
  /** This isolate's requests in progress there. */
  inFlight: number;
}

export interface ChoiceOptions {
  /** The key that the turn shares with others that should go to the same server. Without it only the load decides. */
  key?: Hash | undefined;
  /** The key is that of a conversation, which may be older than a server's draining. */
  keepsDraining: boolean;
  /** No server gets more than this multiple of its share of the requests in flight. */
  loadFactor: number;
  /** A number in [0, 1). */
  random: () => number;
}

/** With so few requests in flight, their distribution says nothing: a conversation stays where it is. */
const UNCOUNTED = 8;

/** Envoy's panic threshold: if fewer are healthy, ejections are ignored (the fault may be elsewhere). */
const MIN_HEALTHY_SHARE = 0.5;

/**
 * The server for a turn; undefined if there is none. With a key it is the first in the key's order that is below its
 * share of the load (consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam 2016). Without one it is
 * the less loaded of two random ones (Azar et al. 1994; Mitzenmacher 2001), so that isolates with the same knowledge do
 * not all choose the same.
 */
export function chooseServer<Server extends Candidate>(
  servers: readonly Server[],
  { key, keepsDraining, loadFactor, random }: ChoiceOptions,
): Server | undefined {
  if (servers.length < 2) return servers[0];
  const ranked = key ? ranking(servers, key) : servers;
  const usable = inGoodHealth(ranked);
  const [first] = ranked;
  // Only a conversation's own order leads to a server that drains.
  if (key && keepsDraining && first?.drains && first.keepsConversations && usable.includes(first)) return first;
  const taking = usable.filter(({ drains }) => !drains);
  const open = taking.length > 0 ? taking : usable;
  return key ? firstBelowLimit(open, loadFactor) : lessLoadedOfTwo(open, random);
}

/** The first server of a key's order. */
export function firstOf<Server extends Pick<Candidate, "hash" | "weight">>(
  servers: readonly Server[],
  key: Hash,
): Server | undefined {
  let first: Server | undefined;
  let most = 0;
  for (const server of servers) {
    const own = score(key, server.hash, server.weight);
    if (own <= most) continue;
    first = server;
    most = own;
  }
  return first;
}

/** Keys to try for each server in the pool, and at most, until one leads to the wanted server. */
const [DRAWS_PER_SHARE, MAX_DRAWS] = [16, 1_000];

/** Draws random keys with `make` until one leads to the wanted server. Gives the last one if none does. */
export function drawFor<Server extends Pick<Candidate, "hash" | "weight">, Made>(
  servers: readonly Server[],
  isWanted: (server: Server) => boolean,
  make: () => { made: Made; key: string },
): Made {
  const total = servers.reduce((sum, { weight }) => sum + weight, 0);
  const share = (servers.find(isWanted)?.weight ?? total) / total;
  const draws = Math.min(MAX_DRAWS, DRAWS_PER_SHARE * Math.ceil(1 / share));
  for (let draw = 1; ; draw += 1) {
    const { made, key } = make();
    const first = firstOf(servers, hashOf(key));
    if (draw >= draws || (first && isWanted(first))) return made;
  }
}

/** The servers in a key's order, the best one first. */
export function ranking<Server extends Candidate>(servers: readonly Server[], key: Hash): Server[] {
  const scored = servers.map((server) => ({ server, score: score(key, server.hash, server.weight) }));
  return scored.sort((one, other) => other.score - one.score).map(({ server }) => server);
}

/** The servers that may be asked: neither busy nor ejected, if any are left. */
export function inGoodHealth<Server extends Candidate>(servers: readonly Server[]): readonly Server[] {
  const healthy = servers.filter(({ isEjected }) => !isEjected);
  const inPanic = healthy.length < MIN_HEALTHY_SHARE * servers.length;
  const usable = (inPanic ? servers : healthy).filter(({ isBusy }) => !isBusy);
  return usable.length > 0 ? usable : servers;
}

function firstBelowLimit<Server extends Candidate>(servers: readonly Server[], loadFactor: number): Server | undefined {
  // Usually nothing needs to be counted.
  const [first] = servers;
  if (!first || first.inFlight < UNCOUNTED) return first;
  const total = 1 + servers.reduce((sum, { inFlight }) => sum + inFlight, 0);
  const weights = servers.reduce((sum, { weight }) => sum + weight, 0);
  const limit = ({ weight }: Server) => Math.max(UNCOUNTED, Math.ceil((loadFactor * total * weight) / weights));
  return servers.find((server) => server.inFlight < limit(server)) ?? first;
}

function lessLoadedOfTwo<Server extends Candidate>(
  servers: readonly Server[],
  random: () => number,
): Server | undefined {
  const one = byWeight(servers, random);
  const other = byWeight(
    servers.filter((server) => server !== one),
    random,
  );
  return one && other && loadOf(other) < loadOf(one) ? other : one;
}

function loadOf({ inFlight, weight }: Candidate): number {
  return inFlight / weight;
}

/** A random server, with a probability proportional to its weight. */
function byWeight<Server extends Candidate>(servers: readonly Server[], random: () => number): Server | undefined {
  const total = servers.reduce((sum, { weight }) => sum + weight, 0);
  let left = random() * total;
  for (const server of servers) {
    left -= server.weight;
    if (left < 0) return server;
  }
  return servers.at(-1);
}

/**
 * The score of a server for a key: the server with the highest has the key. Each server gets a share of the keys
 * proportional to its weight. `weight` is above 0.
 *
 * Weighted rendezvous hashing (Thaler & Ravishankar 1998; weights: Schindelhauer & Schomaker 2005): every key has an
 * order of all servers, which needs no state, and in which a server that comes or goes changes nothing between the
 * others.
 */
function score(key: Hash, server: Hash, weight: number): number {
  const { high, low } = mixed(key.high ^ server.high, key.low ^ server.low);
  // 53 bits, strictly between 0 and 1.
  const chance = ((high & 0x1fffff) * 0x1_0000_0000 + (low >>> 0) + 0.5) / 2 ** 53;
  return -weight / Math.log(chance);
}
