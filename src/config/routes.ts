import type { Route } from "@responses-edge/engines/settings";
import { z } from "zod";
import { MAX_WEIGHT } from "./server-entry.ts";

/** Routes: which models answer for a name that clients use. An alias and a fallback are routes, too. */

/** Most models of a route, and most names that answer in its place: each may be asked in turn. */
const MAX_TARGETS = 16;
const MAX_FALLBACKS = 8;

const name = z.string().min(1).max(1024);
const target = z.union([
  name.transform((model) => ({ model, weight: 1 })),
  z.strictObject({ model: name, weight: z.number().min(0).max(MAX_WEIGHT).default(1) }),
]);
export const fallbackNames = z.array(name).min(1).max(MAX_FALLBACKS);

/** An entry of `ROUTES`: a model, or models with their shares, and the names that answer in their place. */
export const routeEntry = z.union([
  name.transform((model) => ({
    to: [{ model, weight: 1 }],
    fallbacks: undefined,
    context_window_fallbacks: undefined,
  })),
  z.strictObject({
    to: z
      .union([name.transform((model) => [{ model, weight: 1 }]), z.array(target).min(1).max(MAX_TARGETS)])
      .refine(
        (targets) => targets.length === 0 || targets.some(({ weight }) => weight > 0),
        "expected a weight above 0",
      )
      .optional()
      .describe(
        "The model at the servers, or several with their shares of the conversations. Default: the name itself.",
      ),
    fallbacks: fallbackNames
      .optional()
      .describe(
        "Names, as clients write them, that answer instead, in this order: if no server of the model is healthy, or a request has failed before the client has seen output.",
      ),
    context_window_fallbacks: fallbackNames
      .optional()
      .describe("Names that answer instead if the prompt is longer than the context window."),
  }),
]);
export type RouteEntry = z.output<typeof routeEntry>;

interface RouteValues {
  routes: Readonly<Record<string, RouteEntry>>;
  modelAliases: Readonly<Record<string, string>>;
  modelFallbacks: Readonly<Record<string, readonly string[]>>;
}

/** All routes by the names that clients use. `ROUTES` overrides `MODEL_ALIASES` and `MODEL_FALLBACKS`. */
export function routesOf({ routes, modelAliases, modelFallbacks }: RouteValues): ReadonlyMap<string, Route> {
  const names = new Set([routes, modelAliases, modelFallbacks].flatMap(Object.keys));
  return new Map([...names].map((each) => [each, routeOf(each)]));

  function routeOf(each: string): Route {
    const entry = own(routes, each);
    const alias = own(modelAliases, each) ?? each;
    const [first = { model: alias, weight: 1 }, ...others] = (entry?.to ?? []).filter(({ weight }) => weight > 0);
    return {
      targets: [first, ...others],
      fallbacks: entry?.fallbacks ?? own(modelFallbacks, each) ?? own(modelFallbacks, first.model) ?? [],
      contextFallbacks: entry?.context_window_fallbacks ?? [],
    };
  }
}

function own<Entry>(table: Readonly<Record<string, Entry>>, key: string): Entry | undefined {
  return Object.hasOwn(table, key) ? table[key] : undefined;
}
