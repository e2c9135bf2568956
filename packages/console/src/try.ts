import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { attachmentFrom, attachmentLabel, checkAttachments, discardAttachment } from "./attachments.ts";
import { loadLater, whenIdle } from "./beside.ts";
import { messageWithField } from "./dialogs.ts";
import { draft, rememberDraft } from "./draft.ts";
import { examplesTemplate } from "./examples.ts";
import { typedIn } from "./form-events.ts";
import { beginning, size } from "./format.ts";
import type { Draft } from "./request-body.ts";
import { bodyOf, FormFault } from "./request-body.ts";
import { enterTemplate, faultTemplate, hasKeyboard, settingsTemplate } from "./request-form.ts";
import { recall, session } from "./session.ts";
import type { Transcript } from "./transcript.ts";
import type { View } from "./view.ts";

/** The view "Try": a request, its answer while it arrives, and the request as code. */

/** Opens the box of a field and focuses the field. */
function reveal(id: string) {
  const field = document.getElementById(id);
  for (let around = field?.closest("details"); around; around = around.parentElement?.closest("details"))
    around.open = true;
  field?.focus();
}

export function tryView(section: HTMLElement): View {
  /** The requests and their answers. The form can be filled in before their code is loaded. */
  let transcript: Transcript | undefined;
  let fault: { field: string; message: string } | undefined;
  const isWide = matchMedia("(min-width: 900px)").matches;
  let isDrawing = false;
  /** Files that are being uploaded, to be attached. */
  let pending: { file: File; sent: number; abort: AbortController }[] = [];
  /** True while a request waits for the code that sends it. */
  let isSending = false;

  function drawSoon() {
    if (isDrawing) return;
    isDrawing = true;
    queueMicrotask(() => {
      isDrawing = false;
      draw();
      transcript?.code.draw();
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
    const { models = [] } = session;
    const [first] = models;
    if (first !== undefined && !models.includes(draft.model)) draft.model = first;
  }

  async function loadTranscript(): Promise<Transcript> {
    const { Transcript } = await loadLater();
    if (transcript) return transcript;
    transcript = new Transcript({
      changed: state.changed,
      redraw: drawSoon,
      focus: focusInput,
      send: (input, text, began) => void send({ input, text, began }),
    });
    draw();
    transcript.followEnd(section.querySelector(".composer") as HTMLElement);
    return transcript;
  }

  function focusInput() {
    (section.querySelector("#input") as HTMLElement | null)?.focus();
  }

  /** Deletes the typed text after it was sent. */
  function typedWasSent() {
    draft.input = "";
    draft.attachments = [];
    state.changed();
  }

  /**
   * Sends the typed input, or outputs of calls.
   * @param outputs `text`: the outputs as text for people
   */
  async function send({
    input,
    text = draft.input,
    began = typedWasSent,
  }: {
    input?: object[];
    text?: string;
    began?: () => void;
  } = {}) {
    if (isSending || transcript?.isRunning) return;
    fault = undefined;
    let body: Record<string, unknown>;
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
    isSending = true;
    try {
      await loadTranscript();
    } catch {
      fault = { field: "input", message: "This part of the page could not be loaded. Reload the page." };
      return draw();
    } finally {
      isSending = false;
    }
    await transcript?.send(body, { input: text, isTyped: input === undefined, began });
  }

  /** Sends one of the examples, with the settings that it needs. */
  function askExample(request: Partial<Draft>) {
    Object.assign(draft, { format: "text", functions: "" }, request);
    state.changed();
    void send();
  }

  function startAnew() {
    transcript?.clear();
    draft.previous = "";
    state.changed();
    focusInput();
  }

  async function attach(files: Iterable<File>) {
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

  async function attachOne(each: (typeof pending)[number]) {
    const { file, abort } = each;
    const progress = (bytes: number) => {
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

  /** @param name of the file */
  function attachFailed(error: unknown, name?: string) {
    fault = { field: "input", message: `${name ? `${name}: ` : ""}${messageWithField(error)}` };
    drawSoon();
  }

  function keyPressed(event: KeyboardEvent) {
    // A word that is being composed ends with Enter, too.
    if (event.key !== "Enter" || event.isComposing || event.shiftKey) return;
    if (!draft.enterSends && !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void send();
  }

  function pasted(event: ClipboardEvent) {
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
            ${isEmpty() ? examplesTemplate(askExample) : nothing}
            ${transcript?.element}
            ${composerTemplate()}
            ${transcript?.code.element}
          </div>
        </div>
      `,
      section,
    );
  }

  function composerTemplate() {
    return html`<form
      class="composer card"
      @submit=${(event: Event) => {
        event.preventDefault();
        void send();
      }}
      @dragover=${(event: Event) => event.preventDefault()}
      @drop=${(event: DragEvent) => {
        event.preventDefault();
        void attach(event.dataTransfer?.files ?? []);
      }}
    >
      <button type="button" class="to-end" ?hidden=${!transcript?.isAway} @click=${() => transcript?.toEnd()}>
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
        @input=${(event: Event) => {
          draft.input = typedIn(event);
          state.changed();
        }}
        @keydown=${keyPressed}
        @paste=${pasted}
      ></textarea>
      ${faultTemplate(state, "input")}
      ${draft.attachments.length + pending.length > 0 ? attachmentsTemplate() : nothing}
      <div class="buttons">
        ${
          transcript?.isRunning
            ? html`<button type="button" class="danger" @click=${() => transcript?.stop()}>Stop</button>`
            : html`<button type="submit" class="primary">Send</button>`
        }
        <label class="button" for="files">Attach</label>
        <input
          class="unseen"
          id="files"
          type="file"
          multiple
          @change=${(event: Event) => {
            const field = event.target as HTMLInputElement;
            void attach([...(field.files ?? [])]);
            field.value = "";
          }}
        />
        ${!isEmpty() || draft.previous ? html`<button type="button" class="plain" @click=${startAnew}>Start anew</button>` : nothing}
        ${hasKeyboard ? enterTemplate(state, "note hint") : nothing}
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

  /** Tells whether this tab has no requests, also before they are shown. */
  function isEmpty() {
    return transcript ? transcript.isEmpty : !recall("turns")?.length;
  }

  const load = () => void loadTranscript().catch(() => {});
  if (isEmpty()) whenIdle(load);
  else load();

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
    identified() {
      chooseModel();
      draw();
    },
    signedIn() {
      chooseModel();
      transcript?.signedIn();
    },
  };
}
