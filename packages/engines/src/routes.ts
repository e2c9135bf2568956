import { hashOf } from "./hash.ts";
import { firstOf } from "./pool/choice.ts";
import type { ModelSettings, Route } from "./settings.ts";

/** Which model answers for a name that clients say. */

/** The model of a route for a conversation, whose `key` is the same in all of its turns: each has its share of them. */
export function targetOf({ targets: [first, ...others] }: Route, key: string): string {
  if (others.length === 0) return first.model;
  // A weight that changes moves no more conversations than it has to (weighted rendezvous hashing).
  const weighed = [first, ...others].map(({ model, weight }) => ({ model, weight, hash: hashOf(model) }));
  return firstOf(weighed, hashOf(key))?.model ?? first.model;
}

/** A name as its route leads it: what the response calls the model, and what the servers do. */
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
