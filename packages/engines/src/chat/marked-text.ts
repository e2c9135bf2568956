import type { FunctionTool } from "@responses-edge/responses-api/tools";
import type { FinishReason, ModelDelta, TokenLogprob } from "@responses-edge/turn/contract/engine";
import { MarkupReader, type Piece } from "@responses-edge/turn/contract/model-markup/markup-reader";
import type { ThoughtCount } from "./own-counts.ts";

/** The text of an answer whose server may have left thoughts and calls in it, as model deltas. */

/** The facts that an answer showed about its server's parsers. */
export interface MarkupSeen {
  /** Thoughts and calls were in the text. */
  thoughts: boolean;
  calls: boolean;
  /** The text ended a thought that it had not begun: the chat template begins it. */
  endsThought: boolean;
}

export interface MarkupUse {
  /** The tools whose calls are to be found. */
  tools(): readonly FunctionTool[];
  /** The model sees no tools, and may call none: a call in the text is a fault, and bare JSON is an answer. */
  refusesCalls: boolean;
  /** The text stays as it came, because its log probabilities are those of all of it. A call in it is a fault. */
  leavesText: boolean;
  /** Earlier answers of the model ended thoughts that they had not begun. */
  beginsInThought: boolean;
  /** The answer continues a text. */
  continues: boolean;
  /** Called at the end of an answer with markup. */
  onSeen(seen: MarkupSeen): void;
}

/** The text as its reader gets it (`AnswerText`). */
interface GivenText {
  readonly stopped: boolean;
  push(text: string, logprobs: TokenLogprob[], out: ModelDelta[], isBound: boolean): void;
  interrupt(by: "thought" | "call", out: ModelDelta[]): void;
}

/** Calls in the text have indices from here on: no server gives so many. Nothing has bound their arguments. */
export const FIRST_MARKED_CALL = 1_000_000;

/** The faults of an answer, in words for the client. */
const THOUGHT_IN_TEXT =
  "'reasoning': its reasoning is in its text, because the model server runs without a parser of reasoning";
const CALL_IN_TEXT = "'tools': a call in its text cannot be read, and the model server runs without a parser of calls";
const CALL_REFUSED = "'tool_choice': a call is in its text, and it may call no tool";
const CALL_LEFT_IN_TEXT =
  "'include': a call is in its text, whose log probabilities it has, because the model server runs without a parser of calls";

export class MarkedText {
  readonly #use: MarkupUse;
  readonly #reader: MarkupReader;
  readonly #text: GivenText;
  readonly #thoughts: ThoughtCount;
  #calls = 0;

  /** `said` is the text of the answer so far, which `text` has delivered. */
  constructor(use: MarkupUse, said: string, text: GivenText, thoughts: ThoughtCount) {
    this.#thoughts = thoughts;
    this.#use = use;
    const tools = new Map(use.tools().map(({ name, parameters }) => [name, parameters]));
    this.#reader = new MarkupReader({ ...use, tools, hasBareCalls: !use.refusesCalls }, said);
    this.#text = text;
  }

  /** Adds the deltas of the next text. `isBound`: as in `AnswerText.push`. */
  push(content: string, deltas: ModelDelta[], isBound: boolean): void {
    this.#deliver(this.#reader.push(content), deltas, isBound);
  }

  /** The server gives thoughts apart, so that those in the text are quoted. */
  hasParsedThoughts(deltas: ModelDelta[], isBound: boolean): void {
    this.#deliver(this.#reader.ignoreThoughts(), deltas, isBound);
  }

  /** Ends the answer: adds the rest, and says which markup is left in the text. */
  end(reason: FinishReason, deltas: ModelDelta[]): void {
    if (this.#text.stopped) return;
    const reader = this.#reader;
    this.#deliver(reader.end(reason !== "stop" && reason !== "tool_calls"), deltas, true);
    const { found, unread } = reader;
    if (found.thoughts || found.calls || unread) {
      this.#use.onSeen({ ...found, endsThought: unread === "thought" || reader.endedThought });
    }
    const { refusesCalls, leavesText } = this.#use;
    if (this.#calls > 0 && (refusesCalls || leavesText)) {
      deltas.push({ kind: "unread", why: refusesCalls ? CALL_REFUSED : CALL_LEFT_IN_TEXT });
    }
    if (leavesText) return;
    if (unread === "thought") deltas.push({ kind: "unread", why: THOUGHT_IN_TEXT });
    if (unread === "call" && this.#calls === 0) deltas.push({ kind: "unread", why: CALL_IN_TEXT });
  }

  #deliver(pieces: readonly Piece[], deltas: ModelDelta[], isBound: boolean): void {
    const { refusesCalls, leavesText } = this.#use;
    for (const piece of pieces) {
      if (leavesText || (refusesCalls && piece.kind === "call")) this.#calls += piece.kind === "call" ? 1 : 0;
      else if (piece.kind === "text") this.#text.push(piece.text, [], deltas, isBound);
      else if (piece.kind === "thought") {
        this.#text.interrupt("thought", deltas);
        this.#thoughts.add(piece.text);
        deltas.push({ kind: "reasoning", text: piece.text });
      } else {
        this.#text.interrupt("call", deltas);
        const index = FIRST_MARKED_CALL + this.#calls;
        this.#calls += 1;
        deltas.push({ kind: "tool_call", index, name: piece.name, arguments: piece.arguments });
      }
      if (this.#text.stopped) return;
    }
  }
}
