import type { Config } from "../config.ts";
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

/** vLLM's models, cached per isolate. Throws ApiError as the upstream does, and 502 for an answer without models. */
async function listUpstreamModels(upstream: Upstream, signal: AbortSignal): Promise<ModelCard[]> {
  const cached = cache.get(upstream.baseUrl);
  if (cached && Date.now() - cached.at < CACHE_MS) return cached.cards;
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
 * The model a request is for: `name` as the client knows it, `upstream` as vLLM does. Without a name it is vLLM's
 * first model. An unknown name is vLLM's to refuse, so naming one costs no look-up.
 */
export async function resolveModel(
  name: string | null | undefined,
  config: Config,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<{ name: string; upstream: string }> {
  if (name != null) {
    const target = Object.hasOwn(config.modelAliases, name) ? config.modelAliases[name] : undefined;
    return { name, upstream: target ?? name };
  }
  const [first] = await listUpstreamModels(upstream, signal);
  if (!first) throw new ApiError({ status: 503, message: "The model server has no model loaded.", code: "no_model" });
  return { name: first.id, upstream: first.id };
}
