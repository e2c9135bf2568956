import { html, nothing } from "lit-html";
import { announce } from "./announce.ts";
import { ask, confirmed } from "./dialogs.ts";
import type { Draft } from "./request-body.ts";

/**
 * Named settings for repeated use: model, instructions, tools and parameters. This browser keeps them, for all tabs, whether or not a
 * user is signed in. Tokens of MCP servers are not kept.
 */
type Preset = Partial<Omit<Draft, "input" | "attachments" | "enterSends">>;

const KEY = "console.presets";

/** The maximum number of presets, and the maximum length of one. */
const MAX_PRESETS = 100;
const MAX_NAME = 64;
const MAX_LENGTH = 100_000;

function presets(): Record<string, Preset> {
  try {
    const kept: Record<string, Preset> = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    const settings = Object.entries(kept).filter(([, preset]) => typeof preset === "object" && preset !== null);
    return Object.fromEntries(settings.slice(0, MAX_PRESETS));
  } catch {
    return {};
  }
}

/** False if the browser could not store them. */
function keep(all: Record<string, Preset>) {
  try {
    localStorage.setItem(KEY, JSON.stringify(all));
    return true;
  } catch {
    return false;
  }
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
  return html`<div class="buttons presets">
    ${
      names.length === 0
        ? nothing
        : html`<label class="unseen" for="preset">Preset</label>
            <select id="preset" @change=${chosen}>
              <option value="" ?selected=${current === ""}>Presets…</option>
              ${names.map((name) => html`<option value=${name} ?selected=${name === current}>${name}</option>`)}
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
  const field = () => document.querySelector("dialog #preset-name") as HTMLInputElement | null;
  const name = await ask(
    "Save as a preset",
    html`<label for="preset-name">Name</label>
      <input dir="auto" id="preset-name" maxlength=${MAX_NAME} autocomplete="off" autofocus />
      <p class="note">A preset has the model, the instructions, the tools and the parameters. This browser keeps it, also after you have signed out; tokens are left out.</p>`,
    (close) => html`
      <button type="button" class="primary" @click=${() => close(field()?.value.trim() ?? "")}>Save</button>
      <button type="button" @click=${() => close("")}>Go back</button>
    `,
  );
  if (name === "") return;
  const all = presets();
  const hasRoom = Object.hasOwn(all, name) || Object.keys(all).length < MAX_PRESETS;
  const isKept = hasRoom && JSON.stringify(preset).length <= MAX_LENGTH && keep({ ...all, [name]: preset });
  announce(isKept ? "The preset was saved." : "The browser's storage is full.");
  redraw();
}

async function remove(name: string, redraw: () => void) {
  const question = {
    title: `Delete the preset ${name}?`,
    text: "The settings stay in the form.",
    action: "Delete",
  };
  if (!(await confirmed(question))) return;
  const { [name]: _, ...others } = presets();
  keep(others);
  announce("The preset was deleted.");
  redraw();
}
