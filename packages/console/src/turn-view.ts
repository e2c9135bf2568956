import { html, nothing, render } from "lit-html";
import { announce } from "./announce.ts";
import { Answer } from "./answer.ts";
import { ApiFault } from "./api.ts";
import { withLocalFiles } from "./code-samples.ts";
import { codeView } from "./code-view.ts";
import { messageWithField } from "./dialogs.ts";
import type { Arrival } from "./event-batches.ts";
import { EventRecord, keepRecord } from "./event-record.ts";
import { typedIn } from "./form-events.ts";
import { count, duration } from "./format.ts";
import { ItemView, statusTag } from "./item-view.ts";
import type { ApiObject, Parsed } from "./json.ts";
import type { Transport } from "./sending.ts";
import { cancel, follow, send } from "./sending.ts";
import { retrieve, saysNothing } from "./stored-response.ts";

/** A request of this tab, and its response while it arrives. */

/** The request as the tab keeps it over a reload */
export interface Sent {
  /** of the response */
  id?: string;
  /** as text, for people */
  input: string;
  transport: Transport;
  isStored: boolean;
  /** true if it had not ended */
  isOpen: boolean;
  /** true if its calls have been answered */
  isAnswered?: boolean;
  /** true if the connection broke before the response ended, so that only the server knows its result */
  isCut?: boolean;
  /** its end, if its response does not show it */
  note?: string;
  /** the reason of its failure, if its response does not have it */
  fault?: string;
  /** of the request, without the transport's fields; absent after a reload if it is long or has a token */
  body?: Record<string, unknown>;
  /** true if the user typed its input; false for an output of a call */
  isTyped?: boolean;
  /** the same for two requests of two models, side by side */
  pair?: string;
}

export interface Actions {
  /** The kept state has changed. */
  changed: () => void;
  /** The server has accepted the request. */
  began: () => void;
  ended: (turn: TurnView, response: ApiObject) => void;
  branch: (id: string) => void;
  /** Sends the same request again. */
  again: (turn: TurnView) => void;
  /** Puts the request into the form again, with the response that it continued. */
  edit: (turn: TurnView) => void;
  /** Sends outputs of the turn's calls; `text`: the outputs as text for people. */
  answer: (turn: TurnView, input: object[], text: string) => void;
}

/** The server stores a response that stopped with its page soon after it notices the closed connection. */
const STORED_ATTEMPTS = 15;

/** A longer input is not kept whole, and a longer body is not kept. */
const MAX_INPUT = 20_000;
const MAX_BODY = 20_000;

const UNSTORED = "This response was not stored: it was shown only once.";

/** The error of a response whose page lost its connection. Leaving the page causes it. */
const CUT_WITHOUT_ID = "The page was left before the server had answered: the answer is lost to it.";
const CUT_UNSTORED =
  "The page was left before the response had ended, which stopped it. It was not stored: nothing is left of it.";
const CUT_ASKING = "The page was left before the response had ended. Asking the server what became of it…";
const CUT_STOPPED =
  "This response stopped with its page: the page was left before it had ended. One in the background goes on.";
const CUT_MISSING = "The page was left before the response had ended. The server has stored nothing of it so far.";

export class TurnView {
  element = document.createElement("article");
  sent: Sent;
  #answer = new Answer();
  #record = new EventRecord();
  #abort = new AbortController();
  #actions;
  attachments: object[];
  /** The number of the last event. */
  #last = -1;
  #isStopping = false;
  #times = { start: performance.now(), first: 0, token: 0, end: 0 };
  /** Outputs that the user typed, by call. */
  #outputs: Map<string, string> = new Map();
  #input;
  #code;

  /** @param attachments the parts that are not text */
  constructor(sent: Sent, actions: Actions, attachments: object[] = []) {
    this.sent = sent;
    this.#actions = actions;
    const content = [...(sent.input === "" ? [] : [{ type: "input_text", text: sent.input }]), ...attachments];
    this.attachments = attachments;
    this.#code = codeView("As code", () => ({ body: withLocalFiles(this.sent.body), transport: this.sent.transport }));
    this.#input = new ItemView({ type: "message", role: "user", content });
    // A long question scrolls within its own box, also with a keyboard.
    if (sent.input.length > 300 || sent.input.split("\n").length > 6) this.#input.element.tabIndex = 0;
    this.element.className = "turn";
    this.#draw();
  }

  /** The part of the turn that the tab keeps. */
  get remembered(): Sent {
    const { body, ...sent } = this.sent;
    const json = JSON.stringify(body ?? null);
    // The token of an MCP server is not kept.
    const isKept = body !== undefined && json.length <= MAX_BODY && !json.includes('"authorization":');
    return { ...sent, ...(isKept && { body }), input: sent.input.slice(0, MAX_INPUT) };
  }

  /** The text of the answer that has arrived. */
  get answerText() {
    const parts = this.#answer.items.flatMap(({ type, content }) => (type === "message" ? (content ?? []) : []));
    return parts.map((part) => part.text ?? part.refusal ?? "").join("\n\n");
  }

  get isOpen() {
    return this.sent.isOpen;
  }

  /** Sends the request. */
  async send(body: Record<string, unknown>) {
    this.sent.body = body;
    await this.#take(send(body, this.sent.transport, this.#abort.signal), true);
  }

  /** Shows the kept state after a reload, says how the response ended, and follows it if it still runs. */
  async restore() {
    const { id, transport, isOpen, isStored } = this.sent;
    if (isOpen && id !== undefined && transport === "background")
      return this.#take(follow(id, this.#abort.signal), false);
    const isCut = isOpen || this.sent.isCut === true;
    if (isCut) Object.assign(this.sent, { isCut, fault: undefined });
    if (id === undefined) return this.#end(isCut ? CUT_WITHOUT_ID : this.sent.note);
    if (!isStored) return this.#end(isCut ? CUT_UNSTORED : (this.sent.note ?? UNSTORED));
    const { note } = this.sent;
    this.sent.fault = undefined;
    this.#end(isCut ? CUT_ASKING : note);
    try {
      const response = await retrieve(id, isCut ? STORED_ATTEMPTS : 1, this.#abort.signal);
      this.#answer.show(response);
      this.sent.isCut = false;
      if (isCut) this.#end(response.status === "completed" ? undefined : CUT_STOPPED);
      else this.#draw();
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      if (isCut && error instanceof ApiFault && error.status === 404) return this.#end(CUT_MISSING);
      this.sent.fault = messageWithField(error);
      this.#end(isCut ? undefined : note);
    }
  }

  /** Cancels the response, wherever it runs. */
  async stop() {
    this.#isStopping = true;
    this.#draw();
    const { id, transport } = this.sent;
    if (transport !== "background") this.#abort.abort();
    // Without an id, it is stopped as soon as it has one.
    else if (id !== undefined) await this.#cancel(id);
  }

  /** Its calls have been answered: the form for them is not shown again. */
  answered() {
    this.sent.isAnswered = true;
    this.#actions.changed();
    this.#draw();
  }

  /** Stops following the response. */
  leave() {
    this.#abort.abort();
  }

  /** Continues after the last event, if a refused key has interrupted it. */
  followAgain() {
    const { id, isOpen, transport } = this.sent;
    if (this.sent.fault === undefined || !isOpen || id === undefined || transport !== "background") return;
    void this.#take(follow(id, this.#abort.signal, this.#last), false);
  }

  async #cancel(id: string) {
    try {
      const response = await cancel(id);
      this.#abort.abort();
      this.#show(response);
    } catch (error) {
      this.#isStopping = false;
      this.#fail(error);
    }
  }

  /** @param isTimed true if the time of arrival is the time at which an event was made */
  async #take(batches: AsyncGenerator<Arrival[]>, isTimed: boolean) {
    this.sent.fault = undefined;
    this.#draw();
    try {
      for await (const batch of batches) {
        const at = performance.now() - this.#times.start;
        for (const { json, event } of batch) this.#event(json, event, isTimed ? at : undefined);
      }
      this.#finished();
    } catch (error) {
      if (!this.#abort.signal.aborted) {
        // A page that is being left loses its connections before it gets the event for leaving.
        this.sent.isCut = this.sent.transport !== "background" && !(error instanceof ApiFault && error.status !== 0);
        this.#fail(error);
      } else if (this.sent.isOpen) this.#end("Stopped.");
    }
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
    if (this.sent.id === undefined) {
      this.sent.id = event.response.id;
      keepRecord(event.response.id, this.#record);
      this.#actions.began();
      this.#actions.changed();
      if (this.#isStopping && this.sent.transport === "background") void this.#cancel(event.response.id);
    }
    this.#draw();
  }

  /** @param response the whole response */
  #show(response: ApiObject) {
    this.#answer.show(response);
    if (["queued", "in_progress"].includes(response.status)) this.#draw();
    else this.#finished();
  }

  #finished() {
    const { response } = this.#answer;
    this.#end();
    if (!response) return;
    this.#actions.ended(this, response);
    const text = this.#answer.items
      .flatMap(({ type, content }) => (type === "message" ? content : []))
      .map((part) => part.text ?? "")
      .join(" ");
    announce(response.status === "completed" ? `Answer: ${text}` : `The response is ${response.status}.`);
  }

  /** @param note how, where the response does not say so */
  #end(note?: string) {
    this.sent.isOpen = false;
    this.sent.note = note;
    this.#isStopping = false;
    this.#actions.changed();
    this.#draw();
  }

  #fail(error: unknown) {
    this.sent.fault = messageWithField(error);
    // A run goes on without whoever could not follow it.
    const goesOn =
      this.sent.transport === "background" &&
      this.sent.id !== undefined &&
      !(error instanceof ApiFault && error.status === 404);
    if (goesOn) this.#draw();
    else this.#end();
  }

  #draw() {
    const { id, isOpen, fault, note } = this.sent;
    const { response } = this.#answer;
    const error = response?.error;
    const cut = response?.incomplete_details?.reason;
    render(
      html`
        <h2 class=${this.sent.pair === undefined ? "unseen" : "turn-title"}>${this.sent.pair === undefined ? "Request" : (this.sent.body?.model ?? response?.model ?? "Request")}</h2>
        ${this.#input.element}
        ${this.#answer.element}
        ${error ? html`<p class="notice bad" dir="auto" role="alert">${error.message}</p>` : nothing}
        ${response?.status === "completed" && !isOpen && saysNothing(response) ? html`<p class="notice">The model said nothing.</p>` : nothing}
        ${cut ? html`<p class="notice">The response is incomplete: ${cut.replaceAll("_", " ")}.</p>` : nothing}
        ${
          fault
            ? html`<div class="notice bad" role="alert">
                <p dir="auto">${fault}</p>
                ${isOpen ? html`<button type="button" @click=${() => this.followAgain()}>Follow again</button>` : nothing}
              </div>`
            : nothing
        }
        ${note ? html`<p class="notice" dir="auto">${note}</p>` : nothing}
        ${isOpen || this.sent.isAnswered ? nothing : this.#callsTemplate()}
        <footer class="turn-footer">
          ${isOpen && !fault ? html`<span class="tag busy"><span class="busy-dot" aria-hidden="true">●</span> ${this.#isStopping ? "stopping" : (response?.status ?? "sending").replaceAll("_", " ")}</span>` : statusTag(response?.status)}
          ${isOpen ? nothing : this.#figures()}
          ${id === undefined ? nothing : html`<a href="#/responses/${id}">Details</a>`}
          ${
            id === undefined || isOpen || !this.sent.isStored
              ? nothing
              : html`<button type="button" class="plain" @click=${() => this.#actions.branch(id)}>Branch from here</button>`
          }
          ${isOpen ? nothing : this.#againTemplate()}
        </footer>
        ${this.sent.body === undefined ? nothing : this.#code.element}
      `,
      this.element,
    );
  }

  /** What can be done with the request once more. */
  #againTemplate() {
    const { body, isTyped, pair } = this.sent;
    if (body === undefined) return nothing;
    return html`
      ${isTyped && pair === undefined ? html`<button type="button" class="plain" @click=${() => this.#actions.edit(this)}>Edit</button>` : nothing}
      <button type="button" class="plain" @click=${() => this.#actions.again(this)}>Regenerate</button>
    `;
  }

  #figures() {
    const usage = this.#answer.response?.usage;
    const { first, token, end } = this.#times;
    const seconds = (end - token) / 1_000;
    const speed =
      usage && token > 0 && seconds > 0.05 ? `${(usage.output_tokens / seconds).toFixed(0)} tokens/s` : undefined;
    const parts = [
      usage && `${count(usage.input_tokens)} + ${count(usage.output_tokens)} tokens`,
      first > 0 && token > 0 && `first token after ${duration(token)}`,
      end > 0 && `${duration(end)} in all`,
      speed,
    ].filter(Boolean);
    return html`<span class="note">${parts.join(" · ")}</span>`;
  }

  /** The calls that wait for the client: forms for their outputs. */
  #callsTemplate() {
    const { response } = this.#answer;
    const { id, isStored, transport } = this.sent;
    if (id === undefined || !response || response.status !== "completed") return nothing;
    const calls = this.#answer.items.filter(({ type }) => ["function_call", "custom_tool_call"].includes(type));
    const requests = this.#answer.items.filter(({ type }) => type === "mcp_approval_request");
    if (calls.length + requests.length === 0) return nothing;
    if (!isStored && transport !== "socket")
      return html`<p class="note">To answer these calls, let the response be stored.</p>`;
    return html`<form class="outputs stack" @submit=${(event: Event) => this.#sendOutputs(event, calls)}>
      ${calls.map(
        ({ call_id: call, name }) => html`<div>
          <label for="output-${call}">Output of <code dir="auto">${name}</code></label>
          <textarea
            dir="auto"
            id="output-${call}"
            class="code"
            rows="2"
            .value=${this.#outputs.get(call) ?? ""}
            @input=${(event: Event) => this.#outputs.set(call, typedIn(event))}
          ></textarea>
        </div>`,
      )}
      ${requests.map(
        ({ id: request, server_label: label, name }) => html`<div class="buttons">
          <span>May <code dir="auto">${label}.${name}</code> be called?</span>
          <button type="button" class="primary" @click=${() => this.#approve(request, true)}>Approve</button>
          <button type="button" @click=${() => this.#approve(request, false)}>Deny</button>
        </div>`,
      )}
      ${calls.length > 0 ? html`<div class="buttons"><button class="primary" type="submit">Send ${calls.length > 1 ? "outputs" : "output"}</button></div>` : nothing}
    </form>`;
  }

  #sendOutputs(event: Event, calls: ApiObject[]) {
    event.preventDefault();
    const input = calls.map(({ type, call_id: call }) => ({
      type: `${type}_output`,
      call_id: call,
      output: this.#outputs.get(call) ?? "",
    }));
    const text = calls.map(({ name, call_id: call }) => `${name}: ${this.#outputs.get(call) ?? ""}`);
    this.#actions.answer(this, input, text.join("\n"));
  }

  #approve(request: string, approve: boolean) {
    const input = [{ type: "mcp_approval_response", approval_request_id: request, approve }];
    this.#actions.answer(this, input, approve ? "Approved." : "Denied.");
  }
}
