import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { attachmentFrom, checkAttachments, discardAttachment } from "./attachments.js";
import { LocalFile, samplesOf } from "./code-samples.js";
import { messageWithField } from "./dialogs.js";
import { draft, rememberDraft } from "./draft.js";
import { examplesTemplate } from "./examples.js";
import { EndFollower } from "./follow-end.js";
import { beginning, size } from "./format.js";
import { bodyOf, FormFault, inputOf } from "./request-body.js";
import { faultTemplate, settingsTemplate } from "./request-form.js";
import { copy } from "./save.js";
import { closeConnection } from "./sending.js";
import { recall, remember, session } from "./session.js";
import { attachmentLabel, TurnView } from "./turn-view.js";

/** Try: a request, its answer as it comes, and the request as a program makes it. */

/** Requests that a tab remembers. */
const MAX_TURNS = 20;

/** Opens what a field is in, and goes there. @param {string} id */
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
  let language = "curl";
  let isShowingCode = false;
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

  /** A select shows its first model where the draft's is none of them. */
  function chooseModel() {
    const [first] = session.models;
    if (first !== undefined && !session.models.includes(draft.model)) draft.model = first;
  }

  function running() {
    return turns.find((turn) => turn.isOpen);
  }

  function rememberTurns() {
    const latest = turns.slice(-MAX_TURNS).map((turn) => turn.remembered);
    // A turn that is not remembered is still stored by the server.
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
      const canContinue = turn.sent.isStored || turn.sent.transport === "socket";
      if (canContinue && ["completed", "incomplete"].includes(response.status)) draft.previous = response.id;
      state.changed();
    },
    branch: (id) => {
      draft.previous = id;
      state.changed();
      section.querySelector("#input")?.scrollIntoView({ block: "nearest" });
      /** @type {HTMLElement | null} */ (section.querySelector("#input"))?.focus();
    },
    answer: (turn, input, text) => {
      draft.previous = turn.sent.id ?? "";
      void send({ input, text, began: () => turn.answered() });
    },
  };

  /** Forgets the text that was typed in and has been sent. */
  function typedWasSent() {
    draft.input = "";
    draft.attachments = [];
    state.changed();
  }

  /**
   * Sends what is typed in, or outputs of calls.
   * @param {{ input?: object[], text?: string, began?: () => void }} [outputs] `text`: what they are, for people
   */
  async function send({ input, text = draft.input, began = typedWasSent } = {}) {
    if (running()) return;
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
    const parts = input === undefined && draft.attachments.length > 0 ? attachmentParts() : [];
    const turn = new TurnView(
      { input: text, transport: draft.transport, isStored: draft.store, isOpen: true },
      { ...actions, began },
      parts,
    );
    turns.push(turn);
    transcript.append(turn.element);
    drawSoon();
    follower?.follow();
    await turn.send(body);
    drawSoon();
  }

  /** The attachments, as the parts of a message that show them. */
  function attachmentParts() {
    return draft.attachments.map((attachment) =>
      attachment.type.startsWith("image/")
        ? { type: "input_image", image_url: attachment.url }
        : { type: "input_file", filename: attachmentLabel(attachment) },
    );
  }

  /** Asks one of the examples, with the settings that it needs. @param {Partial<import("./request-body.js").Draft>} request */
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
            ${codeTemplate()}
          </div>
        </div>
      `,
      section,
    );
    follower ??= new EndFollower(transcript, /** @type {HTMLElement} */ (section.querySelector(".composer")), drawSoon);
  }

  function composerTemplate() {
    const open = running();
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
          ? html`<p class="note">Continues <a href="#/responses/${draft.previous}"><code>${beginning(draft.previous, 24)}</code></a></p>`
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
          open
            ? html`<button type="button" class="danger" @click=${() => void open.stop()}>Stop</button>`
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

  function codeTemplate() {
    return html`<details
      class="code-samples"
      @toggle=${(/** @type {Event} */ event) => {
        isShowingCode = /** @type {HTMLDetailsElement} */ (event.currentTarget).open;
        drawSoon();
      }}
    >
      <summary>The same as code</summary>
      ${isShowingCode ? samplesTemplate() : nothing}
    </details>`;
  }

  function samplesTemplate() {
    let samples;
    try {
      const body = bodyOf(
        draft,
        inputOf(draft, ({ name, type }) => new LocalFile(name, type)),
      );
      samples = samplesOf(body, draft.transport, `${location.origin}/v1`);
    } catch (error) {
      return html`<p class="fault" dir="auto">${error instanceof Error ? error.message : String(error)}</p>`;
    }
    const chosen = samples.find(({ name }) => name === language);
    return html`<div class="inner">
      <div class="buttons" role="group" aria-label="Language">
        ${samples.map(
          ({ name }) => html`<button
            type="button"
            aria-pressed=${name === language}
            @click=${() => {
              language = name;
              drawSoon();
            }}
          >
            ${name}
          </button>`,
        )}
        <button type="button" class="plain" @click=${(/** @type {Event} */ event) => void copy(event, chosen?.code ?? "")}>Copy</button>
      </div>
      <pre class="sample" dir="ltr" tabindex="0" aria-label="The request for ${language}">${chosen?.code}</pre>
    </div>`;
  }

  for (const sent of recall("turns") ?? []) {
    const turn = new TurnView(sent, actions);
    turns.push(turn);
    transcript.append(turn.element);
    void turn.restore();
  }

  return {
    show({ query }) {
      const previous = query.get("previous_response_id");
      if (previous) {
        draft.previous = previous;
        rememberDraft();
        // The address is for this once: a reload must not undo what was done since.
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
