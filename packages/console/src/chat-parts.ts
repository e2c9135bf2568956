import { html } from "lit-html";
import { exportJson, exportMarkdown } from "./chat-export.ts";
import { ChatList, titleOf } from "./chat-list.ts";
import { ChatMap } from "./chat-map.ts";
import type { Turn } from "./chat-model.ts";
import { LocalFile } from "./code-samples.ts";
import { codeView } from "./code-view.ts";
import { draft } from "./draft.ts";
import { beginning } from "./format.ts";
import { icon, iconButton } from "./icons.ts";
import { closeOutside } from "./menu.ts";
import { inputOf } from "./request-body.ts";
import { copyText } from "./save.ts";
import { nodesOf } from "./stored-chat.ts";
import { type Form, Transcript } from "./transcript.ts";
import { showBranches } from "./tree-compare.ts";
import { Tree } from "./tree-model.ts";

/** The chat, the list of chats, the map, and what can be done with the whole chat. */

export interface ChatForm extends Form {
  /** Shows two branches in the place of the path. */
  comparing: (branches: HTMLElement | undefined) => void;
}

export type ChatParts = ReturnType<typeof chatParts>;

export function chatParts(form: ChatForm) {
  const transcript = new Transcript(form);
  const list = new ChatList(() => transcript.clear());
  const map = new ChatMap((turn: Turn) => transcript.show(turn), compare);
  const code = codeView("The next request as code", () => ({
    body: transcript.bodyAfter(
      transcript.end,
      form.fields(),
      inputOf(draft, ({ name, type }) => new LocalFile(name, type)),
    ),
    transport: draft.transport,
  }));
  void list.load();
  return { transcript, list, map, title, actions, compare };

  function title() {
    if (list.open) return beginning(titleOf(list.open), 80);
    return beginning(transcript.chat.path()[0]?.text || "Chat", 80);
  }

  /** Puts two branches of the chat side by side. The turns, or the ids of their responses. */
  function compare(one: Turn | string, other: Turn | string) {
    const tree = new Tree(nodesOf(transcript.chat.turns));
    const entryOf = (turn: Turn | string) =>
      tree.get(typeof turn === "string" ? (transcript.chat.ofResponse(turn)?.key ?? "") : turn.key);
    const [first, second] = [entryOf(one), entryOf(other)];
    if (!first || !second) return;
    const element = document.createElement("div");
    element.className = "stack";
    showBranches(element, [first, second], () => form.comparing(undefined));
    form.comparing(element);
  }

  function actions() {
    const withViews = (use: typeof exportJson) => () => void transcript.read().then((views) => use(views, title()));
    const isListed = list.open !== undefined;
    return html`
      ${iconButton("edit", "Rename the chat", () => list.open && void list.rename(list.open), { isDisabled: !isListed })}
      ${iconButton("link", "Copy a link to the chat", (event) => void copyText(location.href, event), { isDisabled: transcript.id === undefined })}
      <details class="menu" @toggle=${closeOutside}>
        <summary class="icon-button" title="Export" aria-label="Export">${icon("export")}</summary>
        <div class="menu-items card">
          <button type="button" class="plain" @click=${withViews(exportMarkdown)}>Save as Markdown</button>
          <button type="button" class="plain" @click=${withViews(exportJson)}>Save as JSON</button>
          ${code.element}
        </div>
      </details>
    `;
  }
}
