import { html } from "lit-html";

/** The value of the field whose event it is: the typed text, or the chosen option. */
export function typedIn(event: Event) {
  return (event.target as HTMLInputElement).value;
}

/** A button that shows what the field before it hides, or hides it again. */
export function showButton() {
  const toggle = (event: Event) => {
    const button = event.currentTarget as HTMLButtonElement;
    const field = button.previousElementSibling as HTMLInputElement;
    const isShown = field.type === "password";
    field.type = isShown ? "text" : "password";
    button.setAttribute("aria-pressed", String(isShown));
  };
  return html`<button type="button" class="plain" aria-pressed="false" @click=${toggle}>Show</button>`;
}
