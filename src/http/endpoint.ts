import { type Context, Hono, type MiddlewareHandler } from "hono";
import { z } from "zod";
import type { Config } from "../config/index.ts";
import { ApiError } from "../protocol/errors.ts";
import { parse } from "../protocol/validation.ts";
import type { AppEnv } from "./app-env.ts";
import { answerCounted, checkAccess } from "./endpoint-access.ts";
import { unknownUrl } from "./errors.ts";
import type { Operation } from "./openapi/operation.ts";

/** An endpoint of the API: its route, its query and its answer. The 405 of its path, its row of docs/reference/endpoints.md and its description follow. */
export interface Endpoint {
  method: "GET" | "POST" | "DELETE";
  /** With Hono's parameters, such as `/v1/responses/:id`. */
  path: string;
  /** Its row of docs/reference/endpoints.md, in Markdown. */
  summary: string;
  /** What the API's description says of it. */
  operation: Operation;
  /** What its query must be; only of an endpoint that takes one. */
  query?: z.ZodType | undefined;
  /** Whether the deployment has it: where it does not, its path is an unknown one. Without this it always does. */
  isOpen?(config: Config): boolean;
  handle(context: Context<AppEnv>): Response | Promise<Response>;
}

interface Declaration<Path extends string, Query> extends Omit<Endpoint, "path" | "query" | "handle"> {
  path: Path;
  /** What the query must be: the 400s of a query that is not are thrown before anything else is done. */
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

/** Whether a field of a query is a list. Nothing else takes an empty one. */
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
 * The routes of endpoints, one for each path, each with the middleware that `before` gives for it. Every other method of a
 * path throws the 405 that names those which are allowed. A path without parameters that one with them would fit, too (`/v1/responses/compact`), has no route but is
 * looked up first: Hono's fast router knows no such pairs, and a request costs 50 µs more with the other one.
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
      await checkAccess(context, operation.access);
      if (here.every(({ isOpen }) => isOpen?.(context.get("config")) === false)) throw unknownUrl(context);
      if (endpoint) return answerCounted(context, operation, () => endpoint.handle(context));
      // Every id has an underscore. What has none would be an endpoint that there is not.
      if (here === declared && path.endsWith("/:id") && !context.req.param("id")?.includes("_"))
        throw unknownUrl(context);
      throw notAllowed(context, here);
    });
  }
  return routes;
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
