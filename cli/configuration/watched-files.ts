import { statSync } from "node:fs";

/**
 * The interval at which the file is checked, in milliseconds. A check follows all links, so that it sees a replaced
 * file, too.
 */
const POLL_MS = 1_000;

/**
 * Calls `onChange` when a file differs from its state at this call, or at the last `onChange`. It waits until no file
 * has changed between two checks, because an editor writes in pieces.
 */
export function watchFiles(paths: readonly string[], onChange: () => void): Disposable {
  const look = () => paths.map(fileState).join();
  let told = look();
  let seen = told;
  const timer = setInterval(() => {
    const now = look();
    if (now === seen && now !== told) {
      told = now;
      onChange();
    }
    seen = now;
  }, POLL_MS);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** A text that changes when the file is replaced or written. It is empty if the file cannot be read. */
function fileState(path: string): string {
  try {
    const { ino, mtimeMs, size } = statSync(path);
    return `${ino} ${mtimeMs} ${size}`;
  } catch {
    return "";
  }
}
