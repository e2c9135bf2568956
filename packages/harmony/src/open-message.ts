import type { HarmonyOutput, TokenLogprob } from "./deltas.ts";
import { type Header, standardHeader } from "./header.ts";
import type { Channel, HarmonyMessage } from "./message.ts";
import type { Recipient } from "./recipients.ts";

/** Finds the strings that end an answer, in text that comes in parts. */
export interface StopStringFinder {
  /** The number of characters at the end of the text that may begin a string. */
  readonly buffered: number;
  /**
   * The position in `part` at which the visible text ends, as soon as a string is complete; negative if it is before
   * `part`.
   */
  push(part: string): number | undefined;
  /** Forgets the text, because another begins. */
  reset(): void;
}

/** The form of a message's content. */
export type Show =
  | "reasoning"
  | "final"
  | "commentary"
  | "call"
  /** A call of a tool that is not the client's. */
  | "nothing"
  /** A message without a channel: only its end shows whether it is an answer. Held back until then. */
  | "undecided";

/** A message whose header was read. */
interface BegunMessage {
  show: Show;
  channel: Channel;
  /** The part of the content that stood in the header. It begins with no white space. */
  content: string;
  recipient?: string | undefined;
  contentType?: string | undefined;
  /** The called tool takes JSON. */
  isOfJson?: boolean | undefined;
  /** The header as it was written, if it can be repeated. */
  header?: string | undefined;
}

/** A message whose content is being read, with the part of it that is still to be shown. */
export class OpenMessage {
  readonly #begun: BegunMessage;
  #show: Show;
  #channel: Channel;
  #content: string;
  /**
   * Some of the content is no white space. Until then no part of a message is shown, because there may be nothing else.
   */
  #hasWords: boolean;
  /** Content without a delta yet. */
  #fresh: string;
  /** The length of its end that may begin a stop string. */
  #buffered = 0;
  /** Tokens of the message without a delta yet, each with the length of the content before it. */
  readonly #logprobs: { entry: TokenLogprob; start: number }[] = [];

  constructor(begun: BegunMessage) {
    this.#begun = begun;
    this.#show = begun.show;
    this.#channel = begun.channel;
    this.#content = begun.content;
    this.#hasWords = begun.content !== "";
    this.#fresh = begun.content;
  }

  get show(): Show {
    return this.#show;
  }

  get content(): string {
    return this.#content;
  }

  /** The called tool takes JSON. */
  get isOfJson(): boolean {
    return this.#begun.isOfJson === true;
  }

  /** Tells whether its text may be shown as the answer. */
  get mayBeAnswer(): boolean {
    return this.#show === "final" || this.#show === "undecided";
  }

  /** The type of its item. A call is one even without arguments. */
  get itemKind(): "reasoning" | "message" | "call" | undefined {
    if (this.#show === "call") return "call";
    if (this.#show === "nothing" || this.#content === "" || (isSaid(this.#show) && !this.#hasWords)) return undefined;
    return this.#show === "reasoning" ? "reasoning" : "message";
  }

  append(text: string): void {
    this.#content += text;
    this.#fresh += text;
    this.#hasWords ||= /\S/.test(text);
  }

  /** Notes the logprob of the token whose text comes next. */
  note(entry: TokenLogprob): void {
    this.#logprobs.push({ entry, start: this.#content.length });
  }

  /** Cuts the content at a stop string that `text`, its end, completes. False if it completes none. */
  isStoppedBy(text: string, stop: StopStringFinder): boolean {
    const found = stop.push(text);
    this.#buffered = stop.buffered;
    if (found === undefined) return false;
    // Counted from the end: the earlier text of this message has been checked already.
    const dropped = text.length - found;
    this.#content = this.#content.slice(0, this.#content.length - dropped);
    this.#fresh = this.#fresh.slice(0, Math.max(0, this.#fresh.length - dropped));
    return true;
  }

  /** The same for an answer that is recognised only at its end. */
  cutAtStop(stop: StopStringFinder | undefined): void {
    const found = stop?.push(this.#content);
    if (found !== undefined) this.#content = this.#content.slice(0, found);
    this.#fresh = this.#content;
  }

  /**
   * Ends the message: at the end of the output, where a message without a channel was the answer, before another
   * message, or because it was cut off.
   */
  end(at: "output" | "message" | "cut", stop: StopStringFinder | undefined): void {
    if (this.#show === "undecided") {
      // `<|end|>` means that more follows, so this was not the answer. A cut message may be either.
      this.#show = at === "output" ? "final" : "reasoning";
      this.#channel = channelOf(this.#show);
      if (this.#show === "final") this.cutAtStop(stop);
    }
    // White space before a call, or before another message, is no message. At the very end it may be the answer.
    if (this.#show === "final" && at !== "message") this.#hasWords ||= this.#content !== "";
    this.#buffered = 0;
  }

  /** Shows the content that may be shown by now; that of a call as arguments of the call `index`. */
  flush(index: number, out: HarmonyOutput): void {
    if (this.#fresh.length <= this.#buffered || this.#show === "undecided") return;
    if (isSaid(this.#show) && !this.#hasWords) return;
    const text = this.#buffered === 0 ? this.#fresh : this.#fresh.slice(0, -this.#buffered);
    this.#fresh = this.#buffered === 0 ? "" : this.#fresh.slice(-this.#buffered);
    switch (this.#show) {
      case "reasoning":
        out.push({ kind: "reasoning", text });
        break;
      case "final":
        out.push({ kind: "text", text, phase: "final_answer", ...this.#takeLogprobs() });
        break;
      case "commentary":
        out.push({ kind: "text", text, phase: "commentary" });
        break;
      case "call":
        out.push({ kind: "tool_call", index, arguments: text });
        break;
    }
  }

  /** The tokens that begin in the shown part of the content. */
  #takeLogprobs(): { logprobs?: TokenLogprob[] } {
    if (this.#logprobs.length === 0) return {};
    const shown = this.#content.length - this.#fresh.length;
    const next = this.#logprobs.findIndex(({ start }) => start >= shown);
    const taken = this.#logprobs.splice(0, next === -1 ? this.#logprobs.length : next);
    return taken.length > 0 ? { logprobs: taken.map(({ entry }) => entry) } : {};
  }

  /** The message as the model wrote it. */
  toMessage(): HarmonyMessage {
    const { recipient, contentType, header } = this.#begun;
    const message: HarmonyMessage = {
      role: "assistant",
      ...(recipient !== undefined && { recipient }),
      channel: this.#channel,
      ...(contentType !== undefined && { content_type: contentType }),
      content: [{ type: "text", text: this.#content }],
    };
    return header === undefined || header === standardHeader(message) ? message : { ...message, header };
  }
}

/** The form of a call. */
export function showOfCall(recipient: Recipient): Show {
  return recipient.kind === "function" || recipient.kind === "builtin" ? "call" : "nothing";
}

/**
 * The form of a message that is no call. Only `<|message|>` makes a comment visible; an answer is visible without it,
 * too.
 */
export function showOfMessage(header: Header, recipient: Recipient, delimited: boolean): Show {
  if (recipient.kind !== "everybody") return "reasoning";
  if (header.channel === undefined) return "undecided";
  if (header.channel === "commentary") return delimited ? "commentary" : "reasoning";
  return header.channel === "final" ? "final" : "reasoning";
}

/** The intended channel of a message. */
export function channelOf(show: Show): Channel {
  return show === "final" || show === "commentary" ? show : "analysis";
}

/** Tells whether a form becomes a visible message. */
function isSaid(show: Show): boolean {
  return show === "final" || show === "commentary";
}
