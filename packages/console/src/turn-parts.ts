import { html, nothing } from "lit-html";
import { type ChatOnPage, seenBy, type Turn } from "./chat-model.ts";
import { count, duration } from "./format.ts";
import { iconButton } from "./icons.ts";
import type { ApiObject } from "./json.ts";
import type { Connection } from "./sending.ts";
import { saysNothing } from "./stored-response.ts";
import type { Timing } from "./timing.ts";

/** Parts of a turn on the page. */

/** The text of a turn's question. */
export function questionOf({ items, text }: Turn): string {
  const { content = text } = items?.findLast(({ role }) => role === "user") ?? {};
  const texts = Array.isArray(content) ? content.map((part: ApiObject) => part.text ?? "").filter(Boolean) : [content];
  return texts.join("\n");
}

/**
 * The form of a question that is edited in its place.
 * @param close Called with the edited text, or without one.
 */
export function editForm(key: string, text: string, close: (edited?: string) => void) {
  const send = (event: Event) => {
    event.preventDefault();
    const edited = String(new FormData(event.currentTarget as HTMLFormElement).get("question"));
    if (edited.trim() !== "") close(edited);
  };
  return html`<form class="edit stack" @submit=${send}>
    <label class="unseen" for="edit-${key}">Edited question</label>
    <textarea dir="auto" id="edit-${key}" name="question" rows="3" .value=${text}></textarea>
    <div class="buttons">
      <button type="submit" class="primary">Ask in its place</button>
      <button type="button" @click=${() => close()}>Cancel</button>
    </div>
  </form>`;
}

/** The model servers that broke off and those that went on, in words; empty if none did. */
function takeUpsOf(response: ApiObject | undefined): string[] {
  const rounds: ApiObject[] = response?.timing?.rounds ?? [];
  const told = rounds.flatMap(({ purpose, server }, index) => {
    const before = rounds[index - 1]?.server;
    if (purpose !== "take_up" || before === undefined) return [];
    return [
      before === server
        ? `The model server ${server} broke off, and went on with the answer: nothing is lost, nothing is repeated.`
        : `The model server ${before} broke off; ${server} went on with the answer: nothing is lost, nothing is repeated.`,
    ];
  });
  return [...new Set(told)];
}

/** How a turn ended, where its answer does not show it. */
export function noticesTemplate(
  { isOpen, fault, note }: Turn,
  response: ApiObject | undefined,
  followAgain: () => void,
) {
  const cut = response?.incomplete_details?.reason;
  return html`
    ${response?.error ? html`<p class="notice bad" dir="auto" role="alert">${response.error.message}</p>` : nothing}
    ${response?.status === "completed" && !isOpen && saysNothing(response) ? html`<p class="notice">The model said nothing.</p>` : nothing}
    ${cut ? html`<p class="notice">The response is incomplete: ${cut.replaceAll("_", " ")}.</p>` : nothing}
    ${
      fault
        ? html`<div class="notice bad" role="alert">
            <p dir="auto">${fault}</p>
            ${isOpen ? html`<button type="button" @click=${followAgain}>Follow again</button>` : nothing}
          </div>`
        : nothing
    }
    ${note ? html`<p class="notice" dir="auto">${note}</p>` : nothing}
    ${takeUpsOf(response).map((words) => html`<p class="note" dir="auto">${words}</p>`)}
  `;
}

/**
 * The part of a turn that did not complete which the model will see, and what the user can do about it.
 * @param hasText whether the answer has text
 * @param drop takes the turn out of the chat, or back into it
 */
export function seenTemplate(turn: Turn, hasText: boolean, transcript: ChatOnPage, drop: () => void) {
  const seen = seenBy(turn);
  if (turn.status === "completed" && seen !== "nothing") return nothing;
  const words =
    seen === "nothing"
      ? "The model will not see this turn: your next message takes its place."
      : `The model will see the question and ${hasText ? "the answer as far as it is here" : "no answer"}.`;
  const isLast = transcript.chat.childrenOf(turn).length === 0;
  const goOn = () => transcript.goOn(turn, [{ type: "message", role: "user", content: "Continue." }], "Continue.");
  return html`<div class="buttons">
    <p class="note">${words}</p>
    ${
      isLast
        ? html`<div class="buttons">
            ${seen === "nothing" ? nothing : html`<button type="button" @click=${goOn}>Continue</button>`}
            ${seen !== "nothing" || turn.isDropped ? html`<button type="button" @click=${drop}>${turn.isDropped ? "Take back" : "Drop"}</button>` : nothing}
            <button type="button" @click=${() => transcript.again(turn)}>Ask again</button>
          </div>`
        : nothing
    }
  </div>`;
}

/** The turns that were put in the place of a turn, and it. */
export function siblingsTemplate(turn: Turn, transcript: ChatOnPage) {
  const siblings = transcript.chat.siblingsOf(turn);
  if (siblings.length < 2) return nothing;
  const at = siblings.indexOf(turn);
  const show = (step: number) => {
    const next = siblings[at + step];
    if (next) transcript.show(next);
  };
  return html`<span class="inline-flex items-center text-sm" role="group" aria-label="Versions of this turn">
    ${iconButton("previous", "Previous version", () => show(-1), { isDisabled: at === 0 })}
    <span>${count(at + 1)}/${count(siblings.length)}</span>
    ${iconButton("next", "Next version", () => show(1), { isDisabled: at === siblings.length - 1 })}
  </span>`;
}

/** A shorter wait for the conversation's earlier turn is not told. Milliseconds. */
const TOLD_WAIT_MS = 300;

export function figuresTemplate(response: ApiObject | undefined) {
  const { usage, timing } = response ?? {};
  const { waited_ms: waited = 0, settled_ms: settled, rounds = [] }: Partial<Timing> = timing ?? {};
  const token = rounds.find(({ first_token_ms: first }) => first !== null)?.first_token_ms;
  const seconds = ((settled ?? 0) - (token ?? 0)) / 1_000;
  const parts = [
    waited >= TOLD_WAIT_MS && `waited ${duration(waited)} for the turn before`,
    usage && `${count(usage.input_tokens)} + ${count(usage.output_tokens)} tokens`,
    token && `first token after ${duration(token)}`,
    settled && `${duration(settled)} in all`,
    usage && token && seconds > 0.05 && `${(usage.output_tokens / seconds).toFixed(0)} tokens/s`,
  ].filter(Boolean);
  return html`<span class="note figures-line cut mx-1 max-sm:hidden">${parts.join(" · ")}</span>`;
}

export function connectionInWords(connection: Connection) {
  return "attempts" in connection
    ? `The connection is lost. Trying again (${connection.attempts})…`
    : connection.resumedAfter < 0
      ? "Connected again, from the first event."
      : `Connected again after event ${connection.resumedAfter}: nothing is lost, nothing is repeated.`;
}

/** How the connection is, where it was lost, or where nothing comes over it. */
export function connectionTemplate(connection: Connection | undefined, isOpen: boolean, isSilent: boolean) {
  if (connection && (isOpen || "resumedAfter" in connection))
    return html`<p class="notice connection">${connectionInWords(connection)}</p>`;
  if (isOpen && isSilent)
    return html`<p class="note connection">Connected. No new text for a while: the server waits for the model server.</p>`;
  return nothing;
}
