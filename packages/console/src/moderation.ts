import { html, render } from "lit-html";
import type { Moderation } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { Asking } from "./asking.ts";
import { attachmentsOf } from "./attachments.ts";
import { fieldsTemplate } from "./fields.ts";
import { judgementTemplate } from "./judgement.ts";
import type { Attachment } from "./request-body.ts";
import { hasGuard } from "./session.ts";
import { takenFiles } from "./transfers.ts";
import type { View } from "./view.ts";

/** A try of `/v1/moderations`: `#/moderation`. */

const NO_GUARD = html`<p class="notice">
  This server has no guard, so that it moderates nothing. Its operator configures one: a model (<code>GUARD_MODEL</code>), or a hook (<code>GUARD_URL</code>).
</p>`;

export function moderationView(view: HTMLElement): View {
  const given = { attachments: [] as Attachment[] };
  const images = attachmentsOf(given, { changed: draw, redraw: draw }, (message) => guard.say(message));

  const guard = new Asking<Moderation>(draw, async (data) => {
    const text = String(data.get("text") ?? "");
    const parts = given.attachments.map(({ url }) => ({ type: "image_url", image_url: { url } }));
    const input = parts.length === 0 ? text : text === "" ? parts : [{ type: "text", text }, ...parts];
    const answer: Moderation = await callJson("/v1/moderations", { body: { input } });
    announce(answer.results.some(({ flagged }) => flagged) ? "It is flagged." : "It is not flagged.");
    return answer;
  });

  function add(event: Event) {
    guard.say("");
    images.add(takenFiles(event));
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
      ${fieldsTemplate([{ name: "text", label: "Text", kind: "long", isRequired: given.attachments.length === 0 }], {}, "moderation")}
      ${images.template("Images")}
      <div class="buttons">
        ${guard.button("Judge", "Judging…")}
        <label class="button" for="moderation-images">Add images</label>
        <input class="unseen" id="moderation-images" type="file" accept="image/*" multiple @change=${add} />
      </div>
    </form>`;
  }

  return { show: draw };
}
