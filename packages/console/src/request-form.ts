import { html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { loadLater } from "./beside.ts";
import { draft } from "./draft.ts";
import { type Field, type FieldFault, type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import { presetsTemplate } from "./presets.ts";
import { type Draft, emptyDraft, JSON_FIELDS } from "./request-body.ts";
import type { Transport } from "./sending.ts";
import { session } from "./session.ts";

/** The settings of a request, as a form. The tools and the rarer fields are loaded when the page is idle. */

let late: typeof import("./later.ts") | undefined;

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
  fault: FieldFault | undefined;
  /** Called when the draft has changed. */
  changed: () => void;
  /** Called when something else has changed. */
  redraw: () => void;
}

/** A choice whose values are their own labels. */
export function choice(name: keyof Draft, label: string, values: readonly string[], none?: string): Field {
  const options = values.map((value) => [value, value] as const);
  return { name, label, kind: "choice", options: none === undefined ? options : [["", none], ...options] };
}

function modelForm(): Field[] {
  const { models = [draft.model] } = session;
  if (models.length === 0) return [{ name: "model", label: "Model", note: "The server could not name its models." }];
  return [choice("model", "Model", models), choice("secondModel", "Second model", models, "None")];
}

function basicForm(): Field[] {
  return [
    ...modelForm(),
    { name: "instructions", label: "Instructions", kind: "long" },
    choice("effort", "Reasoning effort", EFFORTS, "Default"),
    {
      name: "format",
      label: "Output",
      kind: "choice",
      options: [
        ["text", "Text"],
        ["json_object", "JSON"],
        ["json_schema", "JSON by a schema"],
      ],
    },
    ...(draft.format === "json_schema" ? [JSON_FIELDS.schema] : []),
  ];
}

function transportForm(): Field[] {
  const [, , note] = TRANSPORTS.find(([value]) => value === draft.transport) ?? [];
  const options = TRANSPORTS.map(([value, label]) => [value, label] as const);
  return [{ name: "transport", label: "Transport", kind: "choice", options, note }];
}

/** Takes the changed field of a form into the draft. */
function taken(event: Event, form: readonly Field[]): Partial<Draft> | undefined {
  const { name, form: element } = event.target as HTMLInputElement;
  const field = form.find((each) => each.name === name);
  if (!field || !element) return undefined;
  const none = field.kind === "check" ? false : emptyDraft()[name as keyof Draft];
  return { [name]: valuesIn([field], new FormData(element))[name] ?? none };
}

export function settingsTemplate(state: FormState) {
  const set = (fields: Partial<Draft> | undefined) => {
    if (!fields) return;
    Object.assign(draft, fields);
    state.changed();
  };
  const typed = (event: Event) => {
    const form = [...basicForm(), ...transportForm(), ...(late ? [...late.toolsForm(), ...late.moreForm()] : [])];
    set(taken(event, form));
  };
  const fields = (form: Form, values: object = draft) => fieldsTemplate(form, values, "settings", state.fault);
  const { servers, hosted, functions, stores } = draft;
  const tools = servers.length + hosted.length + (functions.trim() === "" ? 0 : 1) + (stores.length === 0 ? 0 : 1);
  return html`
    ${presetsTemplate(draft, set, state.redraw)}
    <form class="stack" @input=${typed} @change=${typed} @submit=${(event: Event) => event.preventDefault()}>
      ${fields(basicForm())}
      <details @toggle=${(event: Event) => (event.currentTarget as HTMLDetailsElement).open && void late?.loadStores(state.redraw)}>
        <summary>Tools${tools > 0 ? html` <span class="tag busy">${tools}</span>` : nothing}</summary>
        ${late?.toolsTemplate(fields, set)}
      </details>
      ${fields(transportForm())}
      <details>
        <summary>More</summary>
        ${late ? fields(late.moreForm()) : nothing}
        ${hasKeyboard ? nothing : enterTemplate(state)}
      </details>
    </form>
  `;
}

/** False on a phone: its composer has no place for a switch that only a keyboard needs. */
export const hasKeyboard = matchMedia("(hover: hover)").matches;

/** The switch of the Enter key. */
export function enterTemplate(state: FormState) {
  const change = (event: Event) => {
    draft.enterSends = (event.target as HTMLInputElement).checked;
    state.changed();
  };
  return html`<label class="check note hint"><input type="checkbox" .checked=${live(draft.enterSends)} @change=${change} /> Enter sends</label>`;
}
