import { html, nothing } from "lit-html";
import type { Batch, File } from "../api-types.d.ts";
import type { Action } from "./actions.ts";
import { call, callJson } from "./api.ts";
import { textOf } from "./arrivals.ts";
import { type Column, column, namedId, noted, objectsTable } from "./cards-table.ts";
import { count, inWords, moment, size } from "./format.ts";
import { type PagePart, type Resource, ResourceList, resourceView } from "./resource.ts";
import { saveFile } from "./save.ts";
import { linkButton } from "./share.ts";
import { EXPIRIES, Uploads } from "./uploads.ts";
import type { View } from "./view.ts";

/** The tenant's batches: `#/batches`, `#/batches/{id}`. `?input_file_id=…` begins one of that file. */

const PATH = "/v1/batches";

/** The number of files to choose from: the newest. */
const MAX_FILES = 100;

/** The maximum length of a line, in the server's own limits. UTF-16 units. */
const MAX_LINE_LENGTH = 8 * 1024 * 1024;

/** The number of faults that are shown. */
const MAX_FAULTS = 100;

/** True while the batch may change. */
const isOpen = (batch: Batch) =>
  !["completed_at", "failed_at", "expired_at", "cancelled_at"].some((end) => end in batch);

const pathOf = (id: string) => `${PATH}/${encodeURIComponent(id)}`;

function requestsInWords({ request_counts: { total, completed, failed } }: Batch) {
  if (total === 0) return "–";
  return `${count(completed)} of ${count(total)} answered${failed > 0 ? `, ${count(failed)} failed` : ""}`;
}

const nameOf = ({ metadata, id }: Batch) => metadata?.name ?? id;

const BATCHES: Resource<Batch> = {
  title: "Batches",
  source: PATH,
  address: "#/batches",
  nameOf,
  none: "There are no batches.",
  columns: [
    [
      "Batch",
      (batch) => noted(html`<a href=${`#/batches/${batch.id}`}>${nameOf(batch)}</a>`, batch.metadata?.name && batch.id),
    ],
    column("status"),
    ["Endpoint", ({ endpoint, model }) => noted(endpoint, model)],
    ["Requests", requestsInWords],
    ["Tokens", (batch) => count(batch.usage.total_tokens), "number"],
    column("created_at"),
  ],
  isChanging: isOpen,
  everyMs: 3_000,
  above: (list) => ({
    ...new Uploads({
      fields: () => ({ purpose: "batch" }),
      uploaded: async ({ id }) => list.do(creation(id)),
      ended() {},
    }),
    show(query) {
      const file = query.get("input_file_id");
      if (file === null) return;
      history.replaceState(null, "", "#/batches");
      list.do(creation(file));
    },
  }),
  listActions: [creation("")],
  actions: [
    {
      label: "Cancel",
      icon: "stop",
      isDangerous: true,
      isFor: (batch) => isOpen(batch) && batch.cancelling_at === undefined && batch.status !== "finalizing",
      asks: () => ({
        title: "Cancel this batch?",
        text: "No further request begins. Its files will have the answers so far.",
        action: "Cancel the batch",
      }),
      posts: ({ id }) => `${pathOf(id)}/cancel`,
      told: "The batch is being cancelled.",
    },
  ],
  page: {
    status: (batch) => batch.status,
    figures: (batch) => [
      [
        ["Requests", requestsInWords(batch)],
        ["Endpoint", batch.endpoint],
        ["Model of the first request", batch.model ?? "–"],
        ["Input tokens", count(batch.usage.input_tokens)],
        ["cached", count(batch.usage.input_tokens_details.cached_tokens)],
        ["Output tokens", count(batch.usage.output_tokens)],
        ["of them reasoning", count(batch.usage.output_tokens_details.reasoning_tokens)],
      ],
      timesOf(batch),
    ],
    more: ({ id, metadata, errors, request_counts: { total, completed, failed } }) => {
      const { name: _, ...others } = metadata ?? {};
      return html`
        ${total > 0 ? html`<progress aria-label="Requests that have ended" max=${total} .value=${completed + failed}></progress>` : nothing}
        <p class="buttons">
          ${Object.entries(others).map(([key, value]) => html`<span class="tag" dir="auto">${key}: ${value}</span>`)}
          ${linkButton(`#/batches/${id}`)}
        </p>
        ${errors?.data.length ? faultsTemplate(errors.data) : nothing}`;
    },
    parts: (id) => [filesOf(id)],
  },
};

/** Makes a batch of a file. @param chosen its id; empty for none yet */
function creation(chosen: string): Action<undefined, Batch> {
  return {
    label: "New batch",
    icon: "new",
    isMain: true,
    async asks() {
      const { data } = await callJson(`/v1/files?purpose=batch&limit=${MAX_FILES}`);
      const files: [string, string][] = data.map((file: File) => [
        file.id,
        `${file.filename}, ${size(file.bytes)}, ${moment(file.created_at)}`,
      ]);
      if (chosen !== "" && !files.some(([id]) => id === chosen)) files.unshift([chosen, chosen]);
      const options = [["", files.length === 0 ? "upload one first" : "choose one"] as const, ...files];
      return {
        text: html`<p class="note">Each line is a request: <code>{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {…}}</code>. The first line's <code>url</code> is the batch's endpoint. It has 24 hours.</p>`,
        form: [
          { name: "input_file_id", label: "Input file, of JSON lines", kind: "choice", isRequired: true, options },
          { name: "name", label: "Name", maxLength: 512, placeholder: "in its metadata" },
          { name: "seconds", label: "Its outputs expire", kind: "choice", options: EXPIRIES },
        ],
        values: { input_file_id: chosen },
        action: "Create",
      };
    },
    posts: () => PATH,
    body: async ({ input_file_id, name, seconds }) => ({
      input_file_id,
      endpoint: await endpointIn(input_file_id),
      completion_window: "24h",
      metadata: name && { name },
      output_expires_after: seconds && { anchor: "created_at", seconds: Number(seconds) },
    }),
    opens: ({ id }) => `#/batches/${id}`,
    told: "The batch was created.",
  };
}

/** The `url` of the first request in a file, of which no more is read. Throws an Error for people, and an ApiFault. */
async function endpointIn(file: string) {
  const { body } = await call(`/v1/files/${encodeURIComponent(file)}/content`);
  let text = "";
  for await (const part of body ? textOf(body) : []) {
    text += part;
    if (part.includes("\n") || text.length > MAX_LINE_LENGTH) break;
  }
  try {
    const { url } = JSON.parse(text.split("\n", 1)[0] ?? "");
    if (typeof url === "string") return url;
  } catch {
    // Said below.
  }
  throw new Error("The first line of the file is no request: it needs to be a JSON object with a 'url'.");
}

/** The times of a batch, in order. Its last moment is named where it has not ended. */
function timesOf(batch: Batch) {
  const times = Object.entries(batch)
    .filter(([name, value]) => name.endsWith("_at") && name !== "expires_at" && typeof value === "number")
    .map(([name, value]) => [inWords(name.replace(/_at$/, "")), Number(value)] as const)
    .sort(([, one], [, other]) => one - other);
  if (isOpen(batch)) times.push(["Expires", batch.expires_at]);
  return times.map(([name, value]) => [name, moment(value)] as const);
}

/** A file of a batch; without its object where it was deleted. */
interface BatchFile {
  id: string;
  label: string;
  file: File | undefined;
}

/** The files of a batch, which are loaded again with it. */
function filesOf(id: string): PagePart<Batch> {
  const list = new ResourceList<BatchFile>(
    {
      title: "Files of the batch",
      async source() {
        const { input_file_id: input, output_file_id: output, error_file_id: errors } = await callJson(pathOf(id));
        const files = Object.entries({ Input: input, Answers: output, Errors: errors });
        const objects = files
          .filter(([, file]) => file)
          .map(async ([label, file]) => ({
            ...{ id: file, label },
            file: await callJson(`/v1/files/${encodeURIComponent(file)}`).catch(() => undefined),
          }));
        return { data: await Promise.all(objects) };
      },
      nameOf: (each) => each.label,
      none: "It has no files.",
      columns: [
        ["File", (each) => each.label],
        ["Name", (each) => namedId(each.file?.filename ?? html`<span class="tag bad">deleted</span>`, each.id)],
        ["Size", ({ file }) => (file ? size(file.bytes) : "–"), "number"],
        ["Expires", ({ file }) => moment(file?.expires_at, "never"), "when"],
      ],
      actions: [
        {
          label: "Download",
          icon: "export",
          isFor: (each) => each.file !== undefined,
          does: (each) => saveFile(each.id, each.file?.filename ?? each.id).then(() => undefined),
        },
      ],
    },
    3,
  );
  return { element: list.element, update: list.refresh };
}

type Fault = NonNullable<Batch["errors"]>["data"][number];

function faultsTemplate(faults: readonly Fault[]) {
  const columns: Column<Fault>[] = [
    ["Line", (fault) => fault.line ?? "–", "number"],
    ["Field", (fault) => fault.param ?? "–"],
    ["Fault", ({ message, code }) => html`<bdi>${message}</bdi> <code class="note">${code}</code>`],
  ];
  return html`<h3>Faults of the input file</h3> ${objectsTable("Faults", columns, faults.slice(0, MAX_FAULTS))}
    ${faults.length > MAX_FAULTS ? html`<p class="note">and ${count(faults.length - MAX_FAULTS)} more</p>` : nothing}`;
}

export function batchesView(view: HTMLElement): View {
  return resourceView(view, BATCHES);
}
