import type { FinishReason, ModelDelta, TokenLogprob } from "../engine/engine.ts";
import type { ApiError } from "../protocol/errors.ts";
import { itemId, newCallId, type TurnAddress } from "../protocol/ids.ts";
import type { OutputItem, ResponseObject, Usage } from "../protocol/response.ts";
import type { LoggedTurn, OpenPartState } from "./logged-turn.ts";

/**
 * The one place that makes items and events: ids, `output_index`, `content_index`, `sequence_number`, statuses.
 *
 * Engines say what the model did (`ModelDelta`); this builder turns it into OpenAI's event order (each item added →
 * parts → deltas → done, strictest public reader: openai-node's `ResponseStream`) and into the items of the final
 * body. Stream, body and store share the same item objects, so their ids and texts cannot differ.
 *
 * At most one message or reasoning item is open at a time. Function calls may overlap, because an upstream may
 * interleave their arguments: a call is done when something else begins and its arguments are complete JSON, or at
 * the end of the round.
 */

/** Takes the events of a turn, in order, each as its type and its JSON text. */
export interface EventSink {
  event(type: string, json: string): void;
}

export interface BuilderOptions {
  address: TurnAddress;
  /** Absent when nobody streams: no event is built then. */
  sink?: EventSink;
  /** Pad delta events with random characters (`stream_options.include_obfuscation`). */
  obfuscation: boolean;
  /** Reasoning becomes items (`include_reasoning`); else it is dropped. */
  includeReasoning: boolean;
  /** Names of the functions that may be called, or undefined for any (`tool_choice: allowed_tools`). */
  allowedCalls?: ReadonlySet<string>;
  /** More than one function call per round (`parallel_tool_calls`). */
  parallelCalls: boolean;
  /** Call ids already in the prompt: a model's own call id that repeats one of them is replaced. */
  usedCallIds: Set<string>;
  /** Now, in Unix milliseconds. */
  clock: () => number;
  /** A turn that was cut off goes on here. */
  logged?: LoggedTurn;
}

/** How a turn ended. */
export type Outcome =
  | { status: "completed" }
  | { status: "incomplete"; reason: "max_output_tokens" | "content_filter" }
  | { status: "cancelled" }
  | { status: "failed"; error: ApiError };

/** A closed response as JSON text: `head` is all of it but `output`, so that the store can keep the two apart. */
export interface ClosedResponse {
  head: string;
  output: string;
}

type Message = Extract<OutputItem, { type: "message" }>;
type Reasoning = Extract<OutputItem, { type: "reasoning" }>;
type FunctionCall = Extract<OutputItem, { type: "function_call" }>;

/** A part that takes text: where deltas go, and the JSON of a delta event up to its sequence number. */
interface OpenPart extends OpenPartState {
  item: Message | Reasoning;
  deltaHead: string;
}

interface OpenCall {
  item: FunctionCall;
  outputIndex: number;
  deltaHead: string;
}

/** The events of each kind of part; the names are OpenAI's. */
const PART_EVENTS = {
  output_text: { delta: "response.output_text.delta", done: "response.output_text.done" },
  refusal: { delta: "response.refusal.delta", done: "response.refusal.done" },
  reasoning_text: { delta: "response.reasoning_text.delta", done: "response.reasoning_text.done" },
} as const;

const ARGUMENTS_DELTA = "response.function_call_arguments.delta";

/** Delta and obfuscation together fill a multiple of this many characters. */
const OBFUSCATION_BLOCK = 16;

/** Joins the two halves of a closed response to its JSON body. */
export function responseBody(closed: ClosedResponse): string {
  return `${closed.head.slice(0, -1)},"output":${closed.output}}`;
}

export class ResponseBuilder {
  readonly #response: ResponseObject;
  readonly #options: BuilderOptions;
  readonly #sink: EventSink | undefined;
  readonly #padding: string;
  #sequence = 0;
  #deltas = 0;
  #reasoningDeltas = 0;
  #part: OpenPart | undefined;
  #calls = new Map<number, OpenCall>();
  #droppedCalls = new Set<number>();
  #roundCalls = 0;
  #finish: FinishReason | undefined;

  /** `response` is the initial response; the builder fills it in. */
  constructor(response: ResponseObject, options: BuilderOptions) {
    this.#response = response;
    this.#options = options;
    this.#sink = options.sink;
    this.#padding = options.obfuscation ? crypto.randomUUID().replaceAll("-", "") : "";
    if (options.logged) this.#goOnFrom(options.logged);
  }

  #goOnFrom(logged: LoggedTurn): void {
    this.#sequence = logged.sequence;
    this.#deltas = logged.deltas;
    this.#reasoningDeltas = logged.reasoningDeltas;
    this.#response.output = logged.output;
    for (const [outputIndex, item] of logged.output.entries()) {
      if (item.type !== "function_call" || item.status === "completed") continue;
      // No engine goes on in a call; it is here to be closed. Its own index at the upstream is not known any more.
      this.#calls.set(-1 - outputIndex, newOpenCall(item, outputIndex));
    }
    if (!logged.openPart) return;
    const item = logged.output[logged.openPart.outputIndex];
    if (item?.type === "message" || item?.type === "reasoning") this.#part = newOpenPart(logged.openPart, item);
  }

  /** Events so far; the next one's sequence number. */
  get sequence(): number {
    return this.#sequence;
  }

  /** Why the model stopped, once it has said so. */
  get finishReason(): FinishReason | undefined {
    return this.#finish;
  }

  /** Delta events so far: about as many as tokens. */
  get deltas(): number {
    return this.#deltas;
  }

  /** Those of them that were reasoning. */
  get reasoningDeltas(): number {
    return this.#reasoningDeltas;
  }

  /**
   * What has been generated, as items that a prompt can end with: an open part is there with its text so far.
   * An unfinished function call is there too; an engine that cannot go on with it says so.
   */
  partialItems(): OutputItem[] {
    const part = this.#part;
    return this.#response.output.map((item, index) => {
      if (!part || index !== part.outputIndex) return item;
      return { ...part.item, content: [...(part.item.content ?? []), partContent(part)] } as OutputItem;
    });
  }

  /** `response.created` with the response queued, and `response.queued`: a background run that waits to begin. */
  queue(): void {
    if (this.#sequence > 0) return;
    const snapshot = JSON.stringify({ ...this.#response, status: "queued" });
    this.#lifecycle("response.created", snapshot);
    this.#lifecycle("response.queued", snapshot);
  }

  /** `response.created`, unless it has been said before, and `response.in_progress`. */
  start(): void {
    if (!this.#sink || this.#options.logged?.started) return;
    const snapshot = JSON.stringify(this.#response);
    if (this.#sequence === 0) this.#lifecycle("response.created", snapshot);
    this.#lifecycle("response.in_progress", snapshot);
  }

  /**
   * Repeats `response.in_progress`: a sign of life for clients whose idle timeout counts only events
   * (Codex gives up after 300 s of comments).
   */
  repeatInProgress(): void {
    this.#lifecycle("response.in_progress", JSON.stringify({ ...this.#response, output: [] }));
  }

  apply(delta: ModelDelta): void {
    switch (delta.kind) {
      case "text":
        this.#appendText("output_text", delta.text, delta.logprobs);
        return;
      case "reasoning":
        if (this.#options.includeReasoning) this.#appendText("reasoning_text", delta.text);
        return;
      case "refusal":
        this.#appendText("refusal", delta.text);
        return;
      case "tool_call":
        this.#appendCall(delta);
        return;
      case "usage":
        this.#response.usage = this.#response.usage ? addUsage(this.#response.usage, delta.usage) : delta.usage;
        return;
      case "kv_transfer_params":
        this.#response.kv_transfer_params = delta.value;
        return;
      case "finish":
        this.#finish = delta.reason;
        return;
    }
  }

  /**
   * Ends every open item and settles the response; no terminal event yet, because what is settled must be stored
   * before anybody is told. May be called again with another outcome when storing failed.
   */
  close(outcome: Outcome): ClosedResponse {
    const truncated = outcome.status !== "completed";
    const silent = outcome.status === "failed" || outcome.status === "cancelled";
    const last = this.#response.output.length - 1;
    const openPart = this.#part;
    if (openPart) this.#closePart(truncated && openPart.outputIndex === last ? "incomplete" : "completed", silent);
    for (const [index, call] of [...this.#calls]) {
      const complete = !truncated || (call.outputIndex !== last && isJson(call.item.arguments));
      this.#closeCall(index, call, complete ? "completed" : "incomplete", silent);
    }
    const response = this.#response;
    response.status = outcome.status;
    response.completed_at = outcome.status === "completed" ? Math.floor(this.#options.clock() / 1000) : null;
    response.incomplete_details = outcome.status === "incomplete" ? { reason: outcome.reason } : null;
    response.error = outcome.status === "failed" ? toResponseError(outcome.error) : null;
    const { output, ...head } = response;
    return { head: JSON.stringify(head), output: JSON.stringify(output) };
  }

  /**
   * The terminal event of a closed response; a failure is preceded by `error`, nested and flat for all clients. OpenAI
   * has no event for a cancelled response: it ends as `response.incomplete` with a response that says `cancelled`.
   */
  terminate(outcome: Outcome, closed: ClosedResponse): void {
    if (outcome.status === "failed") {
      const { message, type, param, code } = outcome.error;
      this.#emit("error", { error: { type, code, message, param }, code, message, param });
    }
    const name = outcome.status === "cancelled" ? "incomplete" : outcome.status;
    this.#lifecycle(`response.${name}`, responseBody(closed));
  }

  #appendText(kind: OpenPart["kind"], text: string, logprobs?: TokenLogprob[]): void {
    if (text === "" && !logprobs?.length) return;
    let part = this.#part;
    if (part?.kind !== kind) part = this.#openPart(kind);
    this.#deltas += 1;
    if (kind === "reasoning_text") this.#reasoningDeltas += 1;
    part.text += text;
    if (logprobs) part.logprobs.push(...logprobs);
    if (!this.#sink) return;
    const extra = kind === "output_text" ? `,"logprobs":${logprobs ? JSON.stringify(logprobs) : "[]"}` : "";
    this.#delta(PART_EVENTS[kind].delta, part.deltaHead, text, extra);
  }

  /** The hottest lines of the server: one delta event, its JSON put together from what does not change. */
  #delta(type: string, head: string, text: string, extra: string): void {
    let json = `${head}${this.#sequence++},"delta":${JSON.stringify(text)}${extra}`;
    if (this.#padding !== "") {
      const length = OBFUSCATION_BLOCK - (text.length % OBFUSCATION_BLOCK);
      json += `,"obfuscation":"${this.#padding.slice(0, length)}"`;
    }
    this.#sink?.event(type, `${json}}`);
  }

  #openPart(kind: OpenPart["kind"]): OpenPart {
    const type = kind === "reasoning_text" ? "reasoning" : "message";
    const open = this.#part;
    // A refusal may follow text within one message; everything else begins a new item.
    const sameItem = open !== undefined && open.item.type === type;
    if (open) this.#closePart("completed", false, sameItem);
    if (!sameItem) this.#closeCompleteCalls();
    const item = sameItem ? open.item : this.#addTextItem(type);
    const outputIndex = sameItem ? open.outputIndex : this.#response.output.length - 1;
    const contentIndex = item.content?.length ?? 0;
    const part = newOpenPart({ kind, outputIndex, contentIndex, text: "", logprobs: [] }, item);
    this.#part = part;
    this.#emit("response.content_part.added", { ...addressOf(part), part: partContent(part) });
    return part;
  }

  #addTextItem(type: "message" | "reasoning"): Message | Reasoning {
    const id = this.#newItemId(type);
    const item: Message | Reasoning =
      type === "message"
        ? { id, type, status: "in_progress", role: "assistant", content: [] }
        : { id, type, status: "in_progress", summary: [], content: [] };
    this.#addItem(item);
    return item;
  }

  /** Ends the open part, and its item unless `keepItem`. `silent`: the item is settled, no event says so. */
  #closePart(status: "completed" | "incomplete", silent: boolean, keepItem = false): void {
    const part = this.#part;
    if (!part) return;
    const { item } = part;
    const content = partContent(part);
    (item.content as unknown[]).push(content);
    if (!keepItem) {
      this.#part = undefined;
      item.status = status;
    }
    if (silent) return;
    const at = addressOf(part);
    const text = part.kind === "refusal" ? { refusal: part.text } : { text: part.text };
    const logprobs = part.kind === "output_text" ? { logprobs: part.logprobs } : {};
    this.#emit(PART_EVENTS[part.kind].done, { ...at, ...text, ...logprobs });
    this.#emit("response.content_part.done", { ...at, part: content });
    if (!keepItem) this.#emit("response.output_item.done", { output_index: part.outputIndex, item });
  }

  #appendCall(delta: Extract<ModelDelta, { kind: "tool_call" }>): void {
    if (this.#droppedCalls.has(delta.index)) return;
    const call = this.#calls.get(delta.index) ?? this.#openCall(delta);
    if (!call || delta.arguments === "") return;
    this.#deltas += 1;
    call.item.arguments += delta.arguments;
    if (this.#sink) this.#delta(ARGUMENTS_DELTA, call.deltaHead, delta.arguments, "");
  }

  #openCall(delta: Extract<ModelDelta, { kind: "tool_call" }>): OpenCall | undefined {
    const name = delta.name ?? "";
    const refused = this.#options.allowedCalls?.has(name) === false;
    if (name === "" || refused || (!this.#options.parallelCalls && this.#roundCalls > 0)) {
      this.#droppedCalls.add(delta.index);
      return undefined;
    }
    this.#roundCalls += 1;
    this.#closePart("completed", false);
    this.#closeCompleteCalls();
    const id = this.#newItemId("function_call");
    const item: FunctionCall = {
      id,
      type: "function_call",
      status: "in_progress",
      call_id: this.#claimCallId(delta.callId),
      name,
      arguments: "",
    };
    this.#addItem(item);
    const call = newOpenCall(item, this.#response.output.length - 1);
    this.#calls.set(delta.index, call);
    return call;
  }

  /** The model's own call id where it is usable (some templates insist on their form), else a new one. */
  #claimCallId(offered: string | undefined): string {
    const used = this.#options.usedCallIds;
    const id = offered && offered.length <= 64 && !used.has(offered) ? offered : newCallId();
    used.add(id);
    return id;
  }

  #closeCompleteCalls(): void {
    for (const [index, call] of this.#calls) {
      if (isJson(call.item.arguments)) this.#closeCall(index, call, "completed", false);
    }
  }

  #closeCall(index: number, call: OpenCall, status: "completed" | "incomplete", silent: boolean): void {
    const { item, outputIndex } = call;
    // The index stays taken: what an upstream still sends for it belongs to no other call.
    this.#calls.delete(index);
    this.#droppedCalls.add(index);
    if (status === "completed" && item.arguments === "") {
      item.arguments = "{}";
      if (this.#sink && !silent) this.#delta(ARGUMENTS_DELTA, call.deltaHead, "{}", "");
    }
    item.status = status;
    if (silent) return;
    this.#emit("response.function_call_arguments.done", {
      item_id: item.id,
      output_index: outputIndex,
      name: item.name,
      arguments: item.arguments,
    });
    this.#emit("response.output_item.done", { output_index: outputIndex, item });
  }

  #newItemId(type: OutputItem["type"]): string {
    return itemId(type, this.#options.address, "output", this.#response.output.length);
  }

  #addItem(item: OutputItem): void {
    this.#response.output.push(item);
    this.#emit("response.output_item.added", { output_index: this.#response.output.length - 1, item });
  }

  #emit(type: string, fields: Record<string, unknown>): void {
    this.#sink?.event(type, JSON.stringify({ type, sequence_number: this.#sequence++, ...fields }));
  }

  #lifecycle(type: string, responseJson: string): void {
    this.#sink?.event(type, `{"type":"${type}","sequence_number":${this.#sequence++},"response":${responseJson}}`);
  }
}

function newOpenPart(state: OpenPartState, item: Message | Reasoning): OpenPart {
  const part = { ...state, item, deltaHead: "" };
  part.deltaHead = deltaHead(PART_EVENTS[state.kind].delta, addressOf(part));
  return part;
}

function newOpenCall(item: FunctionCall, outputIndex: number): OpenCall {
  return { item, outputIndex, deltaHead: deltaHead(ARGUMENTS_DELTA, { item_id: item.id, output_index: outputIndex }) };
}

function addressOf(part: OpenPart) {
  return { item_id: part.item.id, output_index: part.outputIndex, content_index: part.contentIndex };
}

function deltaHead(type: string, at: Record<string, unknown>): string {
  return `${JSON.stringify({ type, ...at }).slice(0, -1)},"sequence_number":`;
}

/** The part as the API shows it, with the text so far. */
function partContent(part: OpenPart) {
  switch (part.kind) {
    case "output_text":
      return { type: part.kind, text: part.text, annotations: [], logprobs: part.logprobs };
    case "refusal":
      return { type: part.kind, refusal: part.text };
    case "reasoning_text":
      return { type: part.kind, text: part.text };
  }
}

/** `response.error` knows fewer codes than HTTP errors do (openai 7.55 `ResponseError.code`). */
function toResponseError(error: ApiError): { code: string; message: string } {
  const known = error.code === "rate_limit_exceeded" || error.code === "context_length_exceeded";
  return { code: known ? error.code : error.status < 500 ? "invalid_prompt" : "server_error", message: error.message };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function addUsage(a: Usage, b: Usage): Usage {
  return {
    input_tokens: a.input_tokens + b.input_tokens,
    input_tokens_details: {
      cached_tokens: a.input_tokens_details.cached_tokens + b.input_tokens_details.cached_tokens,
      cache_write_tokens: a.input_tokens_details.cache_write_tokens + b.input_tokens_details.cache_write_tokens,
    },
    output_tokens: a.output_tokens + b.output_tokens,
    output_tokens_details: {
      reasoning_tokens: a.output_tokens_details.reasoning_tokens + b.output_tokens_details.reasoning_tokens,
    },
    total_tokens: a.total_tokens + b.total_tokens,
  };
}
