import type { FoundChunk } from "@responses-edge/responses-api/platform/vector-stores";

/** Results as a model sees them, and the sources of their marks. */

export interface Source {
  file_id: string;
  filename: string;
}

/**
 * The results of a search with this number. Each has a mark (`【0:1†source】`: the second result of the first search), its file's
 * id and name, perhaps its pages, and its text. Texts of files cannot imitate a mark: their brackets are replaced.
 */
export function shownResults(
  number: number,
  found: readonly Pick<FoundChunk, "fileId" | "filename" | "text" | "page" | "lastPage">[],
): string {
  if (found.length === 0) return "Nothing was found.";
  const shown = found.map(({ fileId, filename, text, page, lastPage }, index) => {
    const head = `【${number}:${index}†source】 ${fileId} ${withoutMarks(filename).replaceAll(/\s+/g, " ")}`;
    return [head, ...pagesOf(page, lastPage), withoutMarks(text)].join("\n");
  });
  return shown.join("\n\n");
}

function pagesOf(page: number | null, last: number | null): string[] {
  if (page === null) return [];
  return [last === null || last === page ? `[page ${page}]` : `[pages ${page}-${last}]`];
}

function withoutMarks(text: string): string {
  return text.replaceAll("【", "[").replaceAll("】", "]");
}

const HEAD = /^【([0-9]+:[0-9]+)†source】 (\S+) (.*)$/gm;

/** The sources that the marks in shown results cite. */
export function sourcesIn(shown: string): Map<string, Source> {
  const heads = [...shown.matchAll(HEAD)];
  return new Map(heads.map(([, mark = "", file_id = "", filename = ""]) => [mark, { file_id, filename }]));
}
