import { ApiError } from "@responses-edge/responses-api/errors";
import type { EngineName, Model } from "@responses-edge/turn/contract/engine";
import {
  cardsSoon,
  dialectOf,
  knownCards,
  LACK_MS,
  learnDialect,
  listModelsOf,
  listModelsOfAll,
  type ModelCard,
  windowAt,
} from "./model-lists.ts";
import { learnModels, serves } from "./model-names.ts";
import type { ModelServer } from "./model-server.ts";
import { routed } from "./routes.ts";
import { statusOf } from "./server-status.ts";
import { GPT_OSS, type ModelSettings } from "./settings.ts";
import type { Upstream } from "./upstream.ts";

export type { ModelCard } from "./model-lists.ts";

/**
 * The models of all servers, each server's list cached per isolate; that of a server alone only for `maxAgeMs`. A model
 * of several servers is shown as the first of them does. Throws ApiError as the first server does, if none lists any.
 */
async function listUpstreamModels(
  { servers }: Upstream,
  signal: AbortSignal,
  maxAgeMs?: number,
): Promise<readonly ModelCard[]> {
  const [only] = servers;
  if (servers.length === 1 && only) return listModelsOf(only, signal, maxAgeMs);
  const listed = await listModelsOfAll(servers, signal);
  const cards = new Map<string, ModelCard>();
  for (const card of listed.flatMap((each) => each.cards)) if (!cards.has(card.id)) cards.set(card.id, card);
  const silent = listed.find(({ fault }) => fault !== undefined);
  if (cards.size === 0 && silent) throw silent.fault;
  return [...cards.values()];
}

/** The models that clients may name: vLLM's own, and the aliases of those. */
export async function listModels(config: ModelSettings, upstream: Upstream, signal: AbortSignal): Promise<ModelCard[]> {
  const cards = (await listUpstreamModels(upstream, signal)).map((card) => {
    const length = upstream.windowOf(card.id);
    return length === undefined ? card : { ...card, max_model_len: length };
  });
  const byId = new Map(cards.map((card) => [card.id, card]));
  const routes: ModelCard[] = [];
  for (const [name, { targets }] of config.routes) {
    const card = targets.map(({ model }) => byId.get(model)).find((found) => found !== undefined);
    if (card && !byId.has(name)) routes.push({ ...card, id: name, parent: card.id });
  }
  return [...cards, ...routes];
}

/** A request's model, after its route was applied. */
export interface RoutedModel extends Model {
  /**
   * The route's name: the one that the client has asked for, or its fallback. Undefined for a request without a model.
   */
  route: string | undefined;
}

/**
 * The model of a request; without a name, vLLM's first. vLLM refuses unknown names itself. `key` is the same for all
 * turns of a conversation. Throws ApiError 503 if there is no model, and, without a name, as the upstream does.
 */
export async function resolveModel(
  name: string | null | undefined,
  key: string,
  config: ModelSettings,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<RoutedModel> {
  if (name == null) {
    const [first] = await listUpstreamModels(upstream, signal, LACK_MS);
    if (!first) throw new ApiError({ status: 503, message: "The model server has no model loaded.", code: "no_model" });
    return {
      ...{ name: first.id, upstream: first.id, route: undefined },
      engine: await engineOf(first.id, config, upstream, signal),
    };
  }
  const fallbacks = config.routes.get(name)?.fallbacks ?? [];
  const served = fallbacks.length > 0 ? await firstServed([name, ...fallbacks], key, config, upstream, signal) : name;
  return modelOf(served, key, config, upstream, signal);
}

/** The model of a name, whether it has a server or not. */
export async function modelOf(
  name: string,
  key: string,
  config: ModelSettings,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<RoutedModel> {
  const to = config.routes.size > 0 ? routed(name, config, key) : { name, upstream: name };
  return { ...to, route: name, engine: await engineOf(to.upstream, config, upstream, signal) };
}

/** The first name whose model has a server that is there; the first of all where none has. */
async function firstServed(
  names: readonly [string, ...string[]],
  key: string,
  config: ModelSettings,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<string> {
  for (const candidate of names) {
    const { upstream: model } = routed(candidate, config, key);
    await learnModels(upstream.servers, model, signal);
    const servers = upstream.servers.filter((server) => serves(server, model) !== false);
    const up = await Promise.all(servers.map((server) => mayAnswer(server, signal)));
    if (up.includes(true)) return candidate;
  }
  return names[0];
}

/** How long a healthy server is assumed to stay so, in milliseconds. */
const WELL_MS = 250;

/** Tells whether a server is reachable, by its last answer or a new one. */
async function mayAnswer(server: ModelServer, signal: AbortSignal): Promise<boolean> {
  const { health, downSince } = statusOf(server.baseUrl);
  const now = Date.now();
  const isFresh = health !== undefined && now - health.at < WELL_MS && now >= health.at;
  if (isFresh && (health.isGone || downSince === undefined)) return !health.isGone;
  return !(await server.isGone(signal));
}

/**
 * The engine of a model: as configured, for the model or its server; else Harmony for gpt-oss, recognised by its name
 * or by the root in its model card; else chat. A LoRA adapter, whose card has neither, gets the engine of its `parent`.
 */
async function engineOf(
  model: string,
  config: ModelSettings,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<EngineName> {
  const { modelEngines } = config;
  // An entry of a table that the operator has written, whose keys clients say.
  const own = Object.hasOwn(modelEngines, model) ? modelEngines[model] : undefined;
  if (own) return own;
  let namesEngines = false;
  for (const { engine } of config.modelServers) namesEngines ||= engine !== undefined;
  const said = namesEngines && (await engineOfServer(model, upstream, signal));
  if (said) return said;
  if (GPT_OSS.test(model)) return harmonyIfServed(model, upstream, signal);
  for (const { id, root } of await lineage(model, upstream, signal)) {
    const engine = Object.hasOwn(modelEngines, id) ? modelEngines[id] : undefined;
    if (engine) return engine;
    if (GPT_OSS.test(id) || (typeof root === "string" && GPT_OSS.test(root)))
      return harmonyIfServed(model, upstream, signal);
  }
  return "chat";
}

/**
 * Harmony needs a server with token ids. Any other server renders and parses gpt-oss itself. A server that is away,
 * whose kind is not known, is assumed to have them: a turn may wait for it. Throws as `learnDialect` does if no server
 * of the model shows its kind otherwise.
 */
async function harmonyIfServed(model: string, upstream: Upstream, signal: AbortSignal): Promise<EngineName> {
  const having = upstream.servers.filter((server) => serves(server, model) !== false);
  const servers = having.length > 0 ? having : upstream.servers;
  const learnt = await Promise.allSettled(servers.map((server) => dialectOf(server) ?? learnDialect(server, signal)));
  signal.throwIfAborted();
  let fault: unknown;
  let isKnown = false;
  for (const each of learnt) {
    if (each.status === "fulfilled" ? each.value.hasTokenIds : isAway(each.reason)) return "harmony";
    isKnown ||= each.status === "fulfilled";
    if (each.status === "rejected") fault ??= each.reason;
  }
  if (!isKnown) throw fault;
  return "chat";
}

function isAway(fault: unknown): boolean {
  return fault instanceof ApiError && fault.code === "upstream_unreachable";
}

/** The engine that the operator has configured for the model's server. */
async function engineOfServer(
  model: string,
  { servers }: Upstream,
  signal: AbortSignal,
): Promise<EngineName | undefined> {
  if (servers.length > 1) await learnModels(servers, model, signal);
  const named = servers.find((server) => server.config.engine && (servers.length === 1 || serves(server, model)));
  return named?.config.engine;
}

/**
 * A model's card and those of its bases: an adapter's parents. A parent without a card is only its name, and so is a
 * model whose card does not come soon: the turn itself will show what is wrong. Old cards are good enough unless
 * `isFresh`: a model's bases do not change while it is served.
 */
export async function lineage(
  model: string,
  upstream: Upstream,
  signal: AbortSignal,
  { isFresh = false } = {},
): Promise<(Pick<ModelCard, "id"> & Partial<ModelCard>)[]> {
  let cards: readonly ModelCard[] | undefined;
  for (const server of isFresh ? [] : upstream.servers) {
    const known = knownCards(server) ?? [];
    for (const { id } of known) if (id === model) cards ??= known;
  }
  cards ??= await upstreamCardsSoon(model, upstream, signal);
  const byId = new Map<string, ModelCard>();
  for (const card of cards) if (!byId.has(card.id)) byId.set(card.id, card);
  const found = new Map<string, Pick<ModelCard, "id"> & Partial<ModelCard>>();
  for (let id: unknown = model; typeof id === "string" && !found.has(id); id = byId.get(id)?.parent) {
    found.set(id, byId.get(id) ?? { id });
  }
  return [...found.values()];
}

/** The cards of the servers that have the model, or may have it: those of the turn's server come first. */
async function upstreamCardsSoon(
  model: string,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<readonly ModelCard[]> {
  const { servers } = upstream;
  const [only] = servers;
  if (servers.length === 1 && only) return cardsSoon(only, signal);
  await learnModels(servers, model, signal);
  const { server: first } = upstream;
  const lists = [first, ...servers.filter((server) => server !== first)].map((server) => knownCards(server) ?? []);
  // Models of one name may differ between servers, so that a list is read as a whole.
  return lists.find((cards) => cards.some(({ id }) => id === model)) ?? lists.flat();
}

/**
 * A model's context window in tokens, as the operator or its server says; an adapter has its base's. Undefined if neither
 * does, or the server does not answer soon. Rejects only with the reason of an aborted `signal`.
 */
export async function contextWindow(
  model: string,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<number | undefined> {
  const told =
    upstream.windowOf(model) ?? windowIn(await lineage(model, upstream, signal, { isFresh: true }), upstream);
  if (told !== undefined) return told;
  const windows = await Promise.all(upstream.servers.map((server) => windowOfUnloaded(server, model, signal)));
  return windows.find((window) => window !== undefined);
}

function windowIn(
  cards: readonly (Pick<ModelCard, "id"> & Partial<ModelCard>)[],
  upstream: Upstream,
): number | undefined {
  const windows = cards.map((card) => upstream.windowOf(card.id) ?? card.max_model_len);
  return windows.find((window) => typeof window === "number" && window > 0) ?? undefined;
}

/** The window of a model that its server lists without one, because it has not loaded it. */
async function windowOfUnloaded(server: ModelServer, model: string, signal: AbortSignal): Promise<number | undefined> {
  const { windowWhenLoaded: question } = dialectOf(server) ?? {};
  if (!question || serves(server, model) !== true) return undefined;
  const there = server.config.models?.get(model) ?? model;
  try {
    const answer = await server.json(`${question.path}?${question.query}=${encodeURIComponent(there)}`, signal);
    return windowAt(answer, question.field) ?? undefined;
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}
