import type { LimitedProcess } from "./limited-process.ts";

/**
 * Stops a process when its time is over or its caller disconnects. Returns a function to call at the end of the call.
 */
export function callLimits(process: LimitedProcess, timeoutMs: number, signal: AbortSignal): () => void {
  const timer = setTimeout(() => process.stop(`took more than ${timeoutMs / 1000} s, and was ended`), timeoutMs);
  function onAbort(): void {
    process.stop("was ended: the call was cancelled");
  }
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort);
  return () => {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  };
}
