import { html, nothing, render } from "lit-html";
import type { Moderation } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { Asking } from "./asking.ts";
import { attachmentFrom, checkAttachments } from "./attachments.ts";
import { messageOf } from "./dialogs.ts";
import { fieldsTemplate } from "./fields.ts";
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

  const guard = new Asking<Moderation>(draw, async (data) => {
    const text = String(data.get("text") ?? "");
    const parts = images.map(({ url }) => ({ type: "image_url", image_url: { url } }));
    const input = images.length === 0 ? text : text === "" ? parts : [{ type: "text", text }, ...parts];
    const answer: Moderation = await callJson("/v1/moderations", { body: { input } });
    announce(answer.results.some(({ flagged }) => flagged) ? "It is flagged." : "It is not flagged.");
    return answer;
  });

  async function attach(event: Event) {
    const field = event.target as HTMLInputElement;
    const chosen = [...(field.files ?? [])];
    try {
      checkAttachments(chosen, images);
      const { signal } = new AbortController();
      const read = await Promise.all(chosen.map((file) => attachmentFrom(file, { signal, progress() {} })));
      images = [...images, ...read];
      guard.say("");
    } catch (error) {
      guard.say(messageOf(error));
    }
    field.value = "";
  }

  function draw() {
    const { model, results = [] } = guard.answer ?? {};
    render(
      html`<div class="stack">
        <h1 class="unseen">Moderation</h1>
        <div class="section-heading buttons spread"><h2>Moderation</h2></div>
        ${hasGuard() ? formTemplate() : NO_GUARD} ${guard.fault}
        ${results.map(
          (each) => html`<section class="card stack">
            <h3>Judgement <span class="note">by ${model}</span></h3>
            ${judgementTemplate(each)}
          </section>`,
        )}
      </div>`,
      view,
    );
  }

  function formTemplate() {
    return html`<form class="card stack" @submit=${guard.submit}>
      ${fieldsTemplate([{ name: "text", label: "Text", kind: "long", isRequired: images.length === 0 }], {}, "moderation")}
      ${images.length > 0 ? html`<ul class="attachments buttons" aria-label="Images">${images.map(imageTemplate)}</ul>` : nothing}
      <div class="buttons">
        ${guard.button("Judge", "Judging…")}
        <label class="button" for="moderation-images">Add images</label>
        <input class="unseen" id="moderation-images" type="file" accept="image/*" multiple @change=${attach} />
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
