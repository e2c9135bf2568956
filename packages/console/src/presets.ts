import { html, nothing } from "lit-html";
import { announce } from "./announce.ts";
import { ask, confirmed } from "./dialogs.ts";

/**
 * Named instructions for repeated use. This browser keeps them, for all tabs, whether or not a user is signed in.
 */
export type Presets = Record<string, string>;

const KEY = "console.presets";

/** The maximum number of presets, and the maximum length of one. */
const MAX_PRESETS = 100;
const MAX_NAME = 64;
const MAX_LENGTH = 100_000;

function presets(): Presets {
  try {
    const kept: Presets = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    const texts = Object.entries(kept).filter(([, text]) => typeof text === "string");
    return Object.fromEntries(texts.slice(0, MAX_PRESETS));
  } catch {
    return {};
  }
}

/** False if the browser could not store them. */
function keep(all: Presets) {
  try {
    localStorage.setItem(KEY, JSON.stringify(all));
    return true;
  } catch {
    return false;
  }
}

/**
 * The selection of a preset and its buttons.
 * @param instructions the typed text
 */
export function presetsTemplate(instructions: string, choose: (instructions: string) => void, redraw: () => void) {
  const all = presets();
  const names = Object.keys(all).sort((one, other) => one.localeCompare(other));
  const current = names.find((name) => all[name] === instructions) ?? "";
  const chosen = (event: Event) => {
    const { value } = event.target as HTMLSelectElement;
    if (value !== "") choose(presets()[value] ?? "");
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
      instructions.trim() === "" || current !== ""
        ? nothing
        : html`<button type="button" class="plain" @click=${() => void save(instructions, redraw)}>Save as a preset</button>`
    }
    ${current === "" ? nothing : html`<button type="button" class="plain" @click=${() => void remove(current, redraw)}>Delete the preset</button>`}
  </div>`;
}

async function save(instructions: string, redraw: () => void) {
  const field = () => document.querySelector("dialog #preset-name") as HTMLInputElement | null;
  const name = await ask(
    "Save as a preset",
    html`<label for="preset-name">Name</label>
      <input dir="auto" id="preset-name" maxlength=${MAX_NAME} autocomplete="off" autofocus />
      <p class="note">Presets are kept in this browser, also after you have signed out.</p>`,
    (close) => html`
      <button type="button" class="primary" @click=${() => close(field()?.value.trim() ?? "")}>Save</button>
      <button type="button" @click=${() => close("")}>Go back</button>
    `,
  );
  if (name === "") return;
  const all = presets();
  const hasRoom = Object.hasOwn(all, name) || Object.keys(all).length < MAX_PRESETS;
  const isKept = hasRoom && instructions.length <= MAX_LENGTH && keep({ ...all, [name]: instructions });
  announce(isKept ? "The preset was saved." : "The browser's storage is full.");
  redraw();
}

async function remove(name: string, redraw: () => void) {
  const question = {
    title: `Delete the preset ${name}?`,
    text: "The instructions stay in the form.",
    action: "Delete",
  };
  if (!(await confirmed(question))) return;
  const { [name]: _, ...others } = presets();
  keep(others);
  announce("The preset was deleted.");
  redraw();
}
