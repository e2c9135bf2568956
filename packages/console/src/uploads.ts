import { html, nothing, render } from "lit-html";
import type { File } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { uploadFile } from "./api.ts";
import { type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import { size } from "./format.ts";
import type { ApiObject } from "./json.ts";
import { type Transfer, Transfers, takenFiles } from "./transfers.ts";

/** Uploads of dropped or chosen files, with their progress. */

export interface UploadOptions {
  /** Fields above the files, whose values the other functions get. */
  form?: Form;
  /** The fields that are sent beside the file. */
  fields: (given: ApiObject) => Record<string, string>;
  /** Called with each uploaded file, as the API has it. The page shows an error that it throws. */
  uploaded?: (file: File, given: ApiObject, signal: AbortSignal) => Promise<void>;
  /** Called when an upload has ended, with or without success. */
  ended: () => void;
}

/** A counter that makes ids unique on a page with several lists. */
let made = 0;

/** The choices for the expiry of uploaded files, in seconds. */
export const EXPIRIES: [seconds: string, label: string][] = [
  ["", "never"],
  ["3600", "after an hour"],
  ["86400", "after a day"],
  ["604800", "after a week"],
  ["2592000", "after 30 days"],
];

export class Uploads {
  element = document.createElement("div");
  #options;
  #transfers;
  #id = `upload-${++made}`;

  constructor(options: UploadOptions) {
    this.#options = options;
    this.element.className = "uploads dashed buttons items-end gap-x-5 gap-y-3";
    this.#transfers = new Transfers(
      (file, to) => this.#send(file, to),
      () => this.#draw(),
      options.ended,
    );
    for (const type of ["dragover", "dragleave", "drop"] as const) this.element.addEventListener(type, this.#dragged);
    this.#draw();
  }

  #dragged = (event: DragEvent) => {
    if (event.type !== "dragleave") event.preventDefault();
    this.element.classList.toggle("bg-accent-soft", event.type === "dragover");
    if (event.type === "drop") this.#transfers.add(event.dataTransfer?.files ?? []);
  };

  async #send(file: globalThis.File, to: { signal: AbortSignal; progress: (bytes: number) => void }) {
    const { form = [], fields, uploaded } = this.#options;
    const given = valuesIn(form, new FormData(this.element.querySelector("form") ?? undefined));
    const made: File = await uploadFile(file, fields(given), to);
    to.progress(file.size);
    await uploaded?.(made, given, to.signal);
    announce(`${file.name} is uploaded.`);
  }

  #draw() {
    const { form } = this.#options;
    const { list, open } = this.#transfers;
    render(
      html`
        ${form ? html`<form class="basis-112 has-[details]:basis-full" @submit=${(event: Event) => event.preventDefault()}>${fieldsTemplate(form, {}, this.#id)}</form>` : nothing}
        <p class="drop buttons">
          <label class="button primary" for=${this.#id}>Choose files</label>
          <input class="unseen" id=${this.#id} type="file" multiple @change=${(event: Event) => this.#transfers.add(takenFiles(event))} />
          <span class="note">or drop them here</span>
        </p>
        ${list.length === 0 ? nothing : html`<ul class="upload-list stack tight max-h-[40dvh] basis-full overflow-y-auto" aria-label="Uploads">${list.map((each, at) => this.#template(each, at))}</ul>`}
        ${list.length === open.length ? nothing : html`<button type="button" class="plain" @click=${() => this.#transfers.forgetEnded()}>Clear the list</button>`}
      `,
      this.element,
    );
  }

  #template(transfer: Transfer, at: number) {
    const { file, state, sent, fault } = transfer;
    const id = `${this.#id}-${at}`;
    const look = state === "done" ? "good" : state === "failed" ? "bad" : "";
    return html`<li class="buttons">
      <span class="file-name" id=${id} dir="auto">${file.name}</span>
      <span class="note">${state === "sending" && sent < file.size ? `${size(sent)} of ${size(file.size)}` : size(file.size)}</span>
      ${
        state === "waiting" || state === "sending"
          ? html`<progress aria-labelledby=${id} max="1" .value=${file.size === 0 ? 0 : sent / file.size}></progress>
              <button type="button" class="plain" aria-label="Cancel ${file.name}" @click=${() => this.#transfers.cancel(transfer)}>Cancel</button>`
          : html`<span class="tag ${look}">${state === "done" ? "uploaded" : state}</span>`
      }
      ${fault ? html`<p class="fault basis-full" dir="auto" role="alert">${fault}</p>` : nothing}
    </li>`;
  }
}
