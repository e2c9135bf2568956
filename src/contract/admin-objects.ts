import { once } from "@responses-edge/responses-api/items/shapes";
import { responseSchemas } from "@responses-edge/responses-api/response";
import { z } from "zod";
import { grants } from "./grants.ts";

/** Objects of the admin API. The functions that make them have these types, and `/openapi.json` describes them. */

const text = z.string();
const count = z.int().min(0);
const seconds = z.int().min(0).describe("Unix seconds.");

export const apiKeyObject = once(() =>
  z.object({
    object: z.literal("api_key"),
    id: text,
    tenant: text,
    name: text,
    redacted_value: text,
    created_at: seconds.nullable().describe("Unix seconds. Null for a key of the configuration."),
    expires_at: seconds.nullable(),
    disabled: z.boolean(),
    limits: grants.nullable(),
    source: z
      .enum(["admin_api", "configuration"])
      .describe("`configuration`: the key is in `API_KEYS`, and cannot be changed here."),
  }),
);

/** A live run. `unknown`: its home does not answer. */
export const runObject = once(() =>
  z.object({
    object: z.literal("run"),
    id: text,
    tenant: text,
    status: z.enum(["in_progress", "unknown"]),
    model: text.nullable(),
    created_at: seconds.nullable(),
    background: z.boolean().nullable(),
    foreground: z.boolean().optional().describe("A foreground turn, in the answering process."),
    server: text.nullable(),
    events: count.nullable(),
  }),
);

/** A stored response for the operator, without its content. */
export const responseDetails = once(() => {
  const { ResponseObject, Timing } = responseSchemas();
  return ResponseObject.pick({ id: true, created_at: true, status: true, model: true, error: true }).extend({
    object: z.literal("response.details"),
    tenant: text,
    timing: Timing.nullable().describe("Null while the response is in progress."),
    upstream_error: text.nullable().describe("The model server's own text of the last failure of its own."),
  });
});
export type ResponseDetails = z.output<ReturnType<typeof responseDetails>>;

/** How a request has ended: as its response has, or `refused`, without any. */
export const REQUEST_STATUSES = ["completed", "failed", "incomplete", "cancelled", "refused"] as const;

/** A request that has ended, without content. Times are milliseconds. */
export const requestSummary = once(() =>
  z.object({
    object: z.literal("request.summary"),
    id: text.describe("The `x-request-id`; of a run the id of its response."),
    created_at: seconds,
    tenant: text,
    api_key_id: text.nullable(),
    endpoint: text,
    transport: z.enum(["http", "sse", "websocket", "background", "batch"]),
    http_status: count,
    status: z.enum(REQUEST_STATUSES).describe("`refused`: an error without a response."),
    response_id: text.nullable(),
    model: text.nullable(),
    server: text.nullable().describe("The model server that was asked last."),
    duration_ms: count,
    first_token_ms: count.nullable(),
    waited_ms: count.describe("For the conversation."),
    queued_ms: count.describe("For a saturated model server."),
    attempts: count.describe("HTTP requests to model servers for an answer."),
    usage: z
      .object({ input_tokens: count, cached_tokens: count, output_tokens: count, reasoning_tokens: count })
      .nullable(),
    cost_usd: z.number().min(0).nullable(),
    error: z
      .object({
        code: text,
        message: text,
        upstream: text.nullable().describe("The model server's own text. A root key gets it, a tenant's key does not."),
      })
      .nullable(),
  }),
);

const ms = count.nullable().describe("Milliseconds, off by a tenth at most. Null if no request has it.");

/** All requests over time, and the state of this moment. */
export const overview = once(() =>
  z.object({
    object: z.literal("list"),
    data: z.array(
      z.object({
        object: z.literal("overview.bucket"),
        start_time: seconds,
        end_time: seconds,
        requests: count,
        errors: count,
        by_status: z.record(z.string(), count),
        input_tokens: count,
        output_tokens: count,
        ...{ p50_ms: ms, p95_ms: ms, p50_first_token_ms: ms, p95_first_token_ms: ms },
        output_tokens_per_second: z
          .number()
          .nullable()
          .describe("Of one answer, from its first token to its end. Null if no answer has tokens."),
        most_in_flight: count.nullable().describe("Most requests at the model servers. Null if no request ended."),
        most_waiting: count.nullable().describe("Most requests that waited for a saturated model server."),
        servers_down: z.array(text).describe("The model servers that were unreachable, or ejected, for some time."),
        least_free_disk_bytes: count.nullable(),
      }),
    ),
    now: z.object({
      in_flight: count.describe("Requests at the model servers."),
      waiting: count.describe("Requests that wait for a saturated model server."),
      servers: z.array(
        z.object({
          name: text,
          status: z.enum(["ok", "unreachable", "ejected", "draining"]),
          in_flight: count,
          waiting: count,
          load: z.number().nullable().describe("Requests that run and wait there, by its own metrics."),
        }),
      ),
      disk: z.object({ free_bytes: count.nullable(), low: z.boolean() }).nullable(),
    }),
  }),
);

export const importedTenant = once(() =>
  z.object({
    object: z.literal("tenant.imported"),
    id: text,
    homes: z.object({ imported: count, unchanged: count, refused: count }),
    turns: count.describe("Turns of the imported homes."),
    files: z.object({ imported: count, unchanged: count, incomplete: count }),
    vector_stores: z.object({ imported: count, unchanged: count }),
    limits: z
      .enum(["set", "unchanged", "kept"])
      .nullable()
      .describe("`kept`: the tenant has other limits here. Null: the export has none."),
    api_keys_left_out: count.describe("Keys are not imported: the export has no secrets."),
    sealed_unreadable: count.describe("Items whose encrypted content this deployment cannot open for this tenant."),
    in_progress: z.array(text).describe("Responses that were in progress at the export: at most a thousand."),
    refused_homes: z.array(text).describe("Homes with other data here."),
    next: text.nullable().describe("`after` of the export's next page."),
  }),
);

export type ApiKeyObject = z.output<ReturnType<typeof apiKeyObject>>;
export type RunObject = z.output<ReturnType<typeof runObject>>;
export type RequestSummary = z.output<ReturnType<typeof requestSummary>>;
export type Overview = z.output<ReturnType<typeof overview>>;
export type ImportedTenant = z.output<ReturnType<typeof importedTenant>>;
