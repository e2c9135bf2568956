import { html, nothing, render } from "lit-html";
import { announce } from "./announce.ts";
import { Answer } from "./answer.ts";
import { ApiFault } from "./api.ts";
import { callsTemplate, otherOutputTemplate } from "./call-form.ts";
import { type Actions, fieldsOf, seenBy, type Turn } from "./chat-model.ts";
import { withLocalFiles } from "./code-samples.ts";
import { codeView } from "./code-view.ts";
import { messageWithField } from "./dialogs.ts";
import type { Arrival } from "./event-batches.ts";
import { EventRecord, keepRecord } from "./event-record.ts";
import { iconButton, iconLink } from "./icons.ts";
import { ItemView, statusTag } from "./item-view.ts";
import type { ApiObject, Parsed } from "./json.ts";
import { copyText } from "./save.ts";
import { type Connection, cancel, follow, send } from "./sending.ts";
import { inputItems, retrieve, runs, whole } from "./stored-response.ts";
import {
  connectionInWords,
  connectionTemplate,
  editForm,
  figuresTemplate,
  noticesTemplate,
  questionOf,
  seenTemplate,
  siblingsTemplate,
} from "./turn-parts.ts";

/** A turn of a chat on the page: its input, and its response while it arrives. */

/** The server stores a response that stopped with its page soon after it notices the closed connection. */
const STORED_ATTEMPTS = 15;

/** The reason of a response that ended with its page. */
const CUT = "The page was left before the response had ended, which stopped it. A response in the background goes on.";

/** An open stream without an event for this time is told. Milliseconds. */
const SILENT_MS = 5_000;

export class TurnView {
  element = document.createElement("article");
  turn: Turn;
  #answer = new Answer();
  #record = new EventRecord();
  #abort = new AbortController();
  #actions;
  /** The number of the last event. */
  #last = -1;
  #isStopping = false;
  #began = () => {};
  #times = { start: performance.now(), first: 0, token: 0, end: 0 };
  #input = document.createElement("div");
  #shownInput: readonly ApiObject[] = [];
  /** Settles when a turn of the store has been read. */
  restored: Promise<void> = Promise.resolve();
  #hasMoreInput = false;
  #code;
  #isCodeShown = false;
  /** The text of the question when its form was opened. */
  #edited: string | undefined;
  #connection: Connection | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #isSilent = false;
  /** Its place in the chat, as it was drawn. */
  #place = "";
  /** Outputs and decisions that the next turn gives to the calls of this one. */
  #isAnswered = false;

  constructor(turn: Turn, actions: Actions) {
    this.turn = turn;
    this.#actions = actions;
    this.#code = codeView("As code", () => ({
      body: withLocalFiles(this.#actions.bodyOf(this.turn)),
      transport: this.turn.transport,
    }));
    this.#input.className = "answer stack gap-3";
    this.element.className = "turn stack gap-3";
    this.showInput(turn.items ?? []);
  }

  /** Puts input items on the page: those that no card of an earlier turn shows. */
  showInput(items: readonly ApiObject[]) {
    if (items.length === this.#shownInput.length && items.every((item, index) => item === this.#shownInput[index]))
      return;
    this.#shownInput = items;
    const views = items.map((item) => new ItemView(item).element);
    // A long question scrolls within its own box, also with a keyboard.
    for (const view of views) {
      const text = view.textContent ?? "";
      if (text.length > 300 || text.split("\n").length > 6) view.tabIndex = 0;
    }
    this.#input.replaceChildren(...views);
    this.#draw();
  }

  /** Shows what the next turn says about the calls of this one. Gives the items that this turn has no card for. */
  showOutputs(items: readonly ApiObject[]): ApiObject[] {
    const rest = this.#answer.showOutputs(items);
    const isAnswered = rest.length < items.length;
    if (isAnswered !== this.#isAnswered) {
      this.#isAnswered = isAnswered;
      this.#draw();
    }
    return rest;
  }

  get isOpen() {
    return this.turn.isOpen;
  }

  /** The output items that have come. */
  get output(): ApiObject[] {
    return this.#answer.items;
  }

  get response(): ApiObject | undefined {
    return this.#answer.response;
  }

  /** The text of the answer that has come. */
  get answerText() {
    const parts = this.output.flatMap(({ type, content }) => (type === "message" ? (content ?? []) : []));
    return parts.map((part) => part.text ?? part.refusal ?? "").join("\n\n");
  }

  /**
   * Sends the request.
   * @param began Called when the server has accepted it.
   */
  async send(began = () => {}) {
    this.#began = began;
    const { transport } = this.turn;
    const asked = this.#actions.bodyOf(this.turn);
    const body = { ...asked, include: [...(asked.include ?? []), "timing"] };
    await this.#take(send(body, transport, this.#abort.signal, this.#told), true);
  }

  /** Reads a turn from the store, or says how it ended; follows it if it still runs. */
  async restore() {
    const { id, transport, isOpen, isStored, isCut, items } = this.turn;
    if (isOpen && id !== undefined && transport === "background" && items !== undefined)
      return this.#take(follow(id, this.#abort.signal, -1, this.#told), false);
    const wasCut = isOpen || isCut === true;
    if (id === undefined) return this.#lose(wasCut ? "The page was left before the server had answered." : undefined);
    if (!isStored) return this.#lose("This response was not stored: it was shown only once.");
    try {
      const input = items === undefined ? this.#readInput(id) : undefined;
      const response = await retrieve(id, wasCut ? STORED_ATTEMPTS : 1, this.#abort.signal);
      await input;
      this.turn.isCut = false;
      if (wasCut && !this.#isStopping && response.status === "cancelled") this.turn.note = CUT;
      await this.#take(runs(response) ? follow(id, this.#abort.signal, -1, this.#told) : whole(response), false);
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      if (error instanceof ApiFault && error.status === 404)
        return this.#lose("The server has not stored this response, or it is deleted.");
      this.turn.fault = messageWithField(error);
      this.#draw();
    }
  }

  async #readInput(id: string) {
    const { data, has_more: hasMore } = await inputItems(id, this.#abort.signal);
    this.turn.items = data;
    this.#hasMoreInput = hasMore;
    this.#actions.changed();
  }

  /** Stops the response, wherever it runs. The turn ends when the server has said how the response stands. */
  async stop() {
    this.#isStopping = true;
    this.#draw();
    const { id, transport, isStored } = this.turn;
    if (transport === "background") {
      // Without an id, it is stopped as soon as it has one.
      if (id !== undefined) await this.#cancel(id);
      return;
    }
    this.#abort.abort();
    this.#abort = new AbortController();
    if (id === undefined) return this.#lose("Stopped.");
    if (!isStored) return this.#end("Stopped.");
    this.turn.isCut = true;
    await this.restore();
  }

  /** Stops following the response. */
  leave() {
    this.#abort.abort();
    clearTimeout(this.#silence);
  }

  /** Continues after the last event, if a refused key has interrupted it. */
  followAgain() {
    const { id, isOpen, fault, transport } = this.turn;
    if (fault === undefined || !isOpen || id === undefined || transport !== "background") return;
    void this.#take(follow(id, this.#abort.signal, this.#last, this.#told), false);
  }

  /** Draws the turn again if its place in the chat has changed. */
  placed() {
    const { siblings, continuations } = this.#actions;
    const versions = siblings(this.turn);
    const place = [versions.indexOf(this.turn), versions.length, continuations(this.turn), this.turn.note].join();
    if (place === this.#place) return;
    this.#place = place;
    this.#draw();
  }

  async #cancel(id: string) {
    try {
      const response = await cancel(id);
      this.#abort.abort();
      await this.#take(whole(response), false);
    } catch (error) {
      this.#isStopping = false;
      this.#fail(error);
    }
  }

  #told = (connection: Connection) => {
    this.#connection = connection;
    announce(connectionInWords(connection));
    this.#draw();
  };

  /** @param isTimed true if the time of arrival is the time at which an event was made */
  async #take(batches: AsyncGenerator<Arrival[]>, isTimed: boolean) {
    this.turn.fault = undefined;
    const { signal } = this.#abort;
    this.#listen();
    this.#draw();
    try {
      for await (const batch of batches) {
        const at = performance.now() - this.#times.start;
        this.#listen();
        for (const { json, event } of batch) this.#event(json, event, isTimed ? at : undefined);
      }
      this.#finished();
    } catch (error) {
      if (signal.aborted) return;
      // A page that is being left loses its connections before it gets the event for leaving.
      this.turn.isCut = this.turn.transport !== "background" && !(error instanceof ApiFault && error.status !== 0);
      this.#fail(error);
    } finally {
      clearTimeout(this.#silence);
      this.#isSilent = false;
    }
  }

  /** An event has come, or the stream was opened. */
  #listen() {
    clearTimeout(this.#silence);
    const wasSilent = this.#isSilent;
    this.#isSilent = false;
    this.#silence = setTimeout(() => {
      this.#isSilent = true;
      this.#draw();
    }, SILENT_MS);
    if (wasSilent) this.#draw();
  }

  #event(json: string, event: ApiObject, at: number | undefined) {
    this.#record.add(json, event as Parsed, at);
    this.#last = event.sequence_number ?? this.#last;
    if (at !== undefined) {
      this.#times.first ||= at;
      if (typeof event.delta === "string") this.#times.token ||= at;
      this.#times.end = at;
    }
    this.#answer.apply(event);
    if (!event.response) return;
    this.turn.status = event.response.status;
    if (this.turn.id === undefined) {
      this.turn.id = event.response.id;
      keepRecord(event.response.id, this.#record);
      this.#began();
      this.#actions.changed();
      if (this.#isStopping && this.turn.transport === "background") void this.#cancel(event.response.id);
    }
    this.#draw();
  }

  #finished() {
    const { response } = this.#answer;
    const wasOpen = this.turn.isOpen;
    if (response) Object.assign(this.turn, { status: response.status, model: response.model });
    const calls = this.output.map(({ name }) => name).filter((name) => typeof name === "string");
    this.turn.answered = this.answerText.slice(0, 200) || calls.map((name) => `→ ${name}`).join(" ");
    this.#end(this.turn.note);
    if (response && wasOpen)
      announce(response.status === "completed" ? `Answer: ${this.answerText}` : `The response is ${response.status}.`);
  }

  /** @param note how, where the response does not say so */
  #end(note?: string) {
    this.turn.isOpen = false;
    this.turn.note = note;
    this.#isStopping = false;
    this.#actions.changed();
    this.#draw();
  }

  /** The turn has ended, and nothing of it can be continued. */
  #lose(note: string | undefined) {
    this.turn.isLost = true;
    this.#end(note ?? this.turn.note);
  }

  #fail(error: unknown) {
    this.turn.fault = messageWithField(error);
    const { transport, id } = this.turn;
    const isMissing = error instanceof ApiFault && error.status === 404;
    // A run goes on without whoever could not follow it.
    if (transport === "background" && id !== undefined && !isMissing) this.#draw();
    else this.#end();
  }

  #draw() {
    const { isOpen, pair } = this.turn;
    const { response } = this.#answer;
    this.element.classList.toggle("unseen-turn", !isOpen && seenBy(this.turn) === "nothing");
    render(
      html`
        <h2 class=${pair === undefined ? "unseen" : "text-sm wrap-anywhere"}>${pair === undefined ? "Turn" : this.turn.model}</h2>
        ${this.#edited === undefined ? this.#input : this.#editTemplate(this.#edited)}
        ${this.#hasMoreInput ? html`<p class="note">The input has more items: <a href="#/responses/${this.turn.id}">all of it</a>.</p>` : nothing}
        ${this.#answer.element}
        ${noticesTemplate(this.turn, response, () => this.followAgain())}
        ${connectionTemplate(this.#connection, isOpen, this.#isSilent)}
        ${isOpen ? nothing : this.#seenTemplate()}
        ${isOpen || this.#isAnswered ? nothing : callsTemplate(this.output, response, (items, text) => this.#actions.goOn(this.turn, items, text))}
        ${isOpen || !this.turn.isStored || pair !== undefined ? nothing : otherOutputTemplate([...(this.turn.items ?? []), ...this.output], (at, output) => this.#actions.fork(this.turn, at, output))}
        ${this.#footer()}
        ${this.#isCodeShown ? this.#code.element : nothing}
      `,
      this.element,
    );
  }

  #seenTemplate() {
    if (seenBy(this.turn) === "id" && this.response === undefined) return nothing;
    return seenTemplate(this.turn, this.answerText.trim() !== "", this.#actions, () => {
      this.turn.isDropped = !this.turn.isDropped;
      this.#actions.changed();
      this.#draw();
    });
  }

  #editTemplate(text: string) {
    const close = (edited?: string) => {
      this.#edited = undefined;
      this.#draw();
      if (edited !== undefined) this.#actions.again(this.turn, edited);
    };
    return editForm(this.turn.key, text, close);
  }

  #edit() {
    this.#edited = questionOf(this.turn);
    this.#draw();
    (this.element.querySelector(".edit textarea") as HTMLElement | null)?.focus();
  }

  #footer() {
    const { turn } = this;
    const { id, isOpen, isStored, pair } = turn;
    const status = turn.status ?? "sending";
    const isQuestion = turn.items?.some(({ role }) => role === "user") === true;
    const canRepeat = !isOpen && (turn.fields !== undefined || this.response !== undefined);
    return html`<footer class="turn-footer buttons min-h-[30px] min-w-0 flex-nowrap gap-0.5 max-sm:[&>.icon-button]:w-[33px]">
      ${
        isOpen && !turn.fault
          ? html`<span class="tag busy mx-1"><span class="motion-safe:animate-pulse" aria-hidden="true">●</span> ${this.#isStopping ? "stopping" : status.replaceAll("_", " ")}</span>`
          : statusTag(this.response?.status)
      }
      ${siblingsTemplate(turn, this.#actions)}
      ${isOpen || this.answerText === "" ? nothing : iconButton("copy", "Copy answer", (event) => void copyText(this.answerText, event))}
      ${canRepeat && isQuestion && pair === undefined ? iconButton("edit", "Edit", () => this.#edit()) : nothing}
      ${canRepeat ? iconButton("again", "Regenerate", () => this.#actions.again(turn)) : nothing}
      ${id === undefined || isOpen || !isStored || this.#actions.continuations(turn) === 0 ? nothing : iconButton("branch", "Branch from here", () => this.#actions.choose(turn, true))}
      ${id === undefined ? nothing : iconLink("details", "Details", `#/responses/${id}`)}
      ${canRepeat ? iconButton("code", "As code", () => this.#toggleCode(), { isOn: this.#isCodeShown }) : nothing}
      ${isOpen ? nothing : figuresTemplate(this.response, this.#times)}
    </footer>`;
  }

  #toggleCode() {
    this.#isCodeShown = !this.#isCodeShown;
    this.#code.element.open = this.#isCodeShown;
    this.#draw();
  }

  /** The fields of a request like this one. */
  get fields(): ApiObject | undefined {
    return this.turn.fields ?? (this.response && fieldsOf(this.response));
  }
}
