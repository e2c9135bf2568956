import { html } from "lit-html";
import type { Turn } from "./chat-model.ts";
import { recall } from "./session.ts";

/**
 * Links to the responses that were made in this tab, newest first.
 * @param view the view that the links open, such as `responses`
 */
export function recentResponses(view: string) {
  const turns: Turn[] = recall("turns") ?? [];
  const known = turns.filter((turn) => turn.id !== undefined).reverse();
  return html`<div class="card stack">
    <h2>Responses of this tab</h2>
    ${
      known.length === 0
        ? html`<p class="note">There are none yet. You can open any stored response of your tenant by its id.</p>`
        : html`<ul class="recent">
            ${known.map((turn) => html`<li><a href="#/${view}/${turn.id}"><code>${turn.id}</code></a> <span class="note" dir="auto">${turn.text.slice(0, 120)}</span></li>`)}
          </ul>`
    }
  </div>`;
}
