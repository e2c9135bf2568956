/** The bounds of the cost of reading one file. */
export interface TextLimits {
  /** Bytes of the file. */
  maxBytes: number;
  /** Bytes of its text, as UTF-8. */
  maxTextBytes: number;
  /** Pages, slides or sheets. */
  maxPages: number;
  /** Rows of a sheet that are shown. */
  maxRows: number;
  /** The bytes to which all compressed parts of a file may expand together. */
  maxExpandedBytes: number;
  /** Entries of a zip archive. */
  maxEntries: number;
  /** Elements of XML that are open at once. */
  maxDepth: number;
  /** Words of PDF syntax for one page, or to open the file. Reading one takes about a microsecond. */
  maxPageTokens: number;
}

export const DEFAULT_LIMITS: TextLimits = {
  maxBytes: 32 * 1024 * 1024,
  maxTextBytes: 8 * 1024 * 1024,
  maxPages: 10_000,
  maxRows: 1_048_576,
  maxExpandedBytes: 256 * 1024 * 1024,
  maxEntries: 10_000,
  maxDepth: 256,
  maxPageTokens: 5_000_000,
};

/**
 * A file without readable text: its format is not supported (`unsupported_file`), it violates its format
 * (`invalid_file`), or reading it would exceed the limits (`too_large`). The message is for the sender of the file, and
 * has none of its content.
 */
export class UnreadableFile extends Error {
  readonly code: "unsupported_file" | "invalid_file" | "too_large";

  constructor(code: UnreadableFile["code"], message: string) {
    super(message);
    this.name = "UnreadableFile";
    this.code = code;
  }
}

/** Counts something up to a limit. */
export class Allowance {
  readonly #limit: number;
  readonly #unit: string;
  #used = 0;

  /** `unit` is part of the error's message. */
  constructor(limit: number, unit: string) {
    this.#limit = limit;
    this.#unit = unit;
  }

  get left(): number {
    return this.#limit - this.#used;
  }

  /** Throws an UnreadableFile, `too_large`, beyond the limit. */
  take(count: number): void {
    this.#used += count;
    if (this.#used > this.#limit) {
      throw new UnreadableFile("too_large", `The file has more than ${this.#limit} ${this.#unit}.`);
    }
  }
}
