import { announce } from "./announce.ts";
import { call } from "./api.ts";

/** Copies a text to the clipboard, or saves it as a file. */

/** Saves a file that the server stores. */
export async function saveFile(id: string, name: string) {
  const response = await call(`/v1/files/${encodeURIComponent(id)}/content`);
  saveBlob(name, await response.blob());
}

/**
 * Copies a text. The button shows the result for a moment.
 * @param event of the button
 */
export async function copy(event: Event, text: string) {
  const button = event.currentTarget as HTMLButtonElement;
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

/** Copies a text. The icon button shows for a moment that it was, and screen readers are told. */
export async function copyText(text: string, { currentTarget }: Event) {
  const button = currentTarget as HTMLElement;
  const isCopied = await navigator.clipboard.writeText(text).then(
    () => true,
    () => false,
  );
  announce(isCopied ? "Copied" : "The browser does not allow it");
  button.classList.add(isCopied ? "done" : "refused");
  setTimeout(() => button.classList.remove("done", "refused"), 1_500);
}

/** Saves a text as a file. */
export function download(name: string, text: string) {
  saveBlob(name, new Blob([text], { type: "text/plain" }));
}

export function saveBlob(name: string, blob: Blob) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
