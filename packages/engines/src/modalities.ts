import type { ModelCard } from "./model-lists.ts";
import { lineage } from "./models.ts";
import type { ModelSettings } from "./settings.ts";
import type { Upstream } from "./upstream.ts";

/** The modalities of models: as the operator says (`CODEX_MODELS`), or their servers do. */

/**
 * The modalities that a card names: `input_modalities`, or `architecture.input_modalities`, as llama.cpp has it. Undefined for a server
 * that names none, as vLLM 0.32.
 */
export function cardModalities({ input_modalities: own, architecture }: Readonly<Record<string, unknown>>) {
  const inner = (architecture as { input_modalities?: unknown } | null | undefined)?.input_modalities;
  const stated = Array.isArray(own) ? own : Array.isArray(inner) ? inner : [];
  const known = stated.filter((each) => each === "text" || each === "image") as string[];
  return known.length > 0 ? known : undefined;
}

/** The modalities that the operator states for a model, by its server's name; undefined if none. */
function statedModalities(model: string, { codexModels = {} }: Pick<ModelSettings, "codexModels">) {
  const own = Object.hasOwn(codexModels, model) ? codexModels[model] : undefined;
  return cardModalities({ ...codexModels["*"], ...own });
}

/**
 * Tells whether a model reads images: as the operator says, or its card; an adapter does if its base does. False where nobody says so.
 * Rejects only with the reason of an aborted `signal`.
 *
 * @param model The server's name of the model.
 */
export async function seesImages(
  model: string,
  config: Pick<ModelSettings, "codexModels">,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<boolean> {
  const stated = statedModalities(model, config);
  if (stated) return stated.includes("image");
  const cards: readonly Partial<ModelCard>[] = await lineage(model, upstream, signal);
  return (
    cards
      .map(cardModalities)
      .find((each) => each !== undefined)
      ?.includes("image") ?? false
  );
}
