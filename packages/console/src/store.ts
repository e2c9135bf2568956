import { html, nothing, render } from "lit-html";
import type { VectorStoreFile as StoreFile } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { actions, cardsTable } from "./cards-table.ts";
import { confirmed, faultNotice, messageOf } from "./dialogs.ts";
import { typedIn } from "./form-events.ts";
import { count, moment, size } from "./format.ts";
import { statusTag } from "./item-view.ts";
import type { Part } from "./list-and-one.ts";
import { PagedList } from "./paged-list.ts";
import { Refresher } from "./refresher.ts";
import { storeSearch } from "./store-search.ts";
import type { Store } from "./stores-list.ts";
import { countsInWords, deleteStore, EVERY_MS, nameOf } from "./stores-list.ts";
import { Uploads } from "./uploads.ts";

/** A vector store: its files, the progress of their indexing, and a search. */

/** A store does not list its files' names. This is the number of names loaded at once. */
const NAMES_AT_ONCE = 6;

export function storeSection(element: HTMLElement, id: string): Part {
  const path = `/v1/vector_stores/${encodeURIComponent(id)}`;
  let store: Store | undefined;
  const list: PagedList<StoreFile> = new PagedList(`${path}/files`, () => {
    void nameFiles();
    draw();
  });
  let attributes = "";
  /** Names of files by their ids; empty for one that is gone. */
  const names: Map<string, string> = new Map();
  const searchElement = document.createElement("section");
  searchElement.className = "card stack";
  const search = storeSearch(searchElement, id);
  const refresher = new Refresher(refresh, EVERY_MS);
  const uploads = new Uploads({
    fields: () => ({ purpose: "assistants" }),
    async uploaded(file, signal) {
      names.set(file.id, file.filename);
      await add(file.id, signal);
    },
    ended: () => void refresher.now(),
  });

  async function add(file: string, signal?: AbortSignal) {
    const given = attributesOf(attributes);
    await callJson(`${path}/files`, { body: { file_id: file, ...(given && { attributes: given }) }, signal });
  }

  async function refresh() {
    await list.attempt(async () => {
      const [object] = await Promise.all([callJson(path), list.load()]);
      store = object;
      search.byWordsAlone(object.embedding_model === null);
    });
    // A failed attempt tells nothing about the store.
    return list.fault !== "" || store?.status === "in_progress";
  }

  async function nameFiles() {
    const unnamed = (list.items ?? []).filter((file) => !names.has(file.id));
    for (const file of unnamed) names.set(file.id, "");
    const next = unnamed.values();
    const ask = async () => {
      for (const file of next) {
        const found = await callJson(`/v1/files/${encodeURIComponent(file.id)}`).catch(() => undefined);
        if (found) names.set(file.id, found.filename);
      }
    };
    await Promise.all(Array.from({ length: NAMES_AT_ONCE }, ask));
    if (unnamed.length > 0) draw();
  }

  const remove = (file: StoreFile) =>
    list.attempt(async () => {
      const question = {
        title: "Take this file out?",
        text: `Searches of this vector store will no longer find ${fileName(file)}. The file itself stays.`,
        action: "Take out",
      };
      if (!(await confirmed(question))) return;
      await callJson(`${path}/files/${encodeURIComponent(file.id)}`, { method: "DELETE" });
      list.remove(file.id);
      announce("The file was removed.");
      void refresher.now();
    });

  const removeStore = () =>
    list.attempt(async () => {
      if (store && (await deleteStore(store))) location.hash = "#/files/stores";
    });

  function addKnown(event: SubmitEvent) {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const file = String(new FormData(form).get("file") ?? "").trim();
    void list.attempt(async () => {
      await add(file);
      form.reset();
      announce("The file was added.");
      void refresher.now();
    });
  }

  function fileName(file: StoreFile) {
    return names.get(file.id) || file.id;
  }

  function draw() {
    render(
      html`
        <p><a href="#/files/stores">All vector stores</a></p>
        ${faultNotice(list.fault)}
        ${store ? storeTemplate(store) : list.fault ? nothing : html`<p class="note">Loading…</p>`}
      `,
      element,
    );
  }

  function storeTemplate(shown: Store) {
    return html`
      <div class="section-heading">
        <h2><bdi>${nameOf(shown)}</bdi> ${statusTag(shown.status)}</h2>
        <button type="button" class="danger" aria-label=${`Delete ${nameOf(shown)}`} @click=${() => void removeStore()}>Delete</button>
      </div>
      <dl class="figures">
        <div><dt>Id</dt><dd><code>${shown.id}</code></dd></div>
        <div><dt>Files</dt><dd>${countsInWords(shown.file_counts)}</dd></div>
        <div><dt>Size</dt><dd>${size(shown.usage_bytes)}</dd></div>
        <div><dt>Embeddings</dt><dd>${shown.embedding_model === null ? "none: it is searched only by words" : `${shown.embedding_model}, ${count(shown.embedding_dimensions)} dimensions`}</dd></div>
        <div><dt>Expires</dt><dd>${shown.expires_at === null ? "never" : moment(shown.expires_at)}</dd></div>
      </dl>
      <div class="columns">
        <div class="stack">
        <section class="card stack">
          <h3>Add files</h3>
          ${shown.status === "in_progress" ? html`<div><label for="indexing">Indexing: ${countsInWords(shown.file_counts)}</label><progress id="indexing" max=${shown.file_counts.total} .value=${shown.file_counts.total - shown.file_counts.in_progress}></progress></div>` : nothing}
          ${uploads.element}
          <details>
            <summary>Attributes, and files that are uploaded</summary>
            <div class="stack inner">
              <div>
                <label for="store-attributes">Attributes of what is added (JSON)</label>
                <textarea
                  dir="auto"
                  id="store-attributes"
                  class="code"
                  rows="2"
                  spellcheck="false"
                  placeholder='{ "language": "en", "year": 2024 }'
                  @input=${(event: Event) => (attributes = typedIn(event))}
                ></textarea>
              </div>
              <form class="add-known" @submit=${addKnown}>
                <div><label for="store-file">Id of a file</label><input dir="auto" id="store-file" name="file" required placeholder="file-…" autocomplete="off" spellcheck="false" /></div>
                <button type="submit">Add</button>
              </form>
            </div>
          </details>
        </section>
        ${list.rows("There are no files in it.", tableTemplate)}
        </div>
        ${searchElement}
      </div>
    `;
  }

  function tableTemplate(shown: readonly StoreFile[]) {
    return cardsTable("Files in it", ["File", "Status", "Attributes", actions], shown.map(rowTemplate));
  }

  function rowTemplate(file: StoreFile) {
    const entries = Object.entries(file.attributes ?? {});
    return html`<tr>
      <th scope="row"><bdi class="file-name">${fileName(file)}</bdi><br /><code class="note">${file.id}</code><br /><span class="note">${size(file.usage_bytes)}, ${moment(file.created_at)}</span></th>
      <td data-label="Status">
        ${statusTag(file.status)}
        ${file.last_error ? html`<p class="fault" dir="auto">${file.last_error.message} <code>${file.last_error.code}</code></p>` : nothing}
      </td>
      <td data-label="Attributes" dir="auto">${entries.length === 0 ? "–" : entries.map(([key, value]) => html`<code>${key}: ${String(value)}</code> `)}</td>
      <td><button type="button" aria-label=${`Take out ${fileName(file)}`} @click=${() => void remove(file)}>Take out</button></td>
    </tr>`;
  }

  return { show: () => refresher.start(), hide: () => refresher.stop() };
}

function attributesOf(text: string): Record<string, unknown> | undefined {
  if (text.trim() === "") return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The attributes are no JSON: ${messageOf(error)}`);
  }
}
