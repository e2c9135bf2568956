/** Resolves after `ms`; rejects with the signal's reason as soon as it aborts. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    function onAbort(): void {
      clearTimeout(timer);
      reject(signal.reason);
    }
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}

/** Resolves when `released` does, or never. Rejects with the signal's reason when it aborts. */
export function stall(signal: AbortSignal, released: Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    // workerd cancels a request as hung if nothing, not even a timer, can continue it.
    const alive = setInterval(() => {}, 10_000);
    function onAbort(): void {
      clearInterval(alive);
      reject(signal.reason);
    }
    signal.addEventListener("abort", onAbort, { once: true });
    released.then(() => {
      clearInterval(alive);
      signal.removeEventListener("abort", onAbort);
      resolve();
    });
  });
}
