import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { draft } from "./draft.ts";
import { typedIn } from "./form-events.ts";
import type { Parsed } from "./json.ts";
import { presetsTemplate } from "./presets.ts";
import type { Draft, McpServer } from "./request-body.ts";
import { FUNCTION_EXAMPLE, SCHEMA_EXAMPLE } from "./request-body.ts";
import type { Transport } from "./sending.ts";
import { session } from "./session.ts";
import { loadStores, storesTemplate } from "./store-choice.ts";

/** The settings of a request, as a form. */

const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

const HOSTED: [type: string, label: string][] = [
  ["web_search", "Web search"],
  ["code_interpreter", "Python"],
  ["image_generation", "Images"],
  ["container", "Shell"],
];

const TRANSPORTS: [value: Transport, label: string, note: string][] = [
  ["background", "Background", "It goes on without this page, and the page follows it again after a reload."],
  ["stream", "Stream", "Tokens take the shortest way. The response stops when you leave this page."],
  ["socket", "WebSocket", "One connection for all requests. Unstored responses can be continued, too."],
  ["whole", "No streaming", "One answer, when it is complete."],
];

const FILTER_EXAMPLE = '{ "type": "eq", "key": "language", "value": "en" }';

export interface FormState {
  /** of a field */
  fault: { field: string; message: string } | undefined;
  /** Called when the draft has changed. */
  changed: () => void;
  /** Called when something else has changed. */
  redraw: () => void;
}

function isChecked(event: Event) {
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
  return html`
    ${modelTemplate(set)}
    <div>
      <label for="instructions">Instructions</label>
      <textarea dir="auto" id="instructions" rows="2" .value=${live(draft.instructions)} @input=${(e: Event) => set({ instructions: typedIn(e) })}></textarea>
      ${presetsTemplate(draft.instructions, (instructions) => set({ instructions }), state.redraw)}
    </div>
    ${transportTemplate(set)}
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
    ${toolsTemplate(state, set)}
    ${moreTemplate(state, set)}
  `;
}

export type Set = (fields: Partial<Draft>) => void;

function modelTemplate(set: Set) {
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

function transportTemplate(set: Set) {
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

function jsonTemplate(
  state: FormState,
  set: Set,
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

function toolsTemplate(state: FormState, set: Set) {
  const { servers, hosted, functions, stores } = draft;
  const number = servers.length + hosted.length + (functions.trim() === "" ? 0 : 1) + (stores.length === 0 ? 0 : 1);
  return html`<details
    @toggle=${(event: Event) => (event.currentTarget as HTMLDetailsElement).open && void loadStores(state.redraw)}
  >
    <summary>Tools${number > 0 ? html` <span class="tag busy">${number}</span>` : nothing}</summary>
    <div class="stack inner">
      ${jsonTemplate(state, set, "functions", "Functions (JSON)", FUNCTION_EXAMPLE)}
      <fieldset>
        <legend>Run by this server</legend>
        <div class="buttons">
          ${HOSTED.map(
            ([type, label]) => html`<label class="check">
              <input
                type="checkbox"
                .checked=${live(hosted.includes(type))}
                @change=${(e: Event) => set({ hosted: isChecked(e) ? [...hosted, type] : hosted.filter((each) => each !== type) })}
              />
              ${label}
            </label>`,
          )}
        </div>
      </fieldset>
      <fieldset>
        <legend>Search in files</legend>
        <div class="stack">
          ${storesTemplate(stores, (ids) => set({ stores: ids }))}
          ${stores.length === 0 ? nothing : searchTemplate(state, set)}
        </div>
      </fieldset>
      <fieldset>
        <legend>MCP servers</legend>
        <div class="stack">
          ${servers.map((server, index) => serverTemplate(server, index, set))}
          <div>
            <button type="button" @click=${() => set({ servers: [...servers, { label: "", url: "", authorization: "", asks: true }] })}>
              Add an MCP server
            </button>
          </div>
        </div>
      </fieldset>
    </div>
  </details>`;
}

function searchTemplate(state: FormState, set: Set) {
  return html`
    <div>
      <label for="searchResults">Most results</label>
      <input dir="auto" id="searchResults" inputmode="numeric" .value=${live(draft.searchResults)} @input=${(e: Event) => set({ searchResults: typedIn(e) })} />
      ${faultTemplate(state, "searchResults")}
    </div>
    ${jsonTemplate(state, set, "searchFilters", "Filters (JSON)", FILTER_EXAMPLE)}
  `;
}

function serverTemplate(server: McpServer, index: number, set: Set) {
  const change = (fields: Partial<McpServer>) =>
    set({ servers: draft.servers.map((each, at) => (at === index ? { ...each, ...fields } : each)) });
  const id = `server-${index}`;
  return html`<div class="stack server">
    <div class="pair">
      <div>
        <label for="${id}-label">Label</label>
        <input dir="auto" id="${id}-label" .value=${live(server.label)} @input=${(e: Event) => change({ label: typedIn(e) })} />
      </div>
      <div>
        <label for="${id}-token">Token</label>
        <input dir="auto" id="${id}-token" type="password" autocomplete="off" .value=${live(server.authorization)} @input=${(e: Event) => change({ authorization: typedIn(e) })} />
      </div>
    </div>
    <div>
      <label for="${id}-url">URL</label>
      <input dir="auto" id="${id}-url" inputmode="url" .value=${live(server.url)} @input=${(e: Event) => change({ url: typedIn(e) })} />
    </div>
    <div class="buttons">
      <label class="check">
        <input type="checkbox" .checked=${live(server.asks)} @change=${(e: Event) => change({ asks: isChecked(e) })} />
        Ask before each call
      </label>
      <button type="button" class="plain" @click=${() => set({ servers: draft.servers.filter((_, at) => at !== index) })}>Remove</button>
    </div>
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

function moreTemplate(state: FormState, set: Set) {
  return html`<details>
    <summary>More</summary>
    <div class="stack inner">
      <div class="pair">
        <div>
          <label for="max-output-tokens">Most output tokens</label>
          <input dir="auto" id="max-output-tokens" inputmode="numeric" .value=${live(draft.maxOutputTokens)} @input=${(e: Event) => set({ maxOutputTokens: typedIn(e) })} />
          ${faultTemplate(state, "max-output-tokens")}
        </div>
        <div>
          <label for="temperature">Temperature</label>
          <input dir="auto" id="temperature" inputmode="decimal" .value=${live(draft.temperature)} @input=${(e: Event) => set({ temperature: typedIn(e) })} />
          ${faultTemplate(state, "temperature")}
        </div>
      </div>
      <label class="check">
        <input type="checkbox" .checked=${live(draft.store)} @change=${(e: Event) => set({ store: isChecked(e) })} />
        Store the response
      </label>
      <label class="check">
        <input type="checkbox" .checked=${live(draft.rawMessages)} @change=${(e: Event) => set({ rawMessages: isChecked(e) })} />
        With raw messages (Harmony)
      </label>
      ${hasKeyboard ? nothing : enterTemplate(state, "check")}
      ${jsonTemplate(state, set, "further", "Further fields (JSON)", '{ "top_p": 0.9 }')}
    </div>
  </details>`;
}
