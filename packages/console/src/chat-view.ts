import { html, nothing, render } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { attachmentsOf } from "./attachments.ts";
import { loadLater, whenIdle } from "./beside.ts";
import type { ChatParts } from "./chat-parts.ts";
import { messageWithField } from "./dialogs.ts";
import { draft, rememberDraft } from "./draft.ts";
import { examplesTemplate } from "./examples.ts";
import { FormFault } from "./fields.ts";
import { typedIn } from "./form-events.ts";
import { icon, iconButton } from "./icons.ts";
import type { ApiObject } from "./json.ts";
import { isPanelOpen, switchPanel } from "./panels.ts";
import { bodyOf, type Draft, inputOf } from "./request-body.ts";
import { enterTemplate, hasKeyboard, loadSettings, settingsTemplate } from "./request-form.ts";
import { recall, session } from "./session.ts";
import { takenFiles } from "./transfers.ts";
import type { View } from "./view.ts";

/** The view "Chat": the path of a chat, the list of chats beside it, and the settings of the next request. */

/** Opens the box of a field and focuses the field. */
function reveal(id: string) {
  const field = document.getElementById(id);
  for (let around = field?.closest("details"); around; around = around.parentElement?.closest("details"))
    around.open = true;
  field?.focus();
}

export function chatView(section: HTMLElement): View {
  /** The chat and what is beside it. The form can be filled in before their code is loaded. */
  let parts: ChatParts | undefined;
  let fault: { field: string; message: string } | undefined;
  /** The id of the chat that is being read, and the reason why one could not be. */
  let opening = "";
  let openFault = "";
  let isDrawing = false;
  /** True while a request waits for the code that sends it. */
  let isSending = false;

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

  const attached = attachmentsOf(draft, state, (message) => {
    fault = { field: "input", message };
    drawSoon();
  });

  /** A select shows its first model if it does not list the draft's model. */
  function chooseModel() {
    const { models = [] } = session;
    const [first] = models;
    if (first !== undefined && !models.includes(draft.model)) draft.model = first;
  }

  async function load(): Promise<ChatParts> {
    const { chatParts } = await loadLater();
    await loadSettings();
    parts ??= chatParts({
      changed: chatChanged,
      fields,
      focus: focusInput,
    });
    draw();
    parts.transcript.followEnd(section.querySelector(".composer") as HTMLElement);
    return parts;
  }

  /** The address names the open chat, so that it can be shared. */
  function chatChanged() {
    drawSoon();
    const { transcript, list, map } = parts ?? {};
    if (!transcript) return;
    const { id } = transcript;
    list?.mark(id);
    if (isPanelOpen("map")) map?.show(transcript.chat);
    if (location.hash.startsWith("#/chat") && !opening) history.replaceState(null, "", id ? `#/chat/${id}` : "#/chat");
  }

  /** The fields of the next request. Throws a FormFault, whose field is shown. */
  function fields(): ApiObject {
    try {
      return bodyOf(draft);
    } catch (error) {
      if (error instanceof FormFault) show(error);
      throw error;
    }
  }

  function show(shown: FormFault) {
    fault = shown;
    if (shown.field !== "input" && !isPanelOpen("settings")) switchPanel("settings");
    draw();
    reveal(shown.field === "input" ? "input" : `settings-${shown.field}`);
  }

  function focusInput() {
    (section.querySelector("#input") as HTMLElement | null)?.focus();
  }

  /** Deletes the typed text when it has been accepted: a refused one stays. */
  function typedWasSent() {
    draft.input = "";
    draft.attachments = [];
    state.changed();
  }

  async function send() {
    if (isSending || parts?.transcript.isRunning) return;
    fault = undefined;
    let own: ApiObject;
    let items: ApiObject[];
    try {
      if (draft.input === "" && draft.attachments.length === 0) throw new FormFault("input", "Type what to ask.");
      if (attached.isPending)
        throw new FormFault("input", "A file is still being uploaded. Wait for it, or remove it.");
      own = bodyOf(draft);
      items = inputOf(draft);
    } catch (error) {
      if (!(error instanceof FormFault)) throw error;
      return show(error);
    }
    isSending = true;
    try {
      const { transcript } = await load();
      const { input: text, secondModel } = draft;
      void transcript.ask({ items, text, fields: own, parent: transcript.end, secondModel, began: typedWasSent });
    } catch {
      fault = { field: "input", message: "This part of the page could not be loaded. Reload the page." };
      draw();
    } finally {
      isSending = false;
    }
  }

  /** Sends one of the examples, with the settings that it needs. */
  function askExample(request: Partial<Draft>) {
    Object.assign(draft, { format: "text", functions: "" }, request);
    state.changed();
    void send();
  }

  function startAnew() {
    parts?.transcript.clear();
    focusInput();
  }

  /** Opens a stored chat, at a response. */
  async function open(id: string, isEnd: boolean) {
    opening = id;
    openFault = "";
    draw();
    try {
      const { transcript } = await load();
      await transcript.open(id, isEnd);
    } catch (error) {
      openFault = messageWithField(error);
    }
    if (opening === id) opening = "";
    chatChanged();
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
    attached.add(files);
  }

  function draw() {
    render(
      html`
        <h1 class="unseen">Chat</h1>
        <div class="chat flex items-start gap-5 max-lg:flex-col max-lg:items-stretch">
          ${isPanelOpen("chats") ? html`<aside class="beside max-lg:max-h-[60dvh] lg:w-[230px]" aria-label="List of chats">${parts?.list.element}</aside>` : nothing}
          <div class="conversation">
            ${headerTemplate()}
            ${openFault ? html`<p class="notice bad" dir="auto" role="alert">${openFault}</p>` : nothing}
            ${opening ? html`<p class="note">Reading the chat…</p>` : nothing}
            ${isEmpty() && !opening ? examplesTemplate(askExample) : nothing}
            ${parts?.transcript.element}
            ${composerTemplate()}
          </div>
          ${isPanelOpen("map") || isPanelOpen("settings") ? sideTemplate() : nothing}
        </div>
      `,
      section,
    );
  }

  function sideTemplate() {
    return html`<aside class="beside side lg:w-[330px]" aria-label="Beside the chat">
      ${isPanelOpen("map") ? html`<div class="card">${parts?.map.element ?? html`<p class="note">Loading…</p>`}</div>` : nothing}
      ${
        isPanelOpen("settings")
          ? html`<section class="settings card stack" aria-labelledby="settings-title">
              <h2 id="settings-title">Settings of the next request</h2>
              ${settingsTemplate(state)}
            </section>`
          : nothing
      }
    </aside>`;
  }

  function headerTemplate() {
    const panel = (name: "chats" | "map" | "settings", label: string) =>
      iconButton(
        name,
        label,
        () => {
          switchPanel(name);
          if (name === "map" && parts) parts.map.show(parts.transcript.chat);
          draw();
        },
        { isOn: isPanelOpen(name) },
      );
    return html`<header class="chat-header flex min-h-8 items-center gap-1">
      ${panel("chats", "Chats")}
      ${iconButton("new", "New chat", startAnew)}
      <h2 class="cut flex-1" dir="auto">${isEmpty() ? "New chat" : (parts?.title() ?? "")}</h2>
      ${parts?.actions() ?? nothing}
      ${panel("map", "Map")}
      ${panel("settings", "Settings")}
    </header>`;
  }

  function composerTemplate() {
    const { transcript } = parts ?? {};
    return html`<form
      class="composer card stack tight"
      @submit=${(event: Event) => {
        event.preventDefault();
        void send();
      }}
      @dragover=${(event: Event) => event.preventDefault()}
      @drop=${(event: DragEvent) => {
        event.preventDefault();
        attached.add(event.dataTransfer?.files ?? []);
      }}
    >
      ${endTemplate()}
      ${attached.template()}
      <label class="unseen" for="input">Input</label>
      <textarea
        id="input"
        dir="auto"
        rows="1"
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
      ${fault?.field === "input" ? html`<p class="fault" dir="auto" id="input-fault" role="alert">${fault.message}</p>` : nothing}
      <div class="buttons">
        <label class="icon-button" for="files" title="Attach">${icon("attach")}<span class="unseen">Attach</span></label>
        <input
          class="unseen"
          id="files"
          type="file"
          multiple
          @change=${(event: Event) => attached.add(takenFiles(event))}
        />
        ${transcript?.isAway ? iconButton("down", "To the end", () => transcript.toEnd(), { look: "to-end" }) : nothing}
        <span class="note model-name cut" dir="auto">${draft.model}${draft.secondModel === "" ? nothing : html` and ${draft.secondModel}`}</span>
        ${hasKeyboard ? enterTemplate(state) : nothing}
        ${
          transcript?.isRunning
            ? html`<button type="button" class="danger" @click=${() => transcript.stop()}>Stop</button>`
            : html`<button type="submit" class="primary">Send</button>`
        }
      </div>
    </form>`;
  }

  /** Tells that the path ends at a turn that others continue. */
  function endTemplate() {
    const { transcript } = parts ?? {};
    const last = transcript?.chat.path().at(-1);
    const next = transcript?.chat.childrenOf(last) ?? [];
    const [first] = next;
    if (!first || !last) return nothing;
    return html`<p class="note">Your message begins another branch here. <button type="button" class="plain" @click=${() => transcript?.show(next.at(-1) ?? first)}>Show what follows</button></p>`;
  }

  /** Tells whether this tab has no chat, also before it is shown. */
  function isEmpty() {
    return parts ? parts.transcript.isEmpty : !recall("turns")?.length;
  }

  const loadSoon = () => void load().catch(() => {});
  if (isEmpty()) whenIdle(loadSoon);
  else loadSoon();

  return {
    show({ path: [id = "", verb, one, other], query }) {
      chooseModel();
      if (id !== "" && verb === "compare" && one && other)
        void open(id, false).then(() => parts?.transcript.compare(one, other));
      else if (id !== "" && id !== parts?.transcript.id) void open(id, query.has("end"));
      else if (parts) {
        parts.transcript.showPath();
        chatChanged();
      }
      draw();
      if (isEmpty() && hasKeyboard) focusInput();
    },
    identified() {
      chooseModel();
      draw();
    },
    signedIn() {
      chooseModel();
      parts?.transcript.signedIn();
      void parts?.list.load();
    },
  };
}
