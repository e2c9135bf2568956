import { ApiError } from "../protocol/errors.ts";

/**
 * The turns that run in this isolate, whoever asked for them. An isolate that runs out of memory loses all of its turns
 * (Cloudflare gives it 128 MB), so that new ones are refused before.
 */

/** Seconds. By then other turns have ended, or another isolate takes the request. */
const RETRY_AFTER = "2";

let open = 0;

/**
 * Lets a turn in, until what it gives is disposed of, which may happen more than once.
 * Throws the 503 of an isolate that has `limit` turns already; with `Infinity` a turn is only counted.
 */
export function enterTurn(limit: number): Disposable {
  if (open >= limit) throw overloaded();
  open += 1;
  let isOpen = true;
  return {
    [Symbol.dispose]() {
      if (isOpen) open -= 1;
      isOpen = false;
    },
  };
}

/** OpenAI's code and status of a server that has too much to do; its clients try again after `retry-after`. */
function overloaded(): ApiError {
  return new ApiError({
    status: 503,
    message: "The server is overloaded: it has as many responses in progress as it may. Please retry in a few seconds.",
    code: "server_is_overloaded",
    headers: { "retry-after": RETRY_AFTER },
  });
}
