import { hashOf } from "./hash.ts";
import { firstOf } from "./pool/choice.ts";
import type { ModelSettings, Route } from "./settings.ts";

/** Finds the model for a name that clients use. */

/**
 * The model of a route for a conversation, whose `key` is the same in all of its turns. Each model gets its share of
 * conversations.
 */
export function targetOf({ targets: [first, ...others] }: Route, key: string): string {
  if (others.length === 0) return first.model;
  // A changed weight moves no more conversations than necessary (weighted rendezvous hashing).
  const weighed = [first, ...others].map(({ model, weight }) => ({ model, weight, hash: hashOf(model) }));
  return firstOf(weighed, hashOf(key))?.model ?? first.model;
}

/** A name after its route was applied: the model's name in the response, and at the servers. */
export function routed(
  name: string,
  { routes }: Pick<ModelSettings, "routes">,
  key: string,
): { name: string; upstream: string } {
  const route = routes.get(name);
  if (!route) return { name, upstream: name };
  const upstream = targetOf(route, key);
  // If a route has several models, the response names the one that answers.
  return { name: route.targets.length > 1 ? upstream : name, upstream };
}
