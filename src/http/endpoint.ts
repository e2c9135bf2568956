import { type Context, Hono } from "hono";
import type { z } from "zod";
import { ApiError } from "../protocol/errors.ts";
import { parse } from "../protocol/validation.ts";
import type { AppEnv } from "./app-env.ts";
import { unknownUrl } from "./errors.ts";

/** An endpoint of the API: its route, its query and its answer. The 405 of its path and its line in README follow. */
export interface Endpoint {
  method: "GET" | "POST" | "DELETE";
  /** With Hono's parameters, such as `/v1/responses/:id`. */
  path: string;
  /** What README says of it, in Markdown. */
  summary: string;
  handle(context: Context<AppEnv>): Response | Promise<Response>;
}

interface Declaration<Path extends string, Query> extends Omit<Endpoint, "path" | "handle"> {
  path: Path;
  /** What the query must be: the 400s of a query that is not are thrown before anything else is done. */
  query?: z.ZodType<Query>;
  handle(context: Context<AppEnv, Path>, query: Query): Response | Promise<Response>;
}

export function endpoint<const Path extends string, Query = undefined>(
  declaration: Declaration<Path, Query>,
): Endpoint {
  const { query, handle, ...rest } = declaration;
  return {
    ...rest,
    handle: (context) =>
      handle(context as Context<AppEnv, Path>, query ? parse(query, queryOf(context)) : (undefined as Query)),
  };
}

/** The query as an object; `include` in all the forms that clients send (`include`, `include[]`, repeated, commas). */
function queryOf(context: Context<AppEnv>): Record<string, unknown> {
  const { searchParams } = new URL(context.req.url);
  const include = [...searchParams.getAll("include"), ...searchParams.getAll("include[]")].flatMap((value) =>
    value.split(","),
  );
  return { ...Object.fromEntries(searchParams), include };
}

/**
 * The routes of endpoints. Every other method of their paths throws the 405 that names those which are allowed. Of two
 * paths that fit a request, the one that is declared first has it.
 */
export function routesOf(endpoints: readonly Endpoint[]): Hono<AppEnv> {
  const routes = new Hono<AppEnv>();
  for (const [path, declared] of Map.groupBy(endpoints, (each) => each.path)) {
    for (const { method, handle } of declared) routes.on(method, path, handle);
    const allow = declared.map(({ method }) => method).join(", ");
    routes.all(path, (context) => {
      // Every id has an underscore. What has none would be an endpoint that there is not.
      const { id } = context.req.param() as { id?: string };
      if (id !== undefined && path.endsWith("/:id") && !id.includes("_")) throw unknownUrl(context);
      throw new ApiError({
        status: 405,
        message: `Not allowed to ${context.req.method} on ${context.req.path}. Allowed: ${allow}.`,
        code: "method_not_allowed",
        headers: { allow },
      });
    });
  }
  return routes;
}
