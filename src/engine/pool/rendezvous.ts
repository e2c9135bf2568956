/**
 * Weighted rendezvous hashing (Thaler & Ravishankar 1998; weights: Schindelhauer & Schomaker 2005): every key has an order of
 * all servers, which needs no state, and in which a server that comes or goes changes nothing between the others.
 */

/** 64 bits of a text. */
export interface Hash {
  readonly high: number;
  readonly low: number;
}

/** The hash of a text, by its UTF-16 units: fast, well mixed, and none for secrets (cyrb53, public domain). */
export function hashOf(text: string): Hash {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    high = Math.imul(high ^ unit, 0x9e3779b1);
    low = Math.imul(low ^ unit, 0x5f356495);
  }
  return mixed(high, low);
}

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

/** Two rounds of MurmurHash3's finalizer, in which each half is mixed with the other. */
function mixed(first: number, second: number): Hash {
  let high = first;
  let low = second;
  for (let round = 0; round < 2; round += 1) {
    high = Math.imul(high ^ (high >>> 16), 0x85ebca6b) ^ Math.imul(low ^ (low >>> 13), 0xc2b2ae35);
    low = Math.imul(low ^ (low >>> 16), 0x85ebca6b) ^ Math.imul(high ^ (high >>> 13), 0xc2b2ae35);
  }
  return { high, low };
}
