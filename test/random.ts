/** A new seed, printed under a name; or the environment's SEED, which repeats a failed run. */
export function newSeed(name: string): number {
  const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
  console.log(`${name}: SEED=${seed}`);
  return seed;
}

/** A generator of numbers in [0, 1), the same ones for the same seed (Mulberry32). Its period is 2³² numbers. */
export function randomFrom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
