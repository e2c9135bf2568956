import { html, nothing, render } from "lit-html";
import type { File } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { uploadFile } from "./api.ts";
import { messageWithField } from "./dialogs.ts";
import { type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import { size } from "./format.ts";
import type { ApiObject } from "./json.ts";

/** Uploads of dropped or chosen files, with their progress. */

/** `adding`: the step after the upload. */
type UploadState = "waiting" | "sending" | "adding" | "done" | "failed" | "cancelled";

interface Upload {
  number: number;
  file: globalThis.File;
  state: UploadState;
  /** bytes */
  sent: number;
  fault: string;
  abort: AbortController;
}

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

/** Uploads at the same time. Browsers open six connections to a server. */
const AT_ONCE = 3;

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
  #list: Upload[] = [];
  #number = 0;
  #id = `upload-${++made}`;

  constructor(options: UploadOptions) {
    this.#options = options;
    this.element.className = "uploads dashed buttons items-end gap-x-5 gap-y-3";
    for (const type of ["dragover", "dragleave", "drop"] as const) this.element.addEventListener(type, this.#dragged);
    this.#draw();
  }

  #dragged = (event: DragEvent) => {
    if (event.type !== "dragleave") event.preventDefault();
    this.element.classList.toggle("bg-accent-soft", event.type === "dragover");
    if (event.type === "drop") this.add(event.dataTransfer?.files ?? []);
  };

  #chosen = (event: Event) => {
    const field = event.target as HTMLInputElement;
    this.add([...(field.files ?? [])]);
    field.value = "";
  };

  /** Uploads files, one after another. */
  add(files: Iterable<globalThis.File>) {
    for (const file of files) {
      this.#number += 1;
      const abort = new AbortController();
      this.#list.push({ number: this.#number, file, state: "waiting", sent: 0, fault: "", abort });
    }
    this.#next();
  }

  #next() {
    const busy = this.#list.filter(({ state }) => state === "sending" || state === "adding").length;
    const waiting = this.#list.filter(({ state }) => state === "waiting");
    for (const upload of waiting.slice(0, Math.max(0, AT_ONCE - busy))) void this.#run(upload);
    this.#draw();
  }

  async #run(upload: Upload) {
    const { signal } = upload.abort;
    const { form = [], fields, uploaded, ended } = this.#options;
    upload.state = "sending";
    try {
      const progress = (bytes: number) => {
        upload.sent = bytes;
        this.#draw();
      };
      const given = valuesIn(form, new FormData(this.element.querySelector("form") ?? undefined));
      const file = await uploadFile(upload.file, fields(given), { signal, progress });
      upload.state = "adding";
      progress(upload.file.size);
      await uploaded?.(file, given, signal);
      upload.state = "done";
      announce(`${upload.file.name} is uploaded.`);
    } catch (error) {
      upload.state = signal.aborted ? "cancelled" : "failed";
      upload.fault = signal.aborted ? "" : messageWithField(error);
    }
    ended();
    this.#next();
  }

  #cancel(upload: Upload) {
    upload.abort.abort();
    if (upload.state === "waiting") upload.state = "cancelled";
    this.#draw();
  }

  #forgetEnded = () => {
    this.#list = this.#list.filter(isUnderWay);
    this.#draw();
  };

  #draw() {
    const { form } = this.#options;
    const ignore = (event: Event) => event.preventDefault();
    render(
      html`
        ${form ? html`<form class="basis-112 has-[details]:basis-full" @submit=${ignore}>${fieldsTemplate(form, {}, this.#id)}</form>` : nothing}
        <p class="drop buttons">
          <label class="button primary" for=${this.#id}>Choose files</label>
          <input class="unseen" id=${this.#id} type="file" multiple @change=${this.#chosen} />
          <span class="note">or drop them here</span>
        </p>
        ${this.#list.length === 0 ? nothing : html`<ul class="upload-list stack tight max-h-[40dvh] basis-full overflow-y-auto" aria-label="Uploads">${this.#list.map((each) => this.#template(each))}</ul>`}
        ${this.#list.every(isUnderWay) ? nothing : html`<button type="button" class="plain" @click=${this.#forgetEnded}>Clear the list</button>`}
      `,
      this.element,
    );
  }

  #template(upload: Upload) {
    const { number, file, state, sent, fault } = upload;
    const id = `${this.#id}-${number}`;
    const look = state === "done" ? "good" : state === "failed" ? "bad" : "";
    return html`<li class="buttons">
      <span class="file-name" id=${id} dir="auto">${file.name}</span>
      <span class="note">${state === "sending" ? `${size(sent)} of ${size(file.size)}` : size(file.size)}</span>
      ${
        isUnderWay(upload)
          ? html`<progress aria-labelledby=${id} max="1" .value=${file.size === 0 ? 0 : sent / file.size}></progress>
              <button type="button" class="plain" aria-label="Cancel ${file.name}" @click=${() => this.#cancel(upload)}>Cancel</button>`
          : html`<span class="tag ${look}">${state === "done" ? "uploaded" : state}</span>`
      }
      ${fault ? html`<p class="fault basis-full" dir="auto" role="alert">${fault}</p>` : nothing}
    </li>`;
  }
}

function isUnderWay({ state }: Upload) {
  return state === "waiting" || state === "sending" || state === "adding";
}
