import { html, nothing, render } from "lit-html";
import { announce } from "./announce.ts";
import type { Chat, Turn } from "./chat-model.ts";
import { typedIn } from "./form-events.ts";
import { count } from "./format.ts";
import { TreeList } from "./tree-list.ts";

/** The map of a chat: all of its turns as a tree. The chosen one is on the path. */
export class ChatMap {
  element = document.createElement("div");
  #chat: Chat | undefined;
  #state = "";
  #choose;
  #compare;
  #marked: Turn | undefined;
  #list;

  /** @param compare Called with two turns whose branches are to be shown side by side. */
  constructor(choose: (turn: Turn) => void, compare: (one: Turn, other: Turn) => void) {
    this.#choose = choose;
    this.#compare = compare;
    this.element.className = "chat-map stack";
    this.#list = new TreeList((turn) => {
      const marked = this.#marked;
      if (marked && marked !== turn) {
        this.#marked = undefined;
        this.#compare(marked, turn);
      } else this.#choose(turn);
    });
  }

  /** Shows a chat, and the end of its path. */
  show(chat: Chat) {
    const end = chat.path().at(-1);
    const state = [...chat.turns]
      .map(({ key, status, answered }) => `${key} ${status} ${answered === undefined}`)
      .join();
    if (state !== this.#state) {
      this.#chat = chat;
      this.#state = state;
      this.#list.set(chat, end?.key);
    } else this.#list.choose(end?.key);
    this.#draw();
  }

  #mark = () => {
    this.#marked = this.#marked ? undefined : this.#chat?.path().at(-1);
    if (this.#marked) announce("Choose the turn to compare it with.");
    this.#draw();
  };

  #draw() {
    const turns = [...(this.#chat?.turns ?? [])];
    const leaves = turns.filter((turn) => this.#chat?.childrenOf(turn).length === 0).length;
    render(
      html`
        <h2>Map of the chat</h2>
        <p class="note">${count(turns.length)} ${turns.length === 1 ? "turn" : "turns"}, ${count(leaves)} ${leaves === 1 ? "branch" : "branches"}.</p>
        <label class="unseen" for="map-find">Find a turn</label>
        <input dir="auto" id="map-find" type="search" autocomplete="off" placeholder="Find a turn" @input=${(event: Event) => announce(`${count(this.#list.find(typedIn(event).trim()))} found.`)} />
        <div class="buttons">
          <button type="button" class="plain" @click=${() => this.#list.foldAll(true)}>Close all</button>
          <button type="button" class="plain" @click=${() => this.#list.foldAll(false)}>Open all</button>
          <button type="button" class="plain" aria-pressed=${String(this.#marked !== undefined)} @click=${this.#mark}>Compare with…</button>
        </div>
        ${this.#marked ? html`<p class="notice">Now choose the other turn.</p>` : nothing}
        ${this.#list.element}
      `,
      this.element,
    );
  }
}
