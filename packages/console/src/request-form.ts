import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { loadLater } from "./beside.ts";
import { draft } from "./draft.ts";
import { typedIn } from "./form-events.ts";
import type { Parsed } from "./json.ts";
import { presetsTemplate } from "./presets.ts";
import type { Draft } from "./request-body.ts";
import { SCHEMA_EXAMPLE } from "./request-body.ts";
import type { Transport } from "./sending.ts";
import { session } from "./session.ts";

/** The settings of a request, as a form. The tools and the rarer fields are loaded when the page is idle. */

let late: Pick<typeof import("./later.ts"), "toolsTemplate" | "moreTemplate" | "loadStores"> | undefined;

export async function loadSettings() {
  late = await loadLater();
}

const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

const TRANSPORTS: [value: Transport, label: string, note: string][] = [
  ["background", "Background", "It goes on without this page, and the page follows it again after a reload."],
  ["stream", "Stream", "Tokens take the shortest way. The response stops when you leave this page."],
  ["socket", "WebSocket", "One connection for all requests. Unstored responses can be continued, too."],
  ["whole", "No streaming", "One answer, when it is complete."],
];

export interface FormState {
  /** of a field */
  fault: { field: string; message: string } | undefined;
  /** Called when the draft has changed. */
  changed: () => void;
  /** Called when something else has changed. */
  redraw: () => void;
}

export function isChecked(event: Event) {
  return (event.target as HTMLInputElement).checked;
}

export function faultTemplate({ fault }: FormState, field: string) {
  return fault?.field === field
    ? html`<p class="fault" dir="auto" id="${field}-fault" role="alert">${fault.message}</p>`
    : nothing;
}

export function settingsTemplate(state: FormState) {
  const set = (fields: Partial<Draft>) => {
    Object.assign(draft, fields);
    state.changed();
  };
  const { servers, hosted, functions, stores } = draft;
  const tools = servers.length + hosted.length + (functions.trim() === "" ? 0 : 1) + (stores.length === 0 ? 0 : 1);
  return html`
    ${presetsTemplate(draft, set, state.redraw)}
    ${modelTemplate(set)}
    <div>
      <label for="instructions">Instructions</label>
      <textarea dir="auto" id="instructions" rows="2" .value=${live(draft.instructions)} @input=${(e: Event) => set({ instructions: typedIn(e) })}></textarea>
    </div>
    <div class="pair">
      <div>
        <label for="effort">Reasoning effort</label>
        <select id="effort" @change=${(e: Event) => set({ effort: typedIn(e) })}>
          <option value="" ?selected=${draft.effort === ""}>Default</option>
          ${EFFORTS.map((each) => html`<option ?selected=${draft.effort === each}>${each}</option>`)}
        </select>
      </div>
      <div>
        <label for="format">Output</label>
        <select id="format" @change=${(e: Event) => set({ format: typedIn(e) as Parsed })}>
          <option value="text" ?selected=${draft.format === "text"}>Text</option>
          <option value="json_object" ?selected=${draft.format === "json_object"}>JSON</option>
          <option value="json_schema" ?selected=${draft.format === "json_schema"}>JSON by a schema</option>
        </select>
      </div>
    </div>
    ${draft.format === "json_schema" ? jsonTemplate(state, set, "schema", "Schema", SCHEMA_EXAMPLE) : nothing}
    <details @toggle=${(event: Event) => (event.currentTarget as HTMLDetailsElement).open && void late?.loadStores(state.redraw)}>
      <summary>Tools${tools > 0 ? html` <span class="tag busy">${tools}</span>` : nothing}</summary>
      ${late?.toolsTemplate(state, set)}
    </details>
    ${transportTemplate(set)}
    <details>
      <summary>More</summary>
      ${late?.moreTemplate(state, set)}
    </details>
  `;
}

export type SetFields = (fields: Partial<Draft>) => void;

function modelTemplate(set: SetFields) {
  const { models = [draft.model] } = session;
  if (models.length === 0) {
    return html`<div>
      <label for="model">Model</label>
      <input dir="auto" id="model" .value=${live(draft.model)} @input=${(e: Event) => set({ model: typedIn(e) })} />
      <p class="note">The server could not name its models.</p>
    </div>`;
  }
  return html`<div class="pair">
    <div>
      <label for="model">Model</label>
      <select id="model" @change=${(e: Event) => set({ model: typedIn(e) })}>
        ${models.map((name) => html`<option ?selected=${draft.model === name}>${name}</option>`)}
      </select>
    </div>
    <div>
      <label for="second-model">Second model</label>
      <select id="second-model" title="Asks a second model the same question, and shows both answers side by side" @change=${(e: Event) => set({ secondModel: typedIn(e) })}>
        <option value="" ?selected=${draft.secondModel === ""}>None</option>
        ${models.map((name) => html`<option value=${name} ?selected=${draft.secondModel === name}>${name}</option>`)}
      </select>
    </div>
  </div>`;
}

function transportTemplate(set: SetFields) {
  const [, , note] = TRANSPORTS.find(([value]) => value === draft.transport) ?? [];
  return html`<fieldset>
    <legend>Transport</legend>
    <div class="segments">
      ${TRANSPORTS.map(
        ([value, label]) => html`<label class="segment">
          <input type="radio" name="transport" value=${value} .checked=${live(draft.transport === value)} @change=${() => set({ transport: value })} />
          <span>${label}</span>
        </label>`,
      )}
    </div>
    <p class="note">${note}</p>
  </fieldset>`;
}

export function jsonTemplate(
  state: FormState,
  set: SetFields,
  field: "functions" | "schema" | "further" | "searchFilters",
  label: string,
  example: string,
) {
  const hasFault = state.fault?.field === field;
  return html`<div>
    <label for=${field}>${label}</label>
    <textarea
      dir="auto"
      id=${field}
      class="code"
      rows="3"
      spellcheck="false"
      aria-invalid=${hasFault}
      aria-describedby=${hasFault ? `${field}-fault` : nothing}
      .value=${live(draft[field])}
      @input=${(e: Event) => set({ [field]: typedIn(e) })}
    ></textarea>
    ${faultTemplate(state, field)}
    ${draft[field] === "" ? html`<button type="button" class="plain" @click=${() => set({ [field]: example })}>Put in an example</button>` : nothing}
  </div>`;
}

/** False on a phone: its composer has no place for a switch that only a keyboard needs. */
export const hasKeyboard = matchMedia("(hover: hover)").matches;

/**
 * The switch of the Enter key.
 * @param names its classes
 */
export function enterTemplate(state: FormState, names: string) {
  return html`<label class=${names}>
    <input
      type="checkbox"
      .checked=${live(draft.enterSends)}
      @change=${(event: Event) => {
        draft.enterSends = isChecked(event);
        state.changed();
      }}
    />
    Enter sends
  </label>`;
}
