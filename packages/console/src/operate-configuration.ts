import { html, nothing, render } from "lit-html";
import type { Configuration as ApiConfiguration } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { entriesOf, KINDS, type KindName } from "./configuration-forms.ts";
import { valuesInWords } from "./fields-in-words.ts";
import type { ApiObject } from "./json.ts";
import { type Part, partElement } from "./list-and-one.ts";
import type { Question } from "./question.ts";
import { type Resource, ResourceList } from "./resource.ts";
import { download } from "./save.ts";
import { yamlOf } from "./yaml.ts";

/** The effective model servers, routes and prices, and the changes that administrators make: `/v1/admin/configuration`. */

interface Configuration extends ApiConfiguration {
  values: Record<string, ApiObject | undefined>;
  overrides: Record<string, ApiObject | undefined>;
}

const PATH = "/v1/admin/configuration";

/** Stands in the place of secrets. */
const HIDDEN = "****";

interface Entry {
  /** Its name. */
  id: string;
  /** Undefined for an entry that was removed. */
  is: ApiObject | undefined;
  /** True if administrators have changed it. */
  isChanged: boolean;
}

const load = (): Promise<Configuration> => callJson(PATH);

function listOf(kind: KindName): Resource<Entry> {
  const { title, one, name, removal, form, values, read } = KINDS[kind];
  let sources: string[] = [];
  const change = async (id: string, entry: unknown, told: string) => {
    await callJson(PATH, { body: { [kind]: { [id]: entry } } });
    return { told };
  };
  const question = (entry: Entry | undefined): Question => ({
    title: entry ? `Change ${entry.id}` : `Add a ${one}`,
    form: entry ? form : [{ name: "id", label: name, isRequired: true }, ...form],
    values: values(entry?.is ?? {}),
    action: "Save",
  });
  return {
    title,
    async source() {
      const configuration = await load();
      const changed = configuration.overrides[kind] ?? {};
      sources = (configuration.sources[kind] ?? []).filter((source) => source !== "administrators");
      const present = Object.entries(entriesOf(kind, configuration.values));
      const removed = Object.keys(changed).filter((id) => changed[id] === false);
      return [
        ...present.map(([id, is]) => ({ id, is, isChanged: changed[id] !== undefined })),
        ...removed.map((id) => ({ id, is: undefined, isChanged: true })),
      ];
    },
    nameOf: ({ id }) => id,
    none: "None.",
    note: () => (sources.length > 0 ? html`<p class="note">From the ${sources.join(" and the ")}.</p>` : nothing),
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
        does: (_, { id, ...given }) => change(id, read(given, {}), `The ${one} was added.`),
      },
    ],
    actions: [
      {
        label: "Change",
        icon: "edit",
        needs: "changeConfiguration",
        isFor: ({ is }) => is !== undefined,
        asks: question,
        does: ({ id, is = {} }, given) => change(id, read(given, is), `The ${one} was changed.`),
      },
      {
        label: "Take back",
        icon: "previous",
        needs: "changeConfiguration",
        isFor: ({ isChanged }) => isChanged,
        does: ({ id }) => change(id, null, "The change was taken back."),
      },
      {
        label: "Remove",
        icon: "trash",
        isDangerous: true,
        needs: "changeConfiguration",
        isFor: ({ is }) => is !== undefined,
        asks: ({ id }) => ({ title: `Remove ${id}?`, text: removal }),
        does: ({ id }) => change(id, false, `The ${one} was removed.`),
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
  const lists = (Object.keys(KINDS) as KindName[]).map((kind) => new ResourceList(listOf(kind), 3));
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
