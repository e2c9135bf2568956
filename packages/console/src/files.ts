import { html, nothing } from "lit-html";
import type { File, VectorStore } from "../api-types.d.ts";
import { deletion } from "./actions.ts";
import { callJson } from "./api.ts";
import { count, moment, size } from "./format.ts";
import { statusTag } from "./item-view.ts";
import { partsOf } from "./list-and-one.ts";
import type { Resource } from "./resource.ts";
import { partOf } from "./resource.ts";
import { saveFile } from "./save.ts";
import { storeFiles } from "./store-files.ts";
import { storeSearch } from "./store-search.ts";
import { EXPIRIES, Uploads } from "./uploads.ts";
import type { View } from "./view.ts";

/** Files and vector stores of the tenant: `#/files`, `#/files/stores`, `#/files/stores/{id}`. */

const PURPOSES = ["assistants", "user_data", "vision", "batch", "fine-tune", "evals"].map(
  (each) => [each, each] as const,
);

/** A name, and the id below it. */
export function namedId(name: unknown, id: string) {
  return html`<bdi class="file-name">${name}</bdi><br /><code class="note">${id}</code>`;
}

const FILES: Resource<File> = {
  title: "Files",
  source: "/v1/files",
  address: "#/files",
  nameOf: ({ filename }) => filename,
  none: "There are no files.",
  noneFiltered: "There are no files for this purpose.",
  filters: [{ name: "purpose", label: "Shown", kind: "choice", options: [["", "all purposes"], ...PURPOSES] }],
  columns: [
    { heading: "File", cell: ({ filename, id }) => namedId(filename, id) },
    { heading: "Size", kind: "number", cell: ({ bytes }) => size(bytes) },
    { heading: "Purpose", cell: ({ purpose }) => purpose },
    { heading: "Created", kind: "when", cell: ({ created_at: created }) => moment(created) },
    {
      heading: "Expires",
      kind: "when",
      cell: ({ expires_at: expires }) => (expires == null ? "never" : moment(expires)),
    },
  ],
  above: (list) =>
    new Uploads({
      form: [
        { name: "purpose", label: "Purpose", kind: "choice", options: PURPOSES },
        { name: "expires", label: "Expires", kind: "choice", options: EXPIRIES },
      ],
      fields: ({ purpose, expires }) => ({
        purpose,
        ...(expires && { "expires_after[anchor]": "created_at", "expires_after[seconds]": expires }),
      }),
      ended: list.refresh,
    }),
  actions: [
    {
      label: "Batch",
      icon: "batch",
      isFor: ({ purpose }) => purpose === "batch",
      href: ({ id }) => `#/batches?input_file_id=${id}`,
    },
    {
      label: "Download",
      icon: "export",
      async does(file) {
        await saveFile(file.id, file.filename);
        return { item: file };
      },
    },
    deletion(
      "/v1/files",
      ({ filename }) => ({
        title: "Delete this file?",
        text: `${filename} will be deleted permanently, also from its vector stores.`,
      }),
      "The file was deleted.",
    ),
  ],
};

function nameOf({ name, id }: VectorStore) {
  return name || id;
}

/** The progress of indexing a store's files. */
function countsInWords({ in_progress: open, completed, failed, cancelled, total }: VectorStore["file_counts"]) {
  if (total === 0) return "no files";
  const parts = [
    `${count(completed)} of ${count(total)} indexed`,
    open > 0 && `${count(open)} in progress`,
    failed > 0 && `${count(failed)} failed`,
    cancelled > 0 && `${count(cancelled)} cancelled`,
  ];
  return parts.filter(Boolean).join(", ");
}

const expiry = ({ expires_at: expires }: VectorStore) => (expires === null ? "never" : moment(expires));

const STORES: Resource<VectorStore> = {
  title: "Vector stores",
  source: "/v1/vector_stores",
  address: "#/files/stores",
  nameOf,
  none: "There are no vector stores.",
  columns: [
    {
      heading: "Vector store",
      cell: ({ name, id }) => namedId(html`<a href=${`#/files/stores/${id}`}>${name || "unnamed"}</a>`, id),
    },
    { heading: "Status", cell: ({ status }) => statusTag(status) },
    { heading: "Files", cell: ({ file_counts: counts }) => countsInWords(counts) },
    { heading: "Size", kind: "number", cell: ({ usage_bytes: bytes }) => size(bytes) },
    { heading: "Created", kind: "when", cell: ({ created_at: created }) => moment(created) },
    { heading: "Expires", kind: "when", cell: expiry },
  ],
  isChanging: ({ status }) => status === "in_progress",
  everyMs: 2_000,
  listActions: [
    {
      label: "New vector store",
      icon: "new",
      isMain: true,
      asks: () => ({
        title: "New vector store",
        form: [
          { name: "name", label: "Name", maxLength: 256 },
          {
            name: "days",
            label: "Expires after days without use",
            kind: "number",
            min: 1,
            max: 365,
            placeholder: "never",
          },
        ],
        action: "Create",
      }),
      async does(_, { name = "", days }) {
        const expiry = days === undefined ? {} : { expires_after: { anchor: "last_active_at", days } };
        const item: VectorStore = await callJson("/v1/vector_stores", { body: { name, ...expiry } });
        location.hash = `#/files/stores/${item.id}`;
        return { item, told: "The vector store was created." };
      },
    },
  ],
  actions: [
    deletion(
      "/v1/vector_stores",
      (store) => ({
        title: "Delete this vector store?",
        text: `${nameOf(store)} is deleted for good. Its files themselves stay.`,
      }),
      "The vector store was deleted.",
    ),
  ],
  page: {
    status: ({ status }) => status,
    figures: (store) => [
      [
        ["Files", countsInWords(store.file_counts)],
        ["Size", size(store.usage_bytes)],
        ["Embeddings", embeddingsInWords(store)],
        ["Expires", expiry(store)],
      ],
    ],
    more: ({ status, file_counts: { total, in_progress: open } }) =>
      status === "in_progress"
        ? html`<progress aria-label="Indexed files" max=${total} .value=${total - open}></progress>`
        : nothing,
    parts: (id, { refresh }) => [storeFiles(id, refresh), storeSearch(id)],
  },
};

function embeddingsInWords({ embedding_model: model, embedding_dimensions: dimensions }: VectorStore) {
  return model === null ? "none: it is searched only by words" : `${model}, ${count(dimensions)} dimensions`;
}

export function filesView(view: HTMLElement): View {
  const part = ([section, id]: string[]) => (section === "stores" ? partOf(STORES, id) : partOf(FILES, undefined));
  return partsOf(view, "Files", part, navigation);
}

function navigation([section]: string[]) {
  const isStores = section === "stores";
  return html`<nav class="sections" aria-label="Sections">
    <a href="#/files" aria-current=${isStores ? "false" : "page"}>Files</a>
    <a href="#/files/stores" aria-current=${isStores ? "page" : "false"}>Vector stores</a>
  </nav>`;
}
