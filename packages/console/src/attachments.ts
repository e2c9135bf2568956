import { call, uploadFile } from "./api.ts";
import { size } from "./format.ts";
import type { Attachment } from "./request-body.ts";

/** Files that are attached to an input. */

/** The maximum size of all files in a request, in bytes. Base64 adds a third. The server accepts 12 MiB by default. */
const MAX_BYTES = 24_000_000;
const MAX_FILES = 50;

/** Larger documents are uploaded, and the request names their ids. Bytes. */
const MAX_INLINE_BYTES = 200_000;

export function isUploaded(file: File) {
  return !file.type.startsWith("image/") && file.size > MAX_INLINE_BYTES;
}

/**
 * Throws an Error with a text for people if there are too many files or they are too large.
 * @param before files that are already attached
 */
export function checkAttachments(
  files: readonly File[],
  before: readonly { size: number; fileId?: string | undefined }[],
) {
  const inRequest = [...files.filter((file) => !isUploaded(file)), ...before.filter(({ fileId }) => !fileId)];
  const bytes = inRequest.reduce((sum, file) => sum + file.size, 0);
  if (bytes > MAX_BYTES)
    throw new Error(`The files are too large for a request: ${size(bytes)}. They may have ${size(MAX_BYTES)} in all.`);
  if (files.length + before.length > MAX_FILES) throw new Error(`A request may have ${MAX_FILES} files.`);
}

/** Reads a file, or uploads it. Throws an ApiFault, an Error for people, and the reason of `signal`. */
export async function attachmentFrom(
  file: File,
  options: { signal: AbortSignal; progress: (bytes: number) => void },
): Promise<Attachment> {
  const { name, size } = file;
  const type = file.type || "application/octet-stream";
  if (!isUploaded(file)) return { name, type, size, url: await dataUrl(file) };
  const { id } = await uploadFile(file, { purpose: "user_data" }, options);
  return { name, type, size, url: "", fileId: id };
}

/** Deletes the file of an attachment that was uploaded and is not sent. */
export function discardAttachment({ fileId }: Attachment) {
  if (fileId) call(`/v1/files/${encodeURIComponent(fileId)}`, { method: "DELETE" }).catch(() => {});
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`The file ${file.name} could not be read.`));
    reader.readAsDataURL(file);
  });
}

/** An attachment in a line. */
export function attachmentLabel({ name, size: bytes }: Attachment) {
  return `${name} (${size(bytes)})`;
}
