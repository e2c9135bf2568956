import { ApiError } from "@responses-edge/responses-api/errors";
import { isJson } from "@responses-edge/responses-api/json";

/** The longest line: the ids of a million-token prompt are 8 million. In characters. */
const MAX_LINE_LENGTH = 16 * 1024 * 1024;

/** Pieces that are joined into one, so that a line that comes byte by byte does not cost a string per byte. */
const JOINED_PIECES = 1024;

/**
 * Cuts an SSE byte stream into the payloads of its `data:` lines, at any read boundaries: inside a UTF-8 character, a
 * CRLF or a line. Other lines (comments, `event:`, blank) are not needed for vLLM's streams, and vLLM writes one
 * `data:` line per event, so a payload is a line.
 */
export class SseDecoder {
  readonly #decoder = new TextDecoder();
  /** The pieces of the unfinished last line, which are joined once, however many reads it takes. */
  #pieces: string[] = [];
  /** Its last pieces, fewer than `JOINED_PIECES`. */
  #latest: string[] = [];
  #length = 0;

  /** The payloads completed by `bytes`. Throws ApiError 502 for a line that is too long. */
  push(bytes: Uint8Array): string[] {
    return this.#cut(this.#decoder.decode(bytes, { stream: true }));
  }

  /** The payload of a last line without a newline, unless it was cut off. */
  end(): string[] {
    return this.#cut(`${this.#decoder.decode()}\n`).filter((payload) => payload === "[DONE]" || isJson(payload));
  }

  #cut(text: string): string[] {
    const payloads: string[] = [];
    let start = 0;
    for (;;) {
      const newline = text.indexOf("\n", start);
      if (newline === -1) break;
      let line = text.slice(start, newline);
      if (this.#length > 0) {
        line = this.#pieces.join("") + this.#latest.join("") + line;
        this.#pieces = [];
        this.#latest = [];
        this.#length = 0;
      }
      start = newline + 1;
      if (!line.startsWith("data:")) continue;
      const from = line.charCodeAt(5) === 32 ? 6 : 5;
      const to = line.endsWith("\r") ? line.length - 1 : line.length;
      if (to > from) payloads.push(line.slice(from, to));
    }
    if (start < text.length) {
      this.#keep(text.slice(start));
      if (this.#length > MAX_LINE_LENGTH) throw malformedStream();
    }
    return payloads;
  }

  #keep(piece: string): void {
    this.#length += piece.length;
    if (this.#latest.push(piece) < JOINED_PIECES) return;
    this.#pieces.push(this.#latest.join(""));
    this.#latest = [];
  }
}

/** 502: the upstream's stream is not what vLLM sends. */
export function malformedStream(): ApiError {
  return new ApiError({
    status: 502,
    message: "The model server sent a malformed stream.",
    code: "upstream_malformed_response",
  });
}
