import { UnreadableFile } from "./limits.ts";
import { type PackedFile, readPart } from "./packed-file.ts";
import { decodePage, PageText, tokenizeHtml } from "./page-text/index.ts";
import type { TextPage } from "./text-page.ts";

/** The text of a book (EPUB 3.3): a page for each document of its spine, in reading order. */
export async function* bookText(file: PackedFile): AsyncGenerator<TextPage> {
  const { zip, limits } = file;
  let root = "";
  await readPart(file, "META-INF/container.xml", {
    open(name, attributes) {
      if (name === "rootfile" && root === "") root = attributes("full-path") ?? "";
    },
    close() {},
    text() {},
  });
  if (!zip.has(root))
    throw new UnreadableFile("unsupported_file", "The file is an unsupported archive: no book is in it.");
  const folder = root.slice(0, root.lastIndexOf("/") + 1);
  const documents = new Map<string, string>();
  const spine: string[] = [];
  await readPart(file, root, {
    open(name, attributes) {
      if (documents.size + spine.length > limits.maxEntries + limits.maxPages) return;
      if (name === "item") documents.set(attributes("id") ?? "", attributes("href") ?? "");
      else if (name === "itemref") spine.push(attributes("idref") ?? "");
    },
    close() {},
    text() {},
  });
  if (spine.length > limits.maxPages)
    throw new UnreadableFile("too_large", `The file has more than ${limits.maxPages} pages.`);
  let number = 0;
  for (const id of spine) {
    const part = folder + pathOf(documents.get(id) ?? "");
    if (!zip.has(part)) continue;
    const pieces = await Array.fromAsync(zip.read(part));
    const page = new PageText("", { maxTextChars: file.text.left, maxLinkChars: 0 });
    tokenizeHtml(
      decodePage(new Uint8Array(await new Blob(pieces as Uint8Array<ArrayBuffer>[]).arrayBuffer()), undefined, false),
      page,
    );
    const text = page.finish();
    file.text.take(text.length);
    number += 1;
    if (text !== "") yield { page: number, text };
  }
}

function pathOf(href: string): string {
  try {
    return decodeURIComponent(href.split("#")[0] ?? "");
  } catch {
    return href;
  }
}
