/** A value that counts every read: properties, keys and lengths, at any depth. */
export function counted<T>(value: T): { value: T; reads: () => number } {
  let reads = 0;
  // One for each object, so that comparison by identity still works.
  const wrapped = new WeakMap<object, object>();
  const wrap = (given: unknown): unknown => {
    if (typeof given !== "object" || given === null) return given;
    const known = wrapped.get(given);
    if (known) return known;
    const proxy = new Proxy(given, {
      get(target, key) {
        reads += 1;
        return wrap(Reflect.get(target, key));
      },
      has(target, key) {
        reads += 1;
        return Reflect.has(target, key);
      },
      ownKeys(target) {
        const keys = Reflect.ownKeys(target);
        reads += keys.length;
        return keys;
      },
    });
    wrapped.set(given, proxy);
    return proxy;
  };
  return { value: wrap(value) as T, reads: () => reads };
}

/** The number of values in a JSON value: itself, its elements and members, and theirs. */
export function valuesOf(value: unknown): number {
  let values = 0;
  const rest = [value];
  while (rest.length > 0) {
    const next = rest.pop();
    values += 1;
    if (typeof next === "object" && next !== null) for (const inner of Object.values(next)) rest.push(inner);
  }
  return values;
}
