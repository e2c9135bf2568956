import { ApiError } from "@responses-edge/responses-api/errors";
import { pause } from "@responses-edge/turn/contract/pause";
import { DIALECTS, dialectOfOwner, dialectsOfOwners } from "./dialects/all.ts";
import type { Dialect } from "./dialects/dialect.ts";
import { probedDialect } from "./dialects/probes.ts";
import { answeredStatus, type ModelServer, type RequestOptions } from "./model-server.ts";
import { noteUnusable, STATUSES } from "./server-status.ts";
import { kindUnknown, malformedAnswer } from "./upstream-faults.ts";

/** The kinds of the model servers, and the models that each lists, as this isolate knows them. */

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

/**
 * How long a list is reused, and how long a server that has failed to give one is not asked: in general, and for a fact
 * that the list lacks. In milliseconds.
 */
export const CACHE_MS = 30_000;
export const LACK_MS = 1_000;

/** The longest wait for a card that a turn can do without, in milliseconds. */
export const CARD_WAIT_MS = 2_000;

/** How much longer to wait for the other lists after the first, in milliseconds. */
export const GRACE_MS = 500;

interface Listed {
  at: number;
  cards: readonly ModelCard[];
}

/** The lists by the URLs of the servers. The maps below have the same keys. */
const lists = new Map<string, Listed>();

/** When a model server last failed to list its models, or was last asked for them beside a request. */
export const failedAt = new Map<string, number>();
const renewedAt = new Map<string, number>();

/** The recognised dialects of servers, the owners on their cards (`owned_by`), and when each was last seen to hold. */
const recognised = new Map<string, { dialect: Dialect; owners: string; at: number }>();

export function isRecent(at: number | undefined, maxAgeMs = CACHE_MS): boolean {
  const now = Date.now();
  // A time in the future was noted before the clock was set back.
  return at !== undefined && now - at < maxAgeMs && now >= at;
}

/** A server's list, unless it is too old, or the server was away since. */
export function currentList(baseUrl: string, maxAgeMs = CACHE_MS): readonly ModelCard[] | undefined {
  const list = lists.get(baseUrl);
  return list && isRecent(list.at, maxAgeMs) && !isDoubted(baseUrl, list.at) ? list.cards : undefined;
}

/** The cards of a server, however old; undefined if it never gave any. */
export function knownCards({ baseUrl }: Pick<ModelServer, "baseUrl">): readonly ModelCard[] | undefined {
  return lists.get(baseUrl)?.cards;
}

/**
 * A server's models, never from the cache. Throws ApiError as the server does, and 502 for an
 * answer without models.
 */
export async function fetchModels(
  server: ModelServer,
  signal: AbortSignal,
  options?: RequestOptions,
): Promise<ModelCard[]> {
  const body = await server.json("/models", signal, undefined, options);
  const data = typeof body === "object" && body !== null && "data" in body ? body.data : undefined;
  if (!Array.isArray(data)) throw malformedAnswer();
  const cards = data.filter(
    (card): card is ModelCard => typeof card === "object" && card !== null && typeof card.id === "string",
  );
  await recognise(server, cards, signal);
  const { models } = server.config;
  const { window, prefixesAdapters } = dialectOf(server) ?? {};
  return cards
    .map((card) => (prefixesAdapters && card.parent != null ? { ...card, id: `${card.parent}:${card.id}` } : card))
    .flatMap((card) => (models === undefined ? [card] : namesOf(card, models).map((id) => ({ ...card, id }))))
    .map((card) => (window ? { max_model_len: windowAt(card, window), ...card } : card));
}

/** The client's names for the model of a card. */
function namesOf({ id }: ModelCard, models: ReadonlyMap<string, string>): string[] {
  return [...models].flatMap(([name, there]) => (there === id ? [name] : []));
}

/** The window at a path of fields in a card, or in another answer; null without one. */
export function windowAt(answer: unknown, path: readonly string[]): number | null {
  const told = path.reduce<unknown>((value, field) => (value as Record<string, unknown> | null)?.[field], answer);
  return typeof told === "number" && told > 0 ? told : null;
}

/** The longest wait for the answers of the paths that show a kind, in milliseconds. */
const PROBE_MS = 2_000;

/**
 * Finds out the kind of a server: by the owners of its models, or else by the one path that no other kind has. It stays
 * unknown if a path gives no answer. Does not throw.
 */
async function recognise(server: ModelServer, cards: readonly ModelCard[], signal: AbortSignal): Promise<void> {
  const { baseUrl, config } = server;
  if (config.dialect !== undefined) return;
  const at = Date.now();
  const owners = [...new Set(cards.flatMap((card) => card.owned_by ?? []))].join("\n");
  const known = recognised.get(baseUrl);
  const isKnown = known?.owners === owners && !isDoubted(baseUrl, known.at);
  const dialect = isKnown ? known.dialect : (dialectOfOwner(owners) ?? (await probed(server, signal)));
  if (dialect) recognised.set(baseUrl, { dialect, owners, at });
}

/** The kind by the paths; undefined if it is none of the known ones and a path gave no answer. */
function probed(server: ModelServer, signal: AbortSignal): Promise<Dialect | undefined> {
  const waiting = AbortSignal.any([signal, AbortSignal.timeout(PROBE_MS)]);
  return probedDialect(async (path) => {
    try {
      return await server.json(path, waiting);
    } catch (fault) {
      if (isAnswer(fault)) return null;
      throw fault;
    }
  });
}

/** The statuses of a server, or of a proxy before it, that may answer otherwise a moment later. */
const TEMPORARY = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Tells whether a fault is the server's definite answer to a question, such as the 404 of a path that it lacks. */
function isAnswer(fault: unknown): boolean {
  if (!(fault instanceof ApiError)) return false;
  const status = answeredStatus(fault);
  return status === undefined ? fault.code === "upstream_malformed_response" : !TEMPORARY.has(status);
}

/** Tells whether facts about a server may no longer hold: it was away since they were learnt, at `at`. */
function isDoubted(baseUrl: string, at: number): boolean {
  const doubtedAt = STATUSES.get(baseUrl)?.doubtedAt;
  return doubtedAt !== undefined && doubtedAt >= at;
}

/** The known kinds behind a server's URL: several behind a proxy, whose list names them; none if unknown. */
export function kindsOf(server: Pick<ModelServer, "baseUrl" | "config">): Dialect[] {
  const dialect = dialectOf(server);
  if (!dialect || server.config.dialect !== undefined) return dialect ? [dialect] : [];
  return [dialect, ...dialectsOfOwners(recognised.get(server.baseUrl)?.owners.split("\n") ?? [])];
}

/** The kind of a server, as the operator or the server itself says; undefined if neither has yet. */
export function dialectOf({ baseUrl, config }: Pick<ModelServer, "baseUrl" | "config">): Dialect | undefined {
  return config.dialect === undefined ? recognised.get(baseUrl)?.dialect : DIALECTS[config.dialect];
}

/** The same, with vLLM as the default: for choices that are examined again before a request is sent. */
export function assumedDialect(server: Pick<ModelServer, "baseUrl" | "config">): Dialect {
  return dialectOf(server) ?? DIALECTS.vllm;
}

/**
 * The kind of a server that gets a request now; undefined if it must be asked first, because its kind is unknown or it
 * was away since it was asked: another server may have its URL. Old knowledge is renewed beside the request.
 */
export function certainDialect(server: ModelServer, signal: AbortSignal): Dialect | undefined {
  const { baseUrl, config } = server;
  if (config.dialect !== undefined) return DIALECTS[config.dialect];
  const known = recognised.get(baseUrl);
  if (!known || isDoubted(baseUrl, known.at)) return undefined;
  if (!isRecent(known.at)) renew(server, signal);
  return known.dialect;
}

/** The question for a server's kind that is under way, and the outcome of the one before. */
interface KindQuestion {
  /** Unix milliseconds; undefined if none is under way. */
  since: number | undefined;
  /** The number of failed questions, and the last one's fault. */
  failed: number;
  fault: unknown;
}

const questions = new Map<string, KindQuestion>();

/** How long a request waits for another one's question: the platform may have dropped that one. In milliseconds. */
const SHARED_MS = 5_000;

/** How often it looks for the answer, in milliseconds. A request cannot wait for a promise of another. */
const LOOK_MS = 10;

/**
 * The kind of a server, after asking it if necessary; requests at the same time share one question. Waits for the list
 * of its models at most `withinMs`, or as long as for any headers. Rejects as the server does, with the 503 of a server that has not
 * shown its kind, and with the reason of an aborted `signal`.
 */
export async function learnDialect(server: ModelServer, signal: AbortSignal, withinMs?: number): Promise<Dialect> {
  const question = questions.get(server.baseUrl) ?? { since: undefined, failed: 0, fault: undefined };
  questions.set(server.baseUrl, question);
  const { failed } = question;
  for (;;) {
    const known = certainDialect(server, signal);
    if (known) return known;
    if (question.failed > failed) throw question.fault;
    if (question.since === undefined || Date.now() - question.since >= SHARED_MS) break;
    await pause(LOOK_MS, signal);
    signal.throwIfAborted();
  }
  question.since = Date.now();
  try {
    return await askKind(server, signal, withinMs);
  } catch (fault) {
    signal.throwIfAborted();
    question.failed += 1;
    question.fault = fault;
    if (fault instanceof ApiError) noteUnusable(server, fault);
    throw fault;
  } finally {
    question.since = undefined;
  }
}

async function askKind(server: ModelServer, signal: AbortSignal, withinMs?: number): Promise<Dialect> {
  const since = Date.now();
  try {
    await listAnew(server, signal, { withinMs });
  } catch (fault) {
    signal.throwIfAborted();
    if (!isAnswer(fault)) throw fault instanceof ApiError && fault.code === "upstream_error" ? kindUnknown() : fault;
    // It lists no models.
    await recognise(server, [], signal);
  }
  signal.throwIfAborted();
  const known = recognised.get(server.baseUrl);
  if (!known || known.at < since) throw kindUnknown();
  return known.dialect;
}

/** Asks for the kind and the models of a server, beside a request and rarely. */
export function renew(server: ModelServer, signal: AbortSignal): void {
  const { baseUrl } = server;
  if (isRecent(failedAt.get(baseUrl)) || isRecent(renewedAt.get(baseUrl), CARD_WAIT_MS)) return;
  renewedAt.set(baseUrl, Date.now());
  // Its result is in the lists.
  void cardsSoon(server, signal).catch(() => {});
}

/** A server's models, cached per isolate. Throws as `fetchModels` does. */
export async function listModelsOf(
  server: ModelServer,
  signal: AbortSignal,
  maxAgeMs = CACHE_MS,
): Promise<readonly ModelCard[]> {
  return currentList(server.baseUrl, maxAgeMs) ?? listAnew(server, signal);
}

/** The same, never from the cache. */
export async function listAnew(
  server: ModelServer,
  signal: AbortSignal,
  options?: RequestOptions,
): Promise<readonly ModelCard[]> {
  const cards = await fetchModels(server, signal, options);
  lists.set(server.baseUrl, { at: Date.now(), cards });
  return cards;
}

/** Notes that a server's list no longer holds. */
export function expireList({ baseUrl }: ModelServer): void {
  const list = lists.get(baseUrl);
  if (list) list.at = Number.NEGATIVE_INFINITY;
}

/** The cards of at most `maxAgeMs` ago; older ones, or none, if the server does not list them soon. */
export async function cardsSoon(
  server: ModelServer,
  signal: AbortSignal,
  maxAgeMs = CACHE_MS,
): Promise<readonly ModelCard[]> {
  const current = currentList(server.baseUrl, maxAgeMs);
  if (current) return current;
  const old = knownCards(server);
  if (isRecent(failedAt.get(server.baseUrl), old ? maxAgeMs : LACK_MS)) return old ?? [];
  try {
    return await listAnew(server, AbortSignal.any([signal, AbortSignal.timeout(CARD_WAIT_MS)]));
  } catch {
    if (signal.aborted) throw signal.reason;
    failedAt.set(server.baseUrl, Date.now());
    return old ?? [];
  }
}

/** The same after a fact was missing in the cards: only very recent ones count. */
export function cardsAnew(server: ModelServer, signal: AbortSignal): Promise<readonly ModelCard[]> {
  return cardsSoon(server, signal, LACK_MS);
}

/**
 * Asks several servers for their models concurrently, if there is no list of at most `maxAgeMs` ago. After the first
 * answer, the others are waited for only a little longer. Gives the cards of each, however old, and the fault of each
 * that did not answer. Rejects with the signal's reason when it is aborted.
 */
export async function listModelsOfAll(
  servers: readonly ModelServer[],
  signal: AbortSignal,
  maxAgeMs = CACHE_MS,
): Promise<{ server: ModelServer; cards: readonly ModelCard[]; fault: unknown }[]> {
  const late = new AbortController();
  let grace: ReturnType<typeof setTimeout> | undefined;
  try {
    const either = AbortSignal.any([signal, late.signal]);
    return await Promise.all(
      servers.map(async (server) => {
        try {
          const cards = await listModelsOf(server, either, maxAgeMs);
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
