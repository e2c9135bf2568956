/** Being told to stop: by a signal, or by npm's end. */

/** How often this process looks whether npm is still there. */
const PARENT_CHECK_MS = 250;

/** npm passes a signal on to a process that has got it already, as all of its group: that is still the first time. */
const SAME_MS = 1_000;

export interface Stopping {
  /** Aborted at the first time. */
  signal: AbortSignal;
  /** Resolves when this process is told to stop, and when it is told again. */
  first: Promise<void>;
  second: Promise<void>;
}

/** Listens for it from now on, instead of dying of it; for other signals than these, too. */
export function untilStopped(others: readonly "SIGHUP"[] = ["SIGHUP"]): Stopping {
  const controller = new AbortController();
  const first = Promise.withResolvers<void>();
  const second = Promise.withResolvers<void>();
  let since = Number.POSITIVE_INFINITY;
  const stop = () => {
    if (performance.now() - since > SAME_MS) second.resolve();
    if (controller.signal.aborted) return;
    since = performance.now();
    first.resolve();
    controller.abort();
  };
  for (const signal of ["SIGINT", "SIGTERM", ...others] as const) process.on(signal, stop);
  // npm does not stop what it runs when it is killed itself. (`exec` in package.json makes npm our parent.)
  const parent = process.ppid;
  if (process.env.npm_lifecycle_event) {
    const look = () => {
      if (process.ppid === parent) return;
      clearInterval(timer);
      stop();
    };
    const timer = setInterval(look, PARENT_CHECK_MS);
    timer.unref();
  }
  return { signal: controller.signal, first: first.promise, second: second.promise };
}
