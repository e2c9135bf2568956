import { DIALECTS, dialectOfOwner } from "./dialects/all.ts";
import type { Dialect } from "./dialects/dialect.ts";
import type { ModelServer } from "./model-server.ts";
import { malformedAnswer } from "./upstream-faults.ts";

/** The models that each server lists, as this isolate knows them. */

/** A model card of vLLM's `/v1/models`, as this server shows it: with aliases beside the models they name. */
export interface ModelCard {
  id: string;
  object: "model";
  created: number;
  owned_by: string;
  root?: string;
  parent?: string | null;
  max_model_len?: number | null;
  [key: string]: unknown;
}

/** How long a list is reused, and how long a server that has failed to give one is not asked, in milliseconds. */
const CACHE_MS = 30_000;

/** The longest wait for a card that a turn can do without, in milliseconds. */
const CARD_WAIT_MS = 2_000;

/** How much longer to wait for the other lists after the first, in milliseconds. */
const GRACE_MS = 500;

/** A request may have only a few open connections, and needs one of them itself. */
const MAX_RENEWED = 2;

interface Listed {
  at: number;
  cards: readonly ModelCard[];
}

/** The lists by the URLs of the servers. The maps below have the same keys. */
const lists = new Map<string, Listed>();

/** When a model server last failed to list its models, or was last asked for them beside a request. */
const failedAt = new Map<string, number>();
const renewedAt = new Map<string, number>();

/** The recognised dialects of servers, and the owners on their cards (`owned_by`). */
const recognised = new Map<string, { dialect: Dialect; owners: string }>();

/** Models that a server has refused although it should have them: by its URL and the model's name. */
const refused = new Map<string, number>();

function isRecent(at: number | undefined, now = Date.now()): boolean {
  // A time in the future was noted before the clock was set back.
  return at !== undefined && now - at < CACHE_MS && now >= at;
}

/** The cards of a server, however old; undefined if it never gave any. */
export function knownCards({ baseUrl }: Pick<ModelServer, "baseUrl">): readonly ModelCard[] | undefined {
  return lists.get(baseUrl)?.cards;
}

/** A server's models, never from the cache. Throws ApiError as the server does, and 502 for an answer without models. */
export async function fetchModels(server: ModelServer, signal: AbortSignal): Promise<ModelCard[]> {
  const body = await server.json("/models", signal);
  const data = typeof body === "object" && body !== null && "data" in body ? body.data : undefined;
  if (!Array.isArray(data)) throw malformedAnswer();
  const cards = data.filter(
    (card): card is ModelCard => typeof card === "object" && card !== null && typeof card.id === "string",
  );
  if (cards.length > 0) await recognise(server, cards, signal);
  const { models } = server.config;
  const { window, prefixesAdapters } = dialectOf(server) ?? {};
  return cards
    .map((card) => (prefixesAdapters && card.parent != null ? { ...card, id: `${card.parent}:${card.id}` } : card))
    .flatMap((card) => (models === undefined ? [card] : namesOf(card, models).map((id) => ({ ...card, id }))))
    .map((card) => (window ? { max_model_len: windowOf(card, window), ...card } : card));
}

/** The client's names for the model of a card. */
function namesOf({ id }: ModelCard, models: ReadonlyMap<string, string>): string[] {
  return [...models].flatMap(([name, there]) => (there === id ? [name] : []));
}

/** The window of a card that has it under another name than vLLM's. */
function windowOf(card: ModelCard, path: readonly string[]): number | null {
  const told = path.reduce<unknown>((value, field) => (value as Record<string, unknown> | null)?.[field], card);
  return typeof told === "number" && told > 0 ? told : null;
}

/** The longest wait for a server's kind, in milliseconds. */
const PROBE_MS = 2_000;

/** Finds out the kind of a server: by its cards, or else by the one path that no other kind has. */
async function recognise(server: ModelServer, cards: readonly ModelCard[], signal: AbortSignal): Promise<void> {
  const owners = [...new Set(cards.flatMap((card) => card.owned_by ?? []))].join("\n");
  // Cards without an owner do not show the kind.
  if (owners === "" || server.config.dialect !== undefined || recognised.get(server.baseUrl)?.owners === owners) return;
  const told = dialectOfOwner(owners) ?? (await probed(server, signal));
  recognised.set(server.baseUrl, { dialect: told ?? DIALECTS.openai, owners });
}

async function probed(server: ModelServer, signal: AbortSignal): Promise<Dialect | undefined> {
  const waiting = AbortSignal.any([signal, AbortSignal.timeout(PROBE_MS)]);
  const found = await Promise.all(
    Object.values(DIALECTS).map(async (dialect) => {
      const { probe } = dialect;
      const answer = probe && (await server.json(probe.path, waiting).catch(() => undefined));
      return typeof answer === "object" && answer !== null && probe && probe.field in answer ? dialect : undefined;
    }),
  );
  return found.find((dialect) => dialect !== undefined);
}

/** The kind of server, as the operator or the server itself says; undefined if neither has yet. */
export function dialectOf({ baseUrl, config }: Pick<ModelServer, "baseUrl" | "config">): Dialect | undefined {
  return config.dialect === undefined ? recognised.get(baseUrl)?.dialect : DIALECTS[config.dialect];
}

/** The same, with vLLM as the default. */
export function assumedDialect(server: Pick<ModelServer, "baseUrl" | "config">): Dialect {
  return dialectOf(server) ?? DIALECTS.vllm;
}

/**
 * The same, after asking a server of unknown kind. If it does not answer soon, vLLM is assumed. Rejects with the
 * signal's reason.
 */
export async function learnDialect(server: ModelServer, signal: AbortSignal): Promise<Dialect> {
  if (!dialectOf(server)) await cardsSoon(server, signal);
  return assumedDialect(server);
}

/** A server's models, cached per isolate. Throws as `fetchModels` does. */
export async function listModelsOf(server: ModelServer, signal: AbortSignal): Promise<readonly ModelCard[]> {
  const cached = lists.get(server.baseUrl);
  if (cached && isRecent(cached.at)) return cached.cards;
  const cards = await fetchModels(server, signal);
  lists.set(server.baseUrl, { at: Date.now(), cards });
  return cards;
}

/** The cards of at most `CACHE_MS` ago; older ones, or none, if the server does not list them soon. */
export async function cardsSoon(server: ModelServer, signal: AbortSignal): Promise<readonly ModelCard[]> {
  const cached = lists.get(server.baseUrl);
  const old = cached?.cards ?? [];
  if (isRecent(cached?.at)) return old;
  if (isRecent(failedAt.get(server.baseUrl))) return old;
  try {
    return await listModelsOf(server, AbortSignal.any([signal, AbortSignal.timeout(CARD_WAIT_MS)]));
  } catch {
    if (signal.aborted) throw signal.reason;
    failedAt.set(server.baseUrl, Date.now());
    return old;
  }
}

/**
 * Asks several servers for their models concurrently, if `listModelsOf` has no recent list. After the first answer, the
 * others are waited for only a little longer. Gives the cards of each, however old, and the fault of each that did not
 * answer. Rejects with the signal's reason when it is aborted.
 */
export async function listModelsOfAll(
  servers: readonly ModelServer[],
  signal: AbortSignal,
): Promise<{ server: ModelServer; cards: readonly ModelCard[]; fault: unknown }[]> {
  const late = new AbortController();
  let grace: ReturnType<typeof setTimeout> | undefined;
  try {
    const either = AbortSignal.any([signal, late.signal]);
    return await Promise.all(
      servers.map(async (server) => {
        try {
          const cards = await listModelsOf(server, either);
          grace ??= setTimeout(() => late.abort(), GRACE_MS);
          return { server, cards, fault: undefined };
        } catch (fault) {
          if (signal.aborted) throw signal.reason;
          failedAt.set(server.baseUrl, Date.now());
          return { server, cards: knownCards(server) ?? [], fault };
        }
      }),
    );
  } finally {
    clearTimeout(grace);
  }
}

/** Tells whether a server has a model; undefined if it has not listed its models. */
export function serves(server: ModelServer, model: string): boolean | undefined {
  if (isRecent(refused.get(`${server.baseUrl}\n${model}`))) return false;
  const { models } = server.config;
  if (models) return models.has(model);
  return knownCards(server)?.some(
    ({ id, aliases }) => id === model || (Array.isArray(aliases) && aliases.includes(model)),
  );
}

/** Notes that a server refused a model which it should have. */
export function noteRefused(server: ModelServer, model: string): void {
  // Unlisted names come from clients, in any number.
  if (serves(server, model) === true) refused.set(`${server.baseUrl}\n${model}`, Date.now());
}

/**
 * Makes the servers of a model known: waits for the lists of servers without any, and for all lists if none has the
 * model; otherwise renews old lists beside the request. Rejects only with the reason of an aborted `signal`.
 */
export async function learnModels(servers: readonly ModelServer[], model: string, signal: AbortSignal): Promise<void> {
  const now = Date.now();
  const stale = servers.filter(
    ({ baseUrl }) => !isRecent(lists.get(baseUrl)?.at, now) && !isRecent(failedAt.get(baseUrl), now),
  );
  if (stale.length === 0) return;
  const isKnown = servers.some((server) => knownCards(server)?.some(({ id }) => id === model));
  // Another request may be receiving the servers' lists at this moment, one after another.
  const hasUnlisted = stale.some((server) => knownCards(server) === undefined && !failedAt.has(server.baseUrl));
  if (!isKnown || hasUnlisted) {
    const waiting = AbortSignal.timeout(isKnown ? GRACE_MS : CARD_WAIT_MS);
    await listModelsOfAll(stale, AbortSignal.any([signal, waiting])).catch(() => {
      for (const { baseUrl } of stale) if (!isRecent(lists.get(baseUrl)?.at)) failedAt.set(baseUrl, Date.now());
    });
    signal.throwIfAborted();
    return;
  }
  const due = stale.filter(({ baseUrl }) => now - (renewedAt.get(baseUrl) ?? 0) >= CARD_WAIT_MS).slice(0, MAX_RENEWED);
  for (const server of due) {
    renewedAt.set(server.baseUrl, now);
    // Its result is in the lists.
    void cardsSoon(server, signal).catch(() => {});
  }
}
