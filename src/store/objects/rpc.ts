import { ApiError, contextLengthExceeded, type ErrorFields } from "@responses-edge/responses-api/errors";
import type { ObjectName } from "./registry.ts";

/**
 * How objects are called: the questions that a home gets by `fetch`, the results of methods, when to repeat a call, and
 * how long a call may be.
 */

/** A call of an object. */
export interface ObjectCall {
  object: ObjectName;
  method: string;
  args: unknown[];
  /** True if another object makes the call. */
  isInner: boolean;
}

/** The answer of another process to a call. Errors of the API are values there. `isMoved`: it has handed the object over. */
export type Answer = { value?: unknown; error?: ErrorFields; isMoved?: true };

/** The objects of another process, on a socket of its own. */
export type RemoteObjects = Pick<Fetcher, "fetch"> & { call(call: ObjectCall): Promise<Answer> };

/** A question that a home gets by `fetch`, because it answers with a stream or a socket that the Worker passes on. */
export type HomeRequest =
  /** The log of a run as SSE: the events after `after`, and then new ones as long as the run lives. */
  | { kind: "events"; turn: string; after: number; obfuscation: boolean; timing: boolean }
  /** Everything that the home stores, or a turn with those that it continues, as JSON lines (`home-lines.ts`). */
  | { kind: "export"; turn?: string }
  /** Enters the conversation: waits for it, at most `waitMs`. `known`: the id of the history that the Worker has (`KnownHistory`). */
  | { kind: "conversation"; id: string; ticket: string; waitMs: number; known?: string };

/** The URL of a question to a home. Instances of other versions read it, too. */
export function homeUrl(request: HomeRequest): string {
  const url = new URL(request.kind, "http://home/");
  for (const [name, value] of Object.entries(parametersOf(request))) url.searchParams.set(name, value);
  return url.href;
}

function parametersOf(request: HomeRequest): Record<string, string> {
  switch (request.kind) {
    case "events":
      return {
        turn: request.turn,
        after: String(request.after),
        obfuscation: request.obfuscation ? "1" : "0",
        ...(request.timing && { timing: "1" }),
      };
    case "export":
      return { ...(request.turn !== undefined && { turn: request.turn }) };
    case "conversation":
      return {
        id: request.id,
        ticket: request.ticket,
        wait: String(request.waitMs),
        ...(request.known !== undefined && { known: request.known }),
      };
  }
}

/** The question of such a URL; undefined for other URLs. */
export function readHomeUrl(url: string): HomeRequest | undefined {
  const { pathname, searchParams } = new URL(url);
  const text = (name: string) => searchParams.get(name) ?? "";
  switch (pathname) {
    case "/events": {
      const after = Number(searchParams.get("after") ?? -1);
      const obfuscation = searchParams.get("obfuscation") !== "0";
      return { kind: "events", turn: text("turn"), after, obfuscation, timing: text("timing") === "1" };
    }
    case "/export":
      return { kind: "export", ...(searchParams.has("turn") && { turn: text("turn") }) };
    case "/conversation":
      return {
        ...{ kind: "conversation", id: text("id"), ticket: text("ticket"), waitMs: Number(text("wait")) },
        ...(searchParams.has("known") && { known: text("known") }),
      };
    default:
      return undefined;
  }
}

/** The result of an RPC that may be refused. Cloudflare's RPC does not transfer the classes of errors, so an error is a value. */
export type Result<T> = { ok: true; value: T } | { ok: false; error: ErrorFields };

export function refused(error: ApiError): Result<never> {
  return { ok: false, error: error.toFields() };
}

/** An error of the API as a result. Rethrows every other error. */
export function refusalOf(error: unknown): Result<never> {
  if (error instanceof ApiError) return refused(error);
  throw error;
}

/**
 * Tells whether a repeated call may help after an error, as the platform says: the object has moved or was restarted,
 * or its machine is unreachable (`retryable`, of Durable Objects' exceptions).
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
 * Most lengths that one call may transfer between the Worker and a home. Cloudflare's limit is 32 MiB; the local
 * runtime has none. All lengths are UTF-16 units of JSON text: a unit takes one byte or two.
 */

/** The longest total of a call's texts. The rest of the 32 MiB is for their frame. */
export const MAX_CALL_LENGTH = 15 * 1024 * 1024;

/** The longest history of one turn. */
export const MAX_HISTORY_LENGTH = 12 * 1024 * 1024;

/** Most text that is read for it: removed items, and the neighbours of referenced items, are read with the others. */
export const MAX_READ_LENGTH = 4 * MAX_HISTORY_LENGTH;

/** The longest page of items. A longer one ends early, and says that there are more. */
export const MAX_PAGE_LENGTH = 4 * 1024 * 1024;

/** The longest line of an export: the part of a turn that one call transfers, and its frame. */
export const MAX_LINE_LENGTH = MAX_CALL_LENGTH + 64 * 1024;

/** The least length that a request must leave to its answer. */
const MIN_OUTPUT_LENGTH = 1024 * 1024;

/**
 * The longest output of a turn, such that it and its request of this length can be stored and returned in one call.
 * Throws the 400 of a request that leaves too little.
 */
export function maxOutputLength(length: number): number {
  const left = MAX_CALL_LENGTH - length;
  if (left >= MIN_OUTPUT_LENGTH) return left;
  throw contextLengthExceeded("The request is too large to store with its response.");
}
