import { html, nothing, render } from "lit-html";
import { announce } from "./announce.js";
import { callJson } from "./api.js";
import { actions, cardsTable, number } from "./cards-table.js";
import { confirmed } from "./dialogs.js";
import { typedIn } from "./form-events.js";
import { moment, size } from "./format.js";
import { PagedList } from "./paged-list.js";
import { saveFile } from "./save.js";
import { EXPIRIES, Uploads } from "./uploads.js";

/**
 * The tenant's files: `/v1/files`.
 *
 * @typedef {object} ApiFile
 * @property {string} id
 * @property {string} filename
 * @property {number} bytes
 * @property {string} purpose
 * @property {number} created_at
 * @property {number} [expires_at]
 */

const PURPOSES = ["assistants", "user_data", "vision", "batch", "fine-tune", "evals"];

/** @param {HTMLElement} element @returns {import("./list-and-one.js").Part} */
export function filesSection(element) {
  /** @type {PagedList<ApiFile>} */
  const list = new PagedList("/v1/files", draw);
  let purpose = "";
  /** Ids of files that are being downloaded or deleted. @type {Set<string>} */
  const busy = new Set();
  const settings = { purpose: "assistants", expires: "" };
  const uploads = new Uploads({
    fields: () => ({
      purpose: settings.purpose,
      ...(settings.expires && {
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": settings.expires,
      }),
    }),
    ended: () => void list.refresh(),
  });
  /** @param {ApiFile} file @param {() => Promise<void>} work */
  async function attempt({ id }, work) {
    if (busy.has(id)) return;
    busy.add(id);
    list.fault = "";
    draw();
    await list.attempt(work);
    busy.delete(id);
    draw();
  }

  /** @param {ApiFile} file */
  const save = (file) => attempt(file, () => saveFile(file.id, file.filename));

  /** @param {ApiFile} file */
  const remove = (file) =>
    attempt(file, async () => {
      const question = {
        title: "Delete this file?",
        text: `${file.filename} will be deleted permanently, also from its vector stores.`,
        action: "Delete",
      };
      if (!(await confirmed(question))) return;
      await callJson(`/v1/files/${encodeURIComponent(file.id)}`, { method: "DELETE" });
      list.remove(file.id);
      announce("The file was deleted.");
    });

  function draw() {
    render(
      html`
        <div class="section-heading"><h2>Files</h2></div>
        <div class="card stack">
          <div class="fields">
            <div>
              <label for="upload-purpose">Purpose</label>
              <select id="upload-purpose" @change=${(/** @type {Event} */ event) => (settings.purpose = typedIn(event))}>
                ${PURPOSES.map((each) => html`<option>${each}</option>`)}
              </select>
            </div>
            <div>
              <label for="upload-expires">Expires</label>
              <select id="upload-expires" @change=${(/** @type {Event} */ event) => (settings.expires = typedIn(event))}>
                ${EXPIRIES.map(([seconds, label]) => html`<option value=${seconds ?? ""}>${label}</option>`)}
              </select>
            </div>
          </div>
          ${uploads.element}
        </div>
        <div class="filters">
          <div>
            <label for="files-purpose">Shown</label>
            <select
              id="files-purpose"
              @change=${(/** @type {Event} */ event) => {
                purpose = typedIn(event);
                list.filter = purpose ? { purpose } : {};
                void list.refresh();
              }}
            >
              <option value="">all purposes</option>
              ${PURPOSES.map((each) => html`<option>${each}</option>`)}
            </select>
          </div>
        </div>
        ${list.template(`There are no files${purpose ? " for this purpose" : ""}.`, tableTemplate)}
      `,
      element,
    );
  }

  /** @param {readonly ApiFile[]} shown */
  function tableTemplate(shown) {
    return cardsTable(
      "Files",
      ["File", number("Size"), "Purpose", "Created", "Expires", actions],
      shown.map(rowTemplate),
    );
  }

  /** @param {ApiFile} file */
  function rowTemplate(file) {
    const { id, filename, bytes, expires_at: expires } = file;
    const isBusy = String(busy.has(id));
    return html`<tr>
      <th scope="row"><bdi class="file-name">${filename}</bdi><br /><code class="note">${id}</code></th>
      <td class="number" data-label="Size">${size(bytes)}</td>
      <td data-label="Purpose">${file.purpose}</td>
      <td class="when" data-label="Created">${moment(file.created_at)}</td>
      <td class="when" data-label="Expires">${expires == null ? "never" : moment(expires)}</td>
      <td>
        <div class="buttons">
          ${file.purpose === "batch" ? html`<a class="button" aria-label=${`Make a batch of ${filename}`} href=${`#/batches?input_file_id=${id}`}>Batch</a>` : nothing}
          <button type="button" aria-disabled=${isBusy} aria-label=${`Download ${filename}`} @click=${() => void save(file)}>Download</button>
          <button type="button" class="danger" aria-disabled=${isBusy} aria-label=${`Delete ${filename}`} @click=${() => void remove(file)}>Delete</button>
        </div>
      </td>
    </tr>`;
  }

  return { show: () => void list.refresh() };
}
