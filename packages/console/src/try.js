import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { attachmentFrom, checkAttachments, discardAttachment } from "./attachments.js";
import { LocalFile } from "./code-samples.js";
import { codeView } from "./code-view.js";
import { messageWithField } from "./dialogs.js";
import { draft, rememberDraft } from "./draft.js";
import { examplesTemplate } from "./examples.js";
import { EndFollower } from "./follow-end.js";
import { beginning, size } from "./format.js";
import { bodyOf, FormFault, inputOf } from "./request-body.js";
import { faultTemplate, settingsTemplate } from "./request-form.js";
import { closeConnection } from "./sending.js";
import { recall, remember, session } from "./session.js";
import { pairElement } from "./turn-pair.js";
import { attachmentLabel, TurnView } from "./turn-view.js";

/** The view "Try": a request, its answer while it arrives, and the request as code. */

/** The number of requests that a tab keeps. */
const MAX_TURNS = 20;

/** Opens the box of a field and focuses the field. @param {string} id */
function reveal(id) {
  const field = document.getElementById(id);
  for (let around = field?.closest("details"); around; around = around.parentElement?.closest("details"))
    around.open = true;
  field?.focus();
}

/** @param {HTMLElement} section @returns {import("./main.js").View} */
export function tryView(section) {
  const transcript = document.createElement("div");
  transcript.className = "transcript";
  /** @type {TurnView[]} */
  let turns = [];
  /** @type {{ field: string, message: string } | undefined} */
  let fault;
  const isWide = matchMedia("(min-width: 900px)").matches;
  const code = codeView("The same as code", () => ({
    body: bodyOf(
      draft,
      inputOf(draft, ({ name, type }) => new LocalFile(name, type)),
    ),
    transport: draft.transport,
  }));
  let isDrawing = false;
  /** Files that are being uploaded, to be attached. @type {{ file: File, sent: number, abort: AbortController }[]} */
  let pending = [];
  /** @type {EndFollower | undefined} */
  let follower;

  function drawSoon() {
    if (isDrawing) return;
    isDrawing = true;
    queueMicrotask(() => {
      isDrawing = false;
      draw();
      code.draw();
    });
  }

  const state = {
    get fault() {
      return fault;
    },
    changed() {
      fault = undefined;
      rememberDraft();
      drawSoon();
    },
    redraw: drawSoon,
  };

  /** A select shows its first model if it does not list the draft's model. */
  function chooseModel() {
    const [first] = session.models;
    if (first !== undefined && !session.models.includes(draft.model)) draft.model = first;
  }

  /** The turns that have not ended. There are several if two models were asked. */
  function running() {
    return turns.filter((turn) => turn.isOpen);
  }

  function rememberTurns() {
    const latest = turns.slice(-MAX_TURNS).map((turn) => turn.remembered);
    // The server still stores a turn that this tab no longer keeps.
    if (!remember("turns", latest)) remember("turns", latest.slice(-1));
  }

  /** @type {import("./turn-view.js").Actions} */
  const actions = {
    changed: () => {
      rememberTurns();
      drawSoon();
    },
    began: () => {},
    ended: (turn, response) => {
      // The next request continues the first of two models, unless the user chooses the other.
      const isSecond = turn.sent.pair !== undefined && turns.find(({ sent }) => sent.pair === turn.sent.pair) !== turn;
      const canContinue = (turn.sent.isStored || turn.sent.transport === "socket") && !isSecond;
      if (canContinue && ["completed", "incomplete"].includes(response.status)) draft.previous = response.id;
      state.changed();
    },
    branch: (id) => {
      draft.previous = id;
      state.changed();
      section.querySelector("#input")?.scrollIntoView({ block: "nearest" });
      /** @type {HTMLElement | null} */ (section.querySelector("#input"))?.focus();
    },
    again: (turn) => {
      const { body, input, transport, isStored, isTyped } = turn.sent;
      if (body) void ask(body, { input, transport, isStored, isTyped, isOpen: true }, turn.attachments);
    },
    edit: (turn) => {
      draft.input = turn.sent.input;
      draft.attachments = sentWith.get(turn) ?? [];
      actions.branch(String(turn.sent.body?.previous_response_id ?? ""));
    },
    answer: (turn, input, text) => {
      draft.previous = turn.sent.id ?? "";
      void send({ input, text, began: () => turn.answered() });
    },
  };

  /** The attachments of requests that this page has sent. @type {WeakMap<TurnView, import("./request-body.js").Attachment[]>} */
  const sentWith = new WeakMap();

  /** Deletes the typed text after it was sent. */
  function typedWasSent() {
    draft.input = "";
    draft.attachments = [];
    state.changed();
  }

  /**
   * Sends the typed input, or outputs of calls.
   * @param {{ input?: object[], text?: string, began?: () => void }} [outputs] `text`: the outputs as text for people
   */
  async function send({ input, text = draft.input, began = typedWasSent } = {}) {
    if (running().length > 0) return;
    fault = undefined;
    /** @type {Record<string, unknown>} */
    let body;
    try {
      if (input === undefined && draft.input === "" && draft.attachments.length === 0)
        throw new FormFault("input", "Type what to ask.");
      if (input === undefined && pending.length > 0)
        throw new FormFault("input", "A file is still being uploaded. Wait for it, or remove it.");
      body = bodyOf(draft, input);
    } catch (error) {
      if (!(error instanceof FormFault)) throw error;
      fault = error;
      draw();
      reveal(error.field);
      return;
    }
    const isTyped = input === undefined;
    const { transport, store: isStored, attachments, secondModel } = draft;
    const parts = isTyped && attachments.length > 0 ? attachmentParts() : [];
    const sent = { input: text, transport, isStored, isTyped, isOpen: true };
    if (!isTyped || secondModel === "")
      return ask(body, sent, parts, { began, attachments: isTyped ? attachments : [] });
    const pair = crypto.randomUUID();
    // Both would use the same connection.
    const beside = { ...sent, pair, transport: transport === "socket" ? /** @type {const} */ ("stream") : transport };
    await Promise.all([
      ask(body, { ...sent, pair }, parts, { began, attachments }),
      ask({ ...body, model: secondModel }, beside, parts, { attachments }),
    ]);
  }

  /**
   * Sends a request, and shows its answer while it arrives.
   * @param {Record<string, unknown>} body
   * @param {import("./turn-view.js").Sent} sent
   * @param {object[]} parts parts of the input that are not text
   * @param {{ began?: () => void, attachments?: import("./request-body.js").Attachment[] }} [options]
   */
  async function ask(body, sent, parts, { began = () => {}, attachments = [] } = {}) {
    if (running().some((turn) => turn.sent.pair === undefined || turn.sent.pair !== sent.pair)) return;
    const turn = new TurnView({ ...sent, body }, { ...actions, began }, parts);
    sentWith.set(turn, attachments);
    show(turn);
    drawSoon();
    follower?.follow();
    await turn.send(body);
    drawSoon();
  }

  /** Puts a turn at the end, or beside the other turn of its pair. @param {TurnView} turn */
  function show(turn) {
    const other = turns.at(-1);
    turns.push(turn);
    const isPair = other !== undefined && turn.sent.pair !== undefined && other.sent.pair === turn.sent.pair;
    if (isPair) transcript.append(pairElement(other, turn));
    else transcript.append(turn.element);
  }

  /** The attachments, as the parts of a message that show them. */
  function attachmentParts() {
    return draft.attachments.map((attachment) =>
      attachment.type.startsWith("image/")
        ? { type: "input_image", image_url: attachment.url }
        : { type: "input_file", filename: attachmentLabel(attachment) },
    );
  }

  /**
   * Sends one of the examples, with the settings that it needs.
   * @param {Partial<import("./request-body.js").Draft>} request
   */
  function askExample(request) {
    Object.assign(draft, { format: "text", functions: "" }, request);
    state.changed();
    void send();
  }

  function startAnew() {
    for (const turn of turns) turn.leave();
    turns = [];
    transcript.replaceChildren();
    draft.previous = "";
    state.changed();
    rememberTurns();
    /** @type {HTMLElement | null} */ (section.querySelector("#input"))?.focus();
  }

  /** @param {Iterable<File>} files */
  async function attach(files) {
    const list = [...files];
    try {
      checkAttachments([...pending.map(({ file }) => file), ...list], draft.attachments);
    } catch (error) {
      return attachFailed(error);
    }
    const begun = list.map((file) => ({ file, sent: 0, abort: new AbortController() }));
    pending = [...pending, ...begun];
    fault = undefined;
    drawSoon();
    await Promise.all(begun.map(attachOne));
  }

  /** @param {(typeof pending)[number]} each */
  async function attachOne(each) {
    const { file, abort } = each;
    const progress = (/** @type {number} */ bytes) => {
      each.sent = bytes;
      drawSoon();
    };
    try {
      const attachment = await attachmentFrom(file, { signal: abort.signal, progress });
      draft.attachments = [...draft.attachments, attachment];
      rememberDraft();
    } catch (error) {
      if (!abort.signal.aborted) attachFailed(error, file.name);
    }
    pending = pending.filter((other) => other !== each);
    drawSoon();
  }

  /** @param {unknown} error @param {string} [name] of the file */
  function attachFailed(error, name) {
    fault = { field: "input", message: `${name ? `${name}: ` : ""}${messageWithField(error)}` };
    drawSoon();
  }

  /** @param {KeyboardEvent} event */
  function keyPressed(event) {
    // A word that is being composed ends with Enter, too.
    if (event.key !== "Enter" || event.isComposing || event.shiftKey) return;
    if (!draft.enterSends && !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void send();
  }

  /** @param {ClipboardEvent} event */
  function pasted(event) {
    const files = event.clipboardData?.files ?? [];
    if (files.length === 0) return;
    event.preventDefault();
    void attach(files);
  }

  function draw() {
    render(
      html`
        <h1 class="unseen">Try</h1>
        <div class="try">
          <details class="settings card" ?open=${isWide}>
            <summary><h2>Request</h2></summary>
            <div class="stack inner">${settingsTemplate(state)}</div>
          </details>
          <div class="conversation">
            ${turns.length === 0 ? examplesTemplate(askExample) : nothing}
            ${transcript}
            ${composerTemplate()}
            ${code.element}
          </div>
        </div>
      `,
      section,
    );
    follower ??= new EndFollower(transcript, /** @type {HTMLElement} */ (section.querySelector(".composer")), drawSoon);
  }

  function composerTemplate() {
    const open = running();
    const stop = () => void Promise.all(open.map((turn) => turn.stop()));
    return html`<form
      class="composer card"
      @submit=${(/** @type {Event} */ event) => {
        event.preventDefault();
        void send();
      }}
      @dragover=${(/** @type {Event} */ event) => event.preventDefault()}
      @drop=${(/** @type {DragEvent} */ event) => {
        event.preventDefault();
        void attach(event.dataTransfer?.files ?? []);
      }}
    >
      <button type="button" class="to-end" ?hidden=${!follower?.isAway} @click=${() => follower?.follow()}>
        <span aria-hidden="true">↓</span> To the end
      </button>
      ${
        draft.previous
          ? html`<p class="note">
              Previous response: <a href="#/responses/${draft.previous}"><code>${beginning(draft.previous, 24)}</code></a>
            </p>`
          : nothing
      }
      <label class="unseen" for="input">Input</label>
      <textarea
        id="input"
        dir="auto"
        rows="2"
        placeholder="Ask something"
        aria-describedby="input-fault"
        .value=${live(draft.input)}
        @input=${(/** @type {Event} */ event) => {
          draft.input = /** @type {HTMLTextAreaElement} */ (event.target).value;
          state.changed();
        }}
        @keydown=${keyPressed}
        @paste=${pasted}
      ></textarea>
      ${faultTemplate(state, "input")}
      ${draft.attachments.length + pending.length > 0 ? attachmentsTemplate() : nothing}
      <div class="buttons">
        ${
          open.length > 0
            ? html`<button type="button" class="danger" @click=${stop}>Stop</button>`
            : html`<button type="submit" class="primary">Send</button>`
        }
        <label class="button" for="files">Attach</label>
        <input
          class="unseen"
          id="files"
          type="file"
          multiple
          @change=${(/** @type {Event} */ event) => {
            const field = /** @type {HTMLInputElement} */ (event.target);
            void attach([...(field.files ?? [])]);
            field.value = "";
          }}
        />
        ${turns.length > 0 || draft.previous ? html`<button type="button" class="plain" @click=${startAnew}>Start anew</button>` : nothing}
        <label class="note hint">
          <input
            type="checkbox"
            .checked=${live(draft.enterSends)}
            @change=${(/** @type {Event} */ event) => {
              draft.enterSends = /** @type {HTMLInputElement} */ (event.target).checked;
              state.changed();
            }}
          />
          Enter sends
        </label>
      </div>
    </form>`;
  }

  function attachmentsTemplate() {
    return html`<ul class="attachments">
      ${draft.attachments.map(
        (attachment, index) => html`<li>
          ${attachment.type.startsWith("image/") ? html`<img src=${attachment.url} alt="" />` : nothing}
          <span dir="auto">${attachmentLabel(attachment)}</span>
          <button
            type="button"
            class="plain"
            aria-label="Remove ${attachment.name}"
            @click=${() => {
              draft.attachments = draft.attachments.filter((_, at) => at !== index);
              discardAttachment(attachment);
              state.changed();
            }}
          >
            Remove
          </button>
        </li>`,
      )}
      ${pending.map(
        ({ file, sent, abort }, index) => html`<li>
          <span dir="auto" id="pending-${index}">${file.name} (${size(file.size)})</span>
          <progress aria-labelledby="pending-${index}" max="1" .value=${sent / Math.max(1, file.size)}></progress>
          <button type="button" class="plain" aria-label="Remove ${file.name}" @click=${() => abort.abort()}>Remove</button>
        </li>`,
      )}
    </ul>`;
  }

  for (const sent of recall("turns") ?? []) {
    const turn = new TurnView(sent, actions);
    show(turn);
    void turn.restore();
  }

  return {
    show({ query }) {
      const previous = query.get("previous_response_id");
      if (previous) {
        draft.previous = previous;
        rememberDraft();
        // The address applies once: a reload must not undo later changes.
        history.replaceState(null, "", "#/try");
      }
      chooseModel();
      draw();
    },
    signedIn() {
      closeConnection();
      chooseModel();
      for (const turn of turns) turn.followAgain();
    },
  };
}
