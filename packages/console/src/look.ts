import { html, nothing, render } from "lit-html";
import type { ListedResponse as Listed } from "../api-types.d.ts";
import { Answer } from "./answer.ts";
import { ApiFault, callJson } from "./api.ts";
import { cacheInWords } from "./cache-words.ts";
import { EventRecord, keepRecord, recordOf } from "./event-record.ts";
import { count, duration, moment, money } from "./format.ts";
import { ItemView, statusTag } from "./item-view.ts";
import type { ApiObject, Parsed } from "./json.ts";
import { moderationCard } from "./judgement.ts";
import { figures } from "./list-and-one.ts";
import { LongText } from "./long-text.ts";
import { PromptView } from "./prompt-view.ts";
import { RawMessages } from "./raw-messages.ts";
import { responsesList } from "./responses-list.ts";
import { cancel, follow } from "./sending.ts";
import { listsResponses } from "./session.ts";
import { linkButton } from "./share.ts";
import { Timeline } from "./timeline.ts";
import type { Timing } from "./timing.ts";
import type { View } from "./view.ts";
import { waterfall } from "./waterfall.ts";

/**
 * Responses. `#/responses` lists the stored ones. `#/responses/{id}` shows the items, events, figures and raw messages
 * of one.
 */

/** Items of the input that are loaded at once. */
const PAGE = 100;

/** A response is listed a moment after its end. How often its entry is asked for, and the time between. Milliseconds. */
const LISTED_TRIES = 10;
const LISTED_AGAIN_MS = 300;

export function lookView(section: HTMLElement): View {
  let looked: Looked | undefined;
  const list = responsesList();
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
          <button type="submit">Open</button>
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
      else list.hide?.();
    },
    hide() {
      list.hide?.();
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
  #eventsNote = "";
  #json: LongText | undefined;
  #prompt: PromptView;
  /** The messages that were kept with the response. */
  #raw: RawMessages | undefined;
  /** The response as it is listed: with its time and cost. */
  #listed: Listed | undefined;

  constructor(id: string) {
    this.id = id;
    this.#prompt = new PromptView(id);
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
      const response = await this.#retrieve();
      const isRunning = isOpen(response.status);
      const listed = isRunning ? undefined : this.#learnListed();
      await Promise.all([this.#moreInput(), this.#events(response), listed]);
      if (isRunning) await Promise.all([this.#retrieve(), this.#learnListed()]);
      this.#isWhole = true;
    } catch (error) {
      this.#fail(error);
    }
  }

  async #retrieve() {
    const response = await callJson(this.#path("?include[]=timing"), { signal: this.#abort.signal });
    const { input_messages: input, output_messages: output } = response;
    this.#raw = input || output ? new RawMessages([...(input ?? []), ...(output ?? [])]) : undefined;
    this.#answer.show(response);
    this.#draw();
    return response;
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
          ${waterfall(response, response.timing)} ${this.#prompt.element}
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
    const timing: Timing | undefined = response.timing ?? undefined;
    const first = timing?.rounds.find(({ first_token_ms: ms }) => ms !== null)?.first_token_ms;
    const servers = new Set(timing?.rounds.flatMap(({ server }) => server ?? []));
    const attempts = timing?.rounds.reduce((sum, round) => sum + round.attempts, 0) ?? 0;
    const took = isOpen(response.status) ? undefined : this.#took(response, timing);
    const rows: [string, string][] = [
      ["Model", response.model],
      ...(servers.size === 0 ? [] : ([["Model server", [...servers].join(", ")]] as [string, string][])),
      ...(attempts > (timing?.rounds.length ?? 0) ? ([["Attempts", count(attempts)]] as [string, string][]) : []),
      ["Created", moment(created)],
      ...(took === undefined ? [] : ([["Took", took]] as [string, string][])),
      ...(first == null ? [] : ([["First token after", duration(first)]] as [string, string][])),
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
    return figures(rows);
  }

  /** The time of an ended response. The response itself has seconds, its times and its entry in the list have milliseconds. */
  #took({ created_at: created, completed_at: completed }: ApiObject, timing: Timing | undefined) {
    const exact = timing?.settled_ms || this.#listed?.duration_ms;
    if (exact) return duration(exact);
    if (!completed) return undefined;
    return completed > created ? duration((completed - created) * 1_000) : "less than 1 s";
  }

  #rawTemplate({ input_messages: input, output_messages: output }: ApiObject) {
    if (!this.#raw) return nothing;
    return html`<section class="card stack">
      <h2>Raw messages</h2>
      <p class="note">As the model read and wrote them: ${count(input?.length ?? 0)} in, ${count(output?.length ?? 0)} out.</p>
      ${this.#raw.element}
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
