import { Buffer } from "node:buffer";
import { JsonMember } from "@responses-edge/bounded-io/json-text";
import { BYTES_PER_TOKEN } from "@responses-edge/responses-api/estimate";
import { isJsonObject } from "@responses-edge/responses-api/json";
import { type PassedReader, passedBytes } from "./passed-bytes.ts";

/** Counts the tokens of an answer of vLLM's own endpoints, from the usage that the model server reports, while the bytes pass. */

/** An event that may have to be left out is held until its end. A longer one is passed, because it has more than usage in it. Bytes. */
const MAX_HELD_BYTES = 16 * 1024;

/** Approximate bytes around the text in an event. */
const ENVELOPE_BYTES = 256;

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const DATA = new TextEncoder().encode("data:");

/** Tokens, as they were counted or estimated. */
export interface TokenCount {
  input: number;
  cached: number;
  output: number;
  /** Seconds of sound, or other units that an answer reports beside tokens. */
  units?: number;
}

export interface CountedAnswer {
  /** The content type. */
  type: string;
  /** True leaves out events that hold only usage: this server has asked for them, not the client. */
  hidesUsage: boolean;
  /** The tokens that the request has reserved. They count as used if the answer reports none. */
  reserved: () => TokenCount;
}

/**
 * The body, counted as it is read. `onEnd` is called once, when the body has ended or nobody reads it any more. It gets
 * the last usage that the answer reported. A stream without usage counts the reserved input, and a token for each
 * event, or more for long events. Any other answer without usage counts all that was reserved.
 */
export function countedBody(
  body: ReadableStream<Uint8Array>,
  { type, hidesUsage, reserved }: CountedAnswer,
  onEnd: (used: TokenCount) => void,
): ReadableStream<Uint8Array> {
  const counter: Counter = type.startsWith("text/event-stream")
    ? new EventCounter(hidesUsage)
    : new BodyCounter(/^application\/(?:[^;]*\+)?json\b/.test(type));
  return passedBytes(body, counter, () => onEnd(counter.used(reserved)));
}

interface Counter extends PassedReader {
  used(reserved: () => TokenCount): TokenCount;
}

/** An answer that is one JSON text, or no JSON at all. */
class BodyCounter implements Counter {
  readonly #member: JsonMember | undefined;
  #told: ToldUsage = {};

  constructor(isJson: boolean) {
    if (isJson) this.#member = new JsonMember("usage", (usage) => Object.assign(this.#told, readUsage(usage)));
  }

  push(bytes: Uint8Array): readonly Uint8Array[] {
    this.#member?.push(bytes);
    return [bytes];
  }

  end(): readonly Uint8Array[] {
    return [];
  }

  used(reserved: () => TokenCount): TokenCount {
    const { input, cached = 0, output, units } = this.#told;
    const tokens = input === undefined ? reserved() : { input, cached, output: output ?? 0 };
    return units === undefined ? tokens : { ...tokens, units };
  }
}

/** A stream of server-sent events (HTML Living Standard, 9.2.6), each of whose data is a JSON text. */
class EventCounter implements Counter {
  readonly #hidesUsage: boolean;
  /** Anthropic's first event has the usage in its `message`. */
  readonly #member = new JsonMember("usage", (usage) => this.#take(usage), "message");
  #told: ToldUsage = {};
  #events = 0;
  #dataBytes = 0;
  /** Bytes of the current line, up to the length that shows its field. */
  #column = 0;
  #isData = true;
  /** The event has data, and reports usage. */
  #hasData = false;
  #tellsUsage = false;
  /** The beginning of the event, which came in earlier reads. */
  #held: Uint8Array[] = [];
  #heldBytes = 0;
  /** The beginning of the event was passed on already. */
  #isGiven = false;

  constructor(hidesUsage: boolean) {
    this.#hidesUsage = hidesUsage;
  }

  push(bytes: Uint8Array): readonly Uint8Array[] {
    const given: Uint8Array[] = [];
    /** Beginning of the bytes that were not passed on yet, and of the event in them. */
    let from = 0;
    let eventAt = 0;
    for (let at = 0; at < bytes.length; ) {
      const newline = bytes.indexOf(LINE_FEED, at);
      const end = newline === -1 ? bytes.length : newline;
      this.#readLine(bytes, at, end);
      if (newline === -1) break;
      at = newline + 1;
      const isBlank = this.#column === 0;
      this.#column = 0;
      this.#isData = true;
      if (!isBlank) continue;
      const isHidden = this.#isHidden(bytes.subarray(eventAt, at));
      if (isHidden) {
        if (eventAt > from) given.push(bytes.subarray(from, eventAt));
        from = at;
      } else given.push(...this.#held);
      this.#beginEvent();
      eventAt = at;
    }
    const isHeld = this.#hidesUsage && !this.#isGiven && this.#heldBytes + bytes.length - eventAt <= MAX_HELD_BYTES;
    if (!isHeld && eventAt < bytes.length) {
      given.push(...this.#held);
      this.#held = [];
      this.#isGiven = true;
    }
    const until = isHeld ? eventAt : bytes.length;
    if (until > from) given.push(bytes.subarray(from, until));
    if (until < bytes.length) {
      this.#held.push(bytes.slice(until));
      this.#heldBytes += bytes.length - until;
    }
    return given;
  }

  end(): readonly Uint8Array[] {
    return this.#held;
  }

  used(reserved: () => TokenCount): TokenCount {
    const { input, cached = 0, output } = this.#told;
    if (input !== undefined && output !== undefined && output > 0) return { input, cached, output };
    const most = reserved();
    const long = Math.ceil(Math.max(0, this.#dataBytes - this.#events * ENVELOPE_BYTES) / BYTES_PER_TOKEN);
    const estimated = Math.max(1, this.#events, Math.min(most.output, this.#events + long));
    return { input: input ?? most.input, cached, output: estimated };
  }

  /** Reads a line, or a part of it, without its end. */
  #readLine(bytes: Uint8Array, start: number, end: number): void {
    let at = start;
    for (; at < end && this.#column < DATA.length; at += 1) {
      if (bytes[at] === CARRIAGE_RETURN && at === end - 1) break;
      if (bytes[at] !== DATA[this.#column]) this.#isData = false;
      this.#column += 1;
    }
    if (!this.#isData || this.#column < DATA.length) return;
    if (at < end) this.#hasData = true;
    this.#dataBytes += end - at;
    this.#member.push(bytes, at, end);
  }

  #take(usage: unknown): void {
    const told = readUsage(usage);
    if (!told) return;
    this.#tellsUsage = true;
    Object.assign(this.#told, told);
  }

  /** True for an event that holds only usage and is left out. `last`: its bytes of this read. */
  #isHidden(last: Uint8Array): boolean {
    if (!this.#hidesUsage || !this.#tellsUsage || this.#isGiven) return false;
    if (this.#heldBytes + last.length > MAX_HELD_BYTES) return false;
    const lines: string[] = Buffer.concat([...this.#held, last])
      .toString()
      .split("\n");
    const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(DATA.length));
    try {
      const { choices } = JSON.parse(data.join("\n")) as { choices?: unknown };
      return Array.isArray(choices) && choices.length === 0;
    } catch {
      return false;
    }
  }

  #beginEvent(): void {
    if (this.#hasData) this.#events += 1;
    this.#member.reset();
    this.#hasData = false;
    this.#tellsUsage = false;
    this.#held = [];
    this.#heldBytes = 0;
    this.#isGiven = false;
  }
}

/** Tokens that a model server has reported. */
type ToldUsage = Partial<TokenCount>;

/**
 * Reads the usage that OpenAI's, Anthropic's and Jina's APIs report. Undefined where it has no counts. Speech is reported in
 * seconds, which are its units. Anthropic's `input_tokens` are those that are neither read from the cache nor written to it.
 */
function readUsage(usage: unknown): ToldUsage | undefined {
  if (!isJsonObject(usage)) return undefined;
  const { prompt_tokens_details: details } = usage;
  const fresh = count(usage.input_tokens);
  const read = count(usage.cache_read_input_tokens);
  const written = count(usage.cache_creation_input_tokens);
  const output = count(usage.completion_tokens) ?? count(usage.output_tokens);
  const total = count(usage.total_tokens);
  const input =
    count(usage.prompt_tokens) ??
    (fresh === undefined ? undefined : fresh + (read ?? 0) + (written ?? 0)) ??
    (total === undefined ? undefined : Math.max(0, total - (output ?? 0)));
  const cached = (isJsonObject(details) ? count(details.cached_tokens) : undefined) ?? read;
  const seconds = count(usage.seconds);
  if (input === undefined && output === undefined && seconds === undefined) return undefined;
  return {
    ...(seconds !== undefined && { units: seconds }),
    ...(input !== undefined && { input }),
    ...(cached !== undefined && { cached }),
    ...(output !== undefined && { output }),
  };
}

function count(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined;
}
