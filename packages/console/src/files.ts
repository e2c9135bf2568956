import { html, nothing } from "lit-html";
import type { File, VectorStore } from "../api-types.d.ts";
import { deletion } from "./actions.ts";
import { column, namedId } from "./cards-table.ts";
import { count, moment, size } from "./format.ts";
import { partsOf, sectionLinks } from "./list-and-one.ts";
import { partOf, type Resource } from "./resource.ts";
import { saveFile } from "./save.ts";
import { storeFiles } from "./store-files.ts";
import { storeSearch } from "./store-search.ts";
import { EXPIRIES, Uploads } from "./uploads.ts";
import type { View } from "./view.ts";

/** Files and vector stores of the tenant: `#/files`, `#/files/stores`, `#/files/stores/{id}`. */

const PURPOSES = ["assistants", "user_data", "vision", "batch", "fine-tune", "evals"].map(
  (each) => [each, each] as const,
);

const FILES: Resource<File> = {
  title: "Files",
  source: "/v1/files",
  address: "#/files",
  nameOf: (file) => file.filename,
  none: "There are no files.",
  noneFiltered: "There are no files for this purpose.",
  filters: [{ name: "purpose", label: "Shown", kind: "choice", options: [["", "all purposes"], ...PURPOSES] }],
  columns: [
    ["File", (file) => namedId(file.filename, file.id)],
    ...[column("bytes"), column("purpose"), column("created_at"), column("expires_at")],
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
      isFor: (file) => file.purpose === "batch",
      href: (file) => `#/batches?input_file_id=${file.id}`,
    },
    { label: "Download", icon: "export", does: (file) => saveFile(file.id, file.filename).then(() => undefined) },
    deletion(
      "/v1/files",
      "file",
      (file) => `${file.filename} will be deleted permanently, also from its vector stores.`,
    ),
  ],
};

const nameOf = (store: VectorStore) => store.name || store.id;

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

function embeddingsInWords({ embedding_model: model, embedding_dimensions: dimensions }: VectorStore) {
  return model === null ? "none: it is searched only by words" : `${model}, ${count(dimensions)} dimensions`;
}

const STORES: Resource<VectorStore> = {
  title: "Vector stores",
  source: "/v1/vector_stores",
  address: "#/files/stores",
  nameOf,
  none: "There are no vector stores.",
  columns: [
    ["Vector store", ({ id, name }) => namedId(html`<a href=${`#/files/stores/${id}`}>${name || "unnamed"}</a>`, id)],
    column("status"),
    ["Files", (store) => countsInWords(store.file_counts)],
    ...[column("usage_bytes"), column("created_at"), column("expires_at")],
  ],
  isChanging: (store) => store.status === "in_progress",
  everyMs: 2_000,
  listActions: [
    {
      label: "New vector store",
      icon: "new",
      isMain: true,
      asks: () => ({
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
      posts: () => "/v1/vector_stores",
      body: ({ name = "", days }) => ({ name, expires_after: days && { anchor: "last_active_at", days } }),
      opens: ({ id }) => `#/files/stores/${id}`,
      told: "The vector store was created.",
    },
  ],
  actions: [
    deletion(
      "/v1/vector_stores",
      "vector store",
      (store) => `${nameOf(store)} is deleted for good. Its files themselves stay.`,
    ),
  ],
  page: {
    status: (store) => store.status,
    figures: (store) => [
      [
        ["Files", countsInWords(store.file_counts)],
        ["Size", size(store.usage_bytes)],
        ["Embeddings", embeddingsInWords(store)],
        ["Expires", moment(store.expires_at, "never")],
      ],
    ],
    more: ({ status, file_counts: { total, in_progress: open } }) =>
      status === "in_progress"
        ? html`<progress aria-label="Indexed files" max=${total} .value=${total - open}></progress>`
        : nothing,
    parts: (id, { refresh }) => [storeFiles(id, refresh), storeSearch(id)],
  },
};

export function filesView(view: HTMLElement): View {
  const part = ([section, id]: string[]) => (section === "stores" ? partOf(STORES, id) : partOf(FILES, undefined));
  const sections = Object.entries({ "": "Files", stores: "Vector stores" });
  return partsOf(view, "Files", part, ([section = ""]) => sectionLinks("files", sections, section));
}
