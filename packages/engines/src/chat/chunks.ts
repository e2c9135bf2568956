import { PairedText } from "@responses-edge/bounded-io/json-text";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { type ApiError, toApiError } from "@responses-edge/responses-api/errors";
import type { FinishReason, ModelDelta, TokenLogprob } from "@responses-edge/turn/contract/engine";
import { ANSWER_BEGINNING, MARK_BEGINNING } from "@responses-edge/turn/contract/model-markup/families";
import { clientFault } from "../client-faults.ts";
import type { StopStrings } from "../stop-strings.ts";
import { readFault, toFaultError } from "../upstream-faults.ts";
import { type AnswerReader, malformedStream, toFinishReason, toUsage, type VllmUsage } from "../vllm-stream.ts";
import { CallNumbers } from "./call-numbers.ts";
import { LogprobAligner } from "./logprobs.ts";
import { MarkedText, type MarkupUse } from "./marked-text.ts";
import { ThoughtCount, type Timings, usageSoFar } from "./own-counts.ts";

/**
 * Chunks of vLLM's chat completions, and its whole completions, as model deltas.
 *
 * Read leniently, because vLLM's versions differ (docs/deviations.md): fields may be absent, null or empty, and
 * `reasoning` was `reasoning_content` before 0.16. A field of another type is a malformed answer. The types here are
 * what vLLM should send: nothing is checked yet.
 */

interface ChatToolCall {
  index?: number;
  id?: string | null;
  function?: { name?: string | null; arguments?: string | null };
}

interface ChatMessageDelta {
  content?: string | null;
  reasoning?: string | null;
  reasoning_content?: string | null;
  refusal?: string | null;
  tool_calls?: ChatToolCall[] | null;
}

interface ChatLogprob {
  token: string;
  logprob: number | null;
  bytes?: number[] | null;
  top_logprobs?: ChatLogprob[];
}

interface ChatChoice {
  index?: number;
  delta?: ChatMessageDelta | null;
  message?: ChatMessageDelta | null;
  logprobs?: { content?: ChatLogprob[] | null } | null;
  finish_reason?: string | null;
  /** With `return_token_ids`. */
  token_ids?: number[] | null;
}

interface ChatChunk {
  object?: string;
  error?: unknown;
  choices?: ChatChoice[] | null;
  usage?: VllmUsage | null;
  timings?: Timings | null;
  kv_transfer_params?: unknown;
}

const NO_LOGPROBS: TokenLogprob[] = [];
const NO_CALLS: readonly never[] = [];

/** vLLM writes this for a logprob of minus infinity, which JSON cannot carry. */
const LOGPROB_FLOOR = -9999;

/** Most white space before the first word of an answer that may be a call in bare JSON, in characters. */
const MAX_SPACE = 8;

export interface ChunkReaderOptions extends AnswerTextOptions {
  /** Output tokens before which no stop string counts. */
  minTokens?: number | undefined;
  /** The number of alternatives of a token that were asked for. A server may send more. */
  topLogprobs?: number | undefined;
  /** The request whose fields the faults of the answer name. */
  request?: CreateRequest;
  /** How thoughts and calls are found that the server has left in the text; undefined: not at all. */
  markup?: MarkupUse | undefined;
}

/** Reads one answer of vLLM, in chunks or as a whole. */
export class ChunkReader implements AnswerReader {
  /** Set if the server gives logprobs. */
  #logprobs: LogprobAligner | undefined;
  readonly #text: AnswerText;
  readonly #continues: boolean;
  readonly #minTokens: number;
  readonly #topLogprobs: number;
  readonly #request: CreateRequest | undefined;
  readonly #markup: MarkupUse | undefined;
  /** The text of the answer, until it may have markup. */
  #said = "";
  /** Set once the text may have markup. */
  #marked: MarkedText | undefined;
  #reasoned = false;
  readonly #thoughts = new ThoughtCount();
  /** A stop string has ended the answer, and its usage is known: the rest is not wanted. */
  isOver = false;
  /** The finish reason has come: the answer is complete, except perhaps for its usage. */
  isFinished = false;
  /** Text has come as `content`. */
  #hasText = false;
  readonly #calls = new CallNumbers();
  readonly #reasoningText = new PairedText();
  readonly #contentText = new PairedText();
  readonly #argumentsText = new PairedText();
  #hasCalls = false;
  /** The usage of a chunk with choices, until one without choices has come: some servers send only the former. */
  #usageSoFar: VllmUsage | undefined;

  constructor(options: ChunkReaderOptions = {}) {
    this.#text = new AnswerText(options);
    this.#continues = options.continues ?? false;
    this.#minTokens = options.minTokens ?? 0;
    this.#topLogprobs = options.topLogprobs ?? 0;
    this.#request = options.request;
    this.#markup = options.markup;
    if (options.markup?.beginsInThought) this.#marked = new MarkedText(options.markup, "", this.#text, this.#thoughts);
  }

  readAll(payloads: readonly string[], deltas: ModelDelta[]): ApiError | undefined {
    try {
      for (const payload of payloads) if (payload !== "[DONE]") this.read(JSON.parse(payload), deltas);
    } catch (fault) {
      return fault instanceof SyntaxError ? malformedStream() : toApiError(fault);
    }
    return undefined;
  }

  /** Adds the deltas of a chunk, or of a completion that came whole, to `deltas`. Throws ApiError for an error, and for what is neither. */
  read(body: unknown, deltas: ModelDelta[]): void {
    const chunk = object<ChatChunk>(body);
    if (chunk.error != null || chunk.object === "error") {
      const fault = readFault(chunk);
      const error = toFaultError(fault?.status ?? 500, fault);
      throw this.#request ? clientFault(error, this.#request) : error;
    }
    if (chunk.timings) chunk.usage ??= usageSoFar(chunk.timings);
    const choices = list(chunk.choices);
    // Only one answer was asked for; further choices are ignored.
    let choice: ChatChoice | undefined;
    for (const each of choices) if ((object<ChatChoice>(each).index ?? 0) === 0) choice ??= each;
    const wasStopped = this.#text.stopped;
    if (choice && !wasStopped) {
      const entries = list(choice.logprobs?.content);
      if (entries.length > 0) {
        this.#logprobs ??= new LogprobAligner(this.#hasCalls);
        this.#logprobs.push(entries.map((entry) => toTokenLogprob(entry, this.#topLogprobs)));
      }
      const delta = choice.delta ?? choice.message;
      if (delta != null) {
        const isBound = (chunk.usage?.completion_tokens ?? Number.POSITIVE_INFINITY) > this.#minTokens;
        this.#readDelta(object<ChatMessageDelta>(delta), deltas, isBound);
      }
      if (choice.token_ids != null) deltas.push({ kind: "sampled", sampled: { ids: [...list(choice.token_ids)] } });
      const said = text(choice.finish_reason);
      const reason = this.#text.stopped ? "stop" : said === "" ? undefined : toFinishReason(said);
      if (reason) {
        this.#marked?.end(reason, deltas);
        this.#text.end(reason, deltas);
        deltas.push({ kind: "finish", reason });
        this.isFinished = true;
      }
    } else if (!chunk.choices && !chunk.usage) {
      throw malformedStream();
    }
    // With `continuous_usage_stats` every chunk has usage, and only the one without choices is complete. A whole
    // completion has both in one, and the last usage of an ended answer is complete.
    if (chunk.usage && !this.isOver && (choices.length === 0 || choice?.message || this.#text.stopped)) {
      deltas.push({ kind: "usage", usage: this.#usage(chunk.usage) });
      this.#usageSoFar = undefined;
      this.isOver = this.#text.stopped;
    } else if (chunk.usage && !this.isOver) this.#usageSoFar = chunk.usage;
    if (chunk.kv_transfer_params != null) deltas.push({ kind: "kv_transfer_params", value: chunk.kv_transfer_params });
  }

  /** Adds the known usage at the end of a stream that has not reported it. */
  end(deltas: ModelDelta[]): void {
    if (this.#usageSoFar) deltas.push({ kind: "usage", usage: this.#usage(this.#usageSoFar) });
    this.#usageSoFar = undefined;
  }

  /** vLLM's counts, without reasoning that was really text (`#readDelta`). */
  #usage(reported: VllmUsage) {
    const told = toUsage(reported);
    const usage = this.#reasoned || this.#marked ? this.#thoughts.completed(told) : told;
    return this.#continues && !this.#reasoned ? { ...usage, output_tokens_details: { reasoning_tokens: 0 } } : usage;
  }

  #readDelta(delta: ChatMessageDelta, deltas: ModelDelta[], isBound: boolean): void {
    let reasoning = this.#reasoningText.push(text(delta.reasoning ?? delta.reasoning_content));
    let content = this.#contentText.push(text(delta.content));
    this.#hasText ||= content !== "";
    // vLLM's reasoning parsers take the text after an open message for reasoning, unless the prompt has complete
    // reasoning: always in a whole answer, and in a stream if no earlier message has reasoning.
    if (this.#continues && reasoning !== "" && !this.#hasText) [reasoning, content] = ["", reasoning];
    const calls = delta.tool_calls == null ? NO_CALLS : list(delta.tool_calls);
    if (reasoning !== "") {
      if (!this.#reasoned) this.#marked?.hasParsedThoughts(deltas, isBound);
      this.#reasoned = true;
      this.#thoughts.add(reasoning);
      this.#text.interrupt("thought", deltas);
      deltas.push({ kind: "reasoning", text: reasoning });
      this.#logprobs?.take(reasoning, content === "" && calls.length === 0);
    }
    if (content !== "") {
      if (this.#markup && !this.#marked) {
        const isBeginning = this.#said.length < MAX_SPACE && this.#said.trim() === "";
        if ((isBeginning ? ANSWER_BEGINNING : MARK_BEGINNING).test(content)) {
          this.#marked = new MarkedText(this.#markup, this.#said, this.#text, this.#thoughts);
          if (this.#reasoned) this.#marked.hasParsedThoughts(deltas, isBound);
        }
      }
      this.#marked?.push(content, deltas, isBound);
      if (!this.#marked || this.#markup?.leavesText) {
        const logprobs = this.#logprobs?.take(content, calls.length === 0) ?? NO_LOGPROBS;
        this.#said += content;
        this.#text.push(content, logprobs, deltas, isBound);
      }
      if (this.#text.stopped) return;
    }
    const refusal = text(delta.refusal).toWellFormed();
    if (refusal !== "") {
      this.#text.interrupt("refusal", deltas);
      deltas.push({ kind: "refusal", text: refusal });
    }
    if (calls.length > 0) {
      this.#hasCalls = true;
      this.#logprobs?.skip();
      this.#text.interrupt("call", deltas);
    }
    for (const [position, entry] of calls.entries()) {
      const call = object<ChatToolCall>(entry);
      const [id, name] = [text(call.id), text(call.function?.name)];
      deltas.push({
        kind: "tool_call",
        index: this.#calls.numberOf(typeof call.index === "number" ? call.index : position, id, name),
        callId: id || undefined,
        name: name || undefined,
        arguments: this.#argumentsText.push(text(call.function?.arguments)),
      });
    }
  }
}

/** A text that may be absent or null. Throws for any other value, which vLLM never sends. */
function text(value: string | null | undefined): string {
  if (typeof value === "string") return value;
  if (value == null) return "";
  throw malformedStream();
}

/** A list that may be absent or null. Throws as `text`. */
function list<Entry>(value: Entry[] | null | undefined): readonly Entry[] {
  if (Array.isArray(value)) return value;
  if (value == null) return [];
  throw malformedStream();
}

/** An object whose fields are unchecked. Throws as `text`. */
function object<Fields extends object>(value: unknown): Fields {
  if (typeof value === "object" && value !== null) return value as Fields;
  throw malformedStream();
}

function toTokenLogprob(entry: ChatLogprob, alternatives: number): TokenLogprob {
  const top = list(object<ChatLogprob>(entry).top_logprobs).slice(0, alternatives);
  return { ...toLogprob(entry), top_logprobs: top.map(toLogprob) };
}

function toLogprob(entry: ChatLogprob) {
  const { token, logprob, bytes } = object<ChatLogprob>(entry);
  return {
    token: text(token),
    logprob: typeof logprob === "number" ? logprob : LOGPROB_FLOOR,
    bytes: Array.isArray(bytes) ? bytes : [...new TextEncoder().encode(text(token))],
  };
}

export interface AnswerTextOptions {
  /** The strings that end the answer, if there are any. */
  stop?: StopStrings | undefined;
  /** The prompt ends in an open message, so that white space at the beginning belongs to its text. */
  continues?: boolean;
}

/**
 * The text of an answer as its reader gets it: without the white space that templates put between reasoning and calls,
 * and up to a stop string.
 *
 * White space without a word since the last reasoning or call is held back, and delivered with the next word; if a call
 * or reasoning follows, it is dropped. An answer of only white space is delivered when the model ends it. vLLM finds
 * stop strings in all output. Here they apply only to the text from its first word on.
 */
export class AnswerText {
  readonly #stop: StopStrings | undefined;
  /** A word has come since the last reasoning or call. */
  #begun: boolean;
  /** The answer has more than reasoning and text. */
  #saysMore = false;
  /** Held-back text, with the tokens that begin in it and their positions. */
  #held = "";
  #tokens: { entry: TokenLogprob; start: number }[] = [];
  /** A stop string has ended the answer. Later output does not count. */
  stopped = false;

  constructor({ stop, continues = false }: AnswerTextOptions = {}) {
    this.#stop = stop;
    this.#begun = continues;
  }

  /**
   * Adds the deliverable part of the next text. `isBound`: false if no stop string may end in it yet (`min_tokens`).
   */
  push(text: string, logprobs: TokenLogprob[], out: ModelDelta[], isBound = true): void {
    let from = 0;
    if (!this.#begun) {
      from = text.length - text.trimStart().length;
      this.#begun = from < text.length;
    } else if (!this.#stop) {
      // The usual case: no copy.
      out.push(logprobs.length > 0 ? { kind: "text", text, logprobs } : { kind: "text", text });
      return;
    }
    const before = this.#held.length;
    this.#held += text;
    let start = before;
    for (const entry of logprobs) {
      this.#tokens.push({ entry, start: Math.min(start, this.#held.length - 1) });
      start += entry.token.length;
    }
    if (!this.#begun) return;
    const stop = this.#stop;
    if (!isBound) stop?.reset();
    const found = isBound ? stop?.push(text.slice(from)) : undefined;
    if (found !== undefined) {
      this.#deliver(before + from + found, out);
      this.#held = "";
      this.#tokens = [];
      this.stopped = true;
      return;
    }
    this.#deliver(this.#held.length - (stop?.buffered ?? 0), out);
  }

  /** Ends the text, because something else comes: white space before it is dropped, and later text is another text. */
  interrupt(by: "thought" | "call" | "refusal", out: ModelDelta[]): void {
    this.#saysMore ||= by !== "thought";
    if (this.#begun) {
      this.#deliver(this.#held.length, out);
      this.#begun = false;
      this.#stop?.reset();
    }
    this.#held = "";
    this.#tokens = [];
  }

  /** Ends the answer with the model's reason: adds the text that is still held back. */
  end(reason: FinishReason, out: ModelDelta[]): void {
    const isAnswer = this.#begun || (reason === "stop" && !this.#saysMore);
    if (isAnswer) this.#deliver(this.#held.length, out);
    this.#held = "";
    this.#tokens = [];
  }

  /** Delivers this many characters, and the tokens that begin in them. */
  #deliver(length: number, out: ModelDelta[]): void {
    if (length <= 0) return;
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    const next = this.#tokens.findIndex(({ start }) => start >= length);
    const taken = this.#tokens.splice(0, next < 0 ? this.#tokens.length : next);
    for (const token of this.#tokens) token.start -= length;
    const logprobs = taken.map(({ entry }) => entry);
    out.push(logprobs.length > 0 ? { kind: "text", text, logprobs } : { kind: "text", text });
  }
}
