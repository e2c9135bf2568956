import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { announce } from "./announce.ts";
import { askFor } from "./question.ts";
import type { Draft } from "./request-body.ts";
import { keep, kept } from "./session.ts";

/**
 * Named settings for repeated use: model, instructions, tools and parameters. This browser keeps them, for all tabs, whether or not a
 * user is signed in. Tokens of MCP servers are not kept.
 */
type Preset = Partial<Omit<Draft, "input" | "attachments" | "enterSends">>;

/** The maximum number of presets, and the maximum length of one. */
const MAX_PRESETS = 100;
const MAX_NAME = 64;
const MAX_LENGTH = 100_000;

function presets(): Record<string, Preset> {
  const settings = Object.entries<Preset>(kept("presets") ?? {});
  return Object.fromEntries(settings.filter(([, preset]) => preset).slice(0, MAX_PRESETS));
}

function presetOf(draft: Draft): Preset {
  const { input: _input, attachments: _attachments, enterSends: _enterSends, servers, ...settings } = draft;
  return { ...settings, servers: servers.map((server) => ({ ...server, authorization: "" })) };
}

/** The selection of a preset and its buttons. */
export function presetsTemplate(draft: Draft, choose: (preset: Preset) => void, redraw: () => void) {
  const all = presets();
  const names = Object.keys(all).sort((one, other) => one.localeCompare(other));
  const now = JSON.stringify(presetOf(draft));
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
        ? html`<button type="button" class="plain" @click=${() => void save(presetOf(draft), redraw)}>Save as a preset</button>`
        : html`<button type="button" class="plain" @click=${() => void remove(current, redraw)}>Delete the preset</button>`
    }
  </div>`;
}

async function save(preset: Preset, redraw: () => void) {
  const question = {
    title: "Save as a preset",
    form: [{ name: "name", label: "Name", maxLength: MAX_NAME, isRequired: true }],
    text: html`<p class="note">A preset has the model, the instructions, the tools and the parameters. This browser keeps it, also after you have signed out; tokens are left out.</p>`,
    action: "Save",
  };
  await askFor(question, async ({ name }) => {
    const all = presets();
    const fits = Object.hasOwn(all, name) || Object.keys(all).length < MAX_PRESETS;
    const isKept = fits && JSON.stringify(preset).length <= MAX_LENGTH && keep("presets", { ...all, [name]: preset });
    if (!isKept) throw new Error("The browser's storage is full.");
    announce("The preset was saved.");
  });
  redraw();
}

async function remove(name: string, redraw: () => void) {
  const question = {
    title: `Delete the preset ${name}?`,
    text: "The settings stay in the form.",
    action: "Delete",
    isDangerous: true,
  };
  await askFor(question, async () => {
    const { [name]: _, ...others } = presets();
    keep("presets", others);
    announce("The preset was deleted.");
  });
  redraw();
}
