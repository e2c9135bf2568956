/**
 * The end of a process of one's own, as its launcher tells it (`src/http/draining.ts`): what could last for ever, and can be taken up
 * elsewhere, ends at once: idle WebSockets, and readers of runs.
 */

/** True once this isolate ends: workerd has one for each process. */
let isEnding = false;

/** Somebody can tell this process to end. */
let hasLauncher = false;

/** How often what lasts looks whether the process ends. Milliseconds. */
const LOOK_MS = 1_000;

export function noteLauncher(): void {
  hasLauncher = true;
}

export function endProcess(): void {
  isEnding = true;
}

export function processEnds(): boolean {
  return isEnding;
}

/**
 * Calls back once when the process ends, until what it gives is called. Each asker looks by a timer of its own, because the runtime lets no
 * request touch the streams and sockets of another one. Where nobody can tell the process to end there is no timer.
 */
export function whenProcessEnds(callBack: () => void): () => void {
  if (!hasLauncher) return () => {};
  const timer = setInterval(() => {
    if (!isEnding) return;
    clearInterval(timer);
    callBack();
  }, LOOK_MS);
  return () => clearInterval(timer);
}
