import { Buffer } from "node:buffer";
import type { FormPart } from "@responses-edge/bounded-io/multipart";
import { ApiError, invalidRequest, notFound } from "@responses-edge/responses-api/errors";
import { fileId, parsePartId, partId, uploadId } from "@responses-edge/responses-api/ids";
import {
  completeUploadBody,
  createUploadBody,
  expiryOf,
  MAX_PART_BYTES,
  UPLOAD_SECONDS,
  type UploadObject,
  type UploadPartObject,
} from "@responses-edge/responses-api/platform/files";
import { unixSeconds } from "@responses-edge/responses-api/response";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { checkMayStore } from "../store/home/may-store.ts";
import { fileLimitsOf } from "../store/tenant/files/file-limits.ts";
import type { FileRecord } from "../store/tenant/files/file-table.ts";
import type { ReceivedPart } from "../store/tenant/files/received-part.ts";
import { uploadOver } from "../store/tenant/files/upload-faults.ts";
import type { UploadRecord } from "../store/tenant/files/upload-table.ts";
import { nameOf, receiverOf, shownFile } from "./files.ts";
import type { Caller } from "./transport.ts";

/**
 * Uploads: files that come in parts. Every function that takes an id throws the 404 of one that is unknown or another
 * tenant's, and the 400 of one that has ended.
 */

export async function createUpload(caller: Caller, body: unknown): Promise<UploadObject> {
  const { bytes, filename, mime_type: mimeType, ...about } = parse(createUploadBody, body);
  checkMayStore(caller.identity);
  const { maxFileBytes } = caller.config.files;
  if (bytes > maxFileBytes) {
    const message = `The file is too large: this server takes files of up to ${maxFileBytes} bytes (MAX_FILE_BYTES).`;
    throw new ApiError({ status: 413, message, param: "bytes", code: "file_too_large" });
  }
  const createdAt = unixSeconds();
  const times = { createdAt, expiresAt: createdAt + UPLOAD_SECONDS };
  const upload = { bytes, filename: nameOf(filename, "filename"), mimeType, about, ...times };
  return shownUpload(await caller.files.createUpload(upload, caller.identity.keyId), null);
}

/** Stores a part of an upload as it comes in. Parts may come at the same time. */
export async function addUploadPart(
  caller: Caller,
  id: string,
  form: AsyncIterable<FormPart>,
): Promise<UploadPartObject> {
  const { files, identity } = caller;
  const upload = await files.pendingUpload(id);
  let data: ReceivedPart | undefined;
  try {
    for await (const part of form) {
      if (part.name !== "data") throw invalidRequest(part.name.slice(0, 64), "Unknown field.", "unknown_parameter");
      if (data) throw invalidRequest("data", "The form has more than one 'data'.");
      data = await files.receivePart(upload, identity.keyId, receiverOf(caller, "data", MAX_PART_BYTES));
      for await (const bytes of part.body) await data.write(bytes);
    }
    if (!data) throw invalidRequest("data", "Missing required parameter: 'data'.", "missing_required_parameter");
    await files.finishPart(data);
    return { id: partId(upload.key, data.part), object: "upload.part", created_at: unixSeconds(), upload_id: id };
  } catch (error) {
    // The client may have left, or the upload has ended in the meantime.
    if (data) caller.waitUntil(files.discardPart(data).catch(() => {}));
    throw error;
  } finally {
    data?.[Symbol.dispose]();
  }
}

/**
 * Makes a file of parts, in their order. A client that has lost the answer may ask again: the same parts give the same file.
 * Throws the 400 of parts that do not make the whole file, and of bytes with another MD5.
 */
export async function completeUpload(caller: Caller, id: string, body: unknown): Promise<UploadObject> {
  const { part_ids: ids, md5 } = parse(completeUploadBody, body);
  const { files } = caller;
  const { upload, parts, file: made } = await files.upload(id);
  if (made && ids.join() === made.parts.map((part) => partId(upload.key, part)).join()) {
    if (md5 != null) await checkMd5((await files.content(fileId(upload.key))).body, md5);
    return shownUpload(upload, made);
  }
  if (upload.status !== "pending") throw uploadOver(id, upload.status);
  const numbers = ids.map((each, index) => partNumber(each, `part_ids[${index}]`, upload.key, parts));
  const again = numbers.findIndex((part, index) => numbers.indexOf(part) !== index);
  if (again !== -1) throw invalidRequest(`part_ids[${again}]`, `The part '${ids[again]}' is named twice.`);
  const length = numbers.reduce((sum, part) => sum + (parts.get(part) ?? 0), 0);
  if (length !== upload.bytes) {
    const message = `The parts have ${length} bytes together, and the upload was created for ${upload.bytes}.`;
    throw invalidRequest("part_ids", message, "bytes_mismatch");
  }
  const createdAt = unixSeconds();
  const file = await files.completeUpload(upload, numbers, {
    limits: fileLimitsOf(caller.identity, caller.config),
    dates: { createdAt, expiresAt: expiryOf(upload.about, createdAt) },
    check: md5 == null ? undefined : (bytes) => checkMd5(bytes, md5),
  });
  if (!file) throw uploadOver(id, "expired");
  return shownUpload({ ...upload, status: "completed" }, file);
}

export async function cancelUpload({ files }: Caller, id: string): Promise<UploadObject> {
  const upload = await files.pendingUpload(id);
  if (!(await files.cancelUpload(upload))) throw uploadOver(id, "completed");
  return shownUpload({ ...upload, status: "cancelled" }, null);
}

function partNumber(id: string, param: string, key: string, parts: ReadonlyMap<number, number>): number {
  const part = parsePartId(id, key);
  if (part !== undefined && parts.has(part)) return part;
  throw notFound("Part", id, param, { status: 400, where: " in this upload" });
}

async function checkMd5(bytes: ReadableStream<Uint8Array>, wanted: string): Promise<void> {
  const digest = new crypto.DigestStream("MD5");
  await bytes.pipeTo(digest);
  const md5 = Buffer.from(await digest.digest).toString("hex");
  if (md5 === wanted.toLowerCase()) return;
  throw invalidRequest("md5", `The MD5 of the received bytes is ${md5}.`, "md5_mismatch");
}

function shownUpload(
  { key, bytes, createdAt, expiresAt, filename, about, status }: UploadRecord,
  file: FileRecord | null,
): UploadObject {
  return {
    id: uploadId(key),
    object: "upload",
    bytes,
    created_at: createdAt,
    expires_at: expiresAt,
    filename,
    purpose: about.purpose,
    status,
    file: file && shownFile(file),
  };
}
