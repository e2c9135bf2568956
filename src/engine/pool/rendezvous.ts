import { type Hash, mixed } from "../../protocol/hash.ts";

/**
 * Weighted rendezvous hashing (Thaler & Ravishankar 1998; weights: Schindelhauer & Schomaker 2005): every key has an order of
 * all servers, which needs no state, and in which a server that comes or goes changes nothing between the others.
 */

/**
 * How well a server suits a key: the server with the most is the key's. Of many keys each server gets as many as its
 * weight's share of all weights. `weight` is above 0.
 */
export function score(key: Hash, server: Hash, weight: number): number {
  const { high, low } = mixed(key.high ^ server.high, key.low ^ server.low);
  // 53 bits, between 0 and 1 and neither of them.
  const chance = ((high & 0x1fffff) * 0x1_0000_0000 + (low >>> 0) + 0.5) / 2 ** 53;
  return -weight / Math.log(chance);
}
