import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { draft } from "./draft.js";
import { typedIn } from "./form-events.js";
import { presetsTemplate } from "./presets.js";
import { session } from "./session.js";
import { loadStores, storesTemplate } from "./store-choice.js";

/** The settings of a request, as a form. */

const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/** @type {[type: string, label: string][]} */
const HOSTED = [
  ["web_search", "Web search"],
  ["code_interpreter", "Python"],
  ["image_generation", "Images"],
  ["container", "Shell"],
];

/** @type {[value: import("./sending.js").Transport, label: string, note: string][]} */
const TRANSPORTS = [
  ["background", "Background", "It goes on without this page, and the page follows it again after a reload."],
  ["stream", "Stream", "Tokens take the shortest way. The response stops when you leave this page."],
  ["socket", "WebSocket", "One connection for all requests. Unstored responses can be continued, too."],
  ["whole", "No streaming", "One answer, when it is complete."],
];

export const FUNCTION_EXAMPLE = `[{
  "name": "get_weather",
  "parameters": {
    "type": "object",
    "properties": { "city": { "type": "string" } },
    "required": ["city"]
  }
}]`;

export const SCHEMA_EXAMPLE = `{
  "type": "object",
  "properties": { "answer": { "type": "string" } },
  "required": ["answer"],
  "additionalProperties": false
}`;

const FILTER_EXAMPLE = '{ "type": "eq", "key": "language", "value": "en" }';

/**
 * @typedef {object} FormState
 * @property {{ field: string, message: string } | undefined} fault of a field
 * @property {() => void} changed Called when the draft has changed.
 * @property {() => void} redraw Called when something else has changed.
 */

/** @param {Event} event */
function isChecked(event) {
  return /** @type {HTMLInputElement} */ (event.target).checked;
}

/** @param {FormState} state @param {string} field */
export function faultTemplate({ fault }, field) {
  return fault?.field === field
    ? html`<p class="fault" dir="auto" id="${field}-fault" role="alert">${fault.message}</p>`
    : nothing;
}

/** @param {FormState} state */
export function settingsTemplate(state) {
  /** @param {Partial<import("./request-body.js").Draft>} fields */
  const set = (fields) => {
    Object.assign(draft, fields);
    state.changed();
  };
  return html`
    ${modelTemplate(set)}
    <div>
      <label for="instructions">Instructions</label>
      <textarea dir="auto" id="instructions" rows="2" .value=${live(draft.instructions)} @input=${(/** @type {Event} */ e) => set({ instructions: typedIn(e) })}></textarea>
      ${presetsTemplate(draft.instructions, (instructions) => set({ instructions }), state.redraw)}
    </div>
    ${transportTemplate(set)}
    <div class="pair">
      <div>
        <label for="effort">Reasoning effort</label>
        <select id="effort" @change=${(/** @type {Event} */ e) => set({ effort: typedIn(e) })}>
          <option value="" ?selected=${draft.effort === ""}>Default</option>
          ${EFFORTS.map((each) => html`<option ?selected=${draft.effort === each}>${each}</option>`)}
        </select>
      </div>
      <div>
        <label for="format">Output</label>
        <select id="format" @change=${(/** @type {Event} */ e) => set({ format: /** @type {any} */ (typedIn(e)) })}>
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

/** @typedef {(fields: Partial<import("./request-body.js").Draft>) => void} Set */

/** @param {Set} set */
function modelTemplate(set) {
  const { models = [draft.model] } = session;
  if (models.length === 0) {
    return html`<div>
      <label for="model">Model</label>
      <input dir="auto" id="model" .value=${live(draft.model)} @input=${(/** @type {Event} */ e) => set({ model: typedIn(e) })} />
      <p class="note">The server could not name its models.</p>
    </div>`;
  }
  return html`<div class="pair">
    <div>
      <label for="model">Model</label>
      <select id="model" @change=${(/** @type {Event} */ e) => set({ model: typedIn(e) })}>
        ${models.map((name) => html`<option ?selected=${draft.model === name}>${name}</option>`)}
      </select>
    </div>
    <div>
      <label for="second-model">Second model</label>
      <select id="second-model" title="Asks a second model the same question, and shows both answers side by side" @change=${(/** @type {Event} */ e) => set({ secondModel: typedIn(e) })}>
        <option value="" ?selected=${draft.secondModel === ""}>None</option>
        ${models.map((name) => html`<option value=${name} ?selected=${draft.secondModel === name}>${name}</option>`)}
      </select>
    </div>
  </div>`;
}

/** @param {Set} set */
function transportTemplate(set) {
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

/**
 * @param {FormState} state
 * @param {Set} set
 * @param {"functions" | "schema" | "further" | "searchFilters"} field
 * @param {string} label
 * @param {string} example
 */
function jsonTemplate(state, set, field, label, example) {
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
      @input=${(/** @type {Event} */ e) => set({ [field]: typedIn(e) })}
    ></textarea>
    ${faultTemplate(state, field)}
    ${draft[field] === "" ? html`<button type="button" class="plain" @click=${() => set({ [field]: example })}>Put in an example</button>` : nothing}
  </div>`;
}

/** @param {FormState} state @param {Set} set */
function toolsTemplate(state, set) {
  const { servers, hosted, functions, stores } = draft;
  const number = servers.length + hosted.length + (functions.trim() === "" ? 0 : 1) + (stores.length === 0 ? 0 : 1);
  return html`<details
    @toggle=${(/** @type {Event} */ event) => /** @type {HTMLDetailsElement} */ (event.currentTarget).open && void loadStores(state.redraw)}
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
                @change=${(/** @type {Event} */ e) => set({ hosted: isChecked(e) ? [...hosted, type] : hosted.filter((each) => each !== type) })}
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

/** @param {FormState} state @param {Set} set */
function searchTemplate(state, set) {
  return html`
    <div>
      <label for="searchResults">Most results</label>
      <input dir="auto" id="searchResults" inputmode="numeric" .value=${live(draft.searchResults)} @input=${(/** @type {Event} */ e) => set({ searchResults: typedIn(e) })} />
      ${faultTemplate(state, "searchResults")}
    </div>
    ${jsonTemplate(state, set, "searchFilters", "Filters (JSON)", FILTER_EXAMPLE)}
  `;
}

/** @param {import("./request-body.js").McpServer} server @param {number} index @param {Set} set */
function serverTemplate(server, index, set) {
  /** @param {Partial<import("./request-body.js").McpServer>} fields */
  const change = (fields) =>
    set({ servers: draft.servers.map((each, at) => (at === index ? { ...each, ...fields } : each)) });
  const id = `server-${index}`;
  return html`<div class="stack server">
    <div class="pair">
      <div>
        <label for="${id}-label">Label</label>
        <input dir="auto" id="${id}-label" .value=${live(server.label)} @input=${(/** @type {Event} */ e) => change({ label: typedIn(e) })} />
      </div>
      <div>
        <label for="${id}-token">Token</label>
        <input dir="auto" id="${id}-token" type="password" autocomplete="off" .value=${live(server.authorization)} @input=${(/** @type {Event} */ e) => change({ authorization: typedIn(e) })} />
      </div>
    </div>
    <div>
      <label for="${id}-url">URL</label>
      <input dir="auto" id="${id}-url" inputmode="url" .value=${live(server.url)} @input=${(/** @type {Event} */ e) => change({ url: typedIn(e) })} />
    </div>
    <div class="buttons">
      <label class="check">
        <input type="checkbox" .checked=${live(server.asks)} @change=${(/** @type {Event} */ e) => change({ asks: isChecked(e) })} />
        Ask before each call
      </label>
      <button type="button" class="plain" @click=${() => set({ servers: draft.servers.filter((_, at) => at !== index) })}>Remove</button>
    </div>
  </div>`;
}

/** False on a phone: its composer has no place for a switch that only a keyboard needs. */
export const hasKeyboard = matchMedia("(hover: hover)").matches;

/** The switch of the Enter key. @param {FormState} state @param {string} names its classes */
export function enterTemplate(state, names) {
  return html`<label class=${names}>
    <input
      type="checkbox"
      .checked=${live(draft.enterSends)}
      @change=${(/** @type {Event} */ event) => {
        draft.enterSends = isChecked(event);
        state.changed();
      }}
    />
    Enter sends
  </label>`;
}

/** @param {FormState} state @param {Set} set */
function moreTemplate(state, set) {
  return html`<details>
    <summary>More</summary>
    <div class="stack inner">
      <div class="pair">
        <div>
          <label for="max-output-tokens">Most output tokens</label>
          <input dir="auto" id="max-output-tokens" inputmode="numeric" .value=${live(draft.maxOutputTokens)} @input=${(/** @type {Event} */ e) => set({ maxOutputTokens: typedIn(e) })} />
          ${faultTemplate(state, "max-output-tokens")}
        </div>
        <div>
          <label for="temperature">Temperature</label>
          <input dir="auto" id="temperature" inputmode="decimal" .value=${live(draft.temperature)} @input=${(/** @type {Event} */ e) => set({ temperature: typedIn(e) })} />
          ${faultTemplate(state, "temperature")}
        </div>
      </div>
      <label class="check">
        <input type="checkbox" .checked=${live(draft.store)} @change=${(/** @type {Event} */ e) => set({ store: isChecked(e) })} />
        Store the response
      </label>
      <label class="check">
        <input type="checkbox" .checked=${live(draft.rawMessages)} @change=${(/** @type {Event} */ e) => set({ rawMessages: isChecked(e) })} />
        With raw messages (Harmony)
      </label>
      ${hasKeyboard ? nothing : enterTemplate(state, "check")}
      ${jsonTemplate(state, set, "further", "Further fields (JSON)", '{ "top_p": 0.9 }')}
    </div>
  </details>`;
}
