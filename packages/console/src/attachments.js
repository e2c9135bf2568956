import { size } from "./format.js";

/** Files that go with an input. */

/** The most that all files of a request have, in bytes: base64 makes a third more of them, and the server takes 12 MiB by default. */
const MAX_BYTES = 24_000_000;
const MAX_FILES = 50;

/**
 * Reads files. Throws an Error for people where there are too many or too large ones.
 * @param {Iterable<File>} files
 * @param {import("./request-body.js").Attachment[]} before those that are attached already
 * @returns {Promise<import("./request-body.js").Attachment[]>}
 */
export async function attachmentsFrom(files, before) {
  const list = [...files];
  const bytes = [...list, ...before].reduce((sum, file) => sum + file.size, 0);
  if (bytes > MAX_BYTES)
    throw new Error(`That is too much for a request: ${size(bytes)}. Files may have ${size(MAX_BYTES)} in all.`);
  if (list.length + before.length > MAX_FILES) throw new Error(`A request may have ${MAX_FILES} files here.`);
  return Promise.all(
    list.map(async (file) => ({
      name: file.name,
      type: file.type || "application/octet-stream",
      size: file.size,
      url: await dataUrl(file),
    })),
  );
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
