import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import { ApiError, contextLengthExceeded, type ErrorFields } from "@responses-edge/responses-api/errors";
import type { Item } from "@responses-edge/responses-api/items/registry";

/** How objects are called: what a home is asked by `fetch`, what their methods give, when to call them again, and how much one call may carry. */

/** A question that a home is asked by `fetch`, because it answers with a stream or a socket that the Worker hands on as it is. */
export type HomeRequest =
  /** The log of a run as SSE: the events after `after`, and then those that come while the run lives. */
  | { kind: "events"; turn: string; after: number; obfuscation: boolean }
  /** All that the home keeps, as JSON lines (`home-lines.ts`). */
  | { kind: "export" }
  /** To enter the conversation: waits for it, at most `waitMs`. */
  | { kind: "conversation"; id: string; ticket: string; waitMs: number };

/** The URL by which a home is asked. Instances of other versions read it, too. */
export function homeUrl(request: HomeRequest): string {
  const url = new URL(request.kind, "http://home/");
  for (const [name, value] of Object.entries(parametersOf(request))) url.searchParams.set(name, value);
  return url.href;
}

function parametersOf(request: HomeRequest): Record<string, string> {
  switch (request.kind) {
    case "events":
      return { turn: request.turn, after: String(request.after), obfuscation: request.obfuscation ? "1" : "0" };
    case "export":
      return {};
    case "conversation":
      return { id: request.id, ticket: request.ticket, wait: String(request.waitMs) };
  }
}

/** The request of such a URL; undefined where it is none. */
export function readHomeUrl(url: string): HomeRequest | undefined {
  const { pathname, searchParams } = new URL(url);
  const text = (name: string) => searchParams.get(name) ?? "";
  switch (pathname) {
    case "/events": {
      const after = Number(searchParams.get("after") ?? -1);
      return { kind: "events", turn: text("turn"), after, obfuscation: searchParams.get("obfuscation") !== "0" };
    }
    case "/export":
      return { kind: "export" };
    case "/conversation":
      return { kind: "conversation", id: text("id"), ticket: text("ticket"), waitMs: Number(text("wait")) };
    default:
      return undefined;
  }
}

/** The result of an RPC that may be refused. Cloudflare's RPC does not carry classes of errors, so an error is a value. */
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
 * Tells whether, by the platform's word, trying again may help after an error of a call to an object: the object has moved or been
 * restarted, or the machine that has it is not reached (`retryable`, of Durable Objects' exceptions).
 */
export function isRetryable(error: unknown): boolean {
  return typeof error === "object" && error !== null && "retryable" in error && error.retryable === true;
}

/** The value of an RPC's result. Throws the error that it carries. */
export function unwrap<T>(result: Result<T>): T {
  if (!result.ok) throw new ApiError(result.error);
  return result.value;
}

/**
 * The lengths that may cross between the Worker and a home in one call. Cloudflare's limit
 * is 32 MiB; the local runtime has none. All lengths are UTF-16 units of JSON text: a unit takes one byte or two.
 */

/** The most that all texts of a call have together; the rest of the 32 MiB is for what frames them. */
export const MAX_CALL_LENGTH = 15 * 1024 * 1024;

/** The longest history of one turn. */
export const MAX_HISTORY_LENGTH = 12 * 1024 * 1024;

/** Most that is read to make one up: items that were taken out, and those beside the ones that are referred to, are read with the others. */
export const MAX_READ_LENGTH = 4 * MAX_HISTORY_LENGTH;

/** The longest page of items: it ends early, and says that there is more. */
export const MAX_PAGE_LENGTH = 4 * 1024 * 1024;

/** The longest line of an export: a turn, or what one call carries of it, and what frames it. */
export const MAX_LINE_LENGTH = MAX_CALL_LENGTH + 64 * 1024;

/** A request must leave so much to its answer. */
const MIN_OUTPUT_LENGTH = 1024 * 1024;

/**
 * The most that a turn may put out so that all of it, with its request, can be kept and given again in one call.
 * Throws the 400 of a request that leaves too little.
 */
export function maxOutputLength(request: CreateRequest, input: readonly Item[]): number {
  const { input: _input, ...rest } = request;
  return lengthBeside(JSON.stringify(input).length + JSON.stringify(rest).length);
}

/** The same for a request of which the length is known. */
export function lengthBeside(length: number): number {
  const left = MAX_CALL_LENGTH - length;
  if (left >= MIN_OUTPUT_LENGTH) return left;
  throw contextLengthExceeded("The request is too large to be stored with its response.");
}
