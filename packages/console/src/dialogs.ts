import { html, nothing, render } from "lit-html";
import { ApiFault } from "./api.ts";
import { copy } from "./save.ts";

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

/**
 * Asks with a form until it is saved, or the user goes back. Shows a fault of `save` beside the form.
 * @param fields a template
 * @param inWords the words of a fault
 */
export async function askForm(
  title: string,
  fields: unknown,
  save: (data: FormData) => Promise<void>,
  inWords: (fault: unknown) => string = messageOf,
): Promise<void> {
  const error = document.createElement("p");
  error.className = "fault";
  error.setAttribute("role", "alert");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    try {
      await save(new FormData(form));
      form.closest("dialog")?.close();
    } catch (fault) {
      error.textContent = inWords(fault);
    }
  };
  await ask(
    title,
    html`<form id="asked" class="stack" @submit=${submit}>${fields} ${error}</form>`,
    (close) => html`
      <button type="submit" form="asked" class="primary">Save</button>
      <button type="button" @click=${() => close("")}>Go back</button>
    `,
  );
}

/**
 * Shows a secret, which is shown this once.
 * @param label what it is
 */
export function showSecret(title: string, value: string, label: string = "API key") {
  return ask(
    title,
    html`<p class="notice">Copy it now: it is kept nowhere, and is not shown again.</p>
      <label for="secret">${label}</label>
      <input dir="auto" id="secret" class="mono" readonly .value=${value} />`,
    (close) => html`
      <button type="button" class="primary" @click=${(event: MouseEvent) => void copy(event, value)}>Copy</button>
      <button type="button" @click=${() => close("")}>Done</button>
    `,
  );
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
