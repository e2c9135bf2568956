import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { loadLater } from "./beside.ts";
import { type Draft, settingsOf } from "./request-body.ts";
import { kept } from "./session.ts";

/**
 * Named settings for repeated use: model, instructions, tools and parameters. This browser keeps them, for all tabs, whether or not a
 * user is signed in. Tokens of MCP servers are not kept.
 */
export type Preset = Partial<ReturnType<typeof settingsOf>>;

export const presets = (): Record<string, Preset> => kept("presets") ?? {};

/** The selection of a preset and its buttons. */
export function presetsTemplate(draft: Draft, choose: (preset: Preset) => void, redraw: () => void) {
  const all = presets();
  const names = Object.keys(all).sort((one, other) => one.localeCompare(other));
  const now = JSON.stringify(settingsOf(draft));
  const current = names.find((name) => JSON.stringify(all[name]) === now) ?? "";
  const chosen = (event: Event) => {
    const { value } = event.target as HTMLSelectElement;
    if (value !== "") choose(presets()[value] ?? {});
  };
  return html`<div class="buttons">
    ${
      names.length === 0
        ? nothing
        : html`<label class="unseen" for="preset">Preset</label>
            <select class="w-auto max-w-64" id="preset" @change=${chosen}>
              <option value="" .selected=${live(current === "")}>Presets…</option>
              ${names.map((name) => html`<option value=${name} .selected=${live(name === current)}>${name}</option>`)}
            </select>`
    }
    ${
      current === ""
        ? html`<button type="button" class="plain" @click=${() => void loadLater().then(({ savePreset }) => savePreset(settingsOf(draft), redraw))}>Save as a preset</button>`
        : html`<button type="button" class="plain" @click=${() => void loadLater().then(({ removePreset }) => removePreset(current, redraw))}>Delete the preset</button>`
    }
  </div>`;
}
