import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { includeValues, responseIncludeValues } from "@responses-edge/responses-api/create-fields";
import { MAX_ID_LENGTH, parseFileId } from "@responses-edge/responses-api/ids";
import { FILE_STATUSES } from "@responses-edge/responses-api/platform/vector-stores";
import type { UsageGroup } from "@responses-edge/usage-limits";
import { z } from "zod";
import { REQUEST_STATUSES } from "../contract/admin-objects.ts";

/** The queries that endpoints take. Times are Unix seconds. */

const boolean = describedAs(
  z.enum(["true", "false"]).transform((text) => text === "true"),
  () => z.boolean(),
);
const wholeNumber = z
  .string()
  .regex(/^-?\d+$/, "Expected an integer.")
  .transform(Number);

const time = wholeNumber.pipe(z.int().min(0).max(253_402_300_799));
const optionalTime = time.optional();
const limit = wholeNumber.pipe(z.int().min(1).max(100)).default(20);
const order = z.enum(["asc", "desc"]).default("desc");
const id = z.string().min(1).max(MAX_ID_LENGTH).optional();
const after = z.string().max(MAX_ID_LENGTH).optional();
const tenant = z.string().max(64).optional();

/** The query of an endpoint that takes only `include`. */
export const includeQuery = z.object({ include: includeValues });

export const retrieveQuery = z.object({
  include: responseIncludeValues,
  stream: boolean.optional(),
  starting_after: wholeNumber.pipe(z.int().min(0)).optional(),
  include_obfuscation: boolean.optional(),
});

/** The query of the list of models. Codex sends its version, and gets the list in its own form. */
export const modelsQuery = z.object({ client_version: z.string().max(64).optional() });

/** The query of a list of items. */
export const pageQuery = z
  .object({
    include: includeValues,
    limit,
    order,
    after: id,
  })
  .transform(({ include, limit, order, after }) => ({ include, limit, order, after }));

const storesPage = z.object({
  limit,
  order,
  after: id,
  before: id,
});

/** The query of the list of vector stores. */
export const storesQuery = storesPage;

/** The query of the files of a vector store, or of a batch. */
export const storeFilesQuery = storesPage
  .extend({ filter: z.enum(FILE_STATUSES).optional() })
  .transform(({ filter, ...page }) => ({ ...page, ...(filter !== undefined && { status: filter }) }));

/** The query of the files of a container. */
export const containerFilesQuery = storesPage.omit({ before: true });

/** The query of the list of containers. */
export const containersQuery = containerFilesQuery.extend({ name: z.string().min(1).max(256).optional() });

/** OpenAI's bounds of metadata. */
const metadata = z
  .record(z.string().min(1).max(64), z.string().max(512))
  .refine((pairs) => Object.keys(pairs).length <= 16);

const name = z.string().min(1).max(512);

/** The query of the list of responses. */
export const responsesQuery = z.object({
  limit,
  order,
  after: id,
  group_by: z.enum(["tree"]).optional(),
  id,
  model: name.optional(),
  status: z.enum(["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]).optional(),
  conversation: id,
  metadata: metadata.optional(),
  query: name.optional(),
  "created_at[gte]": optionalTime,
  "created_at[lt]": optionalTime,
});

/** The query of a tree. */
export const treeQuery = pageQuery.transform(({ include: _include, ...page }) => page);

/** Most files of one page. */
const MAX_FILES = 10_000;

/** The query of the list of files. A purpose that no file has gives an empty list, because clients send purposes of their own. */
export const filesQuery = z
  .object({
    purpose: z.string().max(64).optional(),
    limit: wholeNumber.pipe(z.int().min(1).max(MAX_FILES)).default(MAX_FILES),
    order,
    after,
  })
  .transform(({ after, ...query }) => ({ ...query, ...(after !== undefined && { after: parseFileId(after) ?? "" }) }));

/** A list in any of the forms that queries use: repeated, with `[]`, or separated by commas. */
const nameList = z.array(z.string().max(512)).max(200);
const names = describedAs(
  nameList.transform((values) => (values.length === 0 ? undefined : values)),
  () => nameList,
);

export const keysQuery = z.object({
  tenant,
  limit,
  after,
});

/** The query of an endpoint that shows an administrator something of a tenant. */
export const tenantQuery = z.object({ tenant });

/** The query of a tenant's webhook endpoints, and of what was delivered to one. */
export const endpointsQuery = z.object({ limit, after });

/** Most homes of one export or erasure; each is an object that is asked. */
export const MAX_HOMES = 200;

/** The query of an endpoint that visits the homes of a tenant. */
export const homesQuery = z.object({
  limit: wholeNumber.pipe(z.int().min(1).max(MAX_HOMES)).default(MAX_HOMES),
  after,
});

export const auditQuery = z.object({
  limit,
  after,
  project_ids: names,
  event_types: names,
  "effective_at[gte]": optionalTime,
  "effective_at[lt]": optionalTime,
});

/** The query of the log of requests. */
export const requestsQuery = z.object({
  limit,
  after: z.string().min(1).max(512).optional(),
  tenant,
  api_key_id: name.optional(),
  model: name.optional(),
  server: name.optional(),
  status: z.enum([...REQUEST_STATUSES, "error"]).optional(),
  min_duration_ms: wholeNumber.pipe(z.int().min(0)).optional(),
  "created_at[gte]": optionalTime,
  "created_at[lt]": optionalTime,
});

/** The query of the overview. */
export const overviewQuery = z.object({
  start_time: time,
  end_time: optionalTime,
  bucket_width: z.enum(["1m", "5m", "1h", "1d"]).default("1h"),
});

const storageGroup = z.enum(["project_id", "api_key_id"]);
export const storageQuery = z.object({ group_by: z.array(storageGroup).max(2), project_ids: names });

const costsGroup = z.enum(["project_id", "api_key_id", "line_item"]);
export const costsQuery = z.object({
  start_time: time,
  end_time: optionalTime,
  bucket_width: z.enum(["1d"]).default("1d"),
  group_by: z.array(costsGroup).max(3),
  project_ids: names,
  api_key_ids: names,
  line_items: names,
  limit: wholeNumber.pipe(z.int().min(1).max(180)).optional(),
  page: z.string().max(64).optional(),
});

const ungrouped = {
  start_time: time,
  end_time: optionalTime,
  bucket_width: z.enum(["1h", "1d"]).default("1d"),
  project_ids: names,
  api_key_ids: names,
  models: names,
  limit: wholeNumber.pipe(z.int().min(1).max(168)).optional(),
  page: z.string().max(64).optional(),
};

/** The query of usage that may be grouped by these. */
export const usageQuery = (groups: readonly UsageGroup[]) =>
  z.object({ ...ungrouped, group_by: z.array(z.enum(groups)).max(groups.length) });
