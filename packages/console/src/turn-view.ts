import { html, nothing, render } from "lit-html";
import { announce } from "./announce.ts";
import { Answer } from "./answer.ts";
import { ApiFault } from "./api.ts";
import type { Arrival } from "./arrivals.ts";
import { callsTemplate, otherOutputTemplate } from "./call-form.ts";
import { type ChatOnPage, fieldsOf, seenBy, type Turn } from "./chat-model.ts";
import { withLocalFiles } from "./code-samples.ts";
import { codeView } from "./code-view.ts";
import { messageWithField } from "./dialogs.ts";
import { EventRecord, keepRecord } from "./event-record.ts";
import { iconButton, iconLink } from "./icons.ts";
import { type ItemView, inputElement, statusTag } from "./item-view.ts";
import type { ApiObject, Parsed } from "./json.ts";
import { copyText } from "./save.ts";
import { type Connection, cancel, follow, send } from "./sending.ts";
import { inputItems, retrieve, runs, textOf, whole } from "./stored-response.ts";
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
  #transcript;
  /** The number of the last event. */
  #last = -1;
  #isStopping = false;
  #began = () => {};
  #start = performance.now();
  #inputs = new WeakMap<ApiObject, ItemView>();
  /** Items of its input that are in the cards of the turn before. */
  #joined: readonly ApiObject[] = [];
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
  /** True if the next turn answers the calls of this one. */
  #isAnswered = false;

  constructor(turn: Turn, transcript: ChatOnPage) {
    this.turn = turn;
    this.#transcript = transcript;
    this.#code = codeView("As code", () => ({
      body: withLocalFiles(this.#transcript.bodyOf(this.turn)),
      transport: this.turn.transport,
    }));
    this.element.className = "turn stack gap-3";
  }

  /**
   * Draws the turn in its place in the chat.
   * @param joined items of its input that are in the cards of the turn before
   * @param outputs items of the next turn that answer calls
   * @returns those that are in the cards of this turn
   */
  draw(joined: readonly ApiObject[], outputs: readonly ApiObject[]): ApiObject[] {
    const shown = this.#answer.showOutputs(outputs);
    this.#joined = joined;
    this.#isAnswered = shown.length > 0;
    this.#draw();
    return shown;
  }

  #inputOf(item: ApiObject) {
    const element = inputElement(item, this.#inputs);
    // A long question scrolls within its own box, also with a keyboard.
    const text = element.textContent ?? "";
    if (text.length > 300 || text.split("\n").length > 6) element.tabIndex = 0;
    return element;
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
    return textOf(this.output);
  }

  /**
   * Sends the request.
   * @param began Called when the server has accepted it.
   */
  async send(began = () => {}) {
    this.#began = began;
    const { transport } = this.turn;
    const asked = this.#transcript.bodyOf(this.turn);
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
    this.#transcript.changed();
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
  async #take(arrivals: AsyncGenerator<Arrival>, isTimed: boolean) {
    this.turn.fault = undefined;
    const { signal } = this.#abort;
    this.#listen();
    this.#draw();
    try {
      for await (const { json, event } of arrivals) {
        this.#listen();
        this.#event(json, event, isTimed ? performance.now() - this.#start : undefined);
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
    this.#answer.apply(event);
    if (!event.response) return;
    this.turn.status = event.response.status;
    if (this.turn.id === undefined) {
      this.turn.id = event.response.id;
      keepRecord(event.response.id, this.#record);
      this.#began();
      this.#transcript.changed();
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
    this.#transcript.changed();
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
    const { response } = this;
    const input = (this.turn.items ?? []).filter((item) => !this.#joined.includes(item));
    this.element.classList.toggle("unseen-turn", !isOpen && seenBy(this.turn) === "nothing");
    render(
      html`
        <h2 class=${pair === undefined ? "unseen" : "text-sm wrap-anywhere"}>${pair === undefined ? "Turn" : this.turn.model}</h2>
        ${this.#edited === undefined ? html`<div class="answer stack gap-3">${input.map((item) => this.#inputOf(item))}</div>` : this.#editTemplate(this.#edited)}
        ${this.#hasMoreInput ? html`<p class="note">The input has more items: <a href="#/responses/${this.turn.id}">all of it</a>.</p>` : nothing}
        ${this.#answer.element}
        ${noticesTemplate(this.turn, response, () => this.followAgain())}
        ${connectionTemplate(this.#connection, isOpen, this.#isSilent)}
        ${isOpen ? nothing : this.#seenTemplate()}
        ${isOpen || this.#isAnswered ? nothing : callsTemplate(this.output, response, (items, text) => this.#transcript.goOn(this.turn, items, text))}
        ${isOpen || !this.turn.isStored || pair !== undefined ? nothing : otherOutputTemplate([...(this.turn.items ?? []), ...this.output], (at, output) => this.#transcript.fork(this.turn, at, output))}
        ${this.#footer()}
        ${this.#isCodeShown ? this.#code.element : nothing}
      `,
      this.element,
    );
  }

  #seenTemplate() {
    if (seenBy(this.turn) === "id" && this.response === undefined) return nothing;
    return seenTemplate(this.turn, this.answerText.trim() !== "", this.#transcript, () => {
      this.turn.isDropped = !this.turn.isDropped;
      this.#transcript.changed();
      this.#draw();
    });
  }

  #editTemplate(text: string) {
    const close = (edited?: string) => {
      this.#edited = undefined;
      this.#draw();
      if (edited !== undefined) this.#transcript.again(this.turn, edited);
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
      ${siblingsTemplate(turn, this.#transcript)}
      ${isOpen || this.answerText === "" ? nothing : iconButton("copy", "Copy answer", (event) => void copyText(this.answerText, event))}
      ${canRepeat && isQuestion && pair === undefined ? iconButton("edit", "Edit", () => this.#edit()) : nothing}
      ${canRepeat ? iconButton("again", "Regenerate", () => this.#transcript.again(turn)) : nothing}
      ${id === undefined || isOpen || !isStored || this.#transcript.chat.childrenOf(turn).length === 0 ? nothing : iconButton("branch", "Branch from here", () => this.#transcript.show(turn, true))}
      ${id === undefined ? nothing : iconLink("details", "Details", `#/responses/${id}`)}
      ${canRepeat ? iconButton("code", "As code", () => this.#toggleCode(), { isOn: this.#isCodeShown }) : nothing}
      ${isOpen ? nothing : figuresTemplate(this.response)}
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
