import { html, nothing } from "lit-html";
import { ask, messageWithField } from "./dialogs.ts";
import type { Form } from "./fields.ts";
import { fieldsTemplate, valuesIn } from "./fields.ts";
import type { ApiObject } from "./json.ts";
import { copy } from "./save.ts";

/** A question before something is done: a confirmation, or a form. */
export interface Question {
  title: string;
  /** A template. */
  text?: unknown;
  form?: Form;
  /** The values that the form begins with. */
  values?: ApiObject;
  /** The word on the button that does it. */
  action: string;
  isDangerous?: boolean;
}

/**
 * Asks a question, and does the work with the form's values. The dialog stays until the work succeeds or the user goes
 * back, and shows the fault of work that fails.
 * @returns true if the work was done
 */
export async function askFor(question: Question, work: (given: ApiObject) => Promise<void>): Promise<boolean> {
  const { title, text = nothing, form, values, action, isDangerous = false } = question;
  const fault = document.createElement("p");
  fault.className = "fault";
  fault.setAttribute("role", "alert");
  let isBusy = false;
  let close: (result: string) => void = () => {};
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    fault.textContent = "";
    try {
      await work(form ? valuesIn(form, new FormData(event.currentTarget as HTMLFormElement)) : {});
      close("done");
    } catch (error) {
      fault.textContent = messageWithField(error);
    }
    isBusy = false;
  };
  const result = await ask(
    title,
    html`<form id="asked" class="stack" @submit=${submit}>
      ${typeof text === "string" ? html`<p>${text}</p>` : text} ${form ? fieldsTemplate(form, values, "asked") : nothing} ${fault}
    </form>`,
    (end) => {
      close = end;
      return html`
        <button type="submit" form="asked" class=${isDangerous ? "danger" : "primary"}>${action}</button>
        <button type="button" ?autofocus=${!form} @click=${() => end("")}>Go back</button>
      `;
    },
  );
  return result === "done";
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
      <input dir="auto" id="secret" class="mono" readonly .value=${value} @focus=${(event: Event) => (event.target as HTMLInputElement).select()} />`,
    (close) => html`
      <button type="button" class="primary" @click=${(event: MouseEvent) => void copy(event, value)}>Copy</button>
      <button type="button" @click=${() => close("")}>Done</button>
    `,
  );
}
