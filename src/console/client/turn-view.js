import { announce } from "./announce.js";
import { Answer } from "./answer.js";
import { ApiFault, callJson } from "./api.js";
import { EventRecord, keepRecord } from "./event-record.js";
import { count, duration, size } from "./format.js";
import { ItemView, statusTag } from "./item-view.js";
import { html, nothing, render } from "./lib/lit-html.js";
import { cancel, follow, send } from "./sending.js";

/**
 * A request of this tab, and its response as it comes.
 *
 * @typedef {object} Sent What is remembered of it over a reload
 * @property {string} [id] of the response
 * @property {string} input as text, for people
 * @property {import("./sending.js").Transport} transport
 * @property {boolean} isStored
 * @property {boolean} isOpen whether it had not ended
 * @property {boolean} [isAnswered] whether its calls have been answered
 *
 * @typedef {object} Actions
 * @property {() => void} changed There is something new to remember.
 * @property {() => void} began The server has accepted the request.
 * @property {(turn: TurnView, response: Record<string, any>) => void} ended
 * @property {(id: string) => void} branch
 * @property {(turn: TurnView, input: object[], text: string) => void} answer Sends outputs of the turn's calls; `text`: the same for people.
 */

/** A response that stopped with its page is stored soon after the server has noticed. */
const STORED_ATTEMPTS = 15;
const STORED_PAUSE_MS = 1_000;

/** Longer input is not remembered as a whole. */
const MAX_INPUT = 20_000;

export class TurnView {
  element = document.createElement("article");
  /** @type {Sent} */
  sent;
  #answer = new Answer();
  #record = new EventRecord();
  #abort = new AbortController();
  #actions;
  /** The number of the last event. */
  #last = -1;
  /** @type {string | undefined} */
  #fault;
  #note = "";
  #isStopping = false;
  #times = { start: performance.now(), first: 0, token: 0, end: 0 };
  /** Outputs that are typed in, by call. @type {Map<string, string>} */
  #outputs = new Map();
  #input;

  /** @param {Sent} sent @param {Actions} actions @param {object[]} [attachments] the parts that are no text */
  constructor(sent, actions, attachments = []) {
    this.sent = sent;
    this.#actions = actions;
    const content = [...(sent.input === "" ? [] : [{ type: "input_text", text: sent.input }]), ...attachments];
    this.#input = new ItemView({ type: "message", role: "user", content });
    this.element.className = "turn";
    this.#draw();
  }

  /** What of it is to be remembered. @returns {Sent} */
  get remembered() {
    return { ...this.sent, input: this.sent.input.slice(0, MAX_INPUT) };
  }

  get isOpen() {
    return this.sent.isOpen;
  }

  /** Sends it. @param {Record<string, unknown>} body */
  async send(body) {
    await this.#take(send(body, this.sent.transport, this.#abort.signal), true);
  }

  /** Shows what there is of it after a reload, and goes on where it goes on. */
  async restore() {
    const { id, transport, isOpen, isStored } = this.sent;
    if (isOpen && id !== undefined && transport === "background")
      return this.#take(follow(id, this.#abort.signal), false);
    if (id === undefined || !isStored) {
      this.#end(
        id === undefined
          ? "The page was left before the response had begun."
          : "This response was not stored: it was shown only once.",
      );
      return;
    }
    try {
      this.#answer.show(await retrieve(id, isOpen ? STORED_ATTEMPTS : 1));
      this.#end(isOpen ? "This response stopped with its page. One in the background goes on." : "");
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Ends the response, wherever it runs. */
  async stop() {
    this.#isStopping = true;
    this.#draw();
    const { id, transport } = this.sent;
    if (transport !== "background") this.#abort.abort();
    // Without an id it is stopped as soon as it has one.
    else if (id !== undefined) await this.#cancel(id);
  }

  /** Its calls have been answered: they are not asked for again. */
  answered() {
    this.sent.isAnswered = true;
    this.#actions.changed();
    this.#draw();
  }

  /** Leaves the response to itself. */
  leave() {
    this.#abort.abort();
  }

  /** Goes on with what a refused key has interrupted, after the last event. */
  followAgain() {
    const { id, isOpen, transport } = this.sent;
    if (this.#fault === undefined || !isOpen || id === undefined || transport !== "background") return;
    this.#fault = undefined;
    this.#draw();
    void this.#take(follow(id, this.#abort.signal, this.#last), false);
  }

  /** @param {string} id */
  async #cancel(id) {
    try {
      const response = await cancel(id);
      this.#abort.abort();
      this.#show(response);
    } catch (error) {
      this.#isStopping = false;
      this.#fail(error);
    }
  }

  /**
   * @param {AsyncGenerator<import("./api.js").Arrival[]>} batches
   * @param {boolean} isTimed whether the time of arrival says when an event was made
   */
  async #take(batches, isTimed) {
    try {
      for await (const batch of batches) {
        const at = performance.now() - this.#times.start;
        for (const { json, event } of batch) this.#event(json, event, isTimed ? at : undefined);
        keepInView();
      }
      this.#finished();
    } catch (error) {
      if (!this.#abort.signal.aborted) this.#fail(error);
      else if (this.sent.isOpen) this.#end("Stopped.");
    }
  }

  /** @param {string} json @param {Record<string, any>} event @param {number | undefined} at */
  #event(json, event, at) {
    this.#record.add(json, /** @type {any} */ (event), at);
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

  /** @param {Record<string, any>} response as it is */
  #show(response) {
    this.#answer.show(response);
    if (["queued", "in_progress"].includes(response.status)) this.#draw();
    else this.#finished();
  }

  #finished() {
    const { response } = this.#answer;
    this.#end("");
    if (!response) return;
    this.#actions.ended(this, response);
    const text = this.#answer.items
      .flatMap(({ type, content }) => (type === "message" ? content : []))
      .map((part) => part.text ?? "")
      .join(" ");
    announce(response.status === "completed" ? `Answer: ${text}` : `The response is ${response.status}.`);
  }

  /** @param {string} note */
  #end(note) {
    this.sent.isOpen = false;
    this.#isStopping = false;
    this.#note = note;
    this.#actions.changed();
    this.#draw();
  }

  /** @param {unknown} error */
  #fail(error) {
    const where = error instanceof ApiFault && error.param ? ` (${error.param})` : "";
    this.#fault = `${error instanceof Error ? error.message : String(error)}${where}`;
    // A run goes on without whoever could not follow it.
    const goesOn =
      this.sent.transport === "background" &&
      this.sent.id !== undefined &&
      !(error instanceof ApiFault && error.status === 404);
    if (goesOn) this.#draw();
    else this.#end("");
  }

  #draw() {
    const { id, isOpen } = this.sent;
    const { response } = this.#answer;
    const error = response?.error;
    const cut = response?.incomplete_details?.reason;
    render(
      html`
        <h2 class="unseen">Request</h2>
        ${this.#input.element}
        ${this.#answer.element}
        ${error ? html`<p class="notice bad" role="alert">${error.message}</p>` : nothing}
        ${cut ? html`<p class="notice">The response is incomplete: ${cut.replaceAll("_", " ")}.</p>` : nothing}
        ${
          this.#fault
            ? html`<div class="notice bad" role="alert">
                <p>${this.#fault}</p>
                ${isOpen ? html`<button type="button" @click=${() => this.followAgain()}>Follow again</button>` : nothing}
              </div>`
            : nothing
        }
        ${this.#note ? html`<p class="notice">${this.#note}</p>` : nothing}
        ${isOpen || this.sent.isAnswered ? nothing : this.#callsTemplate()}
        <footer class="turn-footer">
          ${isOpen && !this.#fault ? html`<span class="tag busy"><span class="busy-dot" aria-hidden="true">●</span> ${this.#isStopping ? "stopping" : (response?.status ?? "sending").replaceAll("_", " ")}</span>` : statusTag(response?.status)}
          ${isOpen ? nothing : this.#figures()}
          ${id === undefined ? nothing : html`<a href="#/responses/${id}">Look</a>`}
          ${
            id === undefined || isOpen || !this.sent.isStored
              ? nothing
              : html`<button type="button" class="plain" @click=${() => this.#actions.branch(id)}>Branch from here</button>`
          }
        </footer>
      `,
      this.element,
    );
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
    return html`<form class="outputs stack" @submit=${(/** @type {Event} */ event) => this.#sendOutputs(event, calls)}>
      ${calls.map(
        ({ call_id: call, name }) => html`<div>
          <label for="output-${call}">Output of <code>${name}</code></label>
          <textarea
            id="output-${call}"
            class="code"
            rows="2"
            .value=${this.#outputs.get(call) ?? ""}
            @input=${(/** @type {Event} */ event) => this.#outputs.set(call, /** @type {HTMLTextAreaElement} */ (event.target).value)}
          ></textarea>
        </div>`,
      )}
      ${requests.map(
        ({ id: request, server_label: label, name }) => html`<div class="buttons">
          <span>May <code>${label}.${name}</code> be called?</span>
          <button type="button" class="primary" @click=${() => this.#approve(request, true)}>Approve</button>
          <button type="button" @click=${() => this.#approve(request, false)}>Deny</button>
        </div>`,
      )}
      ${calls.length > 0 ? html`<div class="buttons"><button class="primary" type="submit">Send ${calls.length > 1 ? "outputs" : "output"}</button></div>` : nothing}
    </form>`;
  }

  /** @param {Event} event @param {Record<string, any>[]} calls */
  #sendOutputs(event, calls) {
    event.preventDefault();
    const input = calls.map(({ type, call_id: call }) => ({
      type: `${type}_output`,
      call_id: call,
      output: this.#outputs.get(call) ?? "",
    }));
    const text = calls.map(({ name, call_id: call }) => `${name}: ${this.#outputs.get(call) ?? ""}`);
    this.#actions.answer(this, input, text.join("\n"));
  }

  /** @param {string} request @param {boolean} approve */
  #approve(request, approve) {
    const input = [{ type: "mcp_approval_response", approval_request_id: request, approve }];
    this.#actions.answer(this, input, approve ? "Approved." : "Denied.");
  }
}

/** A stored response; one that is being stored is waited for. @param {string} id @param {number} attempts */
async function retrieve(id, attempts) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await callJson(`/v1/responses/${encodeURIComponent(id)}`);
    } catch (error) {
      if (!(error instanceof ApiFault) || error.status !== 404 || attempt >= attempts) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, STORED_PAUSE_MS));
  }
}

let isScrolling = false;

/** Keeps the end of the page in view for who is there already. */
function keepInView() {
  const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
  if (isScrolling || scrollHeight - clientHeight - scrollTop > 120) return;
  isScrolling = true;
  requestAnimationFrame(() => {
    isScrolling = false;
    scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  });
}

/** What was attached, in a line. @param {import("./request-body.js").Attachment} attachment */
export function attachmentLabel({ name, size: bytes }) {
  return `${name} (${size(bytes)})`;
}
