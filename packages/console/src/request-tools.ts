import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { draft } from "./draft.ts";
import { typedIn } from "./form-events.ts";
import { functionNames, functionsTemplate } from "./function-form.ts";
import { FUNCTION_EXAMPLE, type McpServer } from "./request-body.ts";
import {
  enterTemplate,
  type FormState,
  faultTemplate,
  hasKeyboard,
  isChecked,
  jsonTemplate,
  type SetFields,
} from "./request-form.ts";
import { hostedTools } from "./session.ts";
import { storesTemplate } from "./store-choice.ts";

/** The tools of a request, and its rarer fields. */

const HOSTED: [type: string, label: string][] = [
  ["web_search", "Web search"],
  ["code_interpreter", "Python"],
  ["image_generation", "Images"],
  ["container", "Shell"],
];

const FILTER_EXAMPLE = '{ "type": "eq", "key": "language", "value": "en" }';

export function toolsTemplate(state: FormState, set: SetFields) {
  const { servers, hosted, stores } = draft;
  const offered = HOSTED.filter(([type]) => hostedTools().includes(type) || hosted.includes(type));
  return html`<div class="stack inner">
      ${functionsTemplate(draft.functions, FUNCTION_EXAMPLE, (functions) => set({ functions }), jsonTemplate(state, set, "functions", "Functions (JSON)", FUNCTION_EXAMPLE))}
      ${
        offered.length === 0
          ? nothing
          : html`<fieldset>
        <legend>Run by this server</legend>
        <div class="buttons">
          ${offered.map(
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
      </fieldset>`
      }
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
    </div>`;
}

function searchTemplate(state: FormState, set: SetFields) {
  return html`
    <div>
      <label for="searchResults">Most results</label>
      <input dir="auto" id="searchResults" inputmode="numeric" .value=${live(draft.searchResults)} @input=${(e: Event) => set({ searchResults: typedIn(e) })} />
      ${faultTemplate(state, "searchResults")}
    </div>
    ${jsonTemplate(state, set, "searchFilters", "Filters (JSON)", FILTER_EXAMPLE)}
  `;
}

function serverTemplate(server: McpServer, index: number, set: SetFields) {
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

/** A field with a number. */
function fieldTemplate(
  state: FormState,
  set: SetFields,
  id: string,
  label: string,
  mode: "numeric" | "decimal",
  field: "maxOutputTokens" | "temperature" | "topP" | "maxToolCalls",
) {
  return html`<div>
    <label for=${id}>${label}</label>
    <input dir="auto" id=${id} inputmode=${mode} .value=${live(draft[field])} @input=${(e: Event) => set({ [field]: typedIn(e) })} />
    ${faultTemplate(state, id)}
  </div>`;
}

export function moreTemplate(state: FormState, set: SetFields) {
  return html`<div class="stack inner">
      <div class="pair">
        ${fieldTemplate(state, set, "max-output-tokens", "Most output tokens", "numeric", "maxOutputTokens")}
        ${fieldTemplate(state, set, "temperature", "Temperature", "decimal", "temperature")}
      </div>
      <div class="pair">
        ${fieldTemplate(state, set, "top_p", "Top p", "decimal", "topP")}
        ${fieldTemplate(state, set, "max_tool_calls", "Most tool calls", "numeric", "maxToolCalls")}
      </div>
      <div class="pair">
        <div>
          <label for="tool_choice">Tool choice</label>
          <input dir="auto" id="tool_choice" list="tool-choices" placeholder="auto" .value=${live(draft.toolChoice)} @input=${(e: Event) => set({ toolChoice: typedIn(e) })} />
          <datalist id="tool-choices">${["auto", "required", "none", ...functionNames(draft.functions)].map((each) => html`<option value=${each}></option>`)}</datalist>
          <p class="note">auto, required, none, or the name of a function</p>
        </div>
        <div>
          <label for="verbosity">Verbosity</label>
          <select id="verbosity" @change=${(e: Event) => set({ verbosity: typedIn(e) })}>
            ${["", "low", "medium", "high"].map((each) => html`<option value=${each} ?selected=${draft.verbosity === each}>${each || "Default"}</option>`)}
          </select>
        </div>
      </div>
      <label class="check">
        <input type="checkbox" .checked=${live(draft.parallelCalls)} @change=${(e: Event) => set({ parallelCalls: isChecked(e) })} />
        Several tool calls at once
      </label>
      <label class="check">
        <input type="checkbox" .checked=${live(draft.truncates)} @change=${(e: Event) => set({ truncates: isChecked(e) })} />
        Leave out the oldest turns where the context is full
      </label>
      <label class="check">
        <input type="checkbox" .checked=${live(draft.store)} @change=${(e: Event) => set({ store: isChecked(e) })} />
        Store the response
      </label>
      <label class="check">
        <input type="checkbox" .checked=${live(draft.rawMessages)} @change=${(e: Event) => set({ rawMessages: isChecked(e) })} />
        With raw messages (Harmony)
      </label>
      ${hasKeyboard ? nothing : enterTemplate(state, "check")}
      ${jsonTemplate(state, set, "further", "Further fields (JSON)", '{ "seed": 7 }')}
    </div>`;
}

export { loadStores } from "./store-choice.ts";
