import { knownCards } from "@responses-edge/engines/model-lists";
import type { Config } from "../config/index.ts";

/**
 * Tells whether a model is one of the operator's: the configuration names it, or a server lists it, as far as this
 * isolate knows, and not as an adapter. Servers load adapters under the names that clients send (vLLM's LoRA
 * resolvers), and list them from then on.
 */
export function isOperatorsModel(model: string, config: Config): boolean {
  const { modelServers, routes, modelEngines, contextWindows, thinkingBudgets, keepThoughts, codexModels, keys } =
    config;
  const tables = [modelEngines, contextWindows, thinkingBudgets, keepThoughts, codexModels, keys.prices];
  const named = tables.some((each) => Object.hasOwn(each, model));
  if (named || routes.has(model)) return true;
  for (const { targets } of routes.values()) if (targets.some((target) => target.model === model)) return true;
  return modelServers.some(
    (server) =>
      server.models?.has(model) || knownCards(server)?.some(({ id, parent }) => id === model && parent == null),
  );
}
