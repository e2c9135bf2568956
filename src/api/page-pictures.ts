import { isPdf, type TextPage } from "@responses-edge/file-text";
import type { InputPart } from "@responses-edge/responses-api/items/parts";
import type { Config } from "../config/index.ts";
import { drawnPages, type FileToPages } from "../store/tenant/files/read-text.ts";

/** The pages of a request's PDFs that a model that sees is given as pictures, beside their text. */

type Detail = NonNullable<Extract<InputPart, { type: "input_file" }>["detail"]>;

/**
 * The longer edge of a picture by `detail`, in pixels. An A4 page at 1,024 is about 950 tokens of a model with patches of 28 pixels, and text
 * of 8 points is still legible; 768 is about 520, and 1,536 about 2,100.
 */
const EDGES: Readonly<Record<Detail, number>> = { low: 768, auto: 1_024, high: 1_536 };

/** The longest total of a request's pictures, as base64. They are stored with the item, and sent in every turn. UTF-16 units. */
const MAX_LENGTH = 8 * 1024 * 1024;

/** The pages of a file that were drawn. */
export interface ShownPages {
  /** Data URLs, by the pages' numbers. */
  pictures: ReadonlyMap<number, string>;
  /** Lines for the model about pages that are not shown, and why. */
  notes: string[];
}

/** Draws pages for one request, whose files share the bounds. */
export class PagePictures {
  readonly #which: Config["files"]["pictures"];
  readonly #most: number;
  #count = 0;
  /** UTF-16 units of all pictures. */
  length = 0;

  constructor({ pictures, maxPictures }: Pick<Config["files"], "pictures" | "maxPictures">) {
    this.#which = pictures;
    this.#most = maxPictures;
  }

  /** Tells whether pages are given as pictures at all. */
  static isOn({ pictures, maxPictures }: Pick<Config["files"], "pictures" | "maxPictures">): boolean {
    return pictures !== "none" && maxPictures > 0;
  }

  /**
   * Draws those pages of a file that are worth a picture. Within the bounds, pages without text come first, then those with images and
   * drawings. Rejects as `drawnPages` does.
   */
  async of(file: FileToPages, pages: readonly TextPage[], detail: Detail = "auto"): Promise<ShownPages> {
    const numbers = isPdf(file.bytes) ? this.#wanted(pages, detail) : [];
    const chosen = numbers.slice(0, this.#most - this.#count);
    const pictures = new Map<number, string>();
    const failed: number[] = [];
    if (chosen.length > 0) {
      for await (const { page, jpeg } of drawnPages(file, { pages: ascending(chosen), edge: EDGES[detail] })) {
        if (jpeg === null || this.length + jpeg.length > MAX_LENGTH) continue;
        this.length += jpeg.length;
        pictures.set(page, `data:image/jpeg;base64,${jpeg}`);
      }
      failed.push(...chosen.filter((page) => !pictures.has(page)));
    }
    this.#count += pictures.size;
    const notes = [
      notShown(numbers.slice(chosen.length), `a request has at most ${this.#most} pictures of pages`),
      notShown(failed, "drawing them takes too much, or fails"),
    ];
    return { pictures, notes: notes.filter((note) => note !== "") };
  }

  /** The numbers of the pages that are worth a picture, the most important ones first. */
  #wanted(pages: readonly TextPage[], detail: Detail): number[] {
    const isAll = this.#which === "all" || detail === "high";
    const kinds = ["needed", "useful", ...(isAll ? [undefined] : [])];
    return kinds.flatMap((kind) => pages.filter(({ picture }) => picture === kind)).flatMap(({ page }) => page ?? []);
  }
}

function ascending(numbers: readonly number[]): number[] {
  return numbers.toSorted((a, b) => a - b);
}

/** Most ranges of pages that a note names. */
const MAX_RANGES = 20;

/** A note on pages without a picture; empty for no pages. */
function notShown(pages: readonly number[], why: string): string {
  if (pages.length === 0) return "";
  const ranges: [from: number, to: number][] = [];
  for (const page of ascending(pages)) {
    const last = ranges.at(-1);
    if (last && page === last[1] + 1) last[1] = page;
    else ranges.push([page, page]);
  }
  const named = ranges.slice(0, MAX_RANGES).map(([from, to]) => (from === to ? `${from}` : `${from} to ${to}`));
  const more = ranges.length > MAX_RANGES ? " and others" : "";
  return `[Not shown as pictures: ${pages.length === 1 ? "page" : "pages"} ${named.join(", ")}${more}, because ${why}.]`;
}
