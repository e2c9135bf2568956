import { html, nothing, render } from "lit-html";
import { Answer } from "./answer.ts";
import { ApiFault, callJson } from "./api.ts";
import { cacheInWords } from "./cache-words.ts";
import { EventRecord, keepRecord, recordOf } from "./event-record.ts";
import { count, duration, moment, money } from "./format.ts";
import { ItemView, statusTag } from "./item-view.ts";
import type { ApiObject, Parsed } from "./json.ts";
import { moderationCard } from "./judgement.ts";
import { LongText } from "./long-text.ts";
import type { Listed } from "./responses-list.ts";
import { ResponsesList } from "./responses-list.ts";
import { cancel, follow } from "./sending.ts";
import { listsResponses } from "./session.ts";
import { linkButton } from "./share.ts";
import { Timeline } from "./timeline.ts";
import type { View } from "./view.ts";
import { waterfall } from "./waterfall.ts";

/**
 * Responses. `#/responses` lists the stored ones. `#/responses/{id}` shows the items, events, figures and raw messages
 * of one.
 */

/** Items of the input that are loaded at once. */
const PAGE = 100;

/** Raw messages that are shown at first and added with each click on "more". */
const MESSAGES = 50;

/** A response is listed a moment after its end. How often its entry is asked for, and the time between. Milliseconds. */
const LISTED_TRIES = 10;
const LISTED_AGAIN_MS = 300;

export function lookView(section: HTMLElement): View {
  let looked: Looked | undefined;
  const list = new ResponsesList();
  function open(event: Event) {
    event.preventDefault();
    const field = section.querySelector("#response-id") as HTMLInputElement | null;
    const id = field?.value.trim();
    if (id) location.hash = `#/responses/${encodeURIComponent(id)}`;
  }

  function draw(id: string) {
    render(
      html`
        <h1 class="unseen">Responses</h1>
        <form class="look-up" @submit=${open}>
          <label class="unseen" for="response-id">Id of a response</label>
          <input dir="auto" id="response-id" placeholder="resp_…" spellcheck="false" autocomplete="off" .value=${id} />
          <button type="submit">Show</button>
        </form>
        ${looked?.element ?? list.element}
      `,
      section,
    );
  }

  return {
    show({ path: [id = ""], query }) {
      if (looked?.id !== id || !looked.isCurrent) {
        looked?.leave();
        looked = id === "" ? undefined : new Looked(id);
        void looked?.begin();
      }
      draw(id);
      if (id === "") list.show(query);
      else list.hide();
    },
    hide() {
      list.hide();
      // A response that runs is looked at anew when it is shown again.
      looked?.leave();
    },
    signedIn() {
      if (looked) {
        looked.leave();
        looked = new Looked(looked.id);
        void looked.begin();
      }
    },
  };
}

class Looked {
  id;
  element = document.createElement("div");
  /** True if the shown response is the one that the server has. */
  isCurrent = true;
  /** True if the response has ended, and all of it is here. */
  #isWhole = false;
  #abort = new AbortController();
  #answer = new Answer();
  #input = document.createElement("div");
  /** where the input goes on */
  #inputAfter: string | undefined;
  #fault: string | undefined;
  #timeline: Timeline | undefined;
  #record: EventRecord | undefined;
  #eventsNote = "";
  #json: LongText | undefined;
  #messages = MESSAGES;
  /** The response as it is listed: with its time and cost. */
  #listed: Listed | undefined;

  constructor(id: string) {
    this.id = id;
    this.element.className = "looked stack";
    this.#input.className = "answer";
    this.#draw();
  }

  /** Stops what is under way: it is to be asked for anew. */
  leave() {
    if (this.#isWhole) return;
    this.isCurrent = false;
    this.#abort.abort();
  }

  async begin() {
    try {
      const response = await callJson(this.#path(), { signal: this.#abort.signal });
      this.#answer.show(response);
      this.#draw();
      const isRunning = isOpen(response.status);
      const listed = isRunning ? undefined : this.#learnListed();
      await Promise.all([this.#moreInput(), this.#events(response), listed]);
      if (isRunning) await this.#learnListed();
      this.#isWhole = true;
    } catch (error) {
      this.#fail(error);
    }
  }

  #path(rest: string = "") {
    return `/v1/responses/${encodeURIComponent(this.id)}${rest}`;
  }

  #fail(error: unknown) {
    if (this.#abort.signal.aborted) return;
    const isMissing = error instanceof ApiFault && error.status === 404;
    const why = recordOf(this.id) ? "it is still running, or was not stored." : "it was never stored, or is deleted.";
    this.#fault = isMissing
      ? `There is no response ${this.id}: ${why}`
      : String(error instanceof Error ? error.message : error);
    this.#draw();
  }

  #moreInput = async () => {
    const after = this.#inputAfter === undefined ? "" : `&after=${this.#inputAfter}`;
    const page = await callJson(this.#path(`/input_items?order=asc&limit=${PAGE}${after}`), {
      signal: this.#abort.signal,
    });
    this.#input.append(...page.data.map((item: ApiObject) => new ItemView(item).element));
    this.#inputAfter = page.has_more ? page.last_id : undefined;
    this.#draw();
  };

  async #learnListed() {
    if (!listsResponses()) return;
    for (let tries = 0; tries < LISTED_TRIES && !this.#abort.signal.aborted; tries += 1) {
      if (tries > 0) await new Promise((done) => setTimeout(done, LISTED_AGAIN_MS));
      const path = `/v1/responses?id=${encodeURIComponent(this.id)}`;
      const page = await callJson(path, { signal: this.#abort.signal }).catch(() => undefined);
      this.#listed = page?.data[0];
      if (!page || (this.#listed && !isOpen(this.#listed.status))) break;
    }
    this.#draw();
  }

  /** Shows the events that this page has seen, else those of the log. */
  async #events(response: ApiObject) {
    const seen = recordOf(this.id);
    if (seen && !isOpen(response.status)) {
      this.#timeline = new Timeline(seen);
      this.#draw();
      return;
    }
    if (!response.background) {
      this.#eventsNote =
        "Only background responses have an event log. For others this page shows the events that it has received.";
      this.#draw();
      return;
    }
    const record = new EventRecord();
    this.#record = record;
    this.#timeline = new Timeline(record);
    this.#draw();
    for await (const batch of follow(this.id, this.#abort.signal)) {
      for (const { json, event } of batch) {
        record.add(json, event as Parsed, undefined);
        if (isOpen(response.status)) this.#answer.apply(event);
      }
      this.#timeline.draw();
    }
    // A record that the page has made itself has times.
    if (!seen) keepRecord(this.id, record);
    this.#draw();
  }

  #cancel = async () => {
    try {
      const response = await cancel(this.id);
      this.#answer.show(response);
      this.#draw();
    } catch (error) {
      this.#fail(error);
    }
  };

  #draw() {
    const { response } = this.#answer;
    render(
      html`
        ${this.#fault ? html`<p class="notice bad" dir="auto" role="alert">${this.#fault}</p>` : nothing}
        ${response ? this.#template(response) : this.#fault ? nothing : html`<p class="note">Asking…</p>`}
      `,
      this.element,
    );
  }

  #template(response: ApiObject) {
    const { id } = this;
    return html`
      <header class="card stack">
        <div class="buttons">
          <h2><code>${id}</code></h2>
          ${statusTag(response.status)} ${response.background ? html`<span class="tag">background</span>` : nothing}
        </div>
        ${this.#figures(response)}
        ${response.error ? html`<p class="notice bad" dir="auto">${response.error.code}: ${response.error.message}</p>` : nothing}
        ${response.incomplete_details ? html`<p class="notice">Incomplete: ${String(response.incomplete_details.reason).replaceAll("_", " ")}.</p>` : nothing}
        <div class="buttons">
          <a class="button" href="#/chat/${id}">Open in the chat</a>
          <a class="button" href="#/chat/${id}?end">Branch from here</a>
          ${linkButton(`#/responses/${id}`)}
          ${response.previous_response_id ? html`<a class="button" href="#/responses/${response.previous_response_id}">Previous response</a>` : nothing}
          ${response.background && isOpen(response.status) ? html`<button type="button" class="danger" @click=${this.#cancel}>Cancel</button>` : nothing}
        </div>
      </header>
      <div class="columns">
        <div class="stack">
          <section class="card stack">
            <h2>Input</h2>
            ${this.#input}
            ${this.#inputAfter === undefined ? nothing : html`<button type="button" @click=${() => this.#moreInput().catch((error) => this.#fail(error))}>Show more</button>`}
          </section>
          <section class="card stack">
            <h2>Output</h2>
            ${response.output.length === 0 && !isOpen(response.status) ? html`<p class="note">None.</p>` : nothing} ${this.#answer.element}
          </section>
          ${moderationCard(response.moderation)} ${this.#rawTemplate(response)}
        </div>
        <div class="stack">
          ${waterfall(response, recordOf(this.id)?.events ?? this.#record?.events ?? [])}
          <section class="card stack">
            <h2>Events</h2>
            ${this.#eventsNote ? html`<p class="note">${this.#eventsNote}</p>` : nothing} ${this.#timeline?.element ?? nothing}
          </section>
          <details class="card" @toggle=${(event: Event) => this.#toggleJson(event, response)}>
            <summary><h2>JSON</h2></summary>
            ${this.#json?.element ?? nothing}
          </details>
        </div>
      </div>
    `;
  }

  #figures(response: ApiObject) {
    const { usage, created_at: created } = response;
    const seen = recordOf(this.id)?.events ?? this.#record?.events ?? [];
    const token = seen.find(({ type, at }) => at !== undefined && type.endsWith(".delta"))?.at;
    const last = seen.at(-1)?.at;
    const took = isOpen(response.status) ? undefined : this.#took(response, last);
    const rows: [string, string][] = [
      ["Model", response.model],
      ["Created", moment(created)],
      ...(took === undefined ? [] : ([["Took", took]] as [string, string][])),
      ...(token === undefined ? [] : ([["First token", duration(token)]] as [string, string][])),
      ...(last === undefined ? [] : ([["Seen here in", duration(last)]] as [string, string][])),
    ];
    if (usage) {
      const { input_tokens_details: input, output_tokens_details: output } = usage;
      rows.push(["Input tokens", count(usage.input_tokens)], ["cached", count(input?.cached_tokens)]);
      rows.push(["Output tokens", count(usage.output_tokens)], ["of them reasoning", count(output?.reasoning_tokens)]);
      rows.push(["Tokens in all", count(usage.total_tokens)]);
    }
    const cache = cacheInWords(response);
    if (cache) rows.push(["Prompt cache", cache]);
    if (this.#listed?.cost_usd) rows.push(["Cost", money(this.#listed.cost_usd)]);
    return html`<dl class="figures">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
  }

  /**
   * The time of an ended response. The response itself has seconds, its entry in the list and the events that this page has seen have milliseconds.
   * @param last when the last event arrived, in milliseconds since the request
   */
  #took({ created_at: created, completed_at: completed }: ApiObject, last: number | undefined) {
    const exact = this.#listed?.duration_ms || last;
    if (exact) return duration(exact);
    if (!completed) return undefined;
    return completed > created ? duration((completed - created) * 1_000) : "less than 1 s";
  }

  #rawTemplate({ input_messages: input, output_messages: output }: ApiObject) {
    const messages = [...(input ?? []), ...(output ?? [])];
    if (messages.length === 0) return nothing;
    return html`<section class="card stack">
      <h2>Raw messages</h2>
      <p class="note">As the model read and wrote them${input ? `: ${count(input.length)} in, ${count(output?.length ?? 0)} out` : ""}.</p>
      <ol class="raw">
        ${messages.slice(0, this.#messages).map(rawMessageTemplate)}
      </ol>
      ${
        messages.length > this.#messages
          ? html`<button
              type="button"
              @click=${() => {
                this.#messages += MESSAGES;
                this.#draw();
              }}
            >
              Show more
            </button>`
          : nothing
      }
    </section>`;
  }

  #toggleJson(event: Event, response: ApiObject) {
    const { open } = event.currentTarget as HTMLDetailsElement;
    this.#json = open
      ? new LongText(JSON.stringify(response, null, 2), { fileName: `${this.id}.json`, dir: "ltr" })
      : undefined;
    this.#draw();
  }
}

function isOpen(status: string) {
  return status === "queued" || status === "in_progress";
}

const rawTexts: WeakMap<object, LongText> = new WeakMap();

/** A message in its engine's own form. */
function rawMessageTemplate(message: ApiObject) {
  const { author, role = author?.role, channel, recipient, content } = message;
  const name = author?.name;
  let text = rawTexts.get(message);
  if (!text) {
    text = new LongText(rawContent(content));
    rawTexts.set(message, text);
  }
  return html`<li class="item">
    <header class="item-heading">
      <span class="item-title">${role ?? "message"}</span>
      ${name ? html`<code>${name}</code>` : nothing} ${channel ? html`<span class="tag">${channel}</span>` : nothing}
      ${recipient ? html`<span class="tag">to ${recipient}</span>` : nothing}
    </header>
    <div class="part code">${text.element}</div>
  </li>`;
}

function rawContent(content: unknown) {
  if (typeof content === "string") return content;
  const parts = Array.isArray(content) ? content : [content];
  return parts.map((part) => (typeof part?.text === "string" ? part.text : JSON.stringify(part, null, 2))).join("\n");
}
