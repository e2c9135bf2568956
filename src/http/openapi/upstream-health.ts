import { DIALECT_NAMES } from "@responses-edge/engines/dialects/dialect";
import { z } from "zod";

/** The answer of `/health/upstream`. */

const serverHealth = () => ({
  latency_ms: z.number().min(0),
  models: z.array(z.string()).optional(),
  error: z.object({ code: z.string(), message: z.string() }).optional(),
  failing_since: z
    .string()
    .optional()
    .describe("ISO 8601. It lists its models, but has given only unusable answers since then."),
  down_since: z.string().nullable().describe("ISO 8601."),
  separates_tenants: z
    .boolean()
    .nullable()
    .describe("Whether it supports cache_salt, which separates tenants' prompts. Null: its kind is unknown."),
  dialect: z
    .enum(DIALECT_NAMES)
    .nullable()
    .optional()
    .describe("The kind of server, recognised or set by the operator. Null: unknown."),
  missing_parsers: z
    .array(
      z.object({
        model: z.string(),
        parsers: z.array(z.enum(["reasoning", "tool_calls"])),
        flags: z.array(z.string()).describe("The server's flags that give it these parsers."),
      }),
    )
    .optional()
    .describe("Models whose reasoning or calls the server was seen to leave in their text."),
});

export const upstreamHealth = () =>
  z.object({
    ...serverHealth(),
    status: z.enum(["ok", "degraded", "failing", "unreachable"]),
    recovery: z.object({ background_ms: z.number(), foreground_ms: z.number() }),
    servers: z
      .array(
        z.object({
          ...serverHealth(),
          status: z.enum(["ok", "failing", "unreachable"]),
          name: z.string(),
          draining: z.boolean(),
          weight: z.number().describe("Its share of the conversations, relative to the others'."),
          ejected: z.boolean(),
          board: z.object({ down: z.boolean(), load: z.number().nullable() }).optional(),
        }),
      )
      .optional(),
  });
