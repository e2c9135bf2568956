/** The request to stop: a signal, or npm's end. */

/** The interval at which this process checks whether npm still runs. */
const PARENT_CHECK_MS = 250;

/** npm forwards a signal to a process that has already got it with its group. Both count as one signal. */
const SAME_MS = 1_000;

export interface Stopping {
  /** Aborted at the first request. */
  signal: AbortSignal;
  /** Resolves at the first request to stop, and at the second. */
  first: Promise<void>;
  second: Promise<void>;
}

/** Listens from now on, so that the signals do not end the process; for other signals than these, too. */
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
  // npm does not stop its programs when it is killed itself. (`exec` in package.json makes npm our parent.)
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
