import { html, nothing, render } from "lit-html";
import type { Configuration as ApiConfiguration } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import type { KindName as KindNameOfConfigurationForms } from "./configuration-forms.ts";
import { entriesOf, KINDS } from "./configuration-forms.ts";
import { askForm, confirmed, faultNotice, messageOf } from "./dialogs.ts";
import type { ApiObject } from "./json.ts";
import { ifMay, may } from "./rights.ts";
import { download } from "./save.ts";
import type { Section } from "./view.ts";
import { yamlOf } from "./yaml.ts";

/**
 * The effective model servers, routes and prices, and the changes that administrators make: `/v1/admin/configuration`.
 */
interface Configuration extends ApiConfiguration {
  values: Record<string, ApiObject | undefined>;
  overrides: Record<string, ApiObject | undefined>;
}

const PATH = "/v1/admin/configuration";

export type KindName = KindNameOfConfigurationForms;
const NAMES = ["upstreams", "routes", "model_prices"];

/** Stands in the place of secrets. */
const HIDDEN = "****";

export function configurationSection(element: HTMLElement): Section {
  let configuration: Configuration | undefined;
  let fault = "";

  async function load() {
    try {
      configuration = await callJson(PATH);
      fault = "";
    } catch (error) {
      fault = messageOf(error);
    }
    draw();
  }

  /** Changes entries of a kind. Rejects with the server's error. */
  async function change(kind: KindName, entries: ApiObject) {
    configuration = await callJson(PATH, { body: { [kind]: entries } });
    fault = "";
    announce("The configuration was changed.");
    draw();
  }

  /** The same, but shows the error in the section. */
  async function changeHere(kind: KindName, entries: ApiObject) {
    try {
      await change(kind, entries);
    } catch (error) {
      fault = messageOf(error);
      draw();
    }
  }

  /**
   * Shows the form of an entry until it is saved or the user cancels.
   * @param name of an existing entry
   */
  async function edit(kind: KindName, name?: string) {
    const { one, name: label, fields, read } = KINDS[kind];
    const before = name === undefined ? {} : (entriesOf(kind, configuration?.values ?? {})[name] ?? {});
    await askForm(
      name === undefined ? `Add a ${one}` : `Change ${name}`,
      html`${
        name === undefined
          ? html`<div>
              <label for="entry-name">${label}</label>
              <input dir="auto" id="entry-name" name="name" required autocomplete="off" spellcheck="false" autofocus />
            </div>`
          : nothing
      }
      ${fields(before, "entry")}`,
      (data) => change(kind, { [name ?? String(data.get("name")).trim()]: read(data, before) }),
    );
  }

  async function remove(kind: KindName, name: string) {
    const isServer = kind === "upstreams";
    const question = {
      title: `Remove ${name}?`,
      text: isServer
        ? "It gets no further requests, and ends its running answers. Drain it first to move its conversations."
        : "Running requests go on as they are.",
      action: "Remove",
    };
    if (await confirmed(question)) await changeHere(kind, { [name]: false });
  }

  function draw() {
    render(
      html`
        <div class="section-heading">
          <h2>Configuration</h2>
          <div class="buttons">
            <button type="button" @click=${() => void load()}>Refresh</button>
            ${configuration ? html`<button type="button" @click=${save}>Save as a file</button>` : nothing}
          </div>
        </div>
        ${faultNotice(fault)}
        ${
          configuration
            ? html`<p class="note">
                  What is changed here goes before the configuration's file and the environment, for all that begins from now on, until it is taken back. Secrets are
                  not shown, and not in the file.
                </p>
                ${NAMES.map((kind) => kindTemplate(kind as KindName, configuration as Configuration))}`
            : fault
              ? nothing
              : html`<p class="note">Loading…</p>`
        }
      `,
      element,
    );
  }

  function save() {
    const { values } = configuration as Configuration;
    const present = Object.entries(values).filter(([, entries]) => Object.keys(entries ?? {}).length > 0);
    const shown = JSON.stringify(Object.fromEntries(present), (_, value) => (value === HIDDEN ? undefined : value));
    download("configuration.yaml", yamlOf(JSON.parse(shown)));
  }

  function kindTemplate(kind: KindName, { values, overrides, sources }: Configuration) {
    const { title, one, summary } = KINDS[kind];
    const entries = entriesOf(kind, values);
    const changed = overrides[kind] ?? {};
    const gone = Object.keys(changed).filter((name) => changed[name] === false);
    const from = (sources[kind] ?? []).filter((source) => source !== "administrators");
    return html`<section class="stack" aria-label=${title}>
      <div class="section-heading">
        <h3>${title} ${from.length > 0 ? html`<span class="note">from the ${from.join(" and the ")}</span>` : nothing}</h3>
        ${ifMay("changeConfiguration", html`<button type="button" aria-label="Add a ${one}" @click=${() => void edit(kind)}>Add</button>`)}
      </div>
      ${
        Object.keys(entries).length + gone.length === 0
          ? html`<p class="note">None.</p>`
          : html`<div class="wide card cards" tabindex="0" role="region" aria-label=${`List of ${title.toLowerCase()}`}>
              <table>
                <tbody>
                  ${Object.entries(entries).map(([name, entry]) => rowTemplate(kind, name, summary(entry), changed[name] !== undefined))}
                  ${gone.map((name) => rowTemplate(kind, name, undefined, true))}
                </tbody>
              </table>
            </div>`
      }
    </section>`;
  }

  /** @param summary undefined for an entry that was removed */
  function rowTemplate(kind: KindName, name: string, summary: string | undefined, isChanged: boolean) {
    return html`<tr>
      <th scope="row">
        <bdi>${name}</bdi> ${summary === undefined ? html`<span class="tag bad">removed</span>` : isChanged ? html`<span class="tag busy">changed here</span>` : nothing}
      </th>
      <td class="limits">${summary ?? "–"}</td>
      <td>
        <div class="buttons">
          ${
            summary === undefined || !may("changeConfiguration")
              ? nothing
              : html`<button type="button" aria-label="Change ${name}" @click=${() => void edit(kind, name)}>Change</button>
                  <button type="button" class="danger" aria-label="Remove ${name}" @click=${() => void remove(kind, name)}>Remove</button>`
          }
          ${isChanged && may("changeConfiguration") ? html`<button type="button" aria-label="Take back ${name}" @click=${() => void changeHere(kind, { [name]: null })}>Take back</button>` : nothing}
        </div>
      </td>
    </tr>`;
  }

  return { show: () => void load() };
}
