import { html } from "lit-html";
import { exportJson, exportMarkdown } from "./chat-export.ts";
import { ChatList, titleOf } from "./chat-list.ts";
import { ChatMap } from "./chat-map.ts";
import { LocalFile } from "./code-samples.ts";
import { codeView } from "./code-view.ts";
import { draft } from "./draft.ts";
import { beginning } from "./format.ts";
import { icon, iconButton } from "./icons.ts";
import { closeOutside } from "./menu.ts";
import { inputOf } from "./request-body.ts";
import { copyText } from "./save.ts";
import { type Form, Transcript } from "./transcript.ts";

/** The chat, the list of chats, the map, and what can be done with the whole chat. */

export type ChatParts = ReturnType<typeof chatParts>;

export function chatParts(form: Form) {
  const transcript = new Transcript(form);
  const list = new ChatList(() => transcript.clear());
  const map = new ChatMap(
    (turn) => transcript.show(turn),
    (one, other) => transcript.compare(one, other),
  );
  const code = codeView("The next request as code", () => ({
    body: transcript.bodyAfter(
      transcript.end,
      form.fields(),
      inputOf(draft, ({ name, type }) => new LocalFile(name, type)),
    ),
    transport: draft.transport,
  }));
  void list.load();
  return { transcript, list, map, title, actions };

  function title() {
    if (list.open) return beginning(titleOf(list.open), 80);
    return beginning(transcript.chat.path()[0]?.text || "Chat", 80);
  }

  function actions() {
    const withViews = (use: typeof exportJson) => () => void transcript.read().then((views) => use(views, title()));
    const isListed = list.open !== undefined;
    return html`
      ${iconButton("edit", "Rename the chat", () => list.open && void list.rename(list.open), { isDisabled: !isListed })}
      ${iconButton("link", "Copy a link to the chat", (event) => void copyText(location.href, event), { isDisabled: transcript.id === undefined })}
      <details class="menu" @toggle=${closeOutside}>
        <summary class="icon-button" title="Export" aria-label="Export">${icon("export")}</summary>
        <div class="card end-0 justify-items-start p-2">
          <button type="button" class="plain" @click=${withViews(exportMarkdown)}>Save as Markdown</button>
          <button type="button" class="plain" @click=${withViews(exportJson)}>Save as JSON</button>
          ${code.element}
        </div>
      </details>
    `;
  }
}
