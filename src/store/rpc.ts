import { ApiError, type ErrorFields } from "@responses-edge/responses-api/errors";

/** How objects are called: what a home is asked by `fetch`, what their methods give, and when to call them again. */

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
