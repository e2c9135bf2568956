import type { TokenCount } from "./admission.ts";

/** What an answer of vLLM's own endpoints says that it has used, told from its bytes as they go by. */

/** vLLM says it at the end of an answer. Bytes. */
const TAIL_BYTES = 4_096;

const LINE_FEED = 10;

/** The numbers of OpenAI's and of Anthropic's usage. A model's own words have backslashes before their quotes. */
const FIELDS = {
  input: /"(?:prompt|input)_tokens":\s*(\d{1,12})/g,
  cached: /"(?:cached_tokens|cache_read_input_tokens)":\s*(\d{1,12})/g,
  output: /"(?:completion|output)_tokens":\s*(\d{1,12})/g,
};

/**
 * A body that is counted as it is read: the same bytes, and what was used, when they have ended or nobody reads them any more. Of
 * an answer that says nothing of it the input is as estimated, and each event of a stream a token of output.
 */
export function countedBody(
  body: ReadableStream<Uint8Array>,
  estimatedInput: () => number,
  onEnd: (used: TokenCount) => void,
): ReadableStream<Uint8Array> {
  const tail = new Tail();
  let hasEnded = false;
  const end = () => {
    if (hasEnded) return;
    hasEnded = true;
    onEnd(tail.used(estimatedInput));
  };
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!done) {
            tail.add(value);
            controller.enqueue(value);
            return;
          }
        } catch (error) {
          end();
          throw error;
        }
        end();
        controller.close();
      },
      async cancel(reason) {
        end();
        await reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}

/** The end of what has gone by, and how many events that was. */
class Tail {
  #bytes = new Uint8Array();
  #lines = 0;

  add(chunk: Uint8Array): void {
    for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, at + 1)) this.#lines += 1;
    const kept = this.#bytes.subarray(Math.max(0, this.#bytes.length + chunk.length - TAIL_BYTES));
    const added = chunk.subarray(-TAIL_BYTES);
    const bytes = new Uint8Array(kept.length + added.length);
    bytes.set(kept);
    bytes.set(added, kept.length);
    this.#bytes = bytes;
  }

  used(estimatedInput: () => number): TokenCount {
    const text = new TextDecoder().decode(this.#bytes);
    const last = (field: RegExp) => {
      const [, number] = [...text.matchAll(field)].at(-1) ?? [];
      return number === undefined ? undefined : Number(number);
    };
    const input = last(FIELDS.input);
    const output = last(FIELDS.output);
    // An event is a line of data and an empty one.
    const events = text.includes("\ndata: ") ? Math.floor(this.#lines / 2) : 0;
    return {
      input: input ?? estimatedInput(),
      cached: last(FIELDS.cached) ?? 0,
      output: output ?? (input === undefined ? events : 0),
    };
  }
}
