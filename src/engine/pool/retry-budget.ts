/**
 * How many requests may be asked a second time elsewhere (Finagle's retry budget): a fifth of all requests, and ten a second.
 * When all servers are in trouble, retries do not become the greater part of the load. Plain data.
 */
export interface RetryBudget {
  /** Retries that may be made now. */
  tokens: number;
  /** When it was last looked at, in Unix milliseconds. */
  at: number;
}

const PER_REQUEST = 0.2;
const PER_SECOND = 10;

/** What may be saved up: the retries of ten seconds. */
const MAX_TOKENS = 100;

export function newRetryBudget(now: number): RetryBudget {
  return { tokens: PER_SECOND, at: now };
}

/** Counts a request, which is no retry. */
export function noteRequest(budget: RetryBudget, now: number): void {
  refill(budget, now);
  budget.tokens = Math.min(MAX_TOKENS, budget.tokens + PER_REQUEST);
}

/** Takes a retry, where there is one left. */
export function takeRetry(budget: RetryBudget, now: number): boolean {
  refill(budget, now);
  if (budget.tokens < 1) return false;
  budget.tokens -= 1;
  return true;
}

/** A clock that was set back gives nothing. */
function refill(budget: RetryBudget, now: number): void {
  const seconds = Math.max(0, now - budget.at) / 1000;
  budget.tokens = Math.min(MAX_TOKENS, budget.tokens + PER_SECOND * seconds);
  budget.at = now;
}
