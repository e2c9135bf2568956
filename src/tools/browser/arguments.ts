import { z } from "zod";

/** Arguments of the browser's tools, as models write them. */

/** Models write numbers in several ways; what makes no sense counts as absent, which is -1 in gpt-oss's browser. */
const count = z
  .union([z.number(), z.stringFormat("integer", /^-?\d+$/).transform(Number)])
  .transform(Math.trunc)
  .catch(-1);

const MAX_QUERY_CHARS = 2000;
const MAX_PATTERN_CHARS = 500;

export const searchArguments = z.object({
  query: z.string().transform((query) => query.slice(0, MAX_QUERY_CHARS)),
  topn: count,
});

export const openArguments = z.object({
  id: z.union([z.number(), z.string()]).catch(-1),
  cursor: count,
  loc: count,
  num_lines: count,
  view_source: z.boolean().catch(false),
});

export const findArguments = z.object({
  pattern: z.union([z.string(), z.number().transform(String)]).transform((text) => text.slice(0, MAX_PATTERN_CHARS)),
  cursor: count,
});

export type OpenArguments = z.infer<typeof openArguments>;

/** As the tool's description says. */
export const DEFAULT_TOPN = 10;
