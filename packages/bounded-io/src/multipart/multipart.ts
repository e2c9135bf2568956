import { Buffer } from "node:buffer";

/** A part of a form: a field, or a file if it has a file's name. */
export interface FormPart {
  name: string;
  /** Null of a field. */
  filename: string | null;
  /** The `Content-Type` of the part. */
  type: string | null;
  /** Its bytes as they arrive. Those of one step are valid until the next step. */
  body: AsyncGenerator<Uint8Array, void>;
}

export interface PartLimits {
  maxParts: number;
  /** The maximum bytes of the headers of one part. */
  maxHeaderBytes: number;
  /** Before the first part. */
  maxPreambleBytes: number;
}

const LIMITS: PartLimits = { maxParts: 64, maxHeaderBytes: 8 * 1024, maxPreambleBytes: 8 * 1024 };

/** The body is no form, or an incomplete one. The message is for the client. */
export class MalformedForm extends Error {
  override readonly name = "MalformedForm";
}

/** RFC 2046: 1 to 70 characters. */
const BOUNDARY = /;\s*boundary\s*=\s*(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))\s*(?:;|$)/i;

/** The boundary in a `Content-Type`; undefined if it is no form's. */
export function boundaryOf(contentType: string): string | undefined {
  if (!/^multipart\/form-data\s*;/i.test(contentType)) return undefined;
  const match = BOUNDARY.exec(contentType);
  return match?.[1] ?? match?.[2];
}

/**
 * The parts of a form as they arrive. `read` gives the next bytes, valid until the next read, and undefined at the end.
 * Unread bytes of a part are skipped when the next part is requested. Reads nothing after the last part. Throws
 * MalformedForm, and the errors of `read`.
 */
export async function* readParts(
  read: () => Promise<Uint8Array | undefined>,
  boundary: string,
  limits: Partial<PartLimits> = {},
): AsyncGenerator<FormPart, void> {
  const { maxParts, maxHeaderBytes, maxPreambleBytes } = { ...LIMITS, ...limits };
  const source = new Source(read, boundary);
  let skipped = 0;
  for await (const bytes of source.untilDelimiter()) {
    skipped += bytes.length;
    if (skipped > maxPreambleBytes) throw new MalformedForm("The form does not begin with its boundary.");
  }
  for (let count = 0; !(await source.isLast()); count += 1) {
    if (count === maxParts) throw new MalformedForm(`The form has more than ${maxParts} parts.`);
    const headers = await source.headers(maxHeaderBytes);
    const body = source.untilDelimiter();
    yield { ...describedBy(headers), body };
    // A generator that was begun and left has ended, but the part has not.
    if (!source.isAtDelimiter) for await (const _ of source.untilDelimiter());
  }
}

const CRLF = Buffer.from("\r\n");
const NO_BYTES = Buffer.alloc(0);

/** White space after a boundary, which RFC 2046 allows. */
const MAX_PADDING = 64;

class Source {
  readonly #read: () => Promise<Uint8Array | undefined>;
  readonly #delimiter: Buffer;
  /** The bytes that were read, and nobody has taken. The line break before the first boundary belongs to no body. */
  #held: Buffer = CRLF;
  isAtDelimiter = false;

  constructor(read: () => Promise<Uint8Array | undefined>, boundary: string) {
    this.#read = read;
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, "latin1");
  }

  /** The bytes before the next delimiter, which is then read. */
  async *untilDelimiter(): AsyncGenerator<Uint8Array, void> {
    if (this.isAtDelimiter) return;
    for (;;) {
      const at = this.#held.indexOf(this.#delimiter);
      const end = at === -1 ? this.#held.length - this.#beginningAtEnd() : at;
      const bytes = this.#held.subarray(0, end);
      this.#held = this.#held.subarray(at === -1 ? end : at + this.#delimiter.length);
      this.isAtDelimiter = at !== -1;
      // A Buffer's `slice` is a view. Its bytes would change at the next read.
      if (bytes.length > 0) yield new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      if (at !== -1) return;
      await this.#readMore();
    }
  }

  /** After a delimiter: whether it was the form's last one. */
  async isLast(): Promise<boolean> {
    while (this.#held.length < 2) await this.#readMore();
    if (this.#held[0] === DASH && this.#held[1] === DASH) return true;
    let at = this.#held.indexOf(CRLF);
    while (at === -1 && this.#held.length <= MAX_PADDING) {
      await this.#readMore();
      at = this.#held.indexOf(CRLF);
    }
    const isPadding = at !== -1 && at <= MAX_PADDING && /^[ \t]*$/.test(this.#held.toString("latin1", 0, at));
    if (!isPadding) throw new MalformedForm("A boundary of the form is not followed by a line break.");
    // The line break stays: it is the first half of the empty line of a part without headers.
    this.#held = this.#held.subarray(at);
    return false;
  }

  /** The headers of a part, as text. */
  async headers(maxBytes: number): Promise<string> {
    for (;;) {
      const at = this.#held.indexOf("\r\n\r\n");
      if (at > maxBytes || (at === -1 && this.#held.length > maxBytes + 4)) {
        throw new MalformedForm(`The headers of a part have more than ${maxBytes} bytes.`);
      }
      if (at !== -1) {
        const text = this.#held.toString("utf8", 0, at);
        // An empty body's delimiter begins with the line break that ends the headers.
        this.#held = this.#held.subarray(at + 2);
        this.isAtDelimiter = false;
        await this.#skipLineBreak();
        return text;
      }
      await this.#readMore();
    }
  }

  /** The empty line has been read except its line break, which is skipped, unless a delimiter begins with it. */
  async #skipLineBreak(): Promise<void> {
    while (
      this.#held.length < this.#delimiter.length &&
      this.#delimiter.subarray(0, this.#held.length).equals(this.#held)
    ) {
      await this.#readMore();
    }
    const isDelimiter = this.#held.subarray(0, this.#delimiter.length).equals(this.#delimiter);
    if (!isDelimiter) this.#held = this.#held.subarray(CRLF.length);
  }

  /** The number of last bytes that may begin a delimiter. */
  #beginningAtEnd(): number {
    const { length } = this.#held;
    for (let at = this.#held.lastIndexOf(CR); at !== -1 && length - at < this.#delimiter.length; ) {
      if (this.#held.subarray(at).equals(this.#delimiter.subarray(0, length - at))) return length - at;
      at = at === 0 ? -1 : this.#held.lastIndexOf(CR, at - 1);
    }
    return 0;
  }

  async #readMore(): Promise<void> {
    // The reader's buffer has other content after the next read.
    const kept = this.#held.length === 0 ? NO_BYTES : Buffer.from(this.#held);
    const bytes = await this.#read();
    if (!bytes) throw new MalformedForm("The form ends before its closing boundary.");
    const more = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#held = kept.length === 0 ? more : Buffer.concat([kept, more]);
  }
}

const CR = 0x0d;
const DASH = 0x2d;

function describedBy(headers: string): Pick<FormPart, "name" | "filename" | "type"> {
  let disposition: string | undefined;
  let type: string | null = null;
  for (const line of headers.split("\r\n")) {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon)).trim().toLowerCase();
    if (name === "content-disposition") disposition ??= line.slice(colon + 1).trim();
    if (name === "content-type") type ??= line.slice(colon + 1).trim() || null;
  }
  if (disposition === undefined || !/^form-data\s*(;|$)/i.test(disposition)) {
    throw new MalformedForm("A part of the form has no 'Content-Disposition: form-data'.");
  }
  const parameters = parametersIn(disposition);
  const name = parameters.get("name");
  if (name === undefined) throw new MalformedForm("A part of the form has no name.");
  const encoded = parameters.get("filename*");
  const plain = parameters.get("filename");
  const filename = (encoded === undefined ? undefined : decodedExtended(encoded)) ?? (plain && decodedWords(plain));
  return { name, filename: filename ?? null, type };
}

/** Sticky: an invalid header ends the reading, which never restarts further on. */
const PARAMETER = /;\s*([\w*.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))\s*/y;

/** The first of each name counts. */
function parametersIn(disposition: string): Map<string, string> {
  const parameters = new Map<string, string>();
  PARAMETER.lastIndex = Math.max(0, disposition.indexOf(";"));
  for (let match = PARAMETER.exec(disposition); match; match = PARAMETER.exec(disposition)) {
    const [, name = "", quoted, bare = ""] = match;
    const key = name.toLowerCase();
    if (!parameters.has(key)) parameters.set(key, quoted === undefined ? bare : unquoted(quoted));
  }
  return parameters;
}

/**
 * Browsers, undici and httpx write a quote as `%22` and line breaks likewise; curl and others write `\"`. A backslash
 * before anything else is one of a path.
 */
function unquoted(text: string): string {
  return text.replaceAll(/\\(["\\])/g, "$1").replaceAll(/%(22|0D|0A)/gi, (_, code: string) => {
    return String.fromCharCode(Number.parseInt(code, 16));
  });
}

/** Words of RFC 2047, as .NET writes a name that is not ASCII: `=?utf-8?B?bmHDr3ZlLnR4dA==?=`. Other text stays as it is. */
const WORDS = /^\s*(?:=\?[\w-]{1,40}\?[bq]\?[^?\s]*\?=\s*)+$/i;

function decodedWords(text: string): string {
  if (!WORDS.test(text)) return text;
  try {
    return text.trim().replaceAll(/=\?([\w-]+)\?([bq])\?([^?]*)\?=\s*/gi, (_, charset, form: string, word: string) => {
      const bytes =
        form.toLowerCase() === "b"
          ? Buffer.from(word, "base64")
          : Buffer.from(
              word
                .replaceAll("_", " ")
                .replaceAll(/=([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
              "latin1",
            );
      return new TextDecoder(charset, { fatal: true, ignoreBOM: false }).decode(bytes);
    });
  } catch {
    return text;
  }
}

/** RFC 5987, such as `utf-8''na%C3%AFve.txt`; undefined if the text has another form. */
function decodedExtended(text: string): string | undefined {
  const value = /^utf-8'[^']*'(.*)$/i.exec(text)?.[1];
  try {
    return value === undefined ? undefined : decodeURIComponent(value);
  } catch {
    return undefined;
  }
}
