import { type TextPage, UnreadableFile } from "@responses-edge/file-text";
import { fromCell, type StoredCell, toCells } from "../../objects/row-pieces.ts";
import type { Schema } from "../../objects/schema.ts";
import { readText } from "./read-text.ts";
import { type Recognition, readWithScans } from "./scanned-pages.ts";

/** The result of reading a file's text: it is stored, or the file is unreadable. */
export type TextOutcome =
  | { ok: true }
  /** `isScan`: a model that reads pictures would find the text, and there was none. */
  | { ok: false; code: UnreadableFile["code"]; message: string; isScan?: boolean };

/**
 * A page is a sequence of rows, of which the first begins it: 1, or 2 if not all of the page could be read. The outcome is written when all
 * pages are. Until then, the text of a page that was read from its picture has its negative number as its `seq`, so that no later process
 * pays for it again.
 */
export const TEXT_TABLES = [
  "CREATE TABLE page (seq INTEGER PRIMARY KEY, number INTEGER, begins INTEGER NOT NULL, cell BLOB NOT NULL)",
  "CREATE TABLE outcome (body TEXT NOT NULL)",
];

/** Says how a scan can be read. */
const NO_OCR =
  "Recognise its text (OCR) first, or let the operator of this server set OCR_MODEL, then add the file again.";

/** The text of a file: read once, at the first request for it, and stored in rows beside the bytes. */
export class KeptText {
  readonly #schema: Schema;
  readonly #tenant: string;
  #making: Promise<TextOutcome> | undefined;
  /** Counts erasures, so that text of an erased file is not stored. */
  #life = 0;

  constructor(schema: Schema, tenant: string) {
    this.#schema = schema;
    this.#tenant = tenant;
  }

  /** The result of reading the text; undefined before the first request for it. */
  get outcome(): TextOutcome | undefined {
    const [row] = this.#schema.rows<{ body: string }>("SELECT body FROM outcome");
    return row && (JSON.parse(row.body) as TextOutcome);
  }

  /**
   * Makes the text from the bytes that `read` gives, as `readText` does; `ocr` reads scanned pages. A second caller waits for the same text.
   */
  make(
    about: { filename: string; mimeType: string | null },
    read: () => Promise<Uint8Array>,
    ocr?: Recognition,
  ): Promise<TextOutcome> {
    this.#making ??= this.#make(about, read, ocr).finally(() => {
      this.#making = undefined;
    });
    return this.#making;
  }

  /** The pages, one at a time. */
  *pages(): Generator<TextPage> {
    const select = "SELECT number, begins, cell FROM page WHERE seq = ?";
    let page: TextPage | undefined;
    for (let seq = 0; ; seq += 1) {
      const [row] = this.#schema.rows<{ number: number | null; begins: number; cell: StoredCell }>(select, seq);
      if (page && (!row || row.begins > 0)) {
        yield page;
        page = undefined;
      }
      if (!row) return;
      page ??= { page: row.number, text: "", ...(row.begins === 2 && { isPartial: true }) };
      page.text += fromCell(row.cell);
    }
  }

  #recognised(page: number): string | undefined {
    const [row] = this.#schema.rows<{ cell: StoredCell }>("SELECT cell FROM page WHERE seq = ?", -page);
    return row && fromCell(row.cell);
  }

  /** To be called after everything was deleted. */
  forget(): void {
    this.#life += 1;
  }

  async #make(
    { filename, mimeType }: { filename: string; mimeType: string | null },
    read: () => Promise<Uint8Array>,
    ocr: Recognition | undefined,
  ): Promise<TextOutcome> {
    const life = this.#life;
    const write = (statement: string, ...bindings: SqlStorageValue[]) => {
      if (life !== this.#life) throw new Error("The file was removed meanwhile.");
      this.#schema.write(statement, ...bindings);
    };
    const bytes = await read();
    // An earlier process may have died while writing.
    write("DELETE FROM page WHERE seq >= 0");
    write("DELETE FROM outcome");
    const resumed: Recognition | undefined = ocr && {
      ...ocr,
      known: (page) => this.#recognised(page),
      keep: (page, text) =>
        write("INSERT INTO page (seq, number, begins, cell) VALUES (?, ?, 1, ?)", -page, page, text),
    };
    let outcome: TextOutcome = { ok: true };
    let isScan = false;
    let seq = 0;
    try {
      const about = { filename, mimeType: mimeType ?? undefined };
      const file = { bytes, about, tenant: this.#tenant };
      const pages = resumed ? readWithScans(file, resumed) : readText(file);
      for await (const { page, text, picture, isPartial } of pages) {
        isScan ||= picture === "needed";
        for (const [index, cell] of toCells(text).entries()) {
          const insert = "INSERT INTO page (seq, number, begins, cell) VALUES (?, ?, ?, ?)";
          write(
            insert,
            seq,
            page,
            index > 0 ? 0 : isPartial ? 2 : 1,
            typeof cell === "string" ? cell : cell.slice().buffer,
          );
          seq += 1;
        }
      }
    } catch (error) {
      if (!(error instanceof UnreadableFile)) throw error;
      write("DELETE FROM page");
      const { code, message } = error;
      // After its pages: it has nothing but scans.
      const helps = code === "unsupported_file" && isScan;
      outcome = { ok: false, code, message: helps ? `${message} ${NO_OCR}` : message, ...(helps && { isScan }) };
    }
    write("DELETE FROM page WHERE seq < 0");
    write("INSERT INTO outcome (body) VALUES (?)", JSON.stringify(outcome));
    return outcome;
  }
}
