import { html, nothing } from "lit-html";
import { legend } from "./chart-view.ts";
import { count, duration } from "./format.ts";
import type { ApiObject } from "./json.ts";
import { callName, isRun, type TimedRound, type Timing, whereTimeWent } from "./timing.ts";

/** The course of a response: its waits, rounds and items as bars over time. */

const KINDS = {
  wait: { label: "waiting", colour: "var(--series-4)" },
  prompt: { label: "until the first token", colour: "var(--series-5)" },
  writing: { label: "writing", colour: "var(--color-accent)" },
  call: { label: "tool", colour: "var(--series-1)" },
  item: { label: "thought, text, call", colour: "var(--series-2)" },
  gateway: { label: "this gateway", colour: "var(--series-6)" },
};

type Kind = keyof typeof KINDS;

interface Bar {
  name: string;
  note?: string;
  /** One after another, in milliseconds since the request was accepted. */
  parts: { kind: Kind; from: number; until: number }[];
}

/** Bars that are shown. */
const MAX_BARS = 100;

const PURPOSES: Record<TimedRound["purpose"], (round: number) => string> = {
  round: (round) => `Round ${round}`,
  take_up: () => "Continued",
  summary: () => "Summary",
};

/** @param timing undefined if the response has none */
export function waterfall({ output }: ApiObject, timing: Timing | undefined | null) {
  return html`<section class="card stack">
    <h2>Where the time went</h2>
    ${timing ? timesTemplate(timing, output ?? []) : html`<p class="note">${timing === null ? "It is known when the response has ended." : "No times are stored with this response."}</p>`}
  </section>`;
}

function timesTemplate(timing: Timing, output: readonly ApiObject[]) {
  const { most, others } = whereTimeWent(timing, output);
  const bars = barsOf(timing, output);
  const kinds = new Set(bars.flatMap(({ parts }) => parts.map(({ kind }) => kind)));
  const omitted = (timing.rounds_omitted ?? 0) + (timing.items_omitted ?? 0) + Math.max(0, bars.length - MAX_BARS);
  return html`
    <p class="where-time" dir="auto"><strong>${most}</strong></p>
    ${others.length > 0 ? html`<p class="note" dir="auto">${others.join(" · ")}</p>` : nothing}
    <ol class="grid grid-cols-[minmax(4rem,max-content)_minmax(4rem,1fr)_auto] gap-x-3 gap-y-1" aria-label="Times">
      ${bars.slice(0, MAX_BARS).map((bar) => barTemplate(bar, Math.max(1, timing.settled_ms)))}
    </ol>
    ${omitted > 0 ? html`<p class="note">${count(omitted)} more are not shown.</p>` : nothing}
    ${legend(Object.entries(KINDS).flatMap(([kind, { label, colour }]) => (kinds.has(kind as Kind) ? [[label, colour]] : [])))}
  `;
}

function barTemplate({ name, note, parts }: Bar, end: number) {
  const percent = (ms: number) => `${((100 * ms) / end).toFixed(2)}%`;
  const [from, until] = [parts[0]?.from ?? 0, parts.at(-1)?.until ?? 0];
  const styleOf = ({ kind, from: begin, until: stop }: Bar["parts"][number], index: number) =>
    `${index === 0 ? `margin-inline-start: min(${percent(from)}, 100% - 3px);` : ""} width: ${percent(stop - begin)}; background: ${KINDS[kind].colour}`;
  return html`<li class="col-span-full grid grid-cols-subgrid items-center text-sm">
    <span class="cut max-w-44" dir="auto">${name}</span>
    <span class="flex h-3.5 overflow-hidden rounded-sm bg-sunken">${parts.map((part, index) => html`<span class="min-w-0.5" .style=${styleOf(part, index)}></span>`)}</span>
    <span class="text-end time">${duration(until - from)}<span class="unseen">, from ${duration(from)} on</span></span>
    ${note ? html`<span class="note col-start-2 -col-end-1" dir="auto">${note}</span>` : nothing}
  </li>`;
}

function barsOf({ waited_ms: waited, rounds, items, settled_ms: settled }: Timing, output: readonly ApiObject[]) {
  const known = new Map(output.map((item) => [item.id, item]));
  const bar = (name: string, kind: Kind, from: number, until: number, note?: string): Bar[] =>
    until > from || kind === "item" || kind === "call" ? [{ name, note, parts: [{ kind, from, until }] }] : [];
  let number = 0;
  const ofRounds = rounds.map((round): Bar => {
    if (round.purpose === "round") number += 1;
    return { name: PURPOSES[round.purpose](number), note: roundInWords(round), parts: partsOfRound(round) };
  });
  const ofItems = items.flatMap(({ id, began_ms: from, ended_ms: until }) => {
    const item = known.get(id) ?? { type: "item" };
    const isCall = String(item.type).endsWith("_call");
    const name = isCall ? callName(item) : String(item.type).replaceAll("_", " ");
    return bar(name, isRun(item) ? "call" : "item", from, until);
  });
  const work = [...ofRounds, ...ofItems].sort((one, other) => (one.parts[0]?.from ?? 0) - (other.parts[0]?.from ?? 0));
  const end = Math.max(waited, ...rounds.map((round) => round.ended_ms), ...items.map((item) => item.ended_ms));
  return [
    ...bar("Conversation", "wait", 0, waited, "An earlier turn had it."),
    ...work,
    ...bar("Ending", "gateway", end, settled),
  ];
}

function partsOfRound({ began_ms: began, queued_ms: queued, first_token_ms: first, ended_ms: ended }: TimedRound) {
  const asked = Math.min(began + queued, ended);
  const token = Math.max(asked, first ?? ended);
  const parts: Bar["parts"] = [
    { kind: "wait", from: began, until: asked },
    { kind: "prompt", from: asked, until: token },
    { kind: "writing", from: token, until: ended },
  ];
  const long = parts.filter(({ from, until }) => until > from);
  return long.length > 0 ? long : parts.slice(-1);
}

function roundInWords(round: TimedRound) {
  const { server, queued_ms: queued, first_token_ms: first, began_ms: began, attempts, error } = round;
  const cached = round.cached_tokens > 0 ? ` (${count(round.cached_tokens)} cached)` : "";
  return [
    server ?? "",
    queued > 0 ? `${duration(queued)} in the queue` : "",
    first === null ? "" : `first token after ${duration(first - began)}`,
    `${count(round.input_tokens)}${cached} → ${count(round.output_tokens)} tokens`,
    attempts > 1 ? `${attempts} attempts` : "",
    error ? `ended with ${error}` : "",
  ]
    .filter((part) => part !== "")
    .join(" · ");
}
