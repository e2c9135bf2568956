import { ApiError } from "@responses-edge/responses-api/errors";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { type Context, Hono, type MiddlewareHandler } from "hono";
import { z } from "zod";
import { countedWork, countRequest } from "../api/limit-reservation.ts";
import type { Config } from "../config/index.ts";
import { unknownUrl } from "./answers.ts";
import type { AppEnv } from "./app-env.ts";
import { checkMetricsToken, requireJsonBody, setAuthenticated } from "./auth.ts";
import { identityOf, requireRole } from "./caller.ts";
import type { Operation } from "./openapi/operation.ts";

/**
 * An endpoint of the API: its route, its query and its answer. The 405 of its path, its row of
 * docs/reference/endpoints.md and its description are derived.
 */
export interface Endpoint extends Declaration<string, unknown> {
  method: Method;
  /** With Hono's parameters, such as `/v1/responses/:id`. */
  path: string;
}

type Method = "GET" | "POST" | "DELETE";

interface Declaration<Path extends string, Query> {
  /** Its row of docs/reference/endpoints.md, in Markdown. */
  summary: string;
  /** Its entry in the API's description. */
  operation: Operation;
  /** The schema of its query, if it takes one. The 400s of an invalid query are thrown first. */
  query?: z.ZodType<Query>;
  /** False if the deployment does not have the endpoint: its path is then unknown. Without this function every deployment has it. */
  isOpen?(config: Config): boolean;
  handle(context: Context<AppEnv, Path>, query: Query): Response | Promise<Response>;
}

/** Declares an endpoint, such as `GET /v1/responses/:id`. The types of its handler's arguments follow from its path and its query. */
export function endpoint<const Path extends string, Query = undefined>(
  route: `${Method} ${Path}`,
  declaration: Declaration<Path, Query>,
): Endpoint {
  const [method = "", path = ""] = route.split(" ");
  return { ...(declaration as Declaration<string, unknown>), method: method as Method, path };
}

/** The fields of a query's schema, which is an object or a transform of one. Throws for any other schema. */
export function queryFields(query: z.ZodType): Record<string, z.ZodType> {
  let object: z.core.$ZodType = query;
  while (object instanceof z.ZodPipe) object = object.in;
  if (!(object instanceof z.ZodObject)) throw new TypeError("A query is an object.");
  return object.shape as Record<string, z.ZodType>;
}

/**
 * A query as its schema reads it. Lists come in all the forms that clients send them in: repeated, as `name[]`, and with commas; maps as
 * `name[key]`.
 */
function readQuery(schema: z.ZodType, url: string): unknown {
  const { searchParams } = new URL(url);
  const fields: Record<string, unknown> = Object.fromEntries(searchParams);
  const { lists, maps } = collectionsOf(schema);
  for (const name of lists) {
    const values = [...searchParams.getAll(name), ...searchParams.getAll(`${name}[]`)];
    fields[name] = values.flatMap((value) => value.split(","));
  }
  for (const name of maps) {
    const pairs = Object.entries(fields).filter(([key]) => key.startsWith(`${name}[`) && key.endsWith("]"));
    if (pairs.length === 0) continue;
    fields[name] = Object.fromEntries(pairs.map(([key, value]) => [key.slice(name.length + 1, -1), value]));
  }
  return parse(schema, fields);
}

interface Collections {
  lists: string[];
  maps: string[];
}

const collections = new WeakMap<z.ZodType, Collections>();

/** The fields of a query that are lists, and those that are maps. Only these may be empty. */
function collectionsOf(schema: z.ZodType): Collections {
  let names = collections.get(schema);
  if (!names) {
    const fields = Object.entries(queryFields(schema));
    const thatTake = (empty: object) =>
      fields.filter(([, field]) => field.safeParse(empty).success).map(([name]) => name);
    names = { lists: thatTake([]), maps: thatTake({}) };
    collections.set(schema, names);
  }
  return names;
}

/**
 * The routes of endpoints, one for each path, each with the middleware that `before` gives for it. A route checks access and
 * counts the request as the declaration says: a caller that reaches a handler is authorised, and a request that no admission has
 * counted is counted when it ends. Every other method of a path throws the 405 that names the allowed ones. A path without
 * parameters that a path with parameters also matches (`/v1/responses/compact`) has no route and is looked up first: Hono's fast
 * router cannot hold both, and a request costs 50 µs more with the other router.
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
      const method = context.req.method === "HEAD" ? "GET" : context.req.method;
      let endpoint: Endpoint | undefined;
      let isOpen = false;
      for (const each of here) {
        if (each.method === method) endpoint = each;
        isOpen ||= each.isOpen?.(context.get("config")) !== false;
      }
      await checkAccess(context, (endpoint ?? first).operation);
      if (!isOpen) throw unknownUrl(context, { openedBy: (endpoint ?? first).operation.openedBy });
      if (endpoint) return answerCounted(context, endpoint);
      // Every id has an underscore or a hyphen. A name without one is an unknown endpoint.
      if (here === declared && path.endsWith("/:id") && !/[_-]/.test(context.req.param("id") ?? ""))
        throw unknownUrl(context);
      throw notAllowed(context, here);
    });
  }
  return routes;
}

/**
 * Authenticates and authorises the caller. Throws the 401s, the 403 of a key without the right, and the 404 of an
 * endpoint that needs `ADMIN_KEY` where there is none.
 */
async function checkAccess(context: Context<AppEnv>, { access, roles = [] }: Operation): Promise<void> {
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
      requireRole(context, roles);
      return;
    case "tenant or root":
      await setAuthenticated(context);
      if (roles.length > 0 && context.get("authenticated").admin) requireRole(context, roles);
  }
}

/**
 * Answers an authorised request, and counts it. Throws the 415 of a body whose type must be JSON and is not, the 429 of
 * a limit, the 503 where limits cannot be checked, and as `handle` does.
 */
async function answerCounted(context: Context<AppEnv>, endpoint: Endpoint): Promise<Response> {
  const { operation, query } = endpoint;
  const { counted, body } = operation;
  if (body === undefined) requireJsonBody(context, true);
  else if (body.type === "application/json") requireJsonBody(context, body.isOptional === true);
  const { identity, admin } = (counted && context.get("authenticated")) ?? {};
  // An administrator's reads are not counted.
  const isFree = operation.access === "tenant or root" && admin !== undefined;
  if (!identity?.counted || isFree) return endpoint.handle(context, query && readQuery(query, context.req.url));
  const counting = { isDone: false };
  context.set("counting", counting);
  const waitUntil = (promise: Promise<unknown>) => context.executionCtx.waitUntil(promise);
  const request = { identity, quotas: context.env.QUOTAS, waitUntil, counting };
  const kind = counted === "read" ? "reads" : "requests";
  if (counted !== "turn") await countRequest(request, kind);
  return countedWork(request, kind, async () => endpoint.handle(context, query && readQuery(query, context.req.url)));
}

function notAllowed(context: Context<AppEnv>, declared: readonly Endpoint[]): ApiError {
  const allow = declared.map(({ method }) => method).join(", ");
  const message = `Not allowed to ${context.req.method} on ${context.req.path}. Allowed: ${allow}.`;
  return new ApiError({ status: 405, message, code: "method_not_allowed", headers: { allow } });
}
