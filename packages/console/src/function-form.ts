import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { typedIn } from "./form-events.ts";
import type { Parsed } from "./json.ts";

/** Functions by a form: names, descriptions and parameters. Its other fields are edited as JSON, and stay. */

const TYPES = ["string", "number", "integer", "boolean", "array", "object"];

/** True if the functions are shown as JSON. */
let isJson = false;

/** The functions in the text, as far as it has any. Undefined if it is no list of functions. */
function functionsIn(text: string): Record<string, Parsed>[] | undefined {
  if (text.trim() === "") return [];
  try {
    const value = JSON.parse(text);
    const list = Array.isArray(value) ? value : [value];
    return list.every((each) => typeof each === "object" && each !== null && each.function === undefined)
      ? list
      : undefined;
  } catch {
    return undefined;
  }
}

export function functionNames(text: string): string[] {
  return (functionsIn(text) ?? []).map(({ name }) => String(name ?? "")).filter(Boolean);
}

/**
 * The form, with a switch to the JSON that it edits.
 * @param json the template of the JSON's field
 */
export function functionsTemplate(text: string, example: string, set: (text: string) => void, json: unknown) {
  const functions = functionsIn(text);
  const change = (all: Record<string, Parsed>[]) => set(all.length === 0 ? "" : JSON.stringify(all, null, 2));
  const asJson = isJson || functions === undefined;
  return html`<div class="stack">
    ${
      asJson
        ? json
        : html`<fieldset>
            <legend>Functions</legend>
            <div class="stack">
              ${functions.map((each, at) =>
                functionTemplate(
                  each,
                  at,
                  (fields) => change(functions.map((other, index) => (index === at ? fields : other))),
                  () => change(functions.filter((_, index) => index !== at)),
                ),
              )}
            </div>
          </fieldset>`
    }
    <div class="buttons">
      ${text.trim() === "" && !isJson ? html`<button type="button" @click=${() => set(example)}>Put in an example</button>` : nothing}
      ${asJson ? nothing : html`<button type="button" @click=${() => change([...functions, { name: "", parameters: { type: "object", properties: {} } }])}>Add a function</button>`}
      <button
        type="button"
        class="plain"
        ?disabled=${functions === undefined}
        @click=${() => {
          isJson = !isJson;
          set(text);
        }}
      >
        ${asJson ? "Functions as a form" : "Functions as JSON"}
      </button>
    </div>
  </div>`;
}

function functionTemplate(
  each: Record<string, Parsed>,
  at: number,
  change: (fields: Record<string, Parsed>) => void,
  remove: () => void,
) {
  const { properties = {}, required = [] } = each.parameters ?? {};
  const set = (own: Record<string, Parsed>, needed: string[] = required) =>
    change({ ...each, parameters: { type: "object", ...each.parameters, properties: own, required: needed } });
  const entries: [string, Parsed][] = Object.entries(properties);
  const replaced = (name: string, schema: Parsed, index: number) =>
    Object.fromEntries(entries.map((entry, other) => (other === index ? [name, schema] : entry)));
  const id = `function-${at}`;
  return html`<div class="stack server">
    <div class="pair">
      <div>
        <label for="${id}-name">Name</label>
        <input dir="auto" id="${id}-name" .value=${live(each.name ?? "")} @input=${(e: Event) => change({ ...each, name: typedIn(e) })} />
      </div>
      <div>
        <label for="${id}-description">Description</label>
        <input dir="auto" id="${id}-description" .value=${live(each.description ?? "")} @input=${(e: Event) => change({ ...each, description: typedIn(e) })} />
      </div>
    </div>
    ${entries.map(
      ([name, schema], index) => html`<div class="parameter" role="group" aria-label="Parameter ${index + 1}">
        <input dir="auto" aria-label="Parameter's name" .value=${live(name)} @change=${(e: Event) =>
          set(
            replaced(typedIn(e), schema, index),
            required.map((one: string) => (one === name ? typedIn(e) : one)),
          )} />
        <select aria-label="Parameter's type" @change=${(e: Event) => set(replaced(name, { ...schema, type: typedIn(e) }, index))}>
          ${[...new Set([...TYPES, schema?.type].filter((type) => typeof type === "string"))].map((type) => html`<option ?selected=${schema?.type === type}>${type}</option>`)}
        </select>
        <input dir="auto" aria-label="Parameter's description" placeholder="Description" .value=${live(schema?.description ?? "")} @input=${(e: Event) => set(replaced(name, { ...schema, description: typedIn(e) }, index))} />
        <label class="check">
          <input
            type="checkbox"
            .checked=${live(required.includes(name))}
            @change=${(e: Event) => set(properties, (e.target as HTMLInputElement).checked ? [...required, name] : required.filter((one: string) => one !== name))}
          />
          required
        </label>
        <button type="button" class="plain" @click=${() =>
          set(
            Object.fromEntries(entries.filter((_, other) => other !== index)),
            required.filter((one: string) => one !== name),
          )}>Remove</button>
      </div>`,
    )}
    <div class="buttons">
      <button type="button" class="plain" @click=${() => set({ ...properties, [`parameter_${entries.length + 1}`]: { type: "string" } })}>Add a parameter</button>
      <button type="button" class="plain" @click=${remove}>Remove the function</button>
    </div>
  </div>`;
}
