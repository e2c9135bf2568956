import { html } from "lit-html";
import { ask } from "./dialogs.ts";
import { copy } from "./save.ts";

/** Shows something until the user has seen it. */
export function show(title: string, content: unknown) {
  return ask(
    title,
    (close) =>
      html`${content}<div class="buttons"><button type="button" autofocus @click=${() => close("")}>Close</button></div>`,
  );
}

/**
 * Shows a secret, which is shown this once.
 * @param label what it is
 */
export function showSecret(title: string, value: string, label: string = "API key") {
  const select = (event: Event) => (event.target as HTMLInputElement).select();
  return ask(
    title,
    (close) => html`<p class="notice">Copy it now: it is kept nowhere, and is not shown again.</p>
      <label for="secret">${label}</label>
      <input dir="auto" id="secret" class="font-mono text-sm" readonly .value=${value} @focus=${select} />
      <div class="buttons">
        <button type="button" class="primary" @click=${(event: MouseEvent) => void copy(event, value)}>Copy</button>
        <button type="button" @click=${() => close("")}>Done</button>
      </div>`,
  );
}
