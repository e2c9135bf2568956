import { ApiError, invalidRequest, notFound } from "@responses-edge/responses-api/errors";
import { newFileKey } from "@responses-edge/responses-api/ids";
import { type BatchObject, MAX_BATCH_BYTES, requestBatchBody } from "@responses-edge/responses-api/platform/batches";
import { unixSeconds } from "@responses-edge/responses-api/response";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { z } from "zod";
import { page } from "../api/keys.ts";
import type { endpointsQuery } from "../api/queries.ts";
import type { Caller } from "../api/transport.ts";
import type { Env } from "../env.ts";
import { checkMayStore } from "../store/home/may-store.ts";
import { checkDisk } from "../store/objects/process-state.ts";
import type { ShownBatch } from "./batches.ts";
import { passedEndpoint } from "./requests.ts";

/** Batches. Every function that takes an id throws the 404 of one that is unknown or another tenant's. */

/** OpenAI's only completion window. */
const WINDOW_SECONDS = 86_400;

export type BatchCaller = Pick<Caller, "tenant" | "identity" | "config" | "files" | "note"> & {
  batches: Env["BATCHES"];
};

/**
 * Makes a batch of a file. Throws the 404 of a missing file, the 400s of an invalid one and of an endpoint that the
 * operator has not opened, and the 429 of too many unfinished batches.
 */
export async function createBatch(caller: BatchCaller, body: unknown): Promise<BatchObject> {
  const { identity, config, files } = caller;
  const { input_file_id: inputFile, endpoint, metadata, output_expires_after: expiry } = parse(requestBatchBody, body);
  checkMayStore(identity);
  const passed = passedEndpoint(endpoint);
  if (passed && !config.passthroughEndpoints.has(passed)) {
    const message = `This deployment does not serve ${endpoint}. Its operator can open it (PASSTHROUGH_ENDPOINTS).`;
    throw invalidRequest("endpoint", message, "invalid_value");
  }
  if (endpoint === "/v1/moderations" && !config.guard) {
    const message = "This deployment has no guard for /v1/moderations (GUARD_MODEL, GUARD_URL).";
    throw invalidRequest("endpoint", message, "invalid_value");
  }
  const { purpose, bytes } = await files.record(inputFile).catch((error: unknown) => {
    throw error instanceof ApiError ? new ApiError({ ...error.toFields(), param: "input_file_id" }) : error;
  });
  if (purpose !== "batch") {
    const message = `Expected a file with the purpose 'batch', got one with '${purpose}'.`;
    throw invalidRequest("input_file_id", message, "invalid_value");
  }
  if (bytes > MAX_BATCH_BYTES) {
    const message = `The file has ${bytes} bytes; a batch file may have ${MAX_BATCH_BYTES}.`;
    throw invalidRequest("input_file_id", message, "invalid_value");
  }
  checkDisk();
  const now = unixSeconds();
  const made = await objectOf(caller).create({
    id: `batch_${newFileKey()}`,
    endpoint,
    inputFile,
    metadata: metadata ?? null,
    outputExpiry: expiry?.seconds ?? null,
    owner: identity,
    status: "validating",
    at: { validating: now },
    expiresAt: now + WINDOW_SECONDS,
    total: 0,
  });
  if (!made) {
    const { maxActive } = config.batches;
    const message = `You already have ${maxActive} batches in progress. Please wait for one to end.`;
    throw new ApiError({ status: 429, message, code: "too_many_batches" });
  }
  caller.note?.({ type: "batch.created", target: made.id });
  return shown(made);
}

export async function listBatches(caller: BatchCaller, { after, limit }: z.output<typeof endpointsQuery>) {
  const found = await objectOf(caller).list(after, limit + 1);
  if (!found) throw notFound("Batch", after ?? "", "after");
  return page(found.map(shown), limit);
}

export async function retrieveBatch(caller: BatchCaller, id: string): Promise<BatchObject> {
  return shown(known(id, await objectOf(caller).get(id)));
}

/** Cancels a batch. Its files have the answers that came before. */
export async function cancelBatch(caller: BatchCaller, id: string): Promise<BatchObject> {
  const cancelled = known(id, await objectOf(caller).cancel(id));
  caller.note?.({ type: "batch.cancelled", target: id });
  return shown(cancelled);
}

function objectOf({ batches, tenant }: BatchCaller) {
  return batches.getByName(tenant);
}

function shown(batch: ShownBatch): BatchObject {
  const { at, errors, usage, model, outputFile, errorFile } = batch;
  const times = {
    in_progress_at: at.in_progress,
    finalizing_at: at.finalizing,
    completed_at: at.completed,
    failed_at: at.failed,
    expired_at: at.expired,
    cancelling_at: at.cancelling,
    cancelled_at: at.cancelled,
  };
  return {
    id: batch.id,
    object: "batch",
    endpoint: batch.endpoint,
    input_file_id: batch.inputFile,
    completion_window: "24h",
    status: batch.status,
    created_at: at.validating ?? 0,
    expires_at: batch.expiresAt,
    ...Object.fromEntries(Object.entries(times).filter(([, time]) => time !== undefined)),
    ...(outputFile !== undefined && { output_file_id: outputFile }),
    ...(errorFile !== undefined && { error_file_id: errorFile }),
    ...(errors && { errors: { object: "list" as const, data: errors } }),
    ...(model !== undefined && { model }),
    request_counts: batch.counts,
    usage: {
      input_tokens: usage.input,
      input_tokens_details: { cached_tokens: usage.cached },
      output_tokens: usage.output,
      output_tokens_details: { reasoning_tokens: usage.reasoning },
      total_tokens: usage.input + usage.output,
    },
    metadata: batch.metadata,
  };
}

function known<T>(id: string, value: T | null): T {
  if (value === null) throw notFound("Batch", id, "id");
  return value;
}
