import { html, nothing } from "lit-html";
import type { File, VectorStoreFile } from "../api-types.d.ts";
import { callJson } from "./api.ts";
import { namedId, noted } from "./cards-table.ts";
import type { Field } from "./fields.ts";
import { moment, size } from "./format.ts";
import { statusTag } from "./item-view.ts";
import type { ApiObject } from "./json.ts";
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
  const path = `/v1/vector_stores/${encodeURIComponent(id)}/files`;
  /** The list does not have the names of files: each is looked up when it is first shown. */
  const names: Map<string, string> = new Map();
  const nameOf = ({ id: file }: VectorStoreFile): string => names.get(file) ?? lookUp(file);
  const add = (file: string, { attributes }: ApiObject, signal?: AbortSignal): Promise<VectorStoreFile> =>
    callJson(path, { body: { file_id: file, attributes }, signal });

  const list: ResourceList<VectorStoreFile> = new ResourceList<VectorStoreFile>(
    {
      title: "Files in it",
      source: path,
      nameOf,
      none: "There are no files in it.",
      columns: [
        [
          "File",
          (file) => noted(namedId(nameOf(file), file.id), `${size(file.usage_bytes)}, ${moment(file.created_at)}`),
        ],
        ["Status", statusTemplate],
        ["Attributes", (file) => attributesTemplate(file.attributes)],
      ],
      isChanging: (file) => file.status === "in_progress",
      everyMs: 2_000,
      above: ({ refresh }) =>
        new Uploads({
          form: [{ title: "Attributes", fields: [ATTRIBUTES] }],
          fields: () => ({ purpose: "assistants" }),
          async uploaded(file, given, signal) {
            names.set(file.id, file.filename);
            await add(file.id, given, signal);
          },
          ended() {
            refresh();
            changed();
          },
        }),
      listActions: [
        {
          label: "Add a file",
          icon: "new",
          asks: () => ({
            form: [{ name: "file", label: "Id of the file", isRequired: true, placeholder: "file-…" }, ATTRIBUTES],
            action: "Add",
          }),
          does: async (_, given) => ({
            item: await add(given.file, given),
            told: "The file was added.",
            next: changed,
          }),
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
          }),
          async does(file) {
            await callJson(`${path}/${encodeURIComponent(file.id)}`, { method: "DELETE" });
            return { isGone: true, told: "The file was removed.", next: changed };
          },
        },
      ],
    },
    3,
  );
  function lookUp(file: string) {
    names.set(file, file);
    const known = ({ filename }: File) => {
      names.set(file, filename);
      list.draw();
    };
    // A file that is deleted keeps its id for a name.
    callJson(`/v1/files/${encodeURIComponent(file)}`).then(known, () => {});
    return file;
  }

  return list;
}

function statusTemplate({ status, last_error: error }: VectorStoreFile) {
  return html`${statusTag(status)}
    ${error ? html`<p class="fault" dir="auto">${error.message} <code>${error.code}</code></p>` : nothing}`;
}

/** The attributes of a file. */
export function attributesTemplate(attributes: VectorStoreFile["attributes"]) {
  const entries = Object.entries(attributes ?? {});
  return entries.length === 0
    ? "–"
    : entries.map(([key, value]) => html`<code class="wrap-anywhere" dir="auto">${key}: ${String(value)}</code> `);
}
