import { html, nothing, render } from "lit-html";
import { ApiFault } from "./api.ts";

/**
 * Shows a modal dialog until it is closed, then removes it from the page. Browsers fire a dialog's close event in a
 * later task. `close` removes the dialog at once, because the dialog may show a secret. Escape closes it, too.
 * @param content gives the template of what is below the title
 * @param isRequired true if there is nothing behind the dialog, so that Escape does not close it
 * @returns the value given to `close`; empty if the user dismissed the dialog
 */
export function ask(
  title: string,
  content: (close: (result: string) => void) => unknown,
  isRequired = false,
): Promise<string> {
  const dialog = document.createElement("dialog");
  const { promise, resolve } = Promise.withResolvers() as PromiseWithResolvers<string>;
  const end = () => {
    dialog.remove();
    resolve(dialog.returnValue);
  };
  const close = (result: string) => {
    dialog.close(result);
    end();
  };
  dialog.setAttribute("aria-labelledby", "dialog-title");
  dialog.addEventListener("cancel", (event) => isRequired && event.preventDefault());
  dialog.addEventListener("close", end);
  render(html`<div class="stack"><h2 id="dialog-title">${title}</h2>${content(close)}</div>`, dialog);
  document.body.append(dialog);
  dialog.showModal();
  return promise;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The message of an error, with the name of the field where the server has named one. */
export function messageWithField(error: unknown) {
  const where = error instanceof ApiFault && error.param ? ` (${error.param})` : "";
  return `${messageOf(error)}${where}`;
}

/** A notice of what went wrong, where something has. */
export function faultNotice(message: string) {
  return message ? html`<p class="notice bad" dir="auto" role="alert">${message}</p>` : nothing;
}
