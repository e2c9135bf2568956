import { html, nothing, render } from "lit-html";
import type { Configuration as ApiConfiguration } from "../api-types.d.ts";
import type { Action } from "./actions.ts";
import { callJson } from "./api.ts";
import type { Field, Form } from "./fields.ts";
import { valuesInWords } from "./fields-in-words.ts";
import type { ApiObject } from "./json.ts";
import { type Part, partElement } from "./list-and-one.ts";
import type { Page } from "./paged-list.ts";
import type { Question } from "./question.ts";
import { type Resource, ResourceList } from "./resource.ts";
import { download } from "./save.ts";
import { yamlOf } from "./yaml.ts";

/**
 * The effective model servers, routes and prices, and the changes that administrators make: `/v1/admin/configuration`
 * (docs/keys.md).
 */

interface Configuration extends ApiConfiguration {
  values: Record<string, ApiObject | undefined>;
  overrides: Record<string, ApiObject | undefined>;
}

const PATH = "/v1/admin/configuration";

/** Stands in the place of secrets. */
const HIDDEN = "****";

interface Kind {
  title: string;
  /** The word for one entry. */
  one: string;
  /** The meaning of its name. */
  name: string;
  /** The effect of its removal. */
  removal: string;
  form: Form;
  /** The values of the form for an entry of the API. Default: the same. */
  values?: (entry: ApiObject) => ApiObject;
  /** The entry for the values of the form, or the changed fields of a server. */
  read?: (given: ApiObject, before: ApiObject) => ApiObject;
}

const price = (name: string, label: string, isRequired = false): Field => ({
  ...{ name, label, isRequired },
  ...{ kind: "number", step: "any" },
});

const ENDED = "Running requests go on as they are.";

/** By the API's names. */
const KINDS: Record<string, Kind> = {
  upstreams: {
    title: "Model servers",
    one: "server",
    name: "Name",
    removal: "It gets no further requests, and ends its running answers. Drain it first to move its conversations.",
    form: [
      { name: "url", label: "URL", placeholder: "http://gpu-1:8000/v1" },
      {
        name: "weight",
        label: "Weight",
        kind: "number",
        step: "any",
        note: "Its share of the conversations. 0: it keeps its own, and gets no new ones.",
      },
      { name: "drain", label: "Drain", kind: "check", note: "Its conversations move to other servers." },
      {
        name: "models",
        label: "Models",
        kind: "list",
        placeholder: "all of its models; or names, or name = its own name, separated by commas",
      },
      { name: "api_key", label: "API key of the server", kind: "secret", placeholder: "as it is" },
      { name: "others", label: "Others, as JSON", kind: "others", placeholder: '{"dialect": "sglang"}' },
    ],
    values: ({ name: _, api_key: _key, models = [], ...entry }) => ({
      ...{ weight: 1, ...entry },
      models: Object.entries(models)
        .map(([name, own]) => (Array.isArray(models) || name === own ? own : `${name} = ${own}`))
        .join(", "),
    }),
    read({ models, drain = false, ...given }, before) {
      const entry: ApiObject = { ...given, drain, ...(models && { models: modelsOf(models) }) };
      // An empty field does not change its value.
      const isChanged = (name: string) => JSON.stringify(entry[name]) !== JSON.stringify(before[name]);
      const isSaid = (name: string) => name !== "drain" || drain || before.drain;
      return Object.fromEntries(Object.entries(entry).filter(([name]) => isChanged(name) && isSaid(name)));
    },
  },
  routes: {
    title: "Routes",
    one: "route",
    name: "Name that clients say",
    removal: ENDED,
    form: [
      {
        name: "to",
        label: "Models",
        kind: "list",
        placeholder: "qwen3 95, qwen3-new 5",
        note: "One, or several with their shares of the conversations. Default: the name itself.",
      },
      {
        name: "fallbacks",
        label: "In its place",
        kind: "list",
        note: "Names that answer if no server of the model is healthy, or a request has failed before any output.",
      },
      {
        name: "context_window_fallbacks",
        label: "For long prompts",
        kind: "list",
        note: "Names that answer if the prompt is longer than the context window.",
      },
    ],
    values: ({ to = [], ...entry }) => ({
      ...entry,
      to: [to]
        .flat()
        .map((each) => (each.model && to.length > 1 ? `${each.model} ${each.weight ?? 1}` : (each.model ?? each)))
        .join(", "),
    }),
    read: ({ to, ...fallbacks }) => ({ ...(to && { to: to.map(targetOf) }), ...fallbacks }),
  },
  model_prices: {
    title: "Prices",
    one: "price",
    name: "Model, or * for all others",
    removal: ENDED,
    form: [
      price("input", "Input, dollars for a million tokens", true),
      price("cached_input", "Cached input"),
      price("output", "Output", true),
    ],
  },
};

/** Models as a list, or by the names that clients say. */
function modelsOf(parts: string[]): string[] | Record<string, string> {
  if (!parts.some((part) => part.includes("="))) return parts;
  const pairs = parts.map((part) => part.split("=").map((each) => each.trim()));
  return Object.fromEntries(pairs.map(([name = "", own = name]) => [name, own]));
}

/** A model of a route, with its share if there are several. */
function targetOf(text: string) {
  const [, model = text, weight] = /^(.*\S)\s+([\d.]+)$/.exec(text) ?? [];
  return { model, ...(weight !== undefined && { weight: Number(weight) }) };
}

/** The effective entries of a kind, by name. Aliases and fallbacks that have a variable of their own count as routes. */
function entriesOf(kind: string, values: Configuration["values"]): Record<string, ApiObject> {
  if (kind !== "routes") return values[kind] ?? {};
  const all: Record<string, ApiObject> = {};
  for (const [name, to] of Object.entries(values.model_aliases ?? {})) all[name] = { to };
  for (const [name, fallbacks] of Object.entries(values.model_fallbacks ?? {})) all[name] = { ...all[name], fallbacks };
  for (const [name, entry] of Object.entries(values.routes ?? {}))
    all[name] = typeof entry === "string" ? { to: entry } : entry;
  return all;
}

interface Entry {
  /** Its name. */
  id: string;
  /** Undefined for an entry that was removed. */
  is: ApiObject | undefined;
  /** True if administrators have changed it. */
  isChanged: boolean;
}

interface Answer extends Page<Entry> {
  /** The places that it is from, beside the changes. */
  sources: readonly string[];
}

const load = (): Promise<Configuration> => callJson(PATH);

async function loadKind(kind: string): Promise<Answer> {
  const { values, overrides, sources } = await load();
  const changed = overrides[kind] ?? {};
  const removed = Object.keys(changed).filter((id) => changed[id] === false);
  const all: [string, ApiObject | undefined][] = [
    ...Object.entries(entriesOf(kind, values)),
    ...removed.map((id): [string, undefined] => [id, undefined]),
  ];
  return {
    data: all.map(([id, is]) => ({ id, is, isChanged: changed[id] !== undefined })),
    sources: (sources[kind] ?? []).filter((source) => source !== "administrators"),
  };
}

function listOf([kind, { title, one, name, removal, form, ...texts }]: [string, Kind]): Resource<Entry, Answer> {
  const { values = (entry) => entry, read = (given) => given } = texts;
  const question = (entry: Entry | undefined): Question => ({
    title: entry ? `Change ${entry.id}` : `Add a ${one}`,
    form: entry ? form : [{ name: "id", label: name, isRequired: true }, ...form],
    values: values(entry?.is ?? {}),
    action: "Save",
  });
  /** An action that changes an entry. */
  const change = (
    told: string,
    entryOf: (entry: Entry, given: ApiObject) => unknown,
  ): Pick<Action<Entry>, "needs" | "does"> => ({
    needs: "changeConfiguration",
    async does(entry, given) {
      await callJson(PATH, { body: { [kind]: { [entry.id]: entryOf(entry, given) } } });
      return { told };
    },
  });
  return {
    title,
    source: () => loadKind(kind),
    nameOf: ({ id }) => id,
    none: "None.",
    note: ({ sources }) =>
      sources.length > 0 ? html`<p class="note">From the ${sources.join(" and the ")}.</p>` : nothing,
    columns: [
      ["Name", nameTemplate],
      ["Meaning", ({ is }) => (is ? valuesInWords(form, values(is)) : "–"), "long"],
    ],
    listActions: [
      {
        label: `Add a ${one}`,
        icon: "new",
        needs: "changeConfiguration",
        asks: () => question(undefined),
        async does(_, { id, ...given }) {
          await callJson(PATH, { body: { [kind]: { [id]: read(given, {}) } } });
          return { told: `The ${one} was added.` };
        },
      },
    ],
    actions: [
      {
        ...{ label: "Change", icon: "edit", asks: question, isFor: ({ is }) => is !== undefined },
        ...change(`The ${one} was changed.`, ({ is = {} }, given) => read(given, is)),
      },
      {
        ...{ label: "Take back", icon: "previous", isFor: ({ isChanged }) => isChanged },
        ...change("The change was taken back.", () => null),
      },
      {
        ...{ label: "Remove", icon: "trash", isDangerous: true, isFor: ({ is }) => is !== undefined },
        asks: ({ id }) => ({ title: `Remove ${id}?`, text: removal }),
        ...change(`The ${one} was removed.`, () => false),
      },
    ],
  };
}

function nameTemplate({ id, is, isChanged }: Entry) {
  const tag = is
    ? isChanged && html`<span class="tag busy">changed here</span>`
    : html`<span class="tag bad">removed</span>`;
  return html`<bdi>${id}</bdi> ${tag || nothing}`;
}

export function configurationSection(): Part {
  const element = partElement();
  const lists = Object.entries(KINDS).map((kind) => new ResourceList(listOf(kind), 3));
  render(
    html`
      <div class="section-heading buttons spread">
        <h2>Configuration</h2>
        <button type="button" @click=${() => void save()}>Save as a file</button>
      </div>
      <p class="note">
        What is changed here goes before the configuration's file and the environment, for all that begins from now on, until it is taken back. Secrets are
        not shown, and not in the file.
      </p>
      ${lists.map((list) => list.element)}
    `,
    element,
  );
  return {
    element,
    show() {
      for (const list of lists) list.show();
    },
    hide() {
      for (const list of lists) list.hide();
    },
  };
}

async function save() {
  const { values } = await load();
  const present = Object.entries(values).filter(([, entries]) => Object.keys(entries ?? {}).length > 0);
  const shown = JSON.stringify(Object.fromEntries(present), (_, value) => (value === HIDDEN ? undefined : value));
  download("configuration.yaml", yamlOf(JSON.parse(shown)));
}
