import { html, nothing } from "lit-html";
import type { VectorStore } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { messageOf } from "./dialogs.ts";
import { draft } from "./draft.ts";
import { type Field, type Form, valuesIn } from "./fields.ts";
import type { ApiObject } from "./json.ts";
import { type Draft, FUNCTION_EXAMPLE } from "./request-body.ts";
import { choice } from "./request-form.ts";
import { hostedTools } from "./session.ts";

/** The tools of a request, and its rarer fields. */

const HOSTED: [type: string, label: string][] = [
  ["web_search", "Web search"],
  ["code_interpreter", "Python"],
  ["image_generation", "Images"],
  ["container", "Shell"],
];

const TYPES = ["string", "number", "integer", "boolean", "array", "object"];

const FILTER_EXAMPLE = '{ "type": "eq", "key": "language", "value": "en" }';

/** The tenant's vector stores, when the user has opened the tools. */
let stores: { list?: VectorStore[]; fault: string } = { fault: "" };
const MAX_STORES = 100;

/** True if the functions are shown as JSON. */
let isJson = false;

/** Loads the vector stores again. */
export async function loadStores(redraw: () => void) {
  try {
    stores = { list: (await callJson(`/v1/vector_stores?limit=${MAX_STORES}`)).data, fault: "" };
  } catch (error) {
    stores.fault = messageOf(error);
  }
  redraw();
}

/** The functions in the draft, as far as it has any. Undefined if it has no list of functions. */
function functionsIn(text: string): ApiObject[] | undefined {
  if (text.trim() === "") return [];
  try {
    const list = [JSON.parse(text)].flat();
    return list.every((each) => typeof each === "object" && each !== null && !each.function) ? list : undefined;
  } catch {
    return undefined;
  }
}

const written = (functions: readonly ApiObject[]): Partial<Draft> => ({
  functions: functions.length === 0 ? "" : JSON.stringify(functions, null, 2),
});

function hostedForm(): Field[] {
  const options = HOSTED.filter(([type]) => hostedTools().includes(type) || draft.hosted.includes(type));
  return options.length === 0 ? [] : [{ name: "hosted", label: "Run by this server", kind: "checks", options }];
}

function searchForm(): Field[] {
  const known = (stores.list ?? []).map(({ id, name }) => [id, name || id] as const);
  const others = draft.stores.filter((id) => !known.some(([each]) => each === id)).map((id) => [id, id] as const);
  return [
    { name: "stores", label: "Search in files", kind: "checks", options: [...known, ...others] },
    ...(draft.stores.length === 0
      ? []
      : ([
          { name: "searchResults", label: "Most results", kind: "number", min: 1, max: 50 },
          { name: "searchFilters", label: "Filters (JSON)", kind: "code", example: FILTER_EXAMPLE },
        ] as const)),
  ];
}

const JSON_FORM: Field[] = [{ name: "functions", label: "Functions (JSON)", kind: "code", example: FUNCTION_EXAMPLE }];

export const toolsForm = (): Field[] => [...JSON_FORM, ...hostedForm(), ...searchForm()];

export function moreForm(): Field[] {
  const names = (functionsIn(draft.functions) ?? []).map(({ name }) => String(name ?? "")).filter(Boolean);
  return [
    { name: "max_output_tokens", label: "Most output tokens", kind: "number", min: 1 },
    { name: "temperature", label: "Temperature", kind: "number", step: "any" },
    { name: "top_p", label: "Top p", kind: "number", step: "any" },
    { name: "max_tool_calls", label: "Most tool calls", kind: "number", min: 1 },
    {
      name: "tool_choice",
      label: "Tool choice",
      placeholder: "auto",
      suggestions: ["auto", "required", "none", ...names],
      note: "auto, required, none, or the name of a function",
    },
    choice("verbosity", "Verbosity", ["low", "medium", "high"], "Default"),
    { name: "parallelCalls", label: "Several tool calls at once", kind: "check" },
    { name: "truncates", label: "Leave out the oldest turns where the context is full", kind: "check" },
    { name: "store", label: "Store the response", kind: "check" },
    { name: "rawMessages", label: "With raw messages (Harmony)", kind: "check" },
    { name: "further", label: "Further fields (JSON)", kind: "code", example: '{ "seed": 7 }' },
  ];
}

const serverForm = (id: string): Field[] => [
  { name: `${id}.label`, label: "Label" },
  { name: `${id}.authorization`, label: "Token", kind: "secret" },
  { name: `${id}.url`, label: "URL", kind: "url" },
  { name: `${id}.asks`, label: "Ask before each call", kind: "check" },
];

const functionForm = (id: string): Field[] => [
  { name: `${id}.name`, label: "Name" },
  { name: `${id}.description`, label: "Description" },
];

const parameterForm = (id: string, type: unknown): Field[] => [
  { name: `${id}.name`, label: "Parameter's name" },
  {
    name: `${id}.type`,
    label: "Type",
    kind: "choice",
    options: [...new Set([...TYPES, ...(typeof type === "string" ? [type] : [])])].map((each) => [each, each]),
  },
  { name: `${id}.description`, label: "Parameter's description" },
  { name: `${id}.required`, label: "required", kind: "check" },
];

/** The values of the fields in the group of a field that has changed: of a server, a function, or a parameter. */
export function groupTyped({ target, type }: Event): Partial<Draft> | undefined {
  const { name, form } = target as HTMLInputElement;
  const [, id = "", kind, first = "", second = ""] = /^((\w+)-(\d+)(?:-(\d+))?)\./.exec(name) ?? [];
  const at = Number(first);
  const data = new FormData(form ?? undefined);
  const given = (fields: Form): ApiObject => valuesIn(fields, data)[id] ?? {};
  if (kind === "server") {
    const { label = "", url = "", authorization = "", asks = false } = given(serverForm(id));
    return { servers: draft.servers.with(at, { label, url, authorization, asks }) };
  }
  const functions = functionsIn(draft.functions) ?? [];
  const own = functions[at];
  if (!own) return undefined;
  if (kind === "function") {
    const { name: called = "", description } = given(functionForm(id));
    return written(functions.with(at, { ...own, name: called, description }));
  }
  // A name that is being typed may be that of another parameter for a moment.
  if (kind !== "parameter" || (type === "input" && name.endsWith(".name"))) return undefined;
  const [before = "", schema = {}] = parametersOf(own)[Number(second)] ?? [];
  const { name: called = before, required = false, ...fields } = given(parameterForm(id, schema.type));
  const { description: _, ...kept } = schema;
  const entries = parametersOf(own).with(Number(second), [called, { ...kept, ...fields }]);
  const needed = requiredBy(own).filter((each) => each !== before);
  return written(functions.with(at, withParameters(own, entries, required ? [...needed, called] : needed)));
}

function parametersOf({ parameters }: ApiObject): [name: string, schema: ApiObject][] {
  return Object.entries(parameters?.properties ?? {});
}

function requiredBy({ parameters }: ApiObject): string[] {
  return parameters?.required ?? [];
}

function withParameters(own: ApiObject, entries: [string, ApiObject][], required: string[]): ApiObject {
  const properties = Object.fromEntries(entries);
  return { ...own, parameters: { type: "object", ...own.parameters, properties, required } };
}

/**
 * @param fields gives the template of fields with the draft's values
 * @param set Takes what has changed in the draft.
 */
export function toolsTemplate(fields: (form: Form, values?: object) => unknown, set: (fields: Partial<Draft>) => void) {
  const functions = functionsIn(draft.functions);
  const change = (all: readonly ApiObject[]) => set(written(all));
  const asJson = isJson || functions === undefined;
  const toggle = () => {
    isJson = !isJson;
    set({});
  };
  const button = (label: string, press: () => void, look = "plain") =>
    html`<button type="button" class=${look} @click=${press}>${label}</button>`;
  const addServer = () => set({ servers: [...draft.servers, { label: "", url: "", authorization: "", asks: true }] });

  function functionTemplate(own: ApiObject, at: number) {
    const entries = parametersOf(own);
    const required = requiredBy(own);
    const replace = (all: [string, ApiObject][], needed: string[]) =>
      change(functions?.with(at, withParameters(own, all, needed)) ?? []);
    const added: [string, ApiObject] = [`parameter_${entries.length + 1}`, { type: "string" }];
    return html`<div class="stack server">
      ${fields(functionForm(`function-${at}`), { [`function-${at}`]: own })}
      ${entries.map(([name, schema], index) => {
        const id = `parameter-${at}-${index}`;
        const values = { ...schema, name, required: required.includes(name) };
        const others = required.filter((each) => each !== name);
        return html`<div class="server" role="group" aria-label="Parameter ${index + 1}">
          ${fields(parameterForm(id, schema.type), { [id]: values })}
          ${button("Remove", () => replace(entries.toSpliced(index, 1), others))}
        </div>`;
      })}
      <div class="buttons">
        ${button("Add a parameter", () => replace([...entries, added], required))}
        ${button("Remove the function", () => change(functions?.toSpliced(at, 1) ?? []))}
      </div>
    </div>`;
  }

  return html`<div class="stack inner">
    ${asJson ? fields(JSON_FORM) : html`<fieldset><legend>Functions</legend><div class="stack">${functions.map(functionTemplate)}</div></fieldset>`}
    <div class="buttons">
      ${draft.functions.trim() === "" && !isJson ? button("Put in an example", () => set({ functions: FUNCTION_EXAMPLE }), "") : nothing}
      ${asJson ? nothing : button("Add a function", () => change([...functions, { name: "", parameters: { type: "object", properties: {} } }]), "")}
      <button type="button" class="plain" ?disabled=${functions === undefined} @click=${toggle}>${asJson ? "Functions as a form" : "Functions as JSON"}</button>
    </div>
    ${fields([...hostedForm(), ...searchForm()])}
    ${stores.fault ? html`<p class="fault" dir="auto" role="alert">${stores.fault}</p>` : nothing}
    ${stores.list?.length === 0 && draft.stores.length === 0 ? html`<p class="note">There are no vector stores. <a href="#/files/stores">Create one</a>.</p>` : nothing}
    <fieldset>
      <legend>MCP servers</legend>
      <div class="stack">
        ${draft.servers.map((server, index) => {
          const id = `server-${index}`;
          return html`<div class="server">
            ${fields(serverForm(id), { [id]: server })}
            ${button("Remove", () => set({ servers: draft.servers.toSpliced(index, 1) }))}
          </div>`;
        })}
        <div>${button("Add an MCP server", addServer, "")}</div>
      </div>
    </fieldset>
  </div>`;
}
