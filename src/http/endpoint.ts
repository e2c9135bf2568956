import { type Context, Hono, type MiddlewareHandler } from "hono";
import { z } from "zod";
import { countedWork, countRequest } from "../api/admission.ts";
import type { Config } from "../config/index.ts";
import { ApiError } from "../protocol/errors.ts";
import { parse } from "../protocol/validation.ts";
import type { AppEnv } from "./app-env.ts";
import { checkMetricsToken, setAuthenticated } from "./auth.ts";
import { requireJsonBody } from "./browser-guard.ts";
import { adminOf, identityOf, requireAdminApi } from "./caller.ts";
import { unknownUrl } from "./errors.ts";
import type { Operation } from "./openapi/operation.ts";

/** An endpoint of the API: its route, its query and its answer. The 405 of its path, its row of docs/reference/endpoints.md and its description follow. */
export interface Endpoint {
  method: "GET" | "POST" | "DELETE";
  /** With Hono's parameters, such as `/v1/responses/:id`. */
  path: string;
  /** Its row of docs/reference/endpoints.md, in Markdown. */
  summary: string;
  /** Its entry in the API's description. */
  operation: Operation;
  /** The schema of its query, if it takes one. */
  query?: z.ZodType | undefined;
  /** False if the deployment does not have it: its path is then unknown. Without this every deployment has it. */
  isOpen?(config: Config): boolean;
  handle(context: Context<AppEnv>): Response | Promise<Response>;
}

interface Declaration<Path extends string, Query> extends Omit<Endpoint, "path" | "query" | "handle"> {
  path: Path;
  /** The schema of the query. The 400s of another query are thrown before anything else is done. */
  query?: z.ZodType<Query>;
  handle(context: Context<AppEnv, Path>, query: Query): Response | Promise<Response>;
}

export function endpoint<const Path extends string, Query = undefined>(
  declaration: Declaration<Path, Query>,
): Endpoint {
  const { query, handle, ...rest } = declaration;
  let lists: string[] | undefined;
  const readQuery = (schema: z.ZodType<Query>, url: string): Query => {
    lists ??= Object.entries(queryFields(schema)).flatMap(([name, field]) => (isList(field) ? [name] : []));
    return parse(schema, queryOf(url, lists));
  };
  return {
    ...rest,
    query,
    handle: (context) =>
      handle(context as Context<AppEnv, Path>, query ? readQuery(query, context.req.url) : (undefined as Query)),
  };
}

/** The fields of a query's schema. Throws where it has none: a query is an object, and what is made of one. */
export function queryFields(query: z.ZodType): Record<string, z.ZodType> {
  let object: z.core.$ZodType = query;
  while (object instanceof z.ZodPipe) object = object.in;
  if (!(object instanceof z.ZodObject)) throw new TypeError("A query is an object.");
  return object.shape as Record<string, z.ZodType>;
}

/** True if a field of a query is a list. No other field takes an empty list. */
function isList(field: z.ZodType): boolean {
  return field.safeParse([]).success;
}

/** A query as an object. Lists are read in all the forms that clients send them in: repeated, as `name[]`, and with commas. */
function queryOf(url: string, lists: readonly string[]): Record<string, unknown> {
  const { searchParams } = new URL(url);
  const read = lists.map((name) => {
    const values = [...searchParams.getAll(name), ...searchParams.getAll(`${name}[]`)];
    return [name, values.flatMap((value) => value.split(","))];
  });
  return { ...Object.fromEntries(searchParams), ...Object.fromEntries(read) };
}

/**
 * The routes of endpoints, one for each path, each with the middleware that `before` gives for it. A route does what the declaration
 * says of who may ask and how that is counted: whoever reaches a handler may ask, and a request that no admission has counted counts
 * when it ends. Every other method of a path throws the 405 that names those which are allowed. A path without parameters that one with
 * them would fit, too (`/v1/responses/compact`), has no route but is looked up first: Hono's fast router knows no such pairs, and a
 * request costs 50 µs more with the other one.
 */
export function routesOf(
  endpoints: readonly Endpoint[],
  before: (operation: Operation) => MiddlewareHandler<AppEnv>,
): Hono<AppEnv> {
  const byPath = Map.groupBy(endpoints, ({ path }) => path);
  const isFitted = (path: string) => byPath.has(path.replace(/[^/]+$/, ":id"));
  const routes = new Hono<AppEnv>();
  for (const [path, declared] of byPath) {
    const [first] = declared;
    if (!first || (isFitted(path) && !path.includes(":"))) continue;
    routes.all(path, before(first.operation), async (context) => {
      const here = path.endsWith("/:id") ? (byPath.get(context.req.path) ?? declared) : declared;
      const { method } = context.req;
      const endpoint = here.find((each) => each.method === (method === "HEAD" ? "GET" : method));
      const { operation } = endpoint ?? first;
      await checkAccess(context, operation);
      if (here.every(({ isOpen }) => isOpen?.(context.get("config")) === false)) throw unknownUrl(context);
      if (endpoint) return answerCounted(context, operation, () => endpoint.handle(context));
      // Every id has an underscore. A name without one would be an unknown endpoint.
      if (here === declared && path.endsWith("/:id") && !context.req.param("id")?.includes("_"))
        throw unknownUrl(context);
      throw notAllowed(context, here);
    });
  }
  return routes;
}

/** Finds out who asks. Throws the 401s, the 403 of a key for something else, and the 404 of what needs `ADMIN_KEY` where there is none. */
async function checkAccess(context: Context<AppEnv>, { access, openedBy }: Operation): Promise<void> {
  switch (access) {
    case "everyone":
      return;
    case "metrics":
      return checkMetricsToken(context.req.header("authorization"), context.get("config"));
    case "tenant":
      await setAuthenticated(context);
      identityOf(context);
      return;
    case "root":
      await setAuthenticated(context);
      adminOf(context);
      return;
    case "tenant or root":
      await setAuthenticated(context);
      if (openedBy === "ADMIN_KEY") requireAdminApi(context);
  }
}

/**
 * Answers a request of somebody who may ask, and counts it. Throws the 415 of a body that is not said to be JSON where it has to
 * be, the 429 of a limit, the 503 where limits cannot be checked, and as `handle` does.
 */
async function answerCounted(
  context: Context<AppEnv>,
  { counted, body }: Operation,
  handle: () => Response | Promise<Response>,
): Promise<Response> {
  if (body === undefined || body.type === "application/json") requireJsonBody(context);
  const authenticated = counted && context.get("authenticated");
  if (!authenticated || authenticated.admin !== undefined || !authenticated.identity.counted) return handle();
  const counting = { isDone: false };
  context.set("counting", counting);
  const { identity } = authenticated;
  const waitUntil = (promise: Promise<unknown>) => context.executionCtx.waitUntil(promise);
  const request = { identity, quotas: context.env.QUOTAS, waitUntil, counting };
  const kind = counted === "read" ? "reads" : "requests";
  if (counted !== "turn") await countRequest(request, kind);
  return countedWork(request, kind, async () => handle());
}

function notAllowed(context: Context<AppEnv>, declared: readonly Endpoint[]): ApiError {
  const allow = declared.map(({ method }) => method).join(", ");
  return new ApiError({
    status: 405,
    message: `Not allowed to ${context.req.method} on ${context.req.path}. Allowed: ${allow}.`,
    code: "method_not_allowed",
    headers: { allow },
  });
}
