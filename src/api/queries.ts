import type { Context } from "hono";
import { z } from "zod";
import { includeValues } from "../protocol/create-request.ts";
import { MAX_ID_LENGTH } from "../protocol/ids.ts";
import { parse } from "../protocol/validation.ts";
import type { ItemPage } from "../store/item-page.ts";
import type { AppEnv } from "./app-env.ts";

/** Queries and lists that several endpoints share. */

const boolean = z.enum(["true", "false"]).transform((text) => text === "true");
const wholeNumber = z
  .string()
  .regex(/^-?\d+$/, "Expected an integer.")
  .transform(Number);

const includeQuery = z.object({ include: includeValues });

const retrieveQuery = z.object({
  include: includeValues,
  stream: boolean.optional(),
  starting_after: wholeNumber.pipe(z.int().min(0)).optional(),
  include_obfuscation: boolean.optional(),
});

const pageQuery = z.object({
  include: includeValues,
  limit: wholeNumber.pipe(z.int().min(1).max(100)).default(20),
  order: z.enum(["asc", "desc"]).default("desc"),
  after: z.string().min(1).max(MAX_ID_LENGTH).optional(),
});

/** The query as an object; `include` in all the forms that clients send (`include`, `include[]`, repeated, commas). */
function queryOf(context: Context<AppEnv>): Record<string, unknown> {
  const { searchParams } = new URL(context.req.url);
  const include = [...searchParams.getAll("include"), ...searchParams.getAll("include[]")].flatMap((value) =>
    value.split(","),
  );
  return { ...Object.fromEntries(searchParams), include };
}

export function readRetrieveQuery(context: Context<AppEnv>): z.output<typeof retrieveQuery> {
  return parse(retrieveQuery, queryOf(context));
}

export function readPageQuery(context: Context<AppEnv>): { limit: number; order: "asc" | "desc"; after?: string } {
  const { limit, order, after } = parse(pageQuery, queryOf(context));
  return { limit, order, after };
}

export function checkIncludeQuery(context: Context<AppEnv>): void {
  parse(includeQuery, queryOf(context));
}

/** A list object as JSON text; its items come as JSON text already. */
export function listBody({ data, firstId, lastId, hasMore }: ItemPage): string {
  const rest = JSON.stringify({ object: "list", first_id: firstId, last_id: lastId, has_more: hasMore });
  return `${rest.slice(0, -1)},"data":${data}}`;
}
