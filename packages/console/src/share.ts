import { html } from "lit-html";
import { copy } from "./save.ts";

/**
 * A button that copies the address of a view. The address does not contain the key: its reader needs a key of the same
 * tenant.
 * @param hash such as `#/responses/resp_…`
 */
export function linkButton(hash: string) {
  const link = new URL(hash, location.href).href;
  const share = (event: Event) => void copy(event, link);
  return html`<button type="button" title="Opens with any key of this tenant" @click=${share}>Copy link</button>`;
}
