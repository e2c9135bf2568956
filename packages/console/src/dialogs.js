import { html, nothing, render } from "lit-html";
import { ApiFault } from "./api.js";
import { copy } from "./save.js";

/** Modal dialogs with questions and answers. Escape closes each. */

/**
 * Shows a modal dialog until it is closed, then removes it from the page. Browsers fire a dialog's close event in a
 * later task. `close` removes the dialog at once, because the dialog may show a secret.
 * @param {HTMLDialogElement} dialog
 * @returns {{ closed: Promise<string>, close: (result: string) => void }} `closed`: the value given to `close`; empty
 *   if the user dismissed the dialog
 */
export function showModal(dialog) {
  const { promise, resolve } = /** @type {PromiseWithResolvers<string>} */ (Promise.withResolvers());
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
 * @param {string} title
 * @param {unknown} content a template
 * @param {(close: (result: string) => void) => unknown} buttons a template
 * @returns {Promise<string>} the value given to `close`; empty if the user dismissed the dialog
 */
export function ask(title, content, buttons) {
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

/**
 * Asks before something is done that cannot be undone.
 * @param {{ title: string, text: string, action: string }} question
 * @returns {Promise<boolean>}
 */
export async function confirmed({ title, text, action }) {
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
 * @param {string} title
 * @param {unknown} fields a template
 * @param {(data: FormData) => Promise<void>} save
 * @param {(fault: unknown) => string} [inWords] the words of a fault
 * @returns {Promise<void>}
 */
export async function askForm(title, fields, save, inWords = messageOf) {
  const error = document.createElement("p");
  error.className = "fault";
  error.setAttribute("role", "alert");
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
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
 * @param {string} title
 * @param {string} value
 * @param {string} [label] what it is
 */
export function showSecret(title, value, label = "API key") {
  return ask(
    title,
    html`<p class="notice">Copy it now: it is kept nowhere, and is not shown again.</p>
      <label for="secret">${label}</label>
      <input dir="auto" id="secret" class="mono" readonly .value=${value} />`,
    (close) => html`
      <button type="button" class="primary" @click=${(/** @type {MouseEvent} */ event) => void copy(event, value)}>Copy</button>
      <button type="button" @click=${() => close("")}>Done</button>
    `,
  );
}

/** @param {unknown} error @returns {string} */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** The message of an error, with the name of the field where the server has named one. @param {unknown} error */
export function messageWithField(error) {
  const where = error instanceof ApiFault && error.param ? ` (${error.param})` : "";
  return `${messageOf(error)}${where}`;
}

/** A notice of what went wrong, where something has. @param {string} message */
export function faultNotice(message) {
  return message ? html`<p class="notice bad" dir="auto" role="alert">${message}</p>` : nothing;
}
