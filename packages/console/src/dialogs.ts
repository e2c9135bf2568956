import { html, nothing, render } from "lit-html";
import { ApiFault } from "./api.ts";

/** Modal dialogs with questions and answers. Escape closes each. */

/**
 * Shows a modal dialog until it is closed, then removes it from the page. Browsers fire a dialog's close event in a
 * later task. `close` removes the dialog at once, because the dialog may show a secret.
 * @returns `closed`: the value given to `close`; empty if the user dismissed the dialog
 */
export function showModal(dialog: HTMLDialogElement): { closed: Promise<string>; close: (result: string) => void } {
  const { promise, resolve } = Promise.withResolvers() as PromiseWithResolvers<string>;
  const end = () => {
    dialog.remove();
    resolve(dialog.returnValue);
  };
  dialog.addEventListener("close", end);
  document.body.append(dialog);
  dialog.showModal();
  return {
    closed: promise,
    close(result) {
      dialog.close(result);
      end();
    },
  };
}

/**
 * @param content a template
 * @param buttons a template
 * @returns the value given to `close`; empty if the user dismissed the dialog
 */
export function ask(
  title: string,
  content: unknown,
  buttons: (close: (result: string) => void) => unknown,
): Promise<string> {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "dialog-title");
  render(
    html`<div class="stack">
      <h2 id="dialog-title">${title}</h2>
      ${content}
      <div class="buttons">${buttons((result) => modal.close(result))}</div>
    </div>`,
    dialog,
  );
  const modal = showModal(dialog);
  return modal.closed;
}

/** Asks before something is done that cannot be undone. */
export async function confirmed({
  title,
  text,
  action,
}: {
  title: string;
  text: string;
  action: string;
}): Promise<boolean> {
  const answer = await ask(
    title,
    html`<p>${text}</p>`,
    (close) => html`
      <button type="button" class="danger" @click=${() => close("yes")}>${action}</button>
      <button type="button" autofocus @click=${() => close("")}>Go back</button>
    `,
  );
  return answer === "yes";
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
