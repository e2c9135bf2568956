import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import { MAX_ID_LENGTH } from "../ids.ts";
import { MAX_LABEL_LENGTH, mcpToolName } from "../tool-fields.ts";
import type { ItemType } from "./item-type.ts";
import { itemId, programCall, shownProgramCall, text } from "./parts.ts";
import { answered, COMPLETED, given, inItem, itemDelta, normal } from "./shapes.ts";

const server_label = z.string().min(1).max(MAX_LABEL_LENGTH);

/** A call that a server ran, also one that a client returns. */
export const mcpCall = {
  prefix: "mcp",
  kind: "server_call",
  input: given("mcp_call", {
    id: itemId,
    server_label,
    name: mcpToolName,
    arguments: text,
    output: text.nullish(),
    error: z.unknown().optional(),
    approval_request_id: itemId,
    status: z.enum(["in_progress", "completed", "incomplete", "calling", "failed"]).nullish(),
    ...programCall,
  }).transform(
    normal("id type caller call_id result_index server_label name arguments status approval_request_id output error", {
      ...COMPLETED,
      approval_request_id: null,
      output: null,
      error: null,
    }),
  ),
  output: () =>
    answered("mcp_call", {
      server_label: z.string(),
      name: z.string(),
      arguments: z.string(),
      approval_request_id: z.string().nullish(),
      output: z.string().nullish(),
      error: z.unknown().optional(),
      status: z.enum(["in_progress", "completed", "incomplete", "calling", "failed"]).optional(),
      ...shownProgramCall(),
    }),
  written: "arguments",
  events: {
    "response.mcp_call_arguments.delta": itemDelta,
    "response.mcp_call_arguments.done": () => ({ ...inItem(), arguments: z.string() }),
    "response.mcp_call.in_progress": inItem,
    "response.mcp_call.completed": inItem,
    "response.mcp_call.failed": inItem,
  },
} as const satisfies ItemType;

export const mcpListTools = {
  prefix: "mcpl",
  kind: "tools",
  input: given("mcp_list_tools", {
    id: itemId,
    server_label,
    tools: list(
      z
        .object({
          name: mcpToolName,
          description: z.string().nullish(),
          input_schema: z.record(z.string(), z.unknown()),
          annotations: z.record(z.string(), z.unknown()).nullish(),
        })
        .transform(normal("name input_schema description annotations")),
      { max: 5_000 },
    ),
    error: z.unknown().optional(),
  }).transform(normal("id type server_label tools error")),
  output: () =>
    answered("mcp_list_tools", {
      server_label: z.string(),
      tools: z.array(
        z.object({
          name: z.string(),
          description: z.string().nullish(),
          input_schema: z.unknown(),
          annotations: z.unknown().optional(),
        }),
      ),
      error: z.unknown().optional(),
    }),
  events: {
    "response.mcp_list_tools.in_progress": inItem,
    "response.mcp_list_tools.completed": inItem,
    "response.mcp_list_tools.failed": inItem,
  },
} as const satisfies ItemType;

export const mcpApprovalRequest = {
  prefix: "mcpr",
  kind: "none",
  input: given("mcp_approval_request", {
    id: itemId,
    server_label,
    name: mcpToolName,
    arguments: text,
    ...programCall,
  }).transform(normal("id type caller call_id server_label name arguments")),
  output: () =>
    answered("mcp_approval_request", {
      server_label: z.string(),
      name: z.string(),
      arguments: z.string(),
      ...shownProgramCall(),
    }),
  events: {},
} as const satisfies ItemType;

export const mcpApprovalResponse = {
  prefix: "mcpa",
  kind: "none",
  input: given("mcp_approval_response", {
    id: itemId,
    approval_request_id: z.string().min(1).max(MAX_ID_LENGTH),
    approve: z.boolean(),
    reason: text.nullish(),
  }).transform(normal("id type approval_request_id approve reason", { reason: null })),
  stored: () =>
    answered("mcp_approval_response", {
      approval_request_id: z.string(),
      approve: z.boolean(),
      reason: z.string().nullable(),
    }),
} as const satisfies ItemType;
