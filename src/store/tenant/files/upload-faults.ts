import { ApiError, tooManyInProgress } from "@responses-edge/responses-api/errors";
import type { UploadRecord } from "./upload-table.ts";

/** The 400 of an upload that has ended. */
export function uploadOver(id: string, status: Exclude<UploadRecord["status"], "pending">): ApiError {
  const message = `Upload '${id}' is ${status}: it accepts no more parts and cannot be completed or cancelled.`;
  return new ApiError({ status: 400, message, param: "upload_id", code: `upload_${status}` });
}

/** The 429 of a tenant with as many uploads, or of an upload with as many parts, as it may have. */
export function uploadsFull(): ApiError {
  return tooManyInProgress("The maximum of uploads, or of parts of this one, is reached. Complete or cancel some.");
}
