import { z } from "zod";
import { includeValues } from "../protocol/create-request.ts";
import { MAX_ID_LENGTH } from "../protocol/ids.ts";

/** The queries that endpoints take. */

const boolean = z.enum(["true", "false"]).transform((text) => text === "true");
const wholeNumber = z
  .string()
  .regex(/^-?\d+$/, "Expected an integer.")
  .transform(Number);

/** Of an endpoint that takes no more than `include`. */
export const includeQuery = z.object({ include: includeValues });

export const retrieveQuery = z.object({
  include: includeValues,
  stream: boolean.optional(),
  starting_after: wholeNumber.pipe(z.int().min(0)).optional(),
  include_obfuscation: boolean.optional(),
});

/** Of the list of models: Codex says its version, and wants the list in a shape of its own. */
export const modelsQuery = z.object({ client_version: z.string().max(64).optional() });

/** Of a list of items. */
export const pageQuery = z
  .object({
    include: includeValues,
    limit: wholeNumber.pipe(z.int().min(1).max(100)).default(20),
    order: z.enum(["asc", "desc"]).default("desc"),
    after: z.string().min(1).max(MAX_ID_LENGTH).optional(),
  })
  .transform(({ include, limit, order, after }) => ({ include, limit, order, after }));
