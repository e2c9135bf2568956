import { html } from "lit-html";
import { faultNotice, messageWithField } from "./dialogs.ts";

/** A form that asks the API and shows the answer: one question at a time, with its fault. */
export class Asking<Answer> {
  answer: Answer | undefined;
  #fault = "";
  #isBusy = false;
  #redraw;
  #ask;

  /** @param ask Gives the answer to the values of the form. Throws what goes wrong. */
  constructor(redraw: () => void, ask: (data: FormData) => Promise<Answer>) {
    this.#redraw = redraw;
    this.#ask = ask;
  }

  /** Takes the form's `submit`. */
  submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (this.#isBusy) return;
    const data = new FormData(event.currentTarget as HTMLFormElement);
    this.#isBusy = true;
    this.#fault = "";
    this.#redraw();
    try {
      this.answer = await this.#ask(data);
    } catch (error) {
      this.answer = undefined;
      this.#fault = messageWithField(error);
    }
    this.#isBusy = false;
    this.#redraw();
  };

  /** Shows a fault of something else than the question; with an empty text, none. */
  say(fault: string) {
    this.#fault = fault;
    this.#redraw();
  }

  get fault() {
    return faultNotice(this.#fault);
  }

  /** The button that asks. @param busy its text while the answer is awaited */
  button(label: string, busy: string) {
    return html`<button class="primary" type="submit" aria-disabled=${String(this.#isBusy)}>${this.#isBusy ? busy : label}</button>`;
  }
}
