import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { announce } from "./announce.ts";
import { call, callJson } from "./api.ts";
import { faultNotice, messageOf, messageWithField } from "./dialogs.ts";
import { textOf } from "./event-batches.ts";
import type { ApiFile } from "./files-list.ts";
import { typedIn } from "./form-events.ts";
import { moment, size } from "./format.ts";
import { EXPIRIES, Uploads } from "./uploads.ts";

/** A form that makes a batch of a file: one that is uploaded here, or one that the tenant has. */

/** The number of files to choose from: the newest. */
const MAX_FILES = 100;

/** The maximum length of a line, in the server's own limits. UTF-16 units. */
const MAX_LINE_LENGTH = 8 * 1024 * 1024;

export function batchForm() {
  const element = document.createElement("details");
  element.className = "card";
  let files: ApiFile[] | undefined;
  /** The id of the chosen file. */
  let chosen = "";
  let fault = "";
  let isBusy = false;
  const uploads = new Uploads({
    fields: () => ({ purpose: "batch" }),
    async uploaded(file) {
      chosen = file.id;
    },
    ended: () => void load(),
  });

  async function load() {
    try {
      files = (await callJson(`/v1/files?purpose=batch&limit=${MAX_FILES}`)).data;
    } catch (error) {
      fault = messageOf(error);
    }
    draw();
  }

  async function make(event: SubmitEvent) {
    event.preventDefault();
    if (isBusy) return;
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const name = String(data.get("name") ?? "").trim();
    const seconds = String(data.get("expires") ?? "");
    isBusy = true;
    fault = "";
    draw();
    try {
      const batch = await callJson("/v1/batches", {
        body: {
          input_file_id: chosen,
          endpoint: await endpointIn(chosen),
          completion_window: "24h",
          ...(name !== "" && { metadata: { name } }),
          ...(seconds !== "" && { output_expires_after: { anchor: "created_at", seconds: Number(seconds) } }),
        },
      });
      announce("The batch was created.");
      location.hash = `#/batches/${batch.id}`;
    } catch (error) {
      fault = messageWithField(error);
    }
    isBusy = false;
    draw();
  }

  function draw() {
    const known = files ?? [];
    const isOther = chosen !== "" && !known.some(({ id }) => id === chosen);
    render(
      html`<summary>Make a batch</summary>
        <form class="stack inner" @submit=${make}>
          ${uploads.element}
          <div class="fields">
            <div>
              <label for="batch-file">Input file, of JSON lines</label>
              <select
                id="batch-file"
                required
                .value=${live(chosen)}
                @change=${(event: Event) => (chosen = typedIn(event))}
              >
                <option value="" ?selected=${chosen === ""}>${known.length === 0 ? "upload one" : "choose one"}</option>
                ${isOther ? html`<option value=${chosen} selected>${chosen}</option>` : nothing}
                ${known.map((file) => html`<option value=${file.id} ?selected=${file.id === chosen}>${file.filename}, ${size(file.bytes)}, ${moment(file.created_at)}</option>`)}
              </select>
            </div>
            <div><label for="batch-name">Name</label><input dir="auto" id="batch-name" name="name" maxlength="512" autocomplete="off" placeholder="in its metadata" /></div>
            <div>
              <label for="batch-expires">Its outputs expire</label>
              <select id="batch-expires" name="expires">
                ${EXPIRIES.map(([seconds, label]) => html`<option value=${seconds ?? ""}>${label}</option>`)}
              </select>
            </div>
          </div>
          <p class="note">Each line is a request: <code>{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {…}}</code>. The first line's <code>url</code> is the batch's endpoint. It has 24 hours.</p>
          ${faultNotice(fault)}
          <div class="buttons"><button class="primary" type="submit" aria-disabled=${String(isBusy)}>${isBusy ? "Creating…" : "Create"}</button></div>
        </form>`,
      element,
    );
  }

  draw();
  return {
    element,
    /**
     * Loads the files to choose from.
     * @param file the id of the file to choose
     */
    show(file?: string) {
      if (file !== undefined) {
        chosen = file;
        element.open = true;
      }
      void load();
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
