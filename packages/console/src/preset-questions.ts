import { html } from "lit-html";
import { announce } from "./announce.ts";
import { type Preset, presets } from "./presets.ts";
import { askFor } from "./question.ts";
import { keep } from "./session.ts";

const MAX_NAME = 64;

/** Asks for a name, and keeps a preset under it. */
export async function savePreset(preset: Preset, redraw: () => void) {
  const question = {
    title: "Save as a preset",
    form: [{ name: "name", label: "Name", maxLength: MAX_NAME, isRequired: true }],
    text: html`<p class="note">A preset has the model, the instructions, the tools and the parameters. This browser keeps it, also after you have signed out; tokens are left out.</p>`,
    action: "Save",
  };
  await askFor(question, async ({ name }) => {
    if (!keep("presets", { ...presets(), [name]: preset })) throw new Error("The browser's storage is full.");
    announce("The preset was saved.");
  });
  redraw();
}

/** Asks, and deletes a preset. */
export async function removePreset(name: string, redraw: () => void) {
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
