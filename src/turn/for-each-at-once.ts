/**
 * Does `work` for each item, for at most `limit` of them at the same time, begun in order. Rejects as the first of them
 * does; those under way are not waited for then.
 */
export async function forEachAtOnce<T>(
  items: Iterable<T>,
  limit: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  // All workers take from one iterator.
  const left = items[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (let next = left.next(); !next.done; next = left.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: limit }, worker));
}
