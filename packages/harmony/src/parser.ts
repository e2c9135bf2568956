import { isJson } from "@responses-edge/bounded-io/json-text";
import type { HarmonyOutput, TokenLogprob } from "./deltas.ts";
import { parseHeader } from "./header.ts";
import { channelOf, OpenMessage, type StopStringFinder, showOfCall, showOfMessage } from "./open-message.ts";
import { fullName, isOfferedTool, type OfferedTools, resolveRecipient } from "./recipients.ts";
import { type Segment, toText } from "./segments.ts";
import { countedByIds, sharedOut } from "./token-counts.ts";
import { CALL, CHANNEL, CONSTRAIN, END, ENDOFTEXT, MESSAGE, RETURN, START } from "./vocabulary.ts";

/** The output has no special tokens: the server has removed them from its text, and gives no ids. */
export class StrippedMarkersError extends Error {
  override readonly name = "StrippedMarkersError";
}

export interface HarmonyParserOptions extends OfferedTools {
  /** A JSON format was requested, so JSON outside of any message is the answer. */
  expectsJson?: boolean;
  /** Strings that end the answer, and with it the output. */
  stop?: StopStringFinder | undefined;
  /**
   * A grammar constrains the output: functions' arguments to JSON, and the answer to that or another format. It does
   * not know where a message ends, so the text after its end is not read.
   */
  bound?: { answer: "json" | "other" } | undefined;
}

/** The reason why there are no more tokens: the model stopped, or was cut off. */
export type EndReason = "stop" | "length";

/**
 * A longer text without any special token is no header: `<|message|>` is missing. About 64 tokens; counted in
 * characters, which do not depend on the chunks of the stream. A function's name has up to 128.
 */
const LONGEST_HEADER_TEXT = 256;

/**
 * Reads gpt-oss's output, which begins after `<|start|>assistant`, the end of the prompt. Malformed output never makes
 * it fail; output that is not clearly an answer or a call is reasoning, so that no hidden text becomes visible. The
 * deviations are from the bug reports against vLLM, llama.cpp, Ollama, SGLang, dynamo and openai/harmony. The parser
 * emits everything with the push that brings it, the text of one push in one delta, except white space at the beginning
 * of a message, and text that may become a stop string.
 */
export class HarmonyParser {
  readonly #options: HarmonyParserOptions;
  #state: "header" | "content" | "between" | "over" = "header";
  /** The header so far, up to its last special token, and the text since. */
  #header: Segment[] = ["assistant"];
  #headerText = "";
  /** The open message, or the last one. */
  #message = new OpenMessage({ show: "undecided", channel: "analysis", content: "" });
  /** Text since the last message: junk, or the beginning of a header without `<|start|>`, or an answer without any. */
  #stray = "";
  #messages = 0;
  #calls = 0;
  #answered = false;
  #seenSpecial = false;
  /** The output began with `analysis` and its text, without a marker between them. */
  #beganGlued = false;
  /** Tokens of the text of the header, or since the last message, and its length; tokens of the content. */
  #headerTokens = 0;
  #headerLength = 0;
  #contentTokens = 0;
  #closedReasoningTokens = 0;
  #stopped = false;
  #isCutShort = false;
  #dropped = 0;

  constructor(options: HarmonyParserOptions) {
    this.#options = options;
  }

  /** Tokens of the text of messages that became reasoning, without headers and markers. */
  get reasoningTokens(): number {
    const open = this.#state === "content" && this.#message.show === "reasoning" ? this.#contentTokens : 0;
    return Math.round(this.#closedReasoningTokens + open);
  }

  /** Nothing more counts: the model has begun to speak for others, or its text has ended. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Tells whether text that should be JSON has ended too early. */
  get isCutShort(): boolean {
    return this.#isCutShort;
  }

  /** Special tokens without a meaning at their position. */
  get dropped(): number {
    return this.#dropped;
  }

  /**
   * Reads pieces that were sampled as `tokens`: their ids, or their number without ids, and adds the results to `out`.
   * `logprob` is that of a single token: it goes with the first of its text that is shown as the answer.
   */
  push(
    pieces: readonly Segment[],
    tokens: number | readonly number[],
    out: HarmonyOutput,
    logprob?: TokenLogprob,
  ): void {
    const count = typeof tokens === "number" ? sharedOut(pieces, tokens) : countedByIds(tokens);
    if (logprob && this.#state === "content" && this.#message.mayBeAnswer && typeof pieces[0] !== "number") {
      this.#message.note(logprob);
    }
    for (const piece of pieces) {
      if (this.#state === "over") break;
      this.#countText(count(piece));
      if (typeof piece === "number") {
        this.#seenSpecial = true;
        this.#readSpecial(piece, out);
      } else {
        this.#readText(piece, out);
      }
    }
    // Tokens that end within a character: their text comes with the next one.
    if (this.#state !== "over") this.#countText(count(undefined));
    if (this.#state === "content") this.#message.flush(this.#calls, out);
  }

  #countText(tokens: number): void {
    if (this.#state === "content") this.#contentTokens += tokens;
    else this.#headerTokens += tokens;
  }

  /**
   * The end of the output. A cut item stays unfinished: no `item_done`, and no `unserved_call`. Throws {@link
   * StrippedMarkersError}.
   */
  end(reason: EndReason, out: HarmonyOutput): void {
    this.#refuseStrippedMarkers();
    if (reason === "stop") {
      this.#finish(RETURN, out);
    } else if (this.#state === "content") {
      this.#close(undefined, out);
    } else {
      this.#takeStrayAnswer(false, out);
    }
    this.#state = "over";
  }

  #readText(text: string, out: HarmonyOutput): void {
    if (this.#state === "content") {
      this.#message.append(text);
      if (this.#message.show === "final") this.#lookForStop(text, out);
    } else if (this.#state === "header") {
      const left = LONGEST_HEADER_TEXT - this.#headerText.length;
      this.#headerText += text.slice(0, left);
      this.#headerLength += Math.min(text.length, left);
      if (text.length <= left) return;
      this.#open(undefined, out);
      this.#readText(text.slice(left), out);
    } else if (this.#state === "between") {
      this.#stray += this.#mayAnswer() ? text : text.slice(0, LONGEST_HEADER_TEXT - this.#stray.length);
    }
  }

  /** Ends answer and output if a stop string is complete. */
  #lookForStop(text: string, out: HarmonyOutput): void {
    const { stop } = this.#options;
    if (!stop || !this.#message.isStoppedBy(text, stop)) return;
    this.#close(RETURN, out);
    this.#answered = true;
    this.#stop();
  }

  /** A special token within constrained text. It was either the end, or sampled as text of a string. */
  #endBound(out: HarmonyOutput): void {
    const { show, isOfJson, content } = this.#message;
    const isBoundToJson = show === "call" ? isOfJson : this.#options.bound?.answer === "json";
    const isWhole = !isBoundToJson || isJson(content);
    this.#isCutShort = !isWhole;
    this.#close(isWhole ? RETURN : undefined, out);
    this.#stop();
  }

  #readSpecial(id: number, out: HarmonyOutput): void {
    if (BREAKS_BODY.has(id) && this.#isBound()) {
      this.#endBound(out);
      return;
    }
    switch (id) {
      case END:
      case CALL:
      case RETURN:
        // Each of them ends any message, also calls; between messages they are doubled and mean nothing (vLLM #50690).
        this.#finish(id, out);
        return;
      case ENDOFTEXT:
        this.#finish(RETURN, out);
        this.#stop();
        return;
      case START:
        // Also ends a message without `<|end|>`, as in SGLang; a doubled one has nothing to end (vLLM #43408).
        this.#finish(END, out);
        this.#beginHeader("");
        return;
      case CHANNEL:
        // Within content, `<|end|>` and `<|start|>` are missing; after it, only `<|start|>`.
        if (this.#state === "content") this.#finish(END, out);
        if (this.#state !== "header") this.#beginHeader(this.#stray);
        this.#addToHeader(id);
        return;
      case MESSAGE:
        // In visible text, a hidden message may begin here whose other markers are missing.
        if (this.#state === "content" && this.#isVisible()) this.#finish(END, out);
        if (this.#state === "between") this.#beginHeader(this.#stray);
        if (this.#state === "header") this.#open(MESSAGE, out);
        else this.#dropped += 1;
        return;
      default:
        // `<|constrain|>` and reserved tokens: they have no visible text.
        if (this.#state === "header") this.#addToHeader(id);
        if (this.#state !== "header" || id !== CONSTRAIN) this.#dropped += 1;
    }
  }

  #isBound(): boolean {
    const { show } = this.#message;
    return this.#options.bound !== undefined && this.#state === "content" && (show === "final" || show === "call");
  }

  /** Tells whether the open message is being read as output. */
  #isVisible(): boolean {
    return this.#message.itemKind === "message";
  }

  /** Tells whether text outside of any message may be the answer. */
  #mayAnswer(): boolean {
    return this.#options.expectsJson === true && !this.#answered;
  }

  /** `text` is already in it. */
  #beginHeader(text: string): void {
    if (this.#state === "over") return;
    this.#state = "header";
    this.#header = [text];
    this.#headerText = "";
    if (text === "") this.#headerTokens = 0;
    this.#headerLength = text.length;
    this.#stray = "";
  }

  #addToHeader(id: number): void {
    if (this.#headerText !== "") this.#header.push(this.#headerText);
    this.#header.push(id);
    this.#headerText = "";
  }

  /**
   * Begins a message with a complete header. `by` is the token that completed it: `<|message|>`, a token that ends a
   * message (`<|message|>` is missing, and the content is in the header: vLLM #45213), or undefined if the header grew
   * too long.
   */
  #open(by: number | undefined, out: HarmonyOutput): void {
    const segments = this.#headerText === "" ? this.#header : [...this.#header, this.#headerText];
    const header = parseHeader(segments, (word) => isOfferedTool(word, this.#options));
    // A user's or a system's message, or a tool's result, invented by the model.
    if (header.role !== "assistant") {
      this.#stop();
      return;
    }

    const delimited = by === MESSAGE;
    const recipient = resolveRecipient(header.recipient ?? "", this.#options);
    const rest = delimited ? "" : header.rest.trimStart();
    // Without `<|message|>`, a tool's name in a header is a call only if the content of a call follows.
    const isCall = recipient.kind !== "everybody" && (delimited || by === CALL || rest.startsWith("{"));
    if (!delimited && by !== undefined && rest === "" && !isCall) return;

    const show = isCall ? showOfCall(recipient) : showOfMessage(header, recipient, delimited);
    const channel = isCall ? (header.channel ?? "commentary") : channelOf(show);
    const to = isCall ? fullName(header.recipient ?? "", recipient, this.#options) : undefined;
    const isOfJson = recipient.kind === "function" && this.#options.custom?.has(recipient.name) !== true;
    const { content_type: contentType } = header;
    const repeatable = header.clean && delimited && header.recipient === to ? toText(segments) : undefined;
    this.#message = new OpenMessage({
      show,
      recipient: to,
      channel,
      contentType,
      isOfJson,
      content: rest,
      header: repeatable,
    });
    // A header that grew too long is all content: its last tokens have not been read yet.
    const share = by === undefined ? 1 : rest.length / Math.max(1, this.#headerLength);
    this.#contentTokens = rest === "" ? 0 : this.#headerTokens * share;
    this.#state = "content";
    this.#beganGlued = !this.#seenSpecial && GLUED_CHANNEL.test(this.#headerText);
    this.#options.stop?.reset();
    if (show === "final" && rest !== "") this.#lookForStop(rest, out);
    if (show === "call" && (recipient.kind === "function" || recipient.kind === "builtin")) {
      out.push({ kind: "tool_call", index: this.#calls, name: recipient.name, arguments: "" });
    }
  }

  /** Ends any open message at a token that ends one. */
  #finish(by: number, out: HarmonyOutput): void {
    if (this.#state === "header") this.#open(by, out);
    if (this.#state === "content") this.#close(by, out);
    if (this.#state === "over") return;
    if (by === RETURN) this.#takeStrayAnswer(true, out);
    this.#beginBetween();
  }

  #beginBetween(): void {
    this.#state = "between";
    this.#headerTokens = 0;
  }

  /** Ends the open message; `by` is undefined if it was cut off. */
  #close(by: number | undefined, out: HarmonyOutput): void {
    const open = this.#message;
    open.end(by === undefined ? "cut" : by === RETURN ? "output" : "message", this.#options.stop);
    open.flush(this.#calls, out);
    const message = open.toMessage();
    const { itemKind } = open;
    if (itemKind !== undefined && by !== undefined) out.push({ kind: "item_done" });
    out.push({ kind: "message", index: this.#messages, ...(itemKind !== undefined && { itemKind }), message });
    if (open.show === "nothing" && by !== undefined) out.push({ kind: "unserved_call", message });

    this.#messages += 1;
    if (open.show === "call") this.#calls += 1;
    if (open.show === "final" && itemKind !== undefined) this.#answered = true;
    if (open.show === "reasoning") this.#closedReasoningTokens += this.#contentTokens;
    this.#contentTokens = 0;
    this.#beginBetween();
  }

  /** A JSON answer that the model gave after `<|end|>` without a header (sglang #31019); other such text is junk. */
  #takeStrayAnswer(complete: boolean, out: HarmonyOutput): void {
    const content = this.#stray.trim();
    this.#stray = "";
    if (!this.#mayAnswer() || !(content.startsWith("{") || content.startsWith("["))) return;
    this.#message = new OpenMessage({ show: "final", channel: "final", content });
    this.#options.stop?.reset();
    this.#message.cutAtStop(this.#options.stop);
    this.#close(complete ? RETURN : undefined, out);
  }

  #stop(): void {
    this.#stopped = true;
    this.#state = "over";
  }

  /**
   * `analysisWe need…assistantfinalFour`, without any special token: a server that gives neither ids nor literals. A
   * guess at the beginning of the answer might show hidden text.
   */
  #refuseStrippedMarkers(): void {
    if (this.#seenSpecial || this.#state === "over") return;
    const glued = this.#state === "content" ? this.#beganGlued : GLUED_CHANNEL.test(this.#headerText);
    const text = this.#state === "content" ? this.#message.content : this.#headerText;
    if (!glued || !text.includes("assistantfinal")) return;
    throw new StrippedMarkersError("The output has no special tokens.");
  }
}

/** Tokens that end a message, or begin another, without ending the output. */
const BREAKS_BODY = new Set<number>([END, START, CHANNEL, MESSAGE]);

const GLUED_CHANNEL = /^analysis\S/;
