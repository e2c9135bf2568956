import { call } from "./api.js";

/** Copies a text to the clipboard, or saves it as a file. */

/**
 * Saves a file that the server stores.
 * @param {string} id
 * @param {string} name
 */
export async function saveFile(id, name) {
  const response = await call(`/v1/files/${encodeURIComponent(id)}/content`);
  saveBlob(name, await response.blob());
}

/**
 * Copies a text. The button shows the result for a moment.
 * @param {Event} event of the button
 * @param {string} text
 */
export async function copy(event, text) {
  const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
  button.dataset.label ??= button.textContent ?? "";
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // Browsers refuse the clipboard on pages that another machine served over plain HTTP.
    button.textContent = "Not allowed by the browser";
  }
  setTimeout(() => (button.textContent = button.dataset.label ?? ""), 1_500);
}

/**
 * Saves a text as a file.
 * @param {string} name
 * @param {string | string[]} text
 */
export function download(name, text) {
  saveBlob(name, new Blob(Array.isArray(text) ? text : [text], { type: "text/plain" }));
}

/** @param {string} name @param {Blob} blob */
export function saveBlob(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
