import { attachmentLabel } from "./attachments.ts";
import { LocalFile } from "./code-samples.ts";
import { codeView } from "./code-view.ts";
import { draft } from "./draft.ts";
import { EndFollower } from "./follow-end.ts";
import { loadMarkdown } from "./markdown-tokens.ts";
import type { Attachment } from "./request-body.ts";
import { bodyOf, inputOf } from "./request-body.ts";
import { closeConnection } from "./sending.ts";
import { recall, remember } from "./session.ts";
import { pairElement } from "./turn-pair.ts";
import type { Actions, Sent } from "./turn-view.ts";
import { TurnView } from "./turn-view.ts";

/** The number of requests that a tab keeps. */
const MAX_TURNS = 20;

/** The form that the requests come from */
export interface Form {
  /** The draft has changed. */
  changed: () => void;
  redraw: () => void;
  focus: () => void;
  /** Sends outputs of calls; `text`: the outputs as text for people. */
  send: (input: object[], text: string, began: () => void) => void;
}

export interface Options {
  /** Called when the server has accepted the request. */
  began?: () => void;
  attachments?: Attachment[];
}

/** The requests of this tab, and their answers while they arrive. */
export class Transcript {
  element = document.createElement("div");
  /** The request of the form as code. */
  code = codeView("The same as code", () => ({
    body: bodyOf(
      draft,
      inputOf(draft, ({ name, type }) => new LocalFile(name, type)),
    ),
    transport: draft.transport,
  }));
  #form;
  #turns: TurnView[] = [];
  /** The attachments of requests that this page has sent. */
  #sentWith: WeakMap<TurnView, Attachment[]> = new WeakMap();
  #follower: EndFollower | undefined;

  /** Shows the requests that the tab has kept over a reload. */
  constructor(form: Form) {
    this.#form = form;
    this.element.className = "transcript";
    loadMarkdown().catch(() => {});
    for (const sent of recall("turns") ?? []) {
      const turn = new TurnView(sent, this.#actions);
      this.#show(turn);
      void turn.restore();
    }
  }

  /**
   * Keeps the end in view from now on.
   * @param composer sticks to the bottom of the view, over the transcript
   */
  followEnd(composer: HTMLElement) {
    this.#follower ??= new EndFollower(this.element, composer, this.#form.redraw);
  }

  get isEmpty() {
    return this.#turns.length === 0;
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
    return this.#turns.filter((turn) => turn.isOpen);
  }

  /**
   * Sends the request of the form.
   * @param options `input`: as text for people
   */
  async send(
    body: Record<string, unknown>,
    { input, isTyped, began }: { input: string; isTyped: boolean; began: () => void },
  ) {
    const { transport, store: isStored, secondModel } = draft;
    const attachments = isTyped ? draft.attachments : [];
    const parts = attachments.map(partOf);
    const sent = { input, transport, isStored, isTyped, isOpen: true };
    if (!isTyped || secondModel === "") return this.#ask(body, sent, parts, { began, attachments });
    const pair = crypto.randomUUID();
    // Both would use the same connection.
    const beside = { ...sent, pair, transport: transport === "socket" ? ("stream" as const) : transport };
    await Promise.all([
      this.#ask(body, { ...sent, pair }, parts, { began, attachments }),
      this.#ask({ ...body, model: secondModel }, beside, parts, { attachments }),
    ]);
  }

  /** Cancels the responses, wherever they run. */
  stop() {
    for (const turn of this.#running) void turn.stop();
  }

  /** Forgets all requests. */
  clear() {
    for (const turn of this.#turns) turn.leave();
    this.#turns = [];
    this.element.replaceChildren();
    this.#remember();
  }

  /** Follows again what a refused key has interrupted. */
  signedIn() {
    closeConnection();
    for (const turn of this.#turns) turn.followAgain();
  }

  #remember() {
    const latest = this.#turns.slice(-MAX_TURNS).map((turn) => turn.remembered);
    // The server still stores a turn that this tab no longer keeps.
    if (!remember("turns", latest)) remember("turns", latest.slice(-1));
  }

  #actions: Actions = {
    changed: () => {
      this.#remember();
      this.#form.redraw();
    },
    began: () => {},
    ended: (turn, response) => {
      const { pair, isStored, transport } = turn.sent;
      // The next request continues the first of two models, unless the user chooses the other.
      const isSecond = pair !== undefined && this.#turns.find(({ sent }) => sent.pair === pair) !== turn;
      const canContinue = (isStored || transport === "socket") && !isSecond;
      if (canContinue && ["completed", "incomplete"].includes(response.status)) draft.previous = response.id;
      this.#form.changed();
    },
    branch: (id) => {
      draft.previous = id;
      this.#form.changed();
      this.#form.focus();
    },
    again: (turn) => {
      const { body, input, transport, isStored, isTyped } = turn.sent;
      if (body) void this.#ask(body, { input, transport, isStored, isTyped, isOpen: true }, turn.attachments);
    },
    edit: (turn) => {
      draft.input = turn.sent.input;
      draft.attachments = this.#sentWith.get(turn) ?? [];
      this.#actions.branch(String(turn.sent.body?.previous_response_id ?? ""));
    },
    answer: (turn, input, text) => {
      draft.previous = turn.sent.id ?? "";
      this.#form.send(input, text, () => turn.answered());
    },
  };

  /**
   * Sends a request, and shows its answer while it arrives.
   * @param parts parts of the input that are not text
   */
  async #ask(
    body: Record<string, unknown>,
    sent: Sent,
    parts: object[],
    { began = () => {}, attachments = [] }: Options = {},
  ) {
    if (this.#running.some((turn) => turn.sent.pair === undefined || turn.sent.pair !== sent.pair)) return;
    const turn = new TurnView({ ...sent, body }, { ...this.#actions, began }, parts);
    this.#sentWith.set(turn, attachments);
    this.#show(turn);
    this.#form.redraw();
    this.toEnd();
    await turn.send(body);
    this.#form.redraw();
  }

  /** Puts a turn at the end, or beside the other turn of its pair. */
  #show(turn: TurnView) {
    const other = this.#turns.at(-1);
    this.#turns.push(turn);
    const isPair = other !== undefined && turn.sent.pair !== undefined && other.sent.pair === turn.sent.pair;
    this.element.append(isPair ? pairElement(other, turn) : turn.element);
  }
}

/** An attachment, as the part of a message that shows it. */
function partOf(attachment: Attachment) {
  return attachment.type.startsWith("image/")
    ? { type: "input_image", image_url: attachment.url }
    : { type: "input_file", filename: attachmentLabel(attachment) };
}
