import { html, nothing } from "lit-html";
import { attachmentFrom, attachmentLabel, checkAttachments, discardAttachment } from "./attachments.ts";
import { messageWithField } from "./dialogs.ts";
import { size } from "./format.ts";
import type { Draft } from "./request-body.ts";

const ATTACHMENT = "card buttons flex-nowrap px-1.5 py-1 text-sm wrap-anywhere [&>:last-child]:flex-none";

/**
 * The files of a draft, and those that are being uploaded to be attached.
 * @param form `changed`: called when the draft has; `redraw`: when an upload has gone on
 * @param failed Takes the reason, for people.
 */
export function attachingTo(
  draft: Draft,
  { changed, redraw }: { changed: () => void; redraw: () => void },
  failed: (message: string) => void,
) {
  let pending: { file: File; sent: number; abort: AbortController }[] = [];
  return {
    attach,
    template,
    get isPending() {
      return pending.length > 0;
    },
  };

  async function attach(files: Iterable<File>) {
    const list = [...files];
    try {
      checkAttachments([...pending.map(({ file }) => file), ...list], draft.attachments);
    } catch (error) {
      return attachFailed(error);
    }
    const begun = list.map((file) => ({ file, sent: 0, abort: new AbortController() }));
    pending = [...pending, ...begun];
    changed();
    await Promise.all(begun.map(attachOne));
  }

  async function attachOne(each: (typeof pending)[number]) {
    const { file, abort } = each;
    const progress = (bytes: number) => {
      each.sent = bytes;
      redraw();
    };
    try {
      const attachment = await attachmentFrom(file, { signal: abort.signal, progress });
      draft.attachments = [...draft.attachments, attachment];
      changed();
    } catch (error) {
      if (!abort.signal.aborted) attachFailed(error, file.name);
    }
    pending = pending.filter((other) => other !== each);
    redraw();
  }

  /** @param name of the file */
  function attachFailed(error: unknown, name?: string) {
    failed(`${name ? `${name}: ` : ""}${messageWithField(error)}`);
  }

  function template() {
    if (draft.attachments.length + pending.length === 0) return nothing;
    return html`<ul class="attachments buttons max-h-[20dvh] overflow-y-auto">
      ${draft.attachments.map(
        (attachment, index) => html`<li class=${ATTACHMENT}>
          ${attachment.type.startsWith("image/") ? html`<img class="size-9 rounded-sm object-cover" src=${attachment.url} alt="" />` : nothing}
          <span dir="auto">${attachmentLabel(attachment)}</span>
          <button
            type="button"
            class="plain"
            aria-label="Remove ${attachment.name}"
            @click=${() => {
              draft.attachments = draft.attachments.filter((_, at) => at !== index);
              discardAttachment(attachment);
              changed();
            }}
          >
            Remove
          </button>
        </li>`,
      )}
      ${pending.map(
        ({ file, sent, abort }, index) => html`<li class=${ATTACHMENT}>
          <span dir="auto" id="pending-${index}">${file.name} (${size(file.size)})</span>
          <progress class="max-w-24 basis-12" aria-labelledby="pending-${index}" max="1" .value=${sent / Math.max(1, file.size)}></progress>
          <button type="button" class="plain" aria-label="Remove ${file.name}" @click=${() => abort.abort()}>Remove</button>
        </li>`,
      )}
    </ul>`;
  }
}
