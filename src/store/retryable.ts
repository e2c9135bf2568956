/**
 * Whether the platform says of an error of a call to an object that trying again may help: the object has moved or been
 * restarted, or the machine that has it is not reached (`retryable`, of Durable Objects' exceptions).
 */
export function isRetryable(error: unknown): boolean {
  return typeof error === "object" && error !== null && "retryable" in error && error.retryable === true;
}
