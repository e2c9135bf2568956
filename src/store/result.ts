import { ApiError, type ErrorFields } from "../protocol/errors.ts";

/** What an RPC gives that may be refused. Cloudflare's RPC does not carry classes of errors, so an error is a value. */
export type Result<T> = { ok: true; value: T } | { ok: false; error: ErrorFields };

export function refused(error: ApiError): Result<never> {
  return { ok: false, error: error.toFields() };
}

/** An error of the API as a result. Throws every other error again. */
export function refusalOf(error: unknown): Result<never> {
  if (error instanceof ApiError) return refused(error);
  throw error;
}

/**
 * Whether the platform says of an error of a call to an object that trying again may help: the object has moved or been
 * restarted, or the machine that has it is not reached (`retryable`, of Durable Objects' exceptions).
 */
export function isRetryable(error: unknown): boolean {
  return typeof error === "object" && error !== null && "retryable" in error && error.retryable === true;
}
