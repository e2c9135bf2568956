import { html, nothing, render } from "lit-html";
import type { File as ApiFile } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { actions, cardsTable, number } from "./cards-table.ts";
import { confirmed } from "./dialogs.ts";
import { typedIn } from "./form-events.ts";
import { moment, size } from "./format.ts";
import type { Part } from "./list-and-one.ts";
import { PagedList } from "./paged-list.ts";
import { saveFile } from "./save.ts";
import { EXPIRIES, Uploads } from "./uploads.ts";

/** The tenant's files: `/v1/files`. */
export type { ApiFile };

const PURPOSES = ["assistants", "user_data", "vision", "batch", "fine-tune", "evals"];

export function filesSection(element: HTMLElement): Part {
  const list: PagedList<ApiFile> = new PagedList("/v1/files", draw);
  let purpose = "";
  /** Ids of files that are being downloaded or deleted. */
  const busy: Set<string> = new Set();
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
  async function attempt({ id }: ApiFile, work: () => Promise<void>) {
    if (busy.has(id)) return;
    busy.add(id);
    list.fault = "";
    draw();
    await list.attempt(work);
    busy.delete(id);
    draw();
  }

  const save = (file: ApiFile) => attempt(file, () => saveFile(file.id, file.filename));

  const remove = (file: ApiFile) =>
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
              <select id="upload-purpose" @change=${(event: Event) => (settings.purpose = typedIn(event))}>
                ${PURPOSES.map((each) => html`<option>${each}</option>`)}
              </select>
            </div>
            <div>
              <label for="upload-expires">Expires</label>
              <select id="upload-expires" @change=${(event: Event) => (settings.expires = typedIn(event))}>
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
              @change=${(event: Event) => {
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

  function tableTemplate(shown: readonly ApiFile[]) {
    return cardsTable(
      "Files",
      ["File", number("Size"), "Purpose", "Created", "Expires", actions],
      shown.map(rowTemplate),
    );
  }

  function rowTemplate(file: ApiFile) {
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
