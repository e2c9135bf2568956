import { z } from "zod";
import { metadata } from "../create-fields.ts";
import { MAX_ID_LENGTH } from "../ids.ts";
import { once } from "../items/shapes.ts";
import { expiresAfter } from "./files.ts";

/** Batches (openai 7.59 `Batch`): many requests in a file of JSON lines, whose answers are in another one. */

/** The endpoints whose requests a batch may have. */
export const BATCH_ENDPOINTS = [
  "/v1/responses",
  "/v1/chat/completions",
  "/v1/embeddings",
  "/v1/completions",
  "/v1/moderations",
] as const;
export type BatchEndpoint = (typeof BATCH_ENDPOINTS)[number];

/** OpenAI's limits of an input file. */
export const MAX_BATCH_LINES = 50_000;
export const MAX_BATCH_BYTES = 200 * 1024 * 1024;

export const requestBatchBody = z.object({
  input_file_id: z.string().min(1).max(MAX_ID_LENGTH),
  endpoint: z.enum(BATCH_ENDPOINTS),
  completion_window: z.literal("24h"),
  metadata: metadata.nullish(),
  output_expires_after: expiresAfter.optional(),
});

/** A line of an input file. */
export const batchLine = z.object({
  custom_id: z.string().min(1).max(512),
  method: z.literal("POST"),
  url: z.enum(BATCH_ENDPOINTS),
  body: z.record(z.string(), z.unknown()),
});
export type BatchLine = z.output<typeof batchLine>;

export const BATCH_STATUSES = [
  "validating",
  "failed",
  "in_progress",
  "finalizing",
  "completed",
  "expired",
  "cancelling",
  "cancelled",
] as const;
export type BatchStatus = (typeof BATCH_STATUSES)[number];

/** A fault of an input file. */
export interface BatchFault {
  code: string;
  message: string;
  param: string | null;
  /** Counted from 1. */
  line: number | null;
}

export const requestBatchObject = once(() => {
  const count = z.int().min(0);
  const seconds = z.int().min(0).describe("Unix seconds.");
  return z.object({
    id: z.string(),
    object: z.literal("batch"),
    endpoint: z.enum(BATCH_ENDPOINTS),
    input_file_id: z.string(),
    completion_window: z.string(),
    status: z.enum(BATCH_STATUSES),
    created_at: seconds,
    expires_at: seconds,
    in_progress_at: seconds.optional(),
    finalizing_at: seconds.optional(),
    completed_at: seconds.optional(),
    failed_at: seconds.optional(),
    expired_at: seconds.optional(),
    cancelling_at: seconds.optional(),
    cancelled_at: seconds.optional(),
    output_file_id: z.string().optional(),
    error_file_id: z.string().optional(),
    errors: z
      .object({
        object: z.literal("list"),
        data: z.array(
          z.object({
            code: z.string(),
            message: z.string(),
            param: z.string().nullable(),
            line: z.int().nullable(),
          }),
        ),
      })
      .optional(),
    model: z.string().optional().describe("The model of the first line."),
    request_counts: z.object({ total: count, completed: count, failed: count }),
    usage: z.object({
      input_tokens: count,
      input_tokens_details: z.object({ cached_tokens: count }),
      output_tokens: count,
      output_tokens_details: z.object({ reasoning_tokens: count }),
      total_tokens: count,
    }),
    metadata: z.record(z.string(), z.string()).nullable(),
  });
});
export type BatchObject = z.output<ReturnType<typeof requestBatchObject>>;
