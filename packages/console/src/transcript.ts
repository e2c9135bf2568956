import { html, render } from "lit-html";
import { repeat } from "lit-html/directives/repeat.js";
import { callJson } from "./api.ts";
import { bodyOfTurn, Chat, type ChatOnPage, continuationOf, repeatable, seenBy, type Turn } from "./chat-model.ts";
import { versionMetadata } from "./chat-versions.ts";
import { messageWithField } from "./dialogs.ts";
import { draft } from "./draft.ts";
import { EndFollower } from "./follow-end.ts";
import type { ApiObject } from "./json.ts";
import { loadMarkdown } from "./markdown-tokens.ts";
import { closeConnection } from "./sending.ts";
import { recall, remember } from "./session.ts";
import { branchesElement, pairTemplate } from "./side-by-side.ts";
import { readChat } from "./stored-chat.ts";
import { TurnView } from "./turn-view.ts";

/** Turns of the path that are on the page at first, and those that each click adds. */
const SHOWN = 20;

/** Turns that a tab keeps over a reload, and the longest input and request that it keeps with one. Characters. */
const MAX_KEPT = 200;
const MAX_KEPT_LENGTH = 20_000;

export interface Form {
  /** The chat has changed. */
  changed: () => void;
  /** The fields of a request, as the form has them. Throws a FormFault. */
  fields: () => ApiObject;
  focus: () => void;
}

/** New input, and what the request is beside it. */
export interface Asked {
  items: ApiObject[];
  text: string;
  fields: ApiObject;
  /** The turn that is continued. Undefined for the first one. */
  parent: Turn | undefined;
  secondModel?: string;
  /** Called when the server has accepted the request. */
  began?: () => void;
}

/** The path of a chat, as turns on the page. */
export class Transcript implements ChatOnPage {
  element = document.createElement("div");
  chat: Chat;
  #form;
  #views = new Map<string, TurnView>();
  #shown = SHOWN;
  #follower: EndFollower | undefined;
  #opening = new AbortController();
  /** Two branches that stand side by side in the place of the path, and the turns of each from the root. */
  #compared: { element: HTMLElement; paths: readonly [Turn[], Turn[]] } | undefined;

  /** Shows the chat that the tab has kept over a reload. */
  constructor(form: Form) {
    this.#form = form;
    this.element.className = "transcript stack gap-6 empty:hidden";
    loadMarkdown().catch(() => {});
    this.chat = new Chat(recall("turns"));
    this.chat.choices = recall("choices") ?? this.chat.choices;
    this.#draw();
  }

  /**
   * Keeps the end in view from now on.
   * @param composer sticks to the bottom of the view, over the transcript
   */
  followEnd(composer: HTMLElement) {
    this.#follower ??= new EndFollower(this.element, composer, this.#form.changed);
  }

  get isEmpty() {
    return this.chat.size === 0;
  }

  /** True while a request has not ended. */
  get isRunning() {
    return this.#running.length > 0;
  }

  /** True if the end is out of view because the reader scrolled away. */
  get isAway() {
    return this.#follower?.isAway === true;
  }

  toEnd() {
    this.#follower?.follow();
  }

  /** There are several if two models were asked. */
  get #running() {
    return [...this.#views.values()].filter((view) => view.isOpen);
  }

  /** The turn that the next request continues. */
  get end(): Turn | undefined {
    return this.chat.path().findLast((turn) => seenBy(turn) !== "nothing");
  }

  /** The id of a response of this chat, by which the store has it. */
  get id(): string | undefined {
    return this.chat.path().findLast(({ id, isStored }) => id !== undefined && isStored)?.id;
  }

  /** The body of a request with this input after a turn. */
  bodyAfter(parent: Turn | undefined, fields: ApiObject, items: readonly ApiObject[]): ApiObject {
    const answered = new Set(items.map(({ call_id: call }) => call));
    const path = this.chat.pathTo(parent);
    for (const turn of path) for (const { call_id: call } of turn.items ?? []) answered.add(call);
    const outputOf = (turn: Turn) => repeatable(this.viewOf(turn).output, answered);
    return bodyOfTurn(fields, items, continuationOf(path, outputOf));
  }

  /** Asks, and shows the answer while it arrives. */
  async ask({ items, text, fields, parent, secondModel = "", began }: Asked) {
    const { chat } = this;
    // The request has these turns itself, and so waits until they are read.
    const orphans = chat.pathTo(parent).filter(({ isOrphan }) => isOrphan);
    if (orphans.length > 0) await Promise.all(orphans.map((turn) => this.viewOf(turn).restored));
    if (this.isRunning || chat !== this.chat) return;
    const { transport, store: isStored } = draft;
    const pair = secondModel === "" ? undefined : crypto.randomUUID();
    const turnFor = (own: ApiObject): Turn => ({
      key: crypto.randomUUID(),
      ...(parent && { parent: parent.key }),
      text: text.slice(0, MAX_KEPT_LENGTH),
      items,
      fields: own,
      model: own.model ?? "",
      createdAt: Date.now(),
      // Two requests would use the same connection.
      transport: pair !== undefined && transport === "socket" ? "stream" : transport,
      isStored: isStored && own.store !== false,
      isOpen: true,
      ...(pair !== undefined && { pair }),
    });
    const turns = [fields, ...(pair === undefined ? [] : [{ ...fields, model: secondModel }])].map(turnFor);
    for (const turn of turns) {
      this.chat.add(turn);
      this.#views.set(turn.key, new TurnView(turn, this));
    }
    if (turns[0]) this.chat.choose(turns[0]);
    this.#compared = undefined;
    this.changed();
    this.toEnd();
    await Promise.all(turns.map((turn) => this.viewOf(turn).send(began)));
    this.changed();
  }

  /** Stops the responses, wherever they run. */
  stop() {
    for (const view of this.#running) void view.stop();
  }

  /** Begins another chat. */
  clear() {
    this.#opening.abort();
    for (const view of this.#views.values()) view.leave();
    this.#views.clear();
    this.#shown = SHOWN;
    this.#compared = undefined;
    this.chat = new Chat();
    this.changed();
  }

  /**
   * Opens the chat of a stored response or conversation, at that response. Rejects as a call of the API does.
   * @param isEnd whether the path ends there
   */
  async open(id: string, isEnd: boolean) {
    const known = this.chat.ofResponse(id);
    if (known) return this.show(known, isEnd);
    this.#opening.abort();
    this.#opening = new AbortController();
    const { signal } = this.#opening;
    const chat = await readChat(id, signal);
    if (signal.aborted) return;
    this.clear();
    this.chat = chat;
    const at = this.chat.ofResponse(id);
    if (at) this.chat.choose(at, isEnd);
    this.changed();
    this.toEnd();
  }

  show(turn: Turn, isEnd = false) {
    this.chat.choose(turn, isEnd);
    this.#compared = undefined;
    this.changed();
    this.viewOf(turn).element.scrollIntoView({ block: "nearest" });
    if (isEnd) this.#form.focus();
  }

  /** Puts two branches side by side, in the place of the path. The turns at their ends, or the ids of their responses. */
  compare(...ends: [Turn | string, Turn | string]) {
    const [one, other] = ends.map((end) => (typeof end === "string" ? this.chat.ofResponse(end) : end));
    if (!one || !other) return;
    const paths = [this.chat.pathTo(one), this.chat.pathTo(other)] as const;
    this.#compared = { paths, element: branchesElement(paths, this.viewOf, this.showPath) };
    this.#draw();
  }

  /** Shows the path again. */
  showPath = () => {
    this.#compared = undefined;
    this.#draw();
  };

  /** Follows again what a refused key has interrupted. */
  signedIn() {
    closeConnection();
    for (const view of this.#views.values()) view.followAgain();
  }

  /** The turns of the path, when the page has read them. */
  async read(): Promise<TurnView[]> {
    const views = this.chat.path().map((turn) => this.viewOf(turn));
    for (const view of views) await view.restored;
    return views;
  }

  /** A turn on the page. One of the store is read when it is first needed. */
  viewOf = (turn: Turn): TurnView => {
    const known = this.#views.get(turn.key);
    if (known) return known;
    const view = new TurnView(turn, this);
    this.#views.set(turn.key, view);
    view.restored = view.restore().then(() => this.#draw());
    return view;
  };

  /** Keeps the chat, and draws it and what is around it. */
  changed = () => {
    this.#remember();
    this.#draw();
    this.#form.changed();
  };

  #remember() {
    const turns = [...this.chat.turns].slice(-MAX_KEPT).map((turn) => {
      const { items, fields, ...rest } = turn;
      const json = JSON.stringify(fields ?? null);
      // The token of an MCP server is not kept.
      const keepsFields = fields !== undefined && json.length <= MAX_KEPT_LENGTH && !json.includes('"authorization":');
      const keepsItems = items !== undefined && JSON.stringify(items).length <= MAX_KEPT_LENGTH;
      return { ...rest, ...(keepsFields && { fields }), ...(keepsItems && { items }) };
    });
    remember("choices", this.chat.choices);
    // The server still stores a turn that this tab no longer keeps.
    if (!remember("turns", turns)) remember("turns", turns.slice(-1));
  }

  again(turn: Turn, text?: string) {
    const { fields = {} } = this.viewOf(turn);
    const parent = this.chat.parentOf(turn);
    // An edited question is asked with the form as it is now.
    const isEdited = text !== undefined;
    try {
      const asked = isEdited ? this.#form.fields() : fields;
      const own = parent ? asked : { ...asked, metadata: { ...asked.metadata, ...versionMetadata(this.chat) } };
      const items = isEdited ? withText(turn.items ?? [], text) : (turn.items ?? []);
      void this.ask({ items, text: text ?? turn.text, fields: own, parent });
    } catch (error) {
      turn.note = messageWithField(error);
      this.#draw();
    }
  }

  goOn(turn: Turn, items: ApiObject[], text: string) {
    void this.ask({ items, text, fields: this.viewOf(turn).fields ?? {}, parent: turn });
  }

  bodyOf(turn: Turn): ApiObject {
    return this.bodyAfter(this.chat.parentOf(turn), this.viewOf(turn).fields ?? {}, turn.items ?? []);
  }

  async fork(turn: Turn, at: string, output: string) {
    try {
      const path = `/v1/responses/${encodeURIComponent(turn.id ?? "")}/fork`;
      const { id } = await callJson(path, { method: "POST", body: { at, output, background: true } });
      const { parent, text, items = [], model, fields } = turn;
      turn.pair ??= crypto.randomUUID();
      const branch: Turn = {
        ...{ key: crypto.randomUUID(), id, text, items, model, pair: turn.pair, createdAt: Date.now() },
        ...{ transport: "background", isStored: true, isOpen: true },
        ...(parent !== undefined && { parent }),
        ...(fields && { fields }),
      };
      this.chat.add(branch);
      this.chat.choose(branch);
      this.changed();
    } catch (error) {
      turn.note = messageWithField(error);
      this.#draw();
    }
  }

  /** Puts the path onto the page: its last turns, and both turns of a pair at its end. */
  #draw() {
    const path = this.chat.path();
    const first = Math.max(0, path.length - this.#shown);
    const shown = path.slice(first).map(this.viewOf);
    drawJoined(shown);
    let parts = shown.map(({ turn, element }): [key: string, content: unknown] => [turn.key, element]);
    const last = path.at(-1);
    const pair = last?.pair === undefined ? [] : this.chat.siblingsOf(last).filter((turn) => turn.pair === last.pair);
    const [one, other] = pair.map(this.viewOf);
    if (last?.pair && one && other)
      parts.splice(-1, 1, [last.pair, pairTemplate([one, other], last, (turn) => this.show(turn))]);
    if (first > 0) parts.unshift(["earlier", this.#earlierTemplate(first)]);
    if (this.#compared) {
      for (const branch of this.#compared.paths) drawJoined(branch.map(this.viewOf));
      parts = [["compared", this.#compared.element]];
    }
    render(
      repeat(
        parts,
        ([key]) => key,
        ([, content]) => content,
      ),
      this.element,
    );
  }

  #earlierTemplate(first: number) {
    const showMore = () => {
      this.#shown += SHOWN;
      this.#draw();
    };
    return html`<p class="earlier"><button type="button" class="plain" @click=${showMore}>Show ${Math.min(SHOWN, first)} earlier of ${first} turns</button></p>`;
  }
}

/** Draws turns that follow each other, with outputs in the cards of their calls. The others stand at the beginning of their turn. */
function drawJoined(shown: readonly TurnView[]) {
  let joined: ApiObject[] = [];
  for (const [index, view] of shown.entries())
    joined = view.draw(joined, shown[index + 1]?.turn.items?.filter(isAnswer) ?? []);
}

/** Tells whether an input item answers a call. */
function isAnswer({ type = "" }: ApiObject) {
  return type.endsWith("_call_output") || type === "mcp_approval_response";
}

/** The input with another text; images and files stay. */
function withText(items: readonly ApiObject[], text: string): ApiObject[] {
  const at = items.findLastIndex(({ role }) => role === "user");
  return items.map((item, index) => {
    if (index !== at) return item;
    if (!Array.isArray(item.content)) return { type: "message", role: "user", content: text };
    const others = item.content.filter(({ type }: ApiObject) => type !== "input_text" && type !== "text");
    const content = others.length === 0 ? text : [{ type: "input_text", text }, ...others];
    return { type: "message", role: "user", content };
  });
}
