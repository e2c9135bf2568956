import {
  type EndReason,
  type HarmonyDelta,
  type HarmonyMessage,
  HarmonyParser,
  PieceReader,
  type Segment,
  STOP_TOKEN_IDS,
  StrippedMarkersError,
  type Tokenizer,
} from "@responses-edge/harmony";
import { ApiError } from "@responses-edge/responses-api/errors";
import { type ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import { mustCall } from "@responses-edge/responses-api/tools";
import type { ModelDelta, Prompt, RawMessage, Sampled, TokenLogprob } from "@responses-edge/turn/contract/engine";
import { boundRules, callFaultOf, NO_CALL, NO_SUCH_TOOL, toolsOf } from "../offered-tools.ts";
import { stopStringsOf } from "../stop-strings.ts";
import { type AnswerReader, toUsage, type VllmUsage } from "../vllm-stream.ts";
import { type CompletionChunk, readCompletionChunk } from "./chunks.ts";
import type { FunctionNames } from "./function-names.ts";
import { loadTokenizer } from "./load-tokenizer.ts";
import { toTokenLogprobs } from "./logprobs.ts";
import { toRawMessage } from "./raw-messages.ts";
import { boundTo } from "./structural-tag.ts";

/** The call in the middle of which a generation continues. */
type ResumedCall = Extract<ModelDelta, { kind: "resumed_call" }>;
type CompletionDelta = HarmonyDelta | ResumedCall;

/**
 * One completion of gpt-oss, from vLLM's events to model deltas: special tokens and their meaning, the samples with
 * which it can be resumed, and its usage.
 */
export class Completion implements AnswerReader {
  readonly #parser: HarmonyParser;
  readonly #reader = new PieceReader();
  readonly #deltas: CompletionDelta[] = [];
  readonly #functions: FunctionNames;
  readonly #prompt: Prompt;
  /** Tokens sampled before this completion began, and since. */
  #before = 0;
  #tokens = 0;
  #promptTokens = 0;
  #unlogged: Sampled | undefined;
  /** An event that only a tokenizer can read. */
  #unread: CompletionChunk | undefined;
  #usage: VllmUsage | undefined;
  #finish: EndReason | undefined;
  /** The server has ended the completion because it repeats itself. */
  #repeats = false;
  /** A call is required: a final text is not given as the answer. */
  readonly #mustCall: boolean;
  /** The message to a model that has ended without an answer, and the reason. */
  #refusal: { why: string; message: RawMessage } | undefined;
  /** The last call that was checked. */
  #judged: { message: HarmonyMessage; fault: string | undefined } | undefined;
  /** The tools that the client answers, by their flat names. */
  readonly #clients: ReadonlyMap<string, ClientTool>;
  /** Index of the last call. */
  #call = 0;
  /** The call that the model is writing, in an answer that comes whole: given once it is known to be valid. */
  #heldCall: ModelDelta[] = [];
  /** Set if the logprobs of tokens are wanted. */
  #tokenizer: Tokenizer | undefined;

  /** `opening` is the header of a message that the prompt has left open, without `<|start|>assistant`. */
  constructor(prompt: Prompt, functions: FunctionNames, opening: readonly Segment[]) {
    const { request } = prompt;
    const offered = new Set(toolsOf(prompt, "callable").functions.map((tool) => tool.name));
    const written = [...functions.written].filter(([, name]) => offered.has(name));
    const builtins = new Set(builtinNames(prompt));
    this.#mustCall = mustCall(request.tool_choice) && !prompt.asksForText && opening.length === 0;
    const format = request.text?.format?.type ?? "text";
    this.#functions = functions;
    this.#prompt = prompt;
    const clients = ClientTools.of(request.tools).offered(request.tool_choice);
    this.#clients = new Map(clients.map((tool) => [tool.flatName, tool]));
    this.#parser = new HarmonyParser({
      functions: new Map(written),
      namespaced: functions.namespaced,
      custom: new Set(clients.flatMap(({ flatName, tool }) => (tool.type === "custom" ? [flatName] : []))),
      builtins,
      expectsJson: format !== "text" && !prompt.asksForText,
      stop: stopStringsOf(prompt),
      bound: prompt.asksForText ? undefined : boundTo(prompt),
    });
    this.#parser.push(opening, 0, []);
  }

  /** The model has given its finish reason, or has begun to write for another role. */
  get isFinished(): boolean {
    return this.#finish !== undefined;
  }

  /** The model has begun to write for another role: the rest is not wanted. */
  get isOver(): boolean {
    return this.#parser.stopped;
  }

  /**
   * Restores the parser's state after `sampled`. The deltas of `sampled` were given before, except for messages and for
   * an incomplete call, which a turn after a crash does not have. If that was all of it, the completion is finished.
   */
  async goOnAfter(sampled: Sampled, loadTokenizer: () => Promise<Tokenizer>): Promise<void> {
    const deltas: HarmonyDelta[] = [];
    if ("ids" in sampled) {
      this.#reader.useTokenizer(await loadTokenizer());
      // One by one, so that the number of reasoning tokens is exact.
      for (const id of sampled.ids) this.#parser.push(this.#reader.read({ text: "", ids: [id] }) ?? [], 1, deltas);
      this.#before = sampled.ids.length;
    } else {
      this.#parser.push(this.#reader.read({ text: sampled.text, ids: undefined }) ?? [], 0, deltas);
    }
    const again = deltas.filter(({ kind }) => kind === "message" || kind === "unserved_call");
    this.#deltas.push(...again, ...openCall(deltas));
    const { request, spentTokens = 0 } = this.#prompt;
    const last = "ids" in sampled ? sampled.ids.at(-1) : undefined;
    const isStop = last !== undefined && [...STOP_TOKEN_IDS, ...(request.stop_token_ids ?? [])].includes(last);
    if (this.#parser.stopped || isStop) this.#finish = this.#parser.isCutShort ? "length" : "stop";
    else if (request.max_output_tokens != null && spentTokens >= request.max_output_tokens) this.#finish = "length";
  }

  /** Reads every token separately, because logprobs are wanted. */
  showLogprobs(tokenizer: Tokenizer): void {
    this.#tokenizer = tokenizer;
    this.#reader.useTokenizer(tokenizer);
  }

  /** Ends the completion, because the window is full. */
  endAtWindow(): void {
    this.#finish = "length";
  }

  async readAll(payloads: readonly string[], out: ModelDelta[]): Promise<unknown> {
    try {
      for (const payload of payloads) {
        // Later tokens of the server are not wanted, and do not count.
        if (this.isOver) break;
        if (payload === "[DONE]") continue;
        if (!this.#read(payload, out)) this.#readExactly(await loadTokenizer(), out);
      }
    } catch (fault) {
      return fault;
    } finally {
      this.#flushSampled(out);
    }
    return undefined;
  }

  /**
   * Reads an event into `out`. False if only a tokenizer can read it; `#readExactly` then does. Throws ApiError as
   * `readCompletionChunk` does.
   */
  #read(payload: string, out: ModelDelta[]): boolean {
    const chunk = readCompletionChunk(payload, this.#prompt.request);
    this.#promptTokens ||= chunk.promptTokens ?? 0;
    if (chunk.usage) this.#usage = chunk.usage;
    if (chunk.kvTransferParams !== undefined) out.push({ kind: "kv_transfer_params", value: chunk.kvTransferParams });
    if (this.#tokenizer && chunk.ids && chunk.logprobs) {
      this.#takeEach(chunk.ids, toTokenLogprobs(chunk.ids, chunk.logprobs, this.#prompt.request, this.#tokenizer));
      this.#settle(chunk, out);
      return true;
    }
    const pieces = this.#reader.read(chunk);
    if (pieces) this.#take(chunk, pieces, out);
    else this.#unread = chunk;
    return pieces !== undefined;
  }

  #readExactly(tokenizer: Tokenizer, out: ModelDelta[]): void {
    const chunk = this.#unread;
    this.#unread = undefined;
    this.#reader.useTokenizer(tokenizer);
    if (chunk) this.#take(chunk, this.#reader.read(chunk) ?? [], out);
  }

  #take(chunk: CompletionChunk, pieces: Segment[], out: ModelDelta[]): void {
    this.#parser.push(pieces, chunk.ids ?? tokensOf(chunk), this.#deltas);
    this.#settle(chunk, out);
  }

  #takeEach(ids: readonly number[], logprobs: readonly TokenLogprob[]): void {
    for (const [index, id] of ids.entries()) {
      const pieces = this.#reader.read({ text: "", ids: [id] }) ?? [];
      this.#parser.push(pieces, 1, this.#deltas, logprobs[index]);
    }
  }

  /** The parts of an event that the parser does not read. */
  #settle(chunk: CompletionChunk, out: ModelDelta[]): void {
    const { text, ids, finish } = chunk;
    this.#tokens += tokensOf(chunk);
    if (ids && ids.length > 0) {
      if (this.#unlogged && "ids" in this.#unlogged) for (const id of ids) this.#unlogged.ids.push(id);
      else this.#unlogged = { ids };
    } else if (!ids && text !== "" && !(this.#unlogged && "ids" in this.#unlogged)) {
      this.#unlogged = { text: (this.#unlogged && "text" in this.#unlogged ? this.#unlogged.text : "") + text };
    }
    if (finish) this.#finish = finish === "length" || finish === "repetition" ? "length" : "stop";
    this.#repeats ||= finish === "repetition";
    // The parser's reason to stop overrides the server's, which is about tokens that nobody reads.
    if (this.#parser.stopped) this.#finish = this.#parser.isCutShort ? "length" : "stop";
    this.#give(out);
  }

  /** Adds the samples since the last call to `out`. */
  #flushSampled(out: ModelDelta[]): void {
    if (!this.#unlogged) return;
    out.push({ kind: "sampled", sampled: this.#unlogged });
    this.#unlogged = undefined;
  }

  /**
   * Ends the completion: adds the held-back text, the finish reason, and the usage. A completion that broke off has
   * none of these. `promptTokens` counts the prompt, with the earlier samples, if no server has: then no server has ended the output,
   * and a character that was broken off is left out, so that a later prompt continues sampled tokens and no U+FFFD.
   */
  end(out: ModelDelta[], promptTokens?: number): void {
    const finish = this.#finish;
    if (!finish) return;
    if (this.#repeats && !this.#parser.stopped) {
      // Its messages are given once it has gone on.
      out.push({ kind: "finish", reason: "repetition" });
      return;
    }
    this.#promptTokens ||= promptTokens ?? 0;
    const held = this.#reader.flush();
    const kept = promptTokens === undefined ? held : held.map(withoutBrokenCharacter);
    this.#parser.push(kept, 0, this.#deltas);
    this.#endParser(finish);
    this.#give(out, true);
    if (finish === "stop" && this.#refusal) {
      const { why, message } = this.#refusal;
      out.push({ kind: "broken", why, messages: [message] });
    }
    out.push({ kind: "finish", reason: finish }, { kind: "usage", usage: this.#total() });
  }

  /** Ends the parser's input. Throws ApiError 502 `upstream_misconfigured` for output without special tokens. */
  #endParser(reason: EndReason): void {
    try {
      this.#parser.end(reason, this.#deltas);
    } catch (error) {
      if (!(error instanceof StrippedMarkersError)) throw error;
      throw new ApiError({
        status: 502,
        message:
          "The model server strips special tokens: it must honour skip_special_tokens: false or return_token_ids.",
        code: "upstream_misconfigured",
      });
    }
  }

  /** `isEnd`: a message that is not done was cut off. */
  #give(out: ModelDelta[], isEnd = false): void {
    for (const [index, delta] of this.#deltas.entries()) {
      const isDone = !isEnd || this.#deltas[index - 1]?.kind === "item_done";
      if (delta.kind === "unserved_call") {
        this.#refusal = refusalOf(delta.message, NO_SUCH_TOOL, this.#offered());
      } else if (delta.kind === "message") {
        const message = delta.message;
        // One that was cut off.
        out.push(...this.#heldCall.splice(0));
        const isUnwanted = this.#mustCall && message.channel === "final";
        const fault = isDone && delta.itemKind === "call" ? this.#faultOf(message) : undefined;
        const isBroken = fault !== undefined || isUnwanted;
        // Only the last call of a completion is answered, and then the model continues.
        this.#refusal = fault === undefined ? undefined : refusalOf(message, fault);
        if (isUnwanted)
          this.#refusal = { why: NO_CALL, message: toRawMessage(noteOf(`Call a tool. ${this.#offered()}`)) };
        // No item represents a broken call in later prompts: it comes before the next one.
        const { itemKind, ...rest } = delta;
        out.push({ ...rest, ...(itemKind && !isBroken && { itemKind }), message: toRawMessage(message) });
      } else if (delta.kind === "item_done" && this.#isBrokenCall(this.#deltas[index + 1])) {
        this.#heldCall = [];
        out.push({ kind: "call_cut", index: this.#call });
      } else if (delta.kind === "tool_call" || delta.kind === "resumed_call") {
        this.#call = delta.index;
        // A call that goes on was held back before.
        if (this.#prompt.isUnwatched) this.#heldCall.push({ ...delta, kind: "tool_call" });
        else out.push(delta);
      } else if (!this.#mustCall || delta.kind !== "text" || delta.phase !== "final_answer") {
        if (delta.kind === "item_done") out.push(...this.#heldCall.splice(0));
        out.push(delta);
      }
    }
    this.#deltas.length = 0;
    if (isEnd) out.push(...this.#heldCall.splice(0));
  }

  #isBrokenCall(delta: CompletionDelta | undefined): boolean {
    if (delta?.kind !== "message" || delta.itemKind !== "call") return false;
    return this.#faultOf(delta.message) !== undefined;
  }

  /** Why a message that calls a client's tool is invalid; undefined if it is valid. */
  #faultOf(message: HarmonyMessage): string | undefined {
    if (this.#judged?.message === message) return this.#judged.fault;
    const { recipient = "", content } = message;
    const name = this.#functions.written.get(recipient.replace(/^functions\./, ""));
    const tool = name === undefined ? undefined : this.#clients.get(name);
    const [first] = content;
    const isJudged = tool && first?.type === "text";
    const fault = isJudged ? callFaultOf(tool, first.text, boundRules(this.#prompt.request)) : undefined;
    this.#judged = { message, fault };
    return fault;
  }

  /** The tools that the model may call. Some named tools were only called in earlier turns. */
  #offered(): string {
    const functions = toolsOf(this.#prompt, "callable").functions.map(({ name }) => this.#functions.recipient(name));
    const offered = [...functions, ...builtinNames(this.#prompt)];
    return offered.length > 0 ? `The tools are: ${offered.join(", ")}.` : "There are no tools.";
  }

  /** vLLM's counts, or this server's if vLLM was left before it gave any. Earlier samples count as output. */
  #total() {
    const usage = toUsage(this.#usage ?? { prompt_tokens: this.#promptTokens, completion_tokens: this.#tokens });
    const input = Math.max(0, usage.input_tokens - this.#before);
    const { cached_tokens: cached } = usage.input_tokens_details;
    return {
      ...usage,
      input_tokens: input,
      input_tokens_details: { ...usage.input_tokens_details, cached_tokens: Math.min(cached, input) },
      output_tokens: usage.output_tokens + this.#before,
      output_tokens_details: {
        reasoning_tokens: Math.min(this.#parser.reasoningTokens, usage.output_tokens + this.#before),
      },
    };
  }
}

/** The number of an event's tokens; one without ids has one. */
function tokensOf({ text, ids }: CompletionChunk): number {
  return ids?.length ?? (text === "" ? 0 : 1);
}

/** The call that some deltas have left open, if there is one. */
function openCall(deltas: readonly HarmonyDelta[]): ResumedCall[] {
  const end = deltas.findLastIndex((delta) => delta.kind === "message");
  const parts = deltas.slice(end + 1).filter((delta) => delta.kind === "tool_call");
  const [first] = parts;
  if (first?.name === undefined) return [];
  const text = parts.map((part) => part.arguments).join("");
  return [{ kind: "resumed_call", index: first.index, name: first.name, arguments: text }];
}

/** Built-in tools that may be called, by full name. A namespace without tools is a tool itself. */
function builtinNames(prompt: Prompt): string[] {
  return Object.values(toolsOf(prompt, "callable").plugins.namespaces).flatMap(({ name, tools }) =>
    tools.length === 0 ? [name] : tools.map((tool) => `${name}.${tool.name}`),
  );
}

/** A message to the model that is not the client's. */
function noteOf(text: string): HarmonyMessage {
  return { role: "user", content: [{ type: "text", text }] };
}

/** The message to a model about a call that cannot be answered, with the reason. */
function refusalOf({ recipient = "", channel = "commentary" }: HarmonyMessage, fault: string, advice = "") {
  // A name that the model has made up is cut to the form of a name.
  const name = /^[A-Za-z0-9_.:-]{1,128}$/.test(recipient) ? recipient : "tool";
  const text = `Error: ${fault}${advice && ` ${advice}`}`;
  const content: HarmonyMessage["content"] = [{ type: "text", text }];
  const message: HarmonyMessage = { role: "tool", name, recipient: "assistant", channel, content };
  return { why: `a call of '${name}': ${fault}`, message: toRawMessage(message) };
}

function withoutBrokenCharacter(piece: Segment): Segment {
  return typeof piece === "string" ? piece.replace(/\uFFFD+$/, "") : piece;
}
