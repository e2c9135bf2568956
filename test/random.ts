/** A new seed, printed under a name, or the one of the environment's SEED, which repeats what has failed. */
export function newSeed(name: string): number {
  const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
  console.log(`${name}: SEED=${seed}`);
  return seed;
}

/** A generator of numbers in [0, 1), the same ones for the same seed. */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
}
