import { html, nothing } from "lit-html";
import { ask, messageWithField } from "./dialogs.ts";
import { type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import type { ApiObject } from "./json.ts";

/** A question before something is done: a confirmation, or a form. */
export interface Question {
  title: string;
  /** A template. */
  text?: unknown;
  form?: Form;
  /** A template below the form. */
  below?: unknown;
  /** The values that the form begins with. */
  values?: ApiObject;
  /** The word on the button that does it. */
  action: string;
  isDangerous?: boolean;
  /** The word on the button that goes back; empty where there is nothing to go back to. */
  back?: string;
}

/**
 * Asks a question, and does the work with the form's values. The dialog stays until the work succeeds or the user goes
 * back, and shows the fault of work that fails.
 * @returns true if the work was done
 */
export async function askFor(question: Question, work: (given: ApiObject) => Promise<void>): Promise<boolean> {
  const { title, text = nothing, below = nothing, form, values, action, isDangerous, back = "Go back" } = question;
  const fault = document.createElement("p");
  fault.className = "fault";
  fault.setAttribute("role", "alert");
  let isBusy = false;
  const result = await ask(
    title,
    (close) => {
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
      return html`<form class="stack" @submit=${submit}>
        ${typeof text === "string" ? html`<p>${text}</p>` : text}
        ${form ? fieldsTemplate(form, values, "asked") : nothing} ${below} ${fault}
        <div class="buttons">
          <button type="submit" class=${isDangerous ? "danger" : "primary"}>${action}</button>
          ${back && html`<button type="button" ?autofocus=${!form} @click=${() => close("")}>${back}</button>`}
        </div>
      </form>`;
    },
    back === "",
  );
  return result === "done";
}
