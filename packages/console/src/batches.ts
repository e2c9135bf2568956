import { html, nothing, render } from "lit-html";
import type { Batch, File } from "../api-types.d.ts";
import type { Action } from "./actions.ts";
import { Actions } from "./actions.ts";
import { call, callJson } from "./api.ts";
import { objectsTable } from "./cards-table.ts";
import { faultNotice } from "./dialogs.ts";
import { textOf } from "./event-batches.ts";
import { namedId } from "./files.ts";
import { count, moment, size } from "./format.ts";
import { statusTag } from "./item-view.ts";
import { LookUps } from "./look-ups.ts";
import type { PagePart, Resource } from "./resource.ts";
import { resourceView } from "./resource.ts";
import { saveFile } from "./save.ts";
import { linkButton } from "./share.ts";
import { EXPIRIES, Uploads } from "./uploads.ts";
import type { View } from "./view.ts";

/** The tenant's batches: `#/batches`, `#/batches/{id}`. `?input_file_id=…` begins one of that file. */

/** The number of files to choose from: the newest. */
const MAX_FILES = 100;

/** The maximum length of a line, in the server's own limits. UTF-16 units. */
const MAX_LINE_LENGTH = 8 * 1024 * 1024;

/** The number of faults that are shown. */
const MAX_FAULTS = 100;

/** The field with the time of each end. */
const ENDS = ["completed_at", "failed_at", "expired_at", "cancelled_at"];

/** True while the batch may change. */
function isOpen(batch: Batch) {
  return !ENDS.some((end) => end in batch);
}

function requestsInWords({ total, completed, failed }: Batch["request_counts"]) {
  if (total === 0) return "–";
  return `${count(completed)} of ${count(total)} answered${failed > 0 ? `, ${count(failed)} failed` : ""}`;
}

const BATCHES: Resource<Batch> = {
  title: "Batches",
  source: "/v1/batches",
  address: "#/batches",
  nameOf: ({ metadata, id }) => metadata?.name ?? id,
  none: "There are no batches.",
  queryOf: () => ({}),
  columns: [
    {
      heading: "Batch",
      cell: ({ id, metadata }) => {
        const link = html`<a href=${`#/batches/${id}`}>${metadata?.name ?? id}</a>`;
        return metadata?.name ? namedId(link, id) : link;
      },
    },
    { heading: "Status", cell: ({ status }) => statusTag(status) },
    {
      heading: "Endpoint",
      cell: ({ endpoint, model }) =>
        html`${endpoint}${model ? html`<br /><span class="note">${model}</span>` : nothing}`,
    },
    { heading: "Requests", cell: ({ request_counts: counts }) => requestsInWords(counts) },
    { heading: "Tokens", kind: "number", cell: ({ usage }) => count(usage.total_tokens) },
    { heading: "Created", kind: "when", cell: ({ created_at: created }) => moment(created) },
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
      does: async ({ id }) => ({
        item: await callJson(`/v1/batches/${encodeURIComponent(id)}/cancel`, { method: "POST" }),
        told: "The batch is being cancelled.",
      }),
    },
  ],
  page: {
    status: ({ status }) => status,
    figures: (batch) => [
      [
        ["Requests", requestsInWords(batch.request_counts)],
        ["Endpoint", batch.endpoint],
        ["Model of the first request", batch.model ?? "–"],
        ["Input tokens", count(batch.usage.input_tokens)],
        ["cached", count(batch.usage.input_tokens_details.cached_tokens)],
        ["Output tokens", count(batch.usage.output_tokens)],
        ["of them reasoning", count(batch.usage.output_tokens_details.reasoning_tokens)],
      ],
      timesOf(batch),
    ],
    more: ({ id, metadata, request_counts: { total, completed, failed } }) => {
      const { name: _, ...others } = metadata ?? {};
      return html`
        ${total > 0 ? html`<progress aria-label="Requests that have ended" max=${total} .value=${completed + failed}></progress>` : nothing}
        <p class="buttons">
          ${Object.entries(others).map(([key, value]) => html`<span class="tag" dir="auto">${key}: ${value}</span>`)}
          ${linkButton(`#/batches/${id}`)}
        </p>`;
    },
    parts: () => [filesPart()],
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
      const files = data.map((file: File) => [
        file.id,
        `${file.filename}, ${size(file.bytes)}, ${moment(file.created_at)}`,
      ]);
      const isOther = chosen !== "" && !data.some(({ id }: File) => id === chosen);
      return {
        title: "New batch",
        text: html`<p class="note">Each line is a request: <code>{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {…}}</code>. The first line's <code>url</code> is the batch's endpoint. It has 24 hours.</p>`,
        form: [
          {
            name: "input_file_id",
            label: "Input file, of JSON lines",
            kind: "choice",
            isRequired: true,
            options: [
              ["", files.length === 0 ? "upload one first" : "choose one"],
              ...(isOther ? [[chosen, chosen] as const] : []),
              ...files,
            ],
          },
          { name: "name", label: "Name", maxLength: 512, placeholder: "in its metadata" },
          { name: "seconds", label: "Its outputs expire", kind: "choice", options: EXPIRIES },
        ],
        values: { input_file_id: chosen },
        action: "Create",
      };
    },
    async does(_, { input_file_id, name, seconds }) {
      const item: Batch = await callJson("/v1/batches", {
        body: {
          input_file_id,
          endpoint: await endpointIn(input_file_id),
          completion_window: "24h",
          ...(name && { metadata: { name } }),
          ...(seconds && { output_expires_after: { anchor: "created_at", seconds: Number(seconds) } }),
        },
      });
      location.hash = `#/batches/${item.id}`;
      return { item, told: "The batch was created." };
    },
  };
}

/** The `url` of the first request in a file. Throws an Error for people, and an ApiFault. */
async function endpointIn(file: string) {
  const line = await firstLine(file);
  try {
    const { url } = JSON.parse(line);
    if (typeof url === "string") return url;
  } catch {
    // Said below.
  }
  throw new Error("The first line of the file is no request: it needs to be a JSON object with a 'url'.");
}

/** Reads no more of a file than it needs. */
async function firstLine(file: string) {
  const { body } = await call(`/v1/files/${encodeURIComponent(file)}/content`);
  let text = "";
  for await (const part of body ? textOf(body) : []) {
    text += part;
    if (part.includes("\n") || text.length > MAX_LINE_LENGTH) break;
  }
  return text.split("\n", 1)[0] ?? "";
}

/** The times of a batch, in order. Its last moment is named where it has not ended. */
function timesOf(batch: Batch) {
  const times = Object.entries(batch)
    .filter(([name, value]) => name.endsWith("_at") && name !== "expires_at" && typeof value === "number")
    .map(([name, value]) => [nameOfTime(name), Number(value)] as const)
    .sort(([, one], [, other]) => one - other);
  if (isOpen(batch)) times.push(["Expires", batch.expires_at]);
  return times.map(([name, value]) => [name, moment(value)] as const);
}

/** @param field such as `in_progress_at` */
function nameOfTime(field: string) {
  const words = field.replace(/_at$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A file of a batch. */
interface BatchFile {
  id: string;
  label: string;
}

/** The files of a batch, and the faults of its input file. */
function filesPart(): PagePart<Batch> {
  const element = document.createElement("div");
  element.className = "stack";
  let batch: Batch | undefined;
  let fault = "";
  const files = new LookUps("/v1/files", draw);
  const actions = new Actions<BatchFile>(draw, (said) => {
    fault = said;
    draw();
  });
  const download: Action<BatchFile> = {
    label: "Download",
    icon: "export",
    async does({ id }) {
      await saveFile(id, files.get(id)?.filename ?? `${id}.jsonl`);
      return {};
    },
  };

  function draw() {
    const { input_file_id: input, output_file_id: output, error_file_id: errors, errors: faults } = batch ?? {};
    const named = [
      { id: input, label: "Input" },
      { id: output, label: "Answers" },
      { id: errors, label: "Errors" },
    ].filter((file): file is BatchFile => file.id !== undefined);
    const table = objectsTable<BatchFile>(
      "Files of the batch",
      [
        { heading: "File", cell: ({ label }) => label },
        { heading: "Name", cell: ({ id }) => namedId(files.get(id)?.filename ?? "–", id) },
        { heading: "Size", kind: "number", cell: ({ id }) => (files.get(id) ? size(files.get(id).bytes) : "–") },
        {
          heading: "Expires",
          kind: "when",
          cell: ({ id }) => (files.get(id)?.expires_at == null ? "never" : moment(files.get(id).expires_at)),
        },
      ],
      named,
      (file) =>
        files.get(file.id) === null
          ? html`<span class="tag bad">deleted</span>`
          : actions.buttons([download], file, file.label),
    );
    render(
      html`${faultNotice(fault)} ${faults?.data.length ? faultsTemplate(faults.data) : nothing} <h3>Files</h3> ${table}`,
      element,
    );
  }

  return {
    element,
    update(now) {
      batch = now;
      draw();
    },
  };
}

function faultsTemplate(errors: NonNullable<Batch["errors"]>["data"]) {
  const columns = [
    { heading: "Line", kind: "number" as const, cell: ({ line }: (typeof errors)[number]) => line ?? "–" },
    { heading: "Field", cell: ({ param }: (typeof errors)[number]) => param ?? "–" },
    {
      heading: "Fault",
      cell: ({ message, code }: (typeof errors)[number]) =>
        html`<bdi>${message}</bdi> <code class="note">${code}</code>`,
    },
  ];
  return html`<h3>Faults of the input file</h3>
    ${objectsTable("Faults", columns, errors.slice(0, MAX_FAULTS))}
    ${errors.length > MAX_FAULTS ? html`<p class="note">and ${count(errors.length - MAX_FAULTS)} more</p>` : nothing}`;
}

export function batchesView(view: HTMLElement): View {
  return resourceView(view, BATCHES);
}
