import { html, nothing } from "lit-html";
import { call, uploadFile } from "./api.ts";
import { messageOf } from "./dialogs.ts";
import { size } from "./format.ts";
import type { Attachment, Draft } from "./request-body.ts";
import { Transfers } from "./transfers.ts";

/** The files of a draft, and those that are being uploaded to be attached. */

/** The maximum size of all files in a request, in bytes. Base64 adds a third. The server accepts 12 MiB by default. */
const MAX_BYTES = 24_000_000;
const MAX_FILES = 50;

/** Larger documents are uploaded, and the request names their ids. Bytes. */
const MAX_INLINE_BYTES = 200_000;

const ATTACHMENT = "card buttons flex-nowrap px-1.5 py-1 text-sm wrap-anywhere [&>:last-child]:flex-none";

/**
 * @param form `changed`: called when the draft has; `redraw`: when an upload has gone on
 * @param failed Takes the reason, for people.
 */
export function attachmentsOf(
  draft: Pick<Draft, "attachments">,
  { changed, redraw }: { changed: () => void; redraw: () => void },
  failed: (message: string) => void,
) {
  const transfers = new Transfers(
    async (file, to) => {
      const attachment = await attachmentFrom(file, to);
      draft.attachments = [...draft.attachments, attachment];
      changed();
    },
    redraw,
    ({ file, fault }) => fault && failed(`${file.name}: ${fault}`),
  );
  return {
    template,
    get isPending() {
      return transfers.open.length > 0;
    },
    /** Attaches files; none of them where they are too many or too large. */
    add(given: Iterable<File>) {
      const files = [...given];
      try {
        check([...transfers.open.map(({ file }) => file), ...files], draft.attachments);
      } catch (error) {
        return failed(messageOf(error));
      }
      changed();
      transfers.add(files);
    },
  };

  function remove(attachment: Attachment) {
    draft.attachments = draft.attachments.filter((each) => each !== attachment);
    const { fileId } = attachment;
    if (fileId) call(`/v1/files/${encodeURIComponent(fileId)}`, { method: "DELETE" }).catch(() => {});
    changed();
  }

  function template(label = "Attachments") {
    const { open } = transfers;
    if (draft.attachments.length + open.length === 0) return nothing;
    const button = (name: string, press: () => void) =>
      html`<button type="button" class="plain" aria-label="Remove ${name}" @click=${press}>Remove</button>`;
    return html`<ul class="attachments buttons max-h-[20dvh] overflow-y-auto" aria-label=${label}>
      ${draft.attachments.map(
        (attachment) => html`<li class=${ATTACHMENT}>
          ${attachment.type.startsWith("image/") ? html`<img class="size-9 rounded-sm object-cover" src=${attachment.url} alt="" />` : nothing}
          <span dir="auto">${attachment.name} (${size(attachment.size)})</span>
          ${button(attachment.name, () => remove(attachment))}
        </li>`,
      )}
      ${open.map(
        (transfer, index) => html`<li class=${ATTACHMENT}>
          <span dir="auto" id="pending-${index}">${transfer.file.name} (${size(transfer.file.size)})</span>
          <progress class="max-w-24 basis-12" aria-labelledby="pending-${index}" max="1" .value=${transfer.sent / Math.max(1, transfer.file.size)}></progress>
          ${button(transfer.file.name, () => transfers.cancel(transfer))}
        </li>`,
      )}
    </ul>`;
  }
}

/** Reads a file, or uploads it. Throws an ApiFault, an Error for people, and the reason of `signal`. */
async function attachmentFrom(
  file: File,
  options: { signal: AbortSignal; progress: (bytes: number) => void },
): Promise<Attachment> {
  const { name, size } = file;
  const type = file.type || "application/octet-stream";
  if (!isUploaded(file)) return { name, type, size, url: await dataUrl(file) };
  const { id } = await uploadFile(file, { purpose: "user_data" }, options);
  return { name, type, size, url: "", fileId: id };
}

function isUploaded(file: File) {
  return !file.type.startsWith("image/") && file.size > MAX_INLINE_BYTES;
}

/**
 * Throws an Error with a text for people if there are too many files or they are too large.
 * @param before files that are already attached
 */
function check(files: readonly File[], before: readonly Attachment[]) {
  const inRequest = [...files.filter((file) => !isUploaded(file)), ...before.filter(({ fileId }) => !fileId)];
  const bytes = inRequest.reduce((sum, file) => sum + file.size, 0);
  if (bytes > MAX_BYTES)
    throw new Error(`The files are too large for a request: ${size(bytes)}. They may have ${size(MAX_BYTES)} in all.`);
  if (files.length + before.length > MAX_FILES) throw new Error(`A request may have ${MAX_FILES} files.`);
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`The file ${file.name} could not be read.`));
    reader.readAsDataURL(file);
  });
}
