import { html, nothing } from "lit-html";
import type { VectorStore } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { messageOf } from "./dialogs.ts";
import { draft } from "./draft.ts";
import { type Field, type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import type { ApiObject } from "./json.ts";
import { type Draft, FUNCTION_EXAMPLE, functionsIn, JSON_FIELDS, type McpServer } from "./request-body.ts";
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

/** The functions in the draft. Undefined while its text is no list of functions. */
function functionsOfDraft(): ApiObject[] | undefined {
  try {
    return functionsIn(draft.functions);
  } catch {
    return undefined;
  }
}

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
          { ...JSON_FIELDS.searchFilters, example: '{ "type": "eq", "key": "language", "value": "en" }' },
        ] as const)),
  ];
}

export const toolsForm = (): Field[] => [JSON_FIELDS.functions, ...hostedForm(), ...searchForm()];

export function moreForm(): Field[] {
  const names = (functionsOfDraft() ?? []).map(({ name }) => String(name ?? "")).filter(Boolean);
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
    { ...JSON_FIELDS.further, example: '{ "seed": 7 }' },
  ];
}

const SERVER: Field[] = [
  { name: "label", label: "Label" },
  { name: "authorization", label: "Token", kind: "secret" },
  { name: "url", label: "URL", kind: "url" },
  { name: "asks", label: "Ask before each call", kind: "check" },
];

const FUNCTION: Field[] = [
  { name: "name", label: "Name" },
  { name: "description", label: "Description" },
];

const parameterForm = ({ type }: ApiObject): Field[] => [
  { name: "name", label: "Parameter's name" },
  {
    name: "type",
    label: "Type",
    kind: "choice",
    options: [...new Set([...TYPES, ...(typeof type === "string" ? [type] : [])])].map((each) => [each, each]),
  },
  { name: "description", label: "Parameter's description" },
  { name: "isRequired", label: "required", kind: "check" },
];

/** The parameters of a function: their schemas, with their names. */
function parametersOf({ parameters }: ApiObject): ApiObject[] {
  const required = [parameters.required].flat();
  const entries = Object.entries<ApiObject>(parameters.properties ?? {});
  return entries.map(([name, schema]) => ({ ...schema, name, isRequired: required.includes(name) }));
}

function withParameters(own: ApiObject, all: readonly ApiObject[]): ApiObject {
  const properties = Object.fromEntries(all.map(({ name, isRequired: _, ...schema }) => [name, schema]));
  const required = all.filter(({ isRequired }) => isRequired).map(({ name }) => name);
  return { ...own, parameters: { type: "object", ...own.parameters, properties, required } };
}

/** A part of the form whose value is a list: each item has fields of its own and can be removed, and one can be added. */
interface Groups<Item> {
  /** The names of fields begin with it and the number of the item. */
  id: string;
  items: readonly Item[];
  form: (item: Item) => readonly Field[];
  /** Takes the list when it has changed. */
  set: (items: readonly Item[]) => void;
  /** The item that is added. It also has the values of emptied fields. */
  added: Item;
  words: { add: string; remove: string };
  /** The template below the fields of an item. */
  below?: (item: Item, at: number) => unknown;
}

function groupsTemplate<Item extends ApiObject>({ id, items, form, set, added, words, below }: Groups<Item>) {
  const groupTemplate = (item: Item, at: number) => {
    const group = `${id}-${at}`;
    const fields = form(item);
    const named = fields.map((field) => ({ ...field, name: `${group}.${field.name}` }));
    const typed = (event: Event) => {
      event.stopPropagation();
      const { name, form: whole } = event.target as HTMLInputElement;
      // A name that is being typed may be that of another item for a moment.
      if (event.type === "input" && name.endsWith(".name")) return;
      const given = valuesIn(named, new FormData(whole ?? undefined))[group];
      const emptied = fields.map((field) => [field.name, field.kind === "check" ? false : added[field.name]]);
      set(items.with(at, { ...item, ...Object.fromEntries(emptied), ...given }));
    };
    return html`<div class="stack server" role="group" aria-label="${id} ${at + 1}" @input=${typed} @change=${typed}>
      ${fieldsTemplate(named, { [group]: item }, "settings")} ${below?.(item, at)}
      <div>${button(words.remove, () => set(items.toSpliced(at, 1)))}</div>
    </div>`;
  };
  return html`<div class="stack">
    ${items.map(groupTemplate)}
    <div>${button(words.add, () => set([...items, added]), "")}</div>
  </div>`;
}

function button(label: string, press: () => void, look = "plain") {
  return html`<button type="button" class=${look} @click=${press}>${label}</button>`;
}

/**
 * @param fields gives the template of fields with the draft's values
 * @param set Takes what has changed in the draft.
 */
export function toolsTemplate(fields: (form: Form) => unknown, set: (fields: Partial<Draft>) => void) {
  const functions = functionsOfDraft();
  const setFunctions = (all: readonly ApiObject[]) =>
    set({ functions: all.length === 0 ? "" : JSON.stringify(all, null, 2) });
  const asJson = isJson || functions === undefined;
  const toggle = () => {
    isJson = !isJson;
    set({});
  };

  const parametersTemplate = (own: ApiObject, at: number) => {
    const items = parametersOf(own);
    return groupsTemplate({
      ...{ id: `parameter-${at}`, items, form: parameterForm },
      set: (all) => setFunctions(functions?.with(at, withParameters(own, all)) ?? []),
      added: { name: `parameter_${items.length + 1}`, type: "string" },
      words: { add: "Add a parameter", remove: "Remove" },
    });
  };
  const functionsTemplate = (items: readonly ApiObject[]) =>
    groupsTemplate({
      ...{ id: "function", items, form: () => FUNCTION, set: setFunctions, below: parametersTemplate },
      added: { name: "", parameters: { type: "object", properties: {} } },
      words: { add: "Add a function", remove: "Remove the function" },
    });
  const serversTemplate = () =>
    groupsTemplate<McpServer>({
      ...{ id: "server", items: draft.servers, form: () => SERVER },
      set: (servers) => set({ servers: [...servers] }),
      added: { label: "", url: "", authorization: "", asks: true },
      words: { add: "Add an MCP server", remove: "Remove" },
    });

  return html`<div class="stack inner">
    ${asJson ? fields([JSON_FIELDS.functions]) : html`<fieldset><legend>Functions</legend>${functionsTemplate(functions)}</fieldset>`}
    <div class="buttons">
      ${draft.functions.trim() === "" && !isJson ? button("Put in an example", () => set({ functions: FUNCTION_EXAMPLE }), "") : nothing}
      <button type="button" class="plain" ?disabled=${functions === undefined} @click=${toggle}>${asJson ? "Functions as a form" : "Functions as JSON"}</button>
    </div>
    ${fields([...hostedForm(), ...searchForm()])}
    ${stores.fault ? html`<p class="fault" dir="auto" role="alert">${stores.fault}</p>` : nothing}
    ${stores.list?.length === 0 && draft.stores.length === 0 ? html`<p class="note">There are no vector stores. <a href="#/files/stores">Create one</a>.</p>` : nothing}
    <fieldset><legend>MCP servers</legend>${serversTemplate()}</fieldset>
  </div>`;
}
