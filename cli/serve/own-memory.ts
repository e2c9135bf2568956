import { setFlagsFromString } from "node:v8";

/** The memory of this process, which does little for as long as the Worker runs. */

/**
 * Keeps V8's young generation at the size that it has: it would grow with the start, and with each burst of log lines. TurboFan's own
 * code is 5 MB, and comes into memory with the first function that it compiles; Maglev's code is as fast here.
 */
export function keepHeapSmall(): void {
  setFlagsFromString("--semi-space-growth-factor=1");
  setFlagsFromString("--no-turbofan");
}

/** Collects the garbage that the start has left, and gives its memory back. Takes some 20 ms. */
export function releaseGarbage(): void {
  setFlagsFromString("--expose-gc");
  // New contexts have it, and this one has not.
  const collect: typeof gc = process.getBuiltinModule("node:vm").runInNewContext("gc");
  collect?.({ type: "major", flavor: "last-resort" });
}
