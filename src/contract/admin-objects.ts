import { once } from "@responses-edge/responses-api/items/shapes";
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
export type ImportedTenant = z.output<ReturnType<typeof importedTenant>>;
