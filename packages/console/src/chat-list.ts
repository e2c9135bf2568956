import { html, nothing, render } from "lit-html";
import { repeat } from "lit-html/directives/repeat.js";
import { announce } from "./announce.ts";
import { call, callJson } from "./api.ts";
import { isOtherVersion } from "./chat-versions.ts";
import { faultNotice } from "./dialogs.ts";
import { typedIn } from "./form-events.ts";
import { beginning, moment } from "./format.ts";
import { iconButton } from "./icons.ts";
import { PagedList } from "./paged-list.ts";
import { askFor } from "./question.ts";
import { listsResponses } from "./session.ts";
import { readChat } from "./stored-chat.ts";
import { textOf } from "./stored-response.ts";

/** The tenant's chats, newest first: those of this console, and those of other clients. */

const TYPED_MS = 250;

/** How often a chat that is not listed yet is looked for, and the time between. Milliseconds. */
const LISTED_TRIES = 8;
const LISTED_AGAIN_MS = 1_000;

/** The longest title, and the most characters of a chat that a model reads to name it. */
const MAX_TITLE = 80;
const MAX_READ = 4_000;

/** A chat, as `GET /v1/responses?group_by=tree` has it. */
export interface ListedChat {
  /** of its newest response */
  id: string;
  created_at: number;
  model: string;
  output: { text: string } | null;
  tree: {
    root_id: string;
    input: { text: string } | null;
    metadata: Record<string, string>;
    responses: number;
  };
}

export function titleOf({ tree, output }: ListedChat): string {
  return tree.metadata.title || tree.metadata.name || tree.input?.text || output?.text || tree.root_id;
}

export class ChatList {
  element = document.createElement("nav");
  #newest = new PagedList<ListedChat>("/v1/responses", () => this.#draw());
  #pinned = new PagedList<ListedChat>("/v1/responses", () => this.#draw());
  #query = "";
  /** The id of a response of the open chat. */
  #open: string | undefined;
  #typed: ReturnType<typeof setTimeout> | undefined;
  /** Metadata that were changed here, by the first response, until the list has them: it learns of them a moment later. */
  #changed = new Map<string, Record<string, string>>();
  #expected: ReturnType<typeof setTimeout> | undefined;
  #deleted;

  /** @param deleted Called after the open chat was deleted. */
  constructor(deleted: () => void) {
    this.#deleted = deleted;
    this.element.className = "chat-list stack tight";
    this.element.setAttribute("aria-label", "Chats");
    this.#newest.filter = { group_by: "tree" };
    this.#pinned.filter = { group_by: "tree", "metadata[pinned]": "true" };
    this.#draw();
  }

  /** The chats: the pinned ones, then the newest. */
  get #chats(): ListedChat[] {
    const pinned = this.#query === "" ? (this.#pinned.items ?? []) : [];
    const chats = [...pinned, ...(this.#newest.items ?? [])].filter(isOwnChat).map(this.#asChanged);
    const byRoot = new Map(chats.map((chat) => [chat.tree.root_id, chat]));
    return [...byRoot.values()].sort((one, other) => Number(isPinned(other)) - Number(isPinned(one)));
  }

  /** The open chat, if the list has it. */
  get open(): ListedChat | undefined {
    return this.#chats.find((chat) => isOf(chat, this.#open));
  }

  /** Marks the open chat. Loads the list again where it does not have the chat, which is listed a moment after its first response was stored. */
  mark(id: string | undefined) {
    const isOther = id !== this.#open;
    this.#open = id;
    if (id !== undefined && isOther) this.#expect(LISTED_TRIES);
    else this.#draw();
  }

  #expect(tries: number) {
    clearTimeout(this.#expected);
    if (this.open || tries === 0) return this.#draw();
    this.#expected = setTimeout(() => void this.load().then(() => this.#expect(tries - 1)), LISTED_AGAIN_MS);
  }

  async load() {
    if (!listsResponses()) return;
    await Promise.all([this.#pinned.refresh(), this.#newest.refresh()]);
  }

  #asChanged = (chat: ListedChat): ListedChat => {
    const { root_id: root, metadata: listed } = chat.tree;
    const metadata = this.#changed.get(root);
    if (metadata === undefined || JSON.stringify(metadata) === JSON.stringify(listed)) {
      this.#changed.delete(root);
      return chat;
    }
    return { ...chat, tree: { ...chat.tree, metadata } };
  };

  #search = (event: Event) => {
    this.#query = typedIn(event).trim();
    clearTimeout(this.#typed);
    this.#typed = setTimeout(() => {
      this.#newest.filter = { group_by: "tree", ...(this.#query !== "" && { query: this.#query }) };
      void this.load();
    }, TYPED_MS);
  };

  async #change(chat: ListedChat, metadata: Record<string, string>) {
    await callJson(`/v1/responses/${chat.tree.root_id}`, { body: { metadata } });
    this.#changed.set(chat.tree.root_id, metadata);
    this.#draw();
  }

  #pin(chat: ListedChat) {
    const { pinned, ...others } = chat.tree.metadata;
    const metadata = pinned === "true" ? others : { ...others, pinned: "true" };
    return this.#newest.attempt(() => this.#change(chat, metadata));
  }

  async rename(chat: ListedChat) {
    const byModel = async () => {
      const field = document.getElementById("asked-title") as HTMLInputElement;
      field.disabled = true;
      field.value = await nameByModel(chat).catch(() => field.value);
      field.disabled = false;
      field.focus();
    };
    const question = {
      title: "Rename the chat",
      form: [{ name: "title", label: "Title", maxLength: MAX_TITLE, isRequired: true }],
      values: { title: beginning(titleOf(chat), MAX_TITLE) },
      below: html`<button type="button" @click=${() => void byModel()}>Let the model name it</button>`,
      action: "Rename",
    };
    await askFor(question, ({ title }) => this.#change(chat, { ...chat.tree.metadata, title }));
  }

  async #delete(chat: ListedChat) {
    const question = {
      title: "Delete the chat?",
      text: `All of its ${chat.tree.responses} responses are deleted from the server, with every version.`,
      action: "Delete",
      isDangerous: true,
    };
    const isDone = await askFor(question, async () => {
      const { turns } = await readChat(chat.id, new AbortController().signal);
      for (const { id } of turns) await call(`/v1/responses/${id}`, { method: "DELETE" });
    });
    if (!isDone) return;
    announce("The chat was deleted.");
    for (const list of [this.#newest, this.#pinned]) list.remove(chat.id);
    if (isOf(chat, this.#open)) this.#deleted();
    this.#draw();
  }

  #draw() {
    // A row keeps the pointer and the focus when another one comes above it.
    const rows = () => html`<ul>${repeat(this.#chats, ({ tree }) => tree.root_id, this.#row)}</ul>`;
    const none = this.#query === "" ? "No chats yet." : "No chat has these words.";
    render(
      html`
        ${
          listsResponses()
            ? html`<label class="unseen" for="chat-search">Search chats</label>
                <input dir="auto" id="chat-search" type="search" autocomplete="off" placeholder="Search chats" @input=${this.#search} />`
            : html`<p class="note">This server does not list its responses, so that only the chat of this tab is here.</p>`
        }
        ${faultNotice(this.#newest.fault || this.#pinned.fault)}
        ${listsResponses() ? this.#newest.rows(none, rows) : nothing}
      `,
      this.element,
    );
  }

  #row = (chat: ListedChat) => {
    const isOpen = isOf(chat, this.#open);
    return html`<li class="flex items-center rounded-md focus-within:bg-sunken hover:bg-sunken ${isOpen ? "bg-accent-soft" : ""}">
      <a class="cut flex-1 px-2 py-1.5 text-text no-underline" href="#/chat/${chat.id}" aria-current=${isOpen ? "page" : nothing} title=${moment(chat.created_at)} dir="auto">${beginning(titleOf(chat), MAX_TITLE)}</a>
      ${iconButton("pin", isPinned(chat) ? "Unpin" : "Pin", () => void this.#pin(chat), { isOn: isPinned(chat) })}
      ${iconButton("edit", "Rename", () => void this.rename(chat))}
      ${iconButton("trash", "Delete", () => void this.#delete(chat))}
    </li>`;
  };
}

function isOwnChat({ tree }: ListedChat) {
  return tree !== undefined && !isOtherVersion(tree.metadata);
}

function isPinned({ tree }: ListedChat) {
  return tree.metadata.pinned === "true";
}

/** Tells whether a chat has a response: all ids of a tree begin alike (docs/storage.md). */
function isOf({ tree }: ListedChat, id: string | undefined) {
  return id !== undefined && treeOf(tree.root_id) === treeOf(id);
}

function treeOf(id: string) {
  const home = id.slice(5, 27);
  return home.startsWith("000000") ? id.slice(5, 29) : home;
}

/** A title by the model of the chat. Rejects as a call of the API does. */
async function nameByModel({ id, model, tree }: ListedChat): Promise<string> {
  const { output } = await callJson(`/v1/responses/${id}`);
  const said = textOf(output).slice(0, MAX_READ);
  const input = `Give this conversation a title of at most six words, in its language. Answer with the title alone.\n\n${tree.input?.text ?? ""}\n\n${said}`;
  const body = { model, input, store: false, max_output_tokens: 2_000 };
  const named = await callJson("/v1/responses", { body });
  const [title = ""] = textOf(named.output).trim().split("\n");
  return beginning(title.replace(/^["“”]+|["“”.]+$/g, ""), MAX_TITLE);
}
