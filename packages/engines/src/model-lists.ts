import { DIALECTS, dialectOfOwner } from "./dialects/all.ts";
import type { Dialect } from "./dialects/dialect.ts";
import type { ModelServer } from "./model-server.ts";
import { malformedAnswer } from "./upstream-faults.ts";

/** The models that each server says it serves, as this isolate has heard it. */

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

/** How long a list may be reused, in milliseconds, and how long a server that has failed to give one is not asked. */
const CACHE_MS = 30_000;

/** How long looking for a card may delay a turn that can do without, in milliseconds. */
const CARD_WAIT_MS = 2_000;

/** How much longer than for the first list the others' are waited for, in milliseconds. */
const GRACE_MS = 500;

/** A request may have few connections open at a time, and needs one of them for itself. */
const MAX_RENEWED = 2;

interface Listed {
  at: number;
  cards: readonly ModelCard[];
}

/** By URL, and so are those below. */
const lists = new Map<string, Listed>();

/** When a model server last failed to list its models, or was last asked for them beside a request. */
const failedAt = new Map<string, number>();
const renewedAt = new Map<string, number>();

/** The dialects that servers were recognised by, and whose models they say they serve (`owned_by`). */
const recognised = new Map<string, { dialect: Dialect; owners: string }>();

/** Models that a server has refused to know, though it should: by its URL and the model's name. */
const refused = new Map<string, number>();

function isRecent(at: number | undefined, now = Date.now()): boolean {
  // A time of the future was noted before a clock was set back.
  return at !== undefined && now - at < CACHE_MS && now >= at;
}

/** The cards of a server, however old; undefined where it never gave any. */
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

/** The names by which clients say the model of a card. */
function namesOf({ id }: ModelCard, models: ReadonlyMap<string, string>): string[] {
  return [...models].flatMap(([name, there]) => (there === id ? [name] : []));
}

/** The window that a card tells by another name than vLLM's. */
function windowOf(card: ModelCard, path: readonly string[]): number | null {
  const told = path.reduce<unknown>((value, field) => (value as Record<string, unknown> | null)?.[field], card);
  return typeof told === "number" && told > 0 ? told : null;
}

/** How long a server may take to say what kind it is, in milliseconds. */
const PROBE_MS = 2_000;

/** Finds out what kind of server it is: by what its cards say, else by the one path that no other kind has. */
async function recognise(server: ModelServer, cards: readonly ModelCard[], signal: AbortSignal): Promise<void> {
  const owners = [...new Set(cards.flatMap((card) => card.owned_by ?? []))].join("\n");
  // Cards without an owner tell nothing.
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

/** The kind of server, as the operator or the server itself says; undefined where it has told nothing yet. */
export function dialectOf({ baseUrl, config }: Pick<ModelServer, "baseUrl" | "config">): Dialect | undefined {
  return config.dialect === undefined ? recognised.get(baseUrl)?.dialect : DIALECTS[config.dialect];
}

/** The same, of one that has told nothing: vLLM. */
export function assumedDialect(server: Pick<ModelServer, "baseUrl" | "config">): Dialect {
  return dialectOf(server) ?? DIALECTS.vllm;
}

/** The same, after asking one that has told nothing. One that does not tell soon is taken for vLLM. Rejects with the signal's reason. */
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

/** The cards of at most `CACHE_MS` ago; older ones, or none, where the server does not list them soon. */
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
 * Asks several servers for their models, side by side, for as long as `listModelsOf` would not know them. One that is down
 * or slow is waited for little longer than the first one that answers. Gives the cards of each, however old, and the
 * fault of each that did not answer. Rejects with the signal's reason when it is aborted.
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

/** Tells whether a server has a model; undefined where it has not told its models. */
export function serves(server: ModelServer, model: string): boolean | undefined {
  if (isRecent(refused.get(`${server.baseUrl}\n${model}`))) return false;
  const { models } = server.config;
  if (models) return models.has(model);
  return knownCards(server)?.some(
    ({ id, aliases }) => id === model || (Array.isArray(aliases) && aliases.includes(model)),
  );
}

/** Notes that a server does not know a model which it should have. */
export function noteRefused(server: ModelServer, model: string): void {
  // Names that nobody lists are the clients', and as many as they like.
  if (serves(server, model) === true) refused.set(`${server.baseUrl}\n${model}`, Date.now());
}

/**
 * Makes the servers of a model known: waits for the lists of those that were never heard of, and for all where none has it,
 * and else renews what is old beside the request. Rejects only with the reason of an aborted `signal`.
 */
export async function learnModels(servers: readonly ModelServer[], model: string, signal: AbortSignal): Promise<void> {
  const now = Date.now();
  const stale = servers.filter(
    ({ baseUrl }) => !isRecent(lists.get(baseUrl)?.at, now) && !isRecent(failedAt.get(baseUrl), now),
  );
  if (stale.length === 0) return;
  const isKnown = servers.some((server) => knownCards(server)?.some(({ id }) => id === model));
  // Another request may be just now hearing of the servers, one after another.
  const hasUnheard = stale.some((server) => knownCards(server) === undefined && !failedAt.has(server.baseUrl));
  if (!isKnown || hasUnheard) {
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
