import type { Config, EngineName } from "../config.ts";
import type { Model } from "../contract/model.ts";
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
 * chat. A LoRA adapter, whose card names neither, is what its `parent` is.
 */
async function engineOf(model: string, config: Config, upstream: Upstream, signal: AbortSignal): Promise<EngineName> {
  const configured = (id: string) => (Object.hasOwn(config.modelEngines, id) ? config.modelEngines[id] : undefined);
  const own = configured(model);
  if (own) return own;
  if (GPT_OSS.test(model)) return "harmony";
  for (const { id, root } of lineage(model, await cardsWith(model, upstream, signal))) {
    const engine = configured(id);
    if (engine) return engine;
    if (GPT_OSS.test(id) || (typeof root === "string" && GPT_OSS.test(root))) return "harmony";
  }
  return "chat";
}

/** A model's card and those of what it was made from: an adapter's base. A parent without a card is its name alone. */
function lineage(model: string, cards: readonly ModelCard[]): Pick<ModelCard, "id" | "root" | "max_model_len">[] {
  const found = new Map<string, Pick<ModelCard, "id" | "root" | "max_model_len">>();
  for (let id: unknown = model; typeof id === "string" && !found.has(id); ) {
    const card = cards.find((each) => each.id === id);
    found.set(id, card ?? { id });
    id = card?.parent;
  }
  return [...found.values()];
}

/** How long looking for a card may delay a turn that can do without, in milliseconds. */
const CARD_WAIT_MS = 2_000;

/** When a model server last failed to list its models. */
const failedAt = new Map<string, number>();

/**
 * Cards among which a model's should be, none where they cannot be had soon: the turn itself will show what is wrong.
 * What a model is made of does not change while it is served, so an old card is as good as a new one.
 */
async function cardsWith(model: string, upstream: Upstream, signal: AbortSignal): Promise<readonly ModelCard[]> {
  const known = cache.get(upstream.baseUrl)?.cards;
  return known?.some((card) => card.id === model) ? known : cardsSoon(upstream, signal);
}

/** The cards of at most `CACHE_MS` ago; older ones, or none, where the model server does not list them soon. */
async function cardsSoon(upstream: Upstream, signal: AbortSignal): Promise<readonly ModelCard[]> {
  const cached = cache.get(upstream.baseUrl);
  const old = cached?.cards ?? [];
  if (isFresh(cached)) return old;
  if (Date.now() - (failedAt.get(upstream.baseUrl) ?? Number.NEGATIVE_INFINITY) < CACHE_MS) return old;
  try {
    return await listUpstreamModels(upstream, AbortSignal.any([signal, AbortSignal.timeout(CARD_WAIT_MS)]));
  } catch {
    if (signal.aborted) throw signal.reason;
    failedAt.set(upstream.baseUrl, Date.now());
    return old;
  }
}

/**
 * A model's context window in tokens, an adapter's being its base's. Undefined where no card tells, or none can be had
 * soon. Rejects only with the reason of an aborted `signal`.
 */
export async function contextWindow(
  model: string,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<number | undefined> {
  const windows = lineage(model, await cardsSoon(upstream, signal)).map((card) => card.max_model_len);
  return windows.find((window) => typeof window === "number" && window > 0) ?? undefined;
}
