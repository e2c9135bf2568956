import { html, nothing } from "lit-html";
import type { VectorStoreFile } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import type { Field } from "./fields.ts";
import { moment, size } from "./format.ts";
import { statusTag } from "./item-view.ts";
import type { ApiObject } from "./json.ts";
import { LookUps } from "./look-ups.ts";
import type { Resource } from "./resource.ts";
import { ResourceList } from "./resource.ts";
import { Uploads } from "./uploads.ts";

/** The files of a vector store. They are added by an upload, or by the id of an uploaded file. */

const ATTRIBUTES: Field = {
  name: "attributes",
  label: "Attributes of what is added (JSON)",
  kind: "json",
  placeholder: '{ "language": "en", "year": 2024 }',
};

/**
 * @param id of the store
 * @param changed Called when the store has other files.
 */
export function storeFiles(id: string, changed: () => void) {
  const names = new LookUps("/v1/files", () => list.draw());
  const list = new ResourceList(resourceOf(`/v1/vector_stores/${encodeURIComponent(id)}/files`, names, changed), 3);
  return list;
}

function resourceOf(path: string, names: LookUps, changed: () => void): Resource<VectorStoreFile> {
  const nameOf = ({ id }: VectorStoreFile): string => names.get(id)?.filename ?? id;
  const add = (file: string, { attributes }: ApiObject, signal?: AbortSignal): Promise<VectorStoreFile> =>
    callJson(path, { body: { file_id: file, ...(attributes && { attributes }) }, signal });
  return {
    title: "Files in it",
    source: path,
    nameOf,
    none: "There are no files in it.",
    columns: [
      {
        heading: "File",
        cell: (
          file,
        ) => html`<bdi class="file-name">${nameOf(file)}</bdi><br /><code class="note">${file.id}</code><br />
          <span class="note">${size(file.usage_bytes)}, ${moment(file.created_at)}</span>`,
      },
      {
        heading: "Status",
        cell: ({ status, last_error: error }) => html`${statusTag(status)}
          ${error ? html`<p class="fault" dir="auto">${error.message} <code>${error.code}</code></p>` : nothing}`,
      },
      { heading: "Attributes", cell: ({ attributes }) => attributesTemplate(attributes) },
    ],
    isChanging: ({ status }) => status === "in_progress",
    everyMs: 2_000,
    above: (list) =>
      new Uploads({
        form: [{ title: "Attributes", fields: [ATTRIBUTES] }],
        fields: () => ({ purpose: "assistants" }),
        async uploaded(file, given, signal) {
          names.set(file.id, file);
          await add(file.id, given, signal);
        },
        ended() {
          list.refresh();
          changed();
        },
      }),
    listActions: [
      {
        label: "Add a file",
        icon: "new",
        asks: () => ({
          title: "Add a file that is uploaded",
          form: [{ name: "file", label: "Id of the file", isRequired: true, placeholder: "file-…" }, ATTRIBUTES],
          action: "Add",
        }),
        async does(_, given) {
          return { item: await add(given.file, given), told: "The file was added.", next: changed };
        },
      },
    ],
    actions: [
      {
        label: "Take out",
        icon: "trash",
        isDangerous: true,
        asks: (file) => ({
          title: "Take this file out?",
          text: `Searches of this vector store will no longer find ${nameOf(file)}. The file itself stays.`,
          action: "Take out",
        }),
        async does({ id }) {
          await callJson(`${path}/${encodeURIComponent(id)}`, { method: "DELETE" });
          return { isGone: true, told: "The file was removed.", next: changed };
        },
      },
    ],
  };
}

/** The attributes of a file. */
export function attributesTemplate(attributes: VectorStoreFile["attributes"]) {
  const entries = Object.entries(attributes ?? {});
  return entries.length === 0
    ? "–"
    : entries.map(([key, value]) => html`<code dir="auto">${key}: ${String(value)}</code> `);
}
