import { ApiError } from "@responses-edge/responses-api/errors";

const MAX_TRIES = 3;

/**
 * Asks a model server, and again if the connection is lost before an answer. That is no outage: a kept connection may be closed as a
 * request is sent over it. llama.cpp closes one after each stream although its `Keep-Alive` header promises to keep it. Rejects as `ask`
 * does. Turns need no such retry, because they resume after any loss.
 */
export async function overLostConnections<T>(
  ask: () => Promise<T>,
  signal: AbortSignal,
  tries = MAX_TRIES,
): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    const isLost = error instanceof ApiError && error.code === "upstream_unreachable";
    if (!isLost || tries === 1 || signal.aborted) throw error;
    return overLostConnections(ask, signal, tries - 1);
  }
}
