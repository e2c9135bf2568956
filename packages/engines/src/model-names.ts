import { unknownModel } from "./blame.ts";
import {
  CACHE_MS,
  CARD_WAIT_MS,
  cardsAnew,
  currentList,
  expireList,
  failedAt,
  GRACE_MS,
  isRecent,
  knownCards,
  LACK_MS,
  listAnew,
  listModelsOfAll,
  renew,
} from "./model-lists.ts";
import type { ModelServer } from "./model-server.ts";

/** Tells which servers have a model, by their lists and their answers. */

/** Models that a server has refused although it should have them: by its URL and the model's name. */
const refused = new Map<string, number>();

/** A request may have only a few open connections, and needs one of them itself. */
const MAX_RENEWED = 2;

/** Tells whether a server has a model; undefined if it has not listed its models. */
export function serves(server: ModelServer, model: string): boolean | undefined {
  if (isRecent(refused.get(`${server.baseUrl}\n${model}`))) return false;
  const { models } = server.config;
  return models ? models.has(model) : isListed(server, model);
}

/** Tells whether a model is in a server's list, however old that is; undefined without a list. */
function isListed(server: ModelServer, model: string): boolean | undefined {
  return knownCards(server)?.some(
    ({ id, aliases }) => id === model || (Array.isArray(aliases) && aliases.includes(model)),
  );
}

/** Notes that a server has refused a model by its name: its list no longer holds. */
export function noteRefused(server: ModelServer, model: string): void {
  // Unlisted names come from clients, in any number.
  if (serves(server, model) !== true) return;
  refused.set(`${server.baseUrl}\n${model}`, Date.now());
  expireList(server);
}

/**
 * Makes sure that a server which answers for any model has the one that is asked for. Throws the 400 of a model that it
 * lacks, and as `fetchModels` does if it has never listed its models.
 */
export async function expectModel(server: ModelServer, model: string, signal: AbortSignal): Promise<void> {
  if (serves(server, model) === undefined) await listAnew(server, signal);
  else if (serves(server, model) === false) await cardsAnew(server, signal);
  if (serves(server, model) === false) throw unknownModel(model);
}

/**
 * Asks such a server for its list while it answers: another model may have taken the place of the one that is asked
 * for. Gives a function that waits for the list, though not for long, and throws the 400 of a model that is gone.
 */
export function watchModel(server: ModelServer, model: string, signal: AbortSignal): () => Promise<void> {
  // Without a list the last one holds.
  const waiting = AbortSignal.any([signal, AbortSignal.timeout(CARD_WAIT_MS)]);
  const listed = listAnew(server, waiting, { isAside: true }).catch(() => {});
  return async () => {
    await listed;
    signal.throwIfAborted();
    if (serves(server, model) === false) throw unknownModel(model);
  };
}

/**
 * Makes the servers of a model known: waits for the lists of servers without any, and for all lists if none has the
 * model; otherwise renews old lists beside the request. Rejects only with the reason of an aborted `signal`.
 */
export async function learnModels(servers: readonly ModelServer[], model: string, signal: AbortSignal): Promise<void> {
  const isKnown = servers.some((server) => isListed(server, model));
  const maxAgeMs = isKnown ? CACHE_MS : LACK_MS;
  const stale = servers.filter(
    ({ baseUrl }) => !currentList(baseUrl, maxAgeMs) && !isRecent(failedAt.get(baseUrl), maxAgeMs),
  );
  if (stale.length === 0) return;
  // Another request may be receiving the servers' lists at this moment, one after another.
  const hasUnlisted = stale.some((server) => knownCards(server) === undefined && !failedAt.has(server.baseUrl));
  if (!isKnown || hasUnlisted) {
    const waiting = AbortSignal.timeout(isKnown ? GRACE_MS : CARD_WAIT_MS);
    await listModelsOfAll(stale, AbortSignal.any([signal, waiting]), maxAgeMs).catch(() => {
      for (const { baseUrl } of stale) if (!currentList(baseUrl)) failedAt.set(baseUrl, Date.now());
    });
    signal.throwIfAborted();
    return;
  }
  for (const server of stale.slice(0, MAX_RENEWED)) renew(server, signal);
}
