import type { Config, EngineName } from "../config.ts";
import { ApiError } from "../protocol/errors.ts";
import { malformedAnswer, type Upstream } from "./upstream.ts";

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

/** How long a list may be reused, in milliseconds. */
const CACHE_MS = 30_000;

const cache = new Map<string, { at: number; cards: ModelCard[] }>();

function isFresh<List extends { at: number }>(cached: List | undefined): cached is List {
  return cached !== undefined && Date.now() - cached.at < CACHE_MS;
}

/** vLLM's models, cached per isolate. Throws ApiError as the upstream does, and 502 for an answer without models. */
async function listUpstreamModels(upstream: Upstream, signal: AbortSignal): Promise<ModelCard[]> {
  const cached = cache.get(upstream.baseUrl);
  if (isFresh(cached)) return cached.cards;
  const cards = await fetchModels(upstream, signal);
  cache.set(upstream.baseUrl, { at: Date.now(), cards });
  return cards;
}

/** The same, never from the cache: for health checks. */
export async function fetchModels(upstream: Upstream, signal: AbortSignal): Promise<ModelCard[]> {
  const body = await upstream.json("/models", signal);
  const data = typeof body === "object" && body !== null && "data" in body ? body.data : undefined;
  if (!Array.isArray(data)) throw malformedAnswer();
  return data.filter(
    (card): card is ModelCard => typeof card === "object" && card !== null && typeof card.id === "string",
  );
}

/** The models that clients may name: vLLM's own and the aliases of those that are there. */
export async function listModels(config: Config, upstream: Upstream, signal: AbortSignal): Promise<ModelCard[]> {
  const cards = await listUpstreamModels(upstream, signal);
  const byId = new Map(cards.map((card) => [card.id, card]));
  const aliases: ModelCard[] = [];
  for (const [alias, target] of Object.entries(config.modelAliases)) {
    const card = byId.get(target);
    if (card && !byId.has(alias)) aliases.push({ ...card, id: alias, parent: target });
  }
  return [...cards, ...aliases];
}

/** A model as the client names it and as vLLM does, and how it is spoken to. */
export interface Model {
  name: string;
  upstream: string;
  engine: EngineName;
}

/**
 * The model a request is for; without a name it is vLLM's first. An unknown name is vLLM's to refuse.
 * Throws ApiError 503 when there is no model, and as the upstream does when no name was given.
 */
export async function resolveModel(
  name: string | null | undefined,
  config: Config,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<Model> {
  if (name != null) {
    const target = Object.hasOwn(config.modelAliases, name) ? config.modelAliases[name] : undefined;
    const known = target ?? name;
    return { name, upstream: known, engine: await engineOf(known, config, upstream, signal) };
  }
  const [first] = await listUpstreamModels(upstream, signal);
  if (!first) throw new ApiError({ status: 503, message: "The model server has no model loaded.", code: "no_model" });
  return { name: first.id, upstream: first.id, engine: await engineOf(first.id, config, upstream, signal) };
}

/** gpt-oss in the name that vLLM serves a model by, or in the path or repository that it was loaded from. */
const GPT_OSS = /gpt-?oss/i;

/**
 * How a model is spoken to: as configured; else Harmony for gpt-oss, by its name or by the root in its model card; else
 * chat.
 */
async function engineOf(model: string, config: Config, upstream: Upstream, signal: AbortSignal): Promise<EngineName> {
  const configured = Object.hasOwn(config.modelEngines, model) ? config.modelEngines[model] : undefined;
  if (configured) return configured;
  if (GPT_OSS.test(model)) return "harmony";
  const root = (await cardOf(model, upstream, signal))?.root;
  return typeof root === "string" && GPT_OSS.test(root) ? "harmony" : "chat";
}

/** How long looking for a card may delay a turn that can do without, in milliseconds. */
const CARD_WAIT_MS = 2_000;

/** When a model server last failed to list its models. */
const failedAt = new Map<string, number>();

/**
 * The card of a model, or undefined when it has none or it cannot be had soon: the turn itself will show what is wrong.
 * What a model is made of does not change while it is served, so an old card is as good as a new one.
 */
async function cardOf(model: string, upstream: Upstream, signal: AbortSignal): Promise<ModelCard | undefined> {
  const find = (cards: readonly ModelCard[] | undefined) => cards?.find((card) => card.id === model);
  const known = find(cache.get(upstream.baseUrl)?.cards);
  if (known) return known;
  if (isFresh(cache.get(upstream.baseUrl))) return undefined;
  if (Date.now() - (failedAt.get(upstream.baseUrl) ?? Number.NEGATIVE_INFINITY) < CACHE_MS) return undefined;
  try {
    return find(await listUpstreamModels(upstream, AbortSignal.any([signal, AbortSignal.timeout(CARD_WAIT_MS)])));
  } catch {
    if (signal.aborted) throw signal.reason;
    failedAt.set(upstream.baseUrl, Date.now());
    return undefined;
  }
}

/** A model's context window in tokens, or undefined where its card does not tell. Throws as the upstream does. */
export async function contextWindow(
  model: string,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<number | undefined> {
  const cards = await listUpstreamModels(upstream, signal);
  return cards.find((card) => card.id === model)?.max_model_len ?? undefined;
}
