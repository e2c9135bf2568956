import type { LongWork } from "@responses-edge/bounded-io/long-work";
import { documentText } from "./docx.ts";
import { bookText } from "./epub.ts";
import { Allowance, type TextLimits, UnreadableFile } from "./limits.ts";
import { presentationText, workbookText } from "./office.ts";
import { openDocumentText } from "./opendocument.ts";
import type { PackedFile } from "./packed-file.ts";
import type { TextPage } from "./text-page.ts";
import { Zip } from "./zip.ts";

/** Reads a zip archive that is a document, a workbook, a presentation or a book. Throws an UnreadableFile for any other. */
export async function* archiveText(bytes: Uint8Array, limits: TextLimits, work: LongWork): AsyncGenerator<TextPage> {
  const zip = new Zip(bytes, limits, work);
  const file: PackedFile = { zip, limits, text: new Allowance(limits.maxTextBytes, "bytes of text") };
  if (zip.has("word/document.xml")) yield* documentText(file);
  else if (zip.has("xl/workbook.xml")) yield* workbookText(file);
  else if (zip.has("ppt/presentation.xml")) yield* presentationText(file);
  else if (zip.has("META-INF/container.xml")) yield* bookText(file);
  else if (zip.has("content.xml")) yield* openDocumentText(file);
  else {
    throw new UnreadableFile(
      "unsupported_file",
      "The file is an unsupported archive. Supported are .docx, .xlsx, .pptx, .odt, .ods, .odp and .epub.",
    );
  }
}
