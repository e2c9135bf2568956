import { Buffer } from "node:buffer";
import type { FormPart } from "@responses-edge/bounded-io/multipart";
import { type ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import { fileId } from "@responses-edge/responses-api/ids";
import {
  expiryOf,
  type FileObject,
  fileFields,
  MAX_FILENAME_LENGTH,
} from "@responses-edge/responses-api/platform/files";
import { unixSeconds } from "@responses-edge/responses-api/response";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { checkMayStore } from "../store/home/may-store.ts";
import type { FileAbout } from "../store/tenant/files/file-client.ts";
import { fileLimitsOf } from "../store/tenant/files/file-limits.ts";
import type { FileQuery, FileRecord } from "../store/tenant/files/file-table.ts";
import type { ReceivedPart, Receiver } from "../store/tenant/files/received-part.ts";
import type { Caller } from "./transport.ts";

/** Files. Every function that takes an id throws the 404 of a file that is unknown, deleted, expired or another tenant's. */

/** A page of files, as it is shown. */
export interface ShownFiles {
  object: "list";
  data: FileObject[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** Stores the file of a form. Throws as `receiveFile`. */
export async function createFile(caller: Caller, form: AsyncIterable<FormPart>): Promise<FileObject> {
  const record = await receiveFile(caller, form, (sent) => {
    const fields = parse(fileFields, sent);
    const createdAt = unixSeconds();
    return { purpose: fields.purpose, createdAt, expiresAt: expiryOf(fields, createdAt) };
  });
  return shownFile(record);
}

/**
 * Stores the file of a form as it comes in; `about` makes its attributes of the form's other fields. Nobody sees it before it is
 * complete; the bytes of one that is refused or cut off are removed. Throws the 400s of the form, what `about` throws, and the errors of
 * limits.
 */
export async function receiveFile(
  caller: Caller,
  form: AsyncIterable<FormPart>,
  about: (
    fields: Record<string, unknown>,
    sent: Pick<FileRecord, "filename">,
  ) => Omit<FileAbout, "filename" | "mimeType">,
): Promise<FileRecord> {
  checkMayStore(caller.identity);
  let file: ReceivedPart | undefined;
  let sent: Pick<FileRecord, "filename" | "mimeType"> | undefined;
  const fields = new FormFields();
  try {
    for await (const part of form) {
      if (part.name !== "file") {
        await fields.take(part);
        continue;
      }
      if (sent) throw invalidRequest("file", "The form has more than one 'file'.", "invalid_value");
      sent = { filename: filenameOf(part), mimeType: part.type };
      file = await caller.files.receive(
        caller.identity.keyId,
        receiverOf(caller, "file", caller.config.files.maxFileBytes),
      );
      for await (const bytes of part.body) await file.write(bytes);
    }
    const attributes = about(fields.value, sent ?? { filename: "" });
    if (!file || !sent) {
      throw invalidRequest("file", "Missing required parameter: 'file'.", "missing_required_parameter");
    }
    return await caller.files.commit(file, { ...sent, ...attributes }, fileLimitsOf(caller.identity, caller.config));
  } catch (error) {
    // The client may have left. The directory removes a file later that cannot be removed now.
    if (file) caller.waitUntil(caller.files.discard(file).catch(() => {}));
    throw error;
  } finally {
    file?.[Symbol.dispose]();
  }
}

export async function listFiles({ files }: Caller, query: FileQuery): Promise<ShownFiles> {
  const { data, hasMore } = await files.list(query);
  const shown = data.map(shownFile);
  const [firstId, lastId] = [shown[0]?.id ?? null, shown.at(-1)?.id ?? null];
  return { object: "list", data: shown, first_id: firstId, last_id: lastId, has_more: hasMore };
}

export async function retrieveFile({ files }: Caller, id: string): Promise<FileObject> {
  return shownFile(await files.record(id));
}

/** The bytes of a file as they are read, and its name. */
export async function fileContent(
  { files }: Caller,
  id: string,
): Promise<{ filename: string; bytes: number; body: ReadableStream<Uint8Array> }> {
  const { record, body } = await files.content(id);
  return { filename: record.filename, bytes: record.bytes, body };
}

/** Deletes a file, also from the vector stores that it is in. */
export async function deleteFile({ files, note }: Caller, id: string): Promise<void> {
  await files.remove(id);
  note?.({ type: "file.deleted", target: id });
}

/** A file as the API shows it. */
export function shownFile({ key, bytes, createdAt, expiresAt, filename, purpose }: FileRecord): FileObject {
  return {
    id: fileId(key),
    object: "file",
    bytes,
    created_at: createdAt,
    ...(expiresAt !== null && { expires_at: expiresAt }),
    filename,
    purpose,
    status: "processed",
  };
}

/** Makes the receiver of a caller's part, from a field of a form. */
export function receiverOf(caller: Caller, field: string, maxBytes: number): Receiver {
  return {
    tenant: caller.tenant,
    config: caller.config,
    limits: fileLimitsOf(caller.identity, caller.config),
    field,
    maxBytes,
  };
}

function filenameOf({ filename }: FormPart): string {
  if (filename !== null) return nameOf(filename, "file");
  throw invalidRequest("file", "Expected 'file' to be a file, with a file name.", "invalid_type");
}

/** The name of a file, without the path that old browsers send. Throws the 400 of one that is empty or too long. */
export function nameOf(filename: string, param: string): string {
  const name = filename.split(/[/\\]/).at(-1) ?? "";
  if (name === "") throw invalidRequest(param, "The file has no name.", "invalid_value");
  if (name.length <= MAX_FILENAME_LENGTH) return name;
  const message = `The name of the file is longer than ${MAX_FILENAME_LENGTH} characters.`;
  throw invalidRequest(param, message, "string_above_max_length");
}

/** Fields are short. Bytes. */
const MAX_FIELD_BYTES = 1_024;

/** The fields of a form, as one object: `expires_after[seconds]` is a field of `expires_after`. */
class FormFields {
  readonly #value: Record<string, unknown> = Object.create(null);

  get value(): Record<string, unknown> {
    return this.#value;
  }

  /** Reads a field. Throws the 400 of one that is too long, comes twice, or is unknown. */
  async take({ name, body }: FormPart): Promise<void> {
    const chunks: Uint8Array[] = [];
    let length = 0;
    for await (const bytes of body) {
      length += bytes.length;
      if (length > MAX_FIELD_BYTES)
        throw invalidRequest(
          shownName(name),
          `The field '${shownName(name)}' is longer than ${MAX_FIELD_BYTES} bytes.`,
          "string_above_max_length",
        );
      chunks.push(bytes.slice());
    }
    const text = new TextDecoder().decode(Buffer.concat(chunks));
    const [, field = "", inner] = /^([a-z_]{1,64})(?:\[([a-z_]{1,64})\])?$/.exec(name) ?? [];
    if (field === "")
      throw invalidRequest(shownName(name), `Unknown parameter: '${shownName(name)}'.`, "unknown_parameter");
    let target = this.#value;
    if (inner !== undefined) {
      target[field] ??= Object.create(null);
      const outer = target[field];
      if (typeof outer !== "object") throw twice(field);
      target = outer as Record<string, unknown>;
    }
    if (Object.hasOwn(target, inner ?? field)) throw twice(name);
    target[inner ?? field] = text;
  }
}

function shownName(name: string): string {
  return name.slice(0, 64);
}

function twice(field: string): ApiError {
  return invalidRequest(field, `The form has the field '${field}' twice.`);
}
