import { html, nothing, render } from "lit-html";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { attachmentFrom, checkAttachments } from "./attachments.ts";
import { faultNotice, messageOf, messageWithField } from "./dialogs.ts";
import type { Judgement } from "./judgement.ts";
import { judgementTemplate } from "./judgement.ts";
import type { Attachment } from "./request-body.ts";
import { hasGuard } from "./session.ts";
import type { View } from "./view.ts";

/** A try of `/v1/moderations`: `#/moderation`. */

const NO_GUARD = html`<p class="notice">
  This server has no guard, so that it moderates nothing. Its operator configures one: a model (<code>GUARD_MODEL</code>), or a hook (<code>GUARD_URL</code>).
</p>`;

export function moderationView(view: HTMLElement): View {
  let images: Attachment[] = [];
  let answer: { model: string; results: Judgement[] } | undefined;
  let fault = "";
  let isBusy = false;

  async function judge(event: SubmitEvent) {
    event.preventDefault();
    if (isBusy) return;
    const text = String(new FormData(event.currentTarget as HTMLFormElement).get("text") ?? "");
    const parts = [
      ...(text === "" ? [] : [{ type: "text", text }]),
      ...images.map(({ url }) => ({ type: "image_url", image_url: { url } })),
    ];
    isBusy = true;
    fault = "";
    draw();
    try {
      answer = await callJson("/v1/moderations", { body: { input: images.length > 0 ? parts : text } });
      announce(answer?.results.some(({ flagged }) => flagged) ? "It is flagged." : "It is not flagged.");
    } catch (error) {
      answer = undefined;
      fault = messageWithField(error);
    }
    isBusy = false;
    draw();
  }

  async function attach(files: Iterable<File>) {
    const chosen = [...files];
    try {
      checkAttachments(chosen, images);
      const signal = new AbortController().signal;
      const read = await Promise.all(chosen.map((file) => attachmentFrom(file, { signal, progress() {} })));
      images = [...images, ...read];
      fault = "";
    } catch (error) {
      fault = messageOf(error);
    }
    draw();
  }

  function draw() {
    render(
      html`<div class="stack">
        <h1 class="unseen">Moderation</h1>
        <div class="section-heading"><h2>Moderation</h2></div>
        ${hasGuard() ? formTemplate() : NO_GUARD}
        ${faultNotice(fault)}
        ${answer ? answerTemplate(answer) : nothing}
      </div>`,
      view,
    );
  }

  function formTemplate() {
    return html`<form class="card stack" @submit=${judge}>
      <div>
        <label for="moderation-text">Text</label>
        <textarea dir="auto" id="moderation-text" name="text" rows="4" ?required=${images.length === 0}></textarea>
      </div>
      ${images.length > 0 ? html`<ul class="attachments" aria-label="Images">${images.map(imageTemplate)}</ul>` : nothing}
      <div class="buttons">
        <button class="primary" type="submit" aria-disabled=${String(isBusy)}>${isBusy ? "Judging…" : "Judge"}</button>
        <label class="button" for="moderation-images">Add images</label>
        <input
          class="unseen"
          id="moderation-images"
          type="file"
          accept="image/*"
          multiple
          @change=${(event: Event) => {
            const field = event.target as HTMLInputElement;
            void attach(field.files ?? []).then(() => (field.value = ""));
          }}
        />
      </div>
    </form>`;
  }

  function imageTemplate(image: Attachment) {
    const { name, url } = image;
    const remove = () => {
      images = images.filter((each) => each !== image);
      draw();
    };
    return html`<li>
      <img src=${url} alt="" /><bdi>${name}</bdi>
      <button type="button" class="plain" aria-label=${`Remove ${name}`} @click=${remove}>Remove</button>
    </li>`;
  }

  return { show: draw };
}

function answerTemplate({ model, results }: { model: string; results: Judgement[] }) {
  return results.map(
    (each) => html`<section class="card stack">
      <h3>Judgement <span class="note">by ${model}</span></h3>
      ${judgementTemplate(each)}
    </section>`,
  );
}
