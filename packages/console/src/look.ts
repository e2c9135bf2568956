import { html, nothing, render } from "lit-html";
import { Answer } from "./answer.ts";
import { ApiFault, callJson } from "./api.ts";
import { cacheInWords } from "./cache-words.ts";
import { faultNotice, messageWithField } from "./dialogs.ts";
import { EventRecord, keepRecord, recordOf } from "./event-record.ts";
import { foldedPart } from "./folded-part.ts";
import { count, duration, moment, money } from "./format.ts";
import { type ItemView, inputElement } from "./item-view.ts";
import type { ApiObject, Parsed } from "./json.ts";
import { moderationCard } from "./judgement.ts";
import { partsOf } from "./list-and-one.ts";
import { LongText } from "./long-text.ts";
import { PagedList } from "./paged-list.ts";
import { promptCard } from "./prompt-view.ts";
import { rawMessages } from "./raw-messages.ts";
import { type PagePart, partOf, type Resource } from "./resource.ts";
import { responsesList } from "./responses-list.ts";
import { cancel, follow } from "./sending.ts";
import { listsResponses } from "./session.ts";
import { linkButton } from "./share.ts";
import { retrieve, runs } from "./stored-response.ts";
import { Timeline } from "./timeline.ts";
import type { Timing } from "./timing.ts";
import type { View } from "./view.ts";
import { waterfall } from "./waterfall.ts";

/**
 * Responses. `#/responses` lists the stored ones. `#/responses/{id}` shows the items, events, figures and raw messages
 * of one.
 */

/** A response, with its entry in the list where that is known: it has the time and the cost. */
type Response = ApiObject & { id: string; listed?: ApiObject };

/** New events are on the page after this time. Milliseconds. */
const DRAWN_MS = 50;

/** A response is listed a moment after its end: so long its entry is asked for. Seconds. */
const LISTED_WITHIN = 10;

const RESPONSE: Resource<Response> = {
  title: "Responses",
  source: "/v1/responses",
  address: "#/responses",
  nameOf: ({ id }) => id,
  columns: [],
  none: "",
  everyMs: 1_000,
  load,
  isChanging: (response) => runs(response) || (listsResponses() && !response.listed && isRecent(response)),
  actions: [
    { label: "Open in the chat", icon: "chats", href: ({ id }) => `#/chat/${id}` },
    { label: "Branch from here", icon: "branch", href: ({ id }) => `#/chat/${id}?end` },
    {
      label: "Previous response",
      icon: "previous",
      isFor: ({ previous_response_id: previous }) => Boolean(previous),
      href: ({ previous_response_id: previous }) => `#/responses/${previous}`,
    },
    {
      label: "Cancel",
      icon: "stop",
      isDangerous: true,
      isFor: (response) => response.background && runs(response),
      does: async ({ id }) => ({ item: await cancel(id) }),
    },
  ],
  page: {
    status: ({ status }) => status,
    figures: (response) => [figuresOf(response)],
    more: ({ id, background, error, incomplete_details: cut }) => html`
      ${error ? html`<p class="notice bad" dir="auto">${error.code}: ${error.message}</p>` : nothing}
      ${cut ? html`<p class="notice">Incomplete: ${String(cut.reason).replaceAll("_", " ")}.</p>` : nothing}
      <p class="buttons">${background ? html`<span class="tag">background</span>` : nothing} ${linkButton(`#/responses/${id}`)}</p>
    `,
    parts,
  },
};

async function load(id: string): Promise<Response> {
  const { signal } = new AbortController();
  try {
    const response = await retrieve(id, 1, signal);
    if (runs(response) || !listsResponses()) return response;
    const page = await callJson(`/v1/responses?id=${encodeURIComponent(id)}`).catch(() => undefined);
    const [listed] = page?.data ?? [];
    return { ...response, listed: listed && !runs(listed) ? listed : undefined };
  } catch (error) {
    if (!(error instanceof ApiFault) || error.status !== 404) throw error;
    const why = recordOf(id) ? "it is still running, or was not stored." : "it was never stored, or is deleted.";
    throw new Error(`There is no response ${id}: ${why}`);
  }
}

function isRecent({ created_at: created, completed_at: completed }: Response) {
  return Date.now() / 1_000 - (completed ?? created) < LISTED_WITHIN;
}

function figuresOf(response: Response) {
  const { usage, created_at: created, listed } = response;
  const timing: Timing | undefined = response.timing ?? undefined;
  const rounds = timing?.rounds ?? [];
  const first = rounds.find(({ first_token_ms: ms }) => ms !== null)?.first_token_ms;
  const servers = new Set(rounds.flatMap(({ server }) => server ?? []));
  const attempts = rounds.reduce((sum, round) => sum + round.attempts, 0);
  const { input_tokens_details: input, output_tokens_details: output } = usage ?? {};
  const rows: [string, unknown][] = [
    ["Model", response.model],
    ["Model server", [...servers].join(", ")],
    ["Attempts", attempts > rounds.length && count(attempts)],
    ["Created", moment(created)],
    ["Took", !runs(response) && timeOf(response, timing)],
    ["First token after", first != null && duration(first)],
    ["Input tokens", usage && count(usage.input_tokens)],
    ["cached", usage && count(input?.cached_tokens)],
    ["Output tokens", usage && count(usage.output_tokens)],
    ["of them reasoning", usage && count(output?.reasoning_tokens)],
    ["Tokens in all", usage && count(usage.total_tokens)],
    ["Prompt cache", cacheInWords(response)],
    ["Cost", listed?.cost_usd && money(listed.cost_usd)],
  ];
  return rows.filter(([, value]) => value);
}

/** The time of an ended response. The response itself has seconds, its times and its entry in the list have milliseconds. */
function timeOf({ created_at: created, completed_at: completed, listed }: Response, timing: Timing | undefined) {
  const exact = timing?.settled_ms || listed?.duration_ms;
  if (exact) return duration(exact);
  if (!completed) return undefined;
  return completed > created ? duration((completed - created) * 1_000) : "less than 1 s";
}

/** The items of a response, and what explains it. */
function parts(id: string, { refresh }: { refresh: () => void }): PagePart<Response>[] {
  const [items, explained] = [document.createElement("div"), document.createElement("div")];
  const input = new PagedList<Response>(`/v1/responses/${encodeURIComponent(id)}/input_items`, draw);
  const views = new WeakMap<ApiObject, ItemView>();
  let response: Response | undefined;
  let answer = new Answer();
  let raw: HTMLElement | undefined;
  let timeline: Timeline | undefined;
  let eventsNote = "";
  let fault = "";
  let abort = new AbortController();
  for (const element of [items, explained]) element.className = "stack";
  input.filter = { order: "asc", limit: "100" };

  /** Shows the events that this page has seen, else those of the log. */
  async function readEvents({ background, status }: Response) {
    const isRunning = runs({ status });
    const seen = recordOf(id);
    if (seen && !isRunning) {
      timeline = new Timeline(seen);
      return;
    }
    if (!background) {
      eventsNote =
        "Only background responses have an event log. For others this page shows the events that it has received.";
      return;
    }
    const record = new EventRecord();
    timeline = new Timeline(record);
    let isWaiting = false;
    const drawSoon = () => {
      if (isWaiting) return;
      isWaiting = true;
      setTimeout(() => {
        isWaiting = false;
        timeline?.draw();
        if (isRunning) draw();
      }, DRAWN_MS);
    };
    for await (const { json: text, event } of follow(id, abort.signal)) {
      record.add(text, event as Parsed, undefined);
      if (isRunning) answer.apply(event);
      drawSoon();
    }
    // A record that the page has made itself has times.
    if (!seen) keepRecord(id, record);
    if (isRunning) refresh();
  }

  async function showEvents(now: Response, signal: AbortSignal) {
    try {
      await readEvents(now);
    } catch (error) {
      if (!signal.aborted) fault = messageWithField(error);
    }
    draw();
  }

  function update(now: Response) {
    response = now;
    const { input_messages: sent, output_messages: written } = now;
    raw ??= sent || written ? rawMessages([...(sent ?? []), ...(written ?? [])]) : undefined;
    if (!runs(now)) answer.show(now);
    if (!input.items) void input.refresh();
    if (!timeline) void showEvents(now, abort.signal);
    draw();
  }

  /** A response that runs is looked at anew when it is shown again. */
  function hide() {
    if (!response || !runs(response)) return;
    abort.abort();
    abort = new AbortController();
    answer = new Answer();
    timeline = undefined;
    input.items = undefined;
  }

  function jsonText() {
    const text = JSON.stringify({ ...response, listed: undefined }, null, 2);
    return new LongText(text, { fileName: `${id}.json`, dir: "ltr" }).element;
  }

  function draw() {
    if (!response) return;
    const { input_messages: sent, output_messages: written, output, moderation, timing } = response;
    render(
      html`${faultNotice(fault || input.fault)}
        <section class="card stack">
          <h2>Input</h2>
          ${input.rows("None.", (all) => html`<div class="stack gap-3 answer">${all.map((item) => inputElement(item, views))}</div>`)}
        </section>
        <section class="card stack">
          <h2>Output</h2>
          ${output?.length === 0 && !runs(response) ? html`<p class="note">None.</p>` : nothing} ${answer.element}
        </section>
        ${moderationCard(moderation)}
        ${
          raw
            ? html`<section class="card stack">
                <h2>Raw messages</h2>
                <p class="note">As the model read and wrote them: ${count(sent?.length ?? 0)} in, ${count(written?.length ?? 0)} out.</p>
                ${raw}
              </section>`
            : nothing
        }`,
      items,
    );
    render(
      html`${waterfall(response, timing)} ${promptCard(id)}
        <section class="card stack">
          <h2>Events</h2>
          ${eventsNote ? html`<p class="note">${eventsNote}</p>` : nothing} ${timeline?.element ?? nothing}
        </section>
        ${foldedPart(html`<h2>JSON</h2>`, jsonText)}`,
      explained,
    );
  }

  return [{ element: items, update, hide }, { element: explained }];
}

export function lookView(view: HTMLElement): View {
  function open(event: SubmitEvent) {
    event.preventDefault();
    const id = String(new FormData(event.currentTarget as HTMLFormElement).get("id")).trim();
    if (id) location.hash = `#/responses/${encodeURIComponent(id)}`;
  }

  const byId = ([id = ""]: string[]) => html`<form class="buttons max-w-160" @submit=${open}>
    <label class="unseen" for="response-id">Id of a response</label>
    <input class="flex-1 font-mono" dir="auto" id="response-id" name="id" placeholder="resp_…" spellcheck="false" autocomplete="off" .value=${id} />
    <button type="submit">Open</button>
  </form>`;
  const list = responsesList();
  return partsOf(view, "Responses", ([id]) => (id ? partOf(RESPONSE, id) : list), byId);
}
