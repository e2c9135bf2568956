import { call, uploadFile } from "./api.js";
import { size } from "./format.js";

/** Files that are attached to an input. */

/** The maximum size of all files in a request, in bytes. Base64 adds a third. The server accepts 12 MiB by default. */
const MAX_BYTES = 24_000_000;
const MAX_FILES = 50;

/** Larger documents are uploaded, and the request names their ids. Bytes. */
const MAX_INLINE_BYTES = 200_000;

/** @param {File} file */
export function isUploaded(file) {
  return !file.type.startsWith("image/") && file.size > MAX_INLINE_BYTES;
}

/**
 * Throws an Error with a text for people if there are too many files or they are too large.
 * @param {readonly File[]} files
 * @param {readonly { size: number, fileId?: string | undefined }[]} before files that are already attached
 */
export function checkAttachments(files, before) {
  const inRequest = [...files.filter((file) => !isUploaded(file)), ...before.filter(({ fileId }) => !fileId)];
  const bytes = inRequest.reduce((sum, file) => sum + file.size, 0);
  if (bytes > MAX_BYTES)
    throw new Error(`The files are too large for a request: ${size(bytes)}. They may have ${size(MAX_BYTES)} in all.`);
  if (files.length + before.length > MAX_FILES) throw new Error(`A request may have ${MAX_FILES} files.`);
}

/**
 * Reads a file, or uploads it. Throws an ApiFault, an Error for people, and the reason of `signal`.
 * @param {File} file
 * @param {{ signal: AbortSignal, progress: (bytes: number) => void }} options
 * @returns {Promise<import("./request-body.js").Attachment>}
 */
export async function attachmentFrom(file, options) {
  const { name, size } = file;
  const type = file.type || "application/octet-stream";
  if (!isUploaded(file)) return { name, type, size, url: await dataUrl(file) };
  const { id } = await uploadFile(file, { purpose: "user_data" }, options);
  return { name, type, size, url: "", fileId: id };
}

/** Deletes the file of an attachment that was uploaded and is not sent. @param {import("./request-body.js").Attachment} attachment */
export function discardAttachment({ fileId }) {
  if (fileId) call(`/v1/files/${encodeURIComponent(fileId)}`, { method: "DELETE" }).catch(() => {});
}

/** @param {File} file @returns {Promise<string>} */
function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`The file ${file.name} could not be read.`));
    reader.readAsDataURL(file);
  });
}

/** An attachment in a line. @param {import("./request-body.js").Attachment} attachment */
export function attachmentLabel({ name, size: bytes }) {
  return `${name} (${size(bytes)})`;
}
