import type { TokenLogprob, ToolNamespace } from "@responses-edge/harmony";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Usage } from "@responses-edge/responses-api/response";
import type { FunctionTool } from "@responses-edge/responses-api/tools";

export type { TokenLogprob, ToolDescription, ToolNamespace } from "@responses-edge/harmony";

/** The ways to speak to a model: over chat completions, or in Harmony over completions (gpt-oss). */
export const ENGINES = ["chat", "harmony"] as const;
export type EngineName = (typeof ENGINES)[number];

/** A model as the client names it and as vLLM does, and how it is spoken to. */
export interface Model {
  name: string;
  upstream: string;
  engine: EngineName;
}

/** Why a model stopped. */
export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

/**
 * Model deltas tell what a model does, in the smallest words that every engine can say. An engine cannot emit events, choose ids or
 * indices; the turn's builder makes those from these deltas, so that all engines obey one order.
 */
export type ModelDelta =
  | { kind: "reasoning"; text: string }
  /** `phase` tells a preamble between calls from the answer, where the model says which it is. */
  | { kind: "text"; text: string; logprobs?: TokenLogprob[]; phase?: Phase }
  | { kind: "refusal"; text: string }
  /** `index` tells parallel calls of one round apart; `name` and `callId` come with the first delta of an index. */
  | { kind: "tool_call"; index: number; callId?: string; name?: string; arguments: string }
  /** The call ended before its arguments were whole. */
  | { kind: "call_cut"; index: number }
  /** The item that was being generated is complete; without this word it ends where another kind begins. */
  | { kind: "item_done" }
  /**
   * A message as the model wrote it, once it is complete or cut off, after its deltas. `index` counts the messages of
   * a round; `itemKind` tells what the message has become, if anything.
   */
  | { kind: "message"; index: number; itemKind?: "reasoning" | "message" | "call"; message: RawMessage }
  /** The call in whose middle the generation goes on, with all of it so far: said before the first delta. */
  | { kind: "resumed_call"; index: number; name: string; arguments: string }
  /**
   * The answer ends in a call that cannot be made. `why` says what of the request it does not keep to. The answer stays in
   * the prompt, and the model is to be asked again after these messages, which tell it so.
   */
  | { kind: "broken"; why: string; messages: RawMessage[] }
  /**
   * The answer is not used: the same prompt is to be asked again with `change`. `why` is as in `broken`; without it the
   * model is not at fault, and this is not counted.
   */
  | { kind: "ask_again"; why?: string; change: PromptChange }
  /** The tokens that were sampled since the last of these: with all of them a generation can be put back to where it was. */
  | { kind: "sampled"; sampled: Sampled }
  | { kind: "usage"; usage: Usage }
  | { kind: "kv_transfer_params"; value: unknown }
  | { kind: "finish"; reason: FinishReason };

/** The part that a message plays for the reader: said on the way, or the answer (OpenAI's `phase`). */
export type Phase = "commentary" | "final_answer";

/** A message in its engine's own form; JSON. */
export type RawMessage = object;

/** A call of a tool that this server ran, as the model made it and saw it answered. */
export interface ToolExchange {
  /** A function's name, or a built-in tool's full one: `browser.search`, `python`, `container.exec`. */
  name: string;
  arguments: string;
  output: string;
  /** Calls with the same one were made side by side. */
  step: string;
  /** The tool's memory for the turns to come; JSON. */
  memory?: unknown;
}

/** Raw messages that stand in a prompt for an item, or before it: those that it was made from, or that led to it. */
export interface Replay {
  /** The item's id. */
  item: string;
  messages: RawMessage[];
  /** The item is a call that has been answered. */
  exchange?: ToolExchange;
  /** The item lists tools: which server's, and which of them. */
  origin?: string;
  /** They come before the item, which is rendered as any other. */
  before?: true;
}

/** Output as it was sampled: token ids, or text (special tokens as literals) where the server gives no ids. */
export type Sampled = { ids: number[] } | { text: string };

/** Tools that this server runs, as models get to see them. */
export interface PluginTools {
  /** Those of MCP servers. */
  functions: readonly FunctionTool[];
  /** The built-in ones: by namespace, as gpt-oss knows them, and as functions for all others. */
  namespaces: Readonly<Record<string, ToolNamespace>>;
  builtinFunctions: readonly FunctionTool[];
  /** Names of those functions and namespaces that the turn's choice of tools does not leave to the model. */
  withheld?: ReadonlySet<string>;
}

/** The prompt of one round: what the model is to answer. */
export interface Prompt {
  /** The model's name at vLLM. */
  model: string;
  /** History and input, oldest first; from the second round on with what the turn has put out. */
  items: Item[];
  /** Raw messages that stand for some of the items. Only for the engine that made them. */
  replays: readonly Replay[];
  /** Raw messages after all items. */
  trailing?: readonly RawMessage[];
  request: CreateRequest;
  /** The tools that this server would run for the model. */
  pluginTools?: PluginTools;
  /** Only tools that the model may call stand in the prompt; else all of them do, which `tool_choice` does not change. */
  onlyOffered?: boolean;
  /** Names the tenant's part of vLLM's prefix cache. */
  cacheSalt: string;
  /** When the turn was created, Unix milliseconds. */
  createdAt: number;
  /** Output of this round that has been sampled already: the model goes on after it, unless that was all. */
  sampled?: Sampled;
  /** Messages after all others that tell the model what was wrong with its earlier answers. Only for the engine that made them. */
  corrections?: readonly RawMessage[];
  /** The model is to give its final text, in the format of the answer, and to call nothing. */
  isFinal?: true;
  /** The model server refuses the grammars of custom tools: they stand in the tools' descriptions only. */
  freeInputs?: boolean;
  /** Output tokens that this turn has used up of `max_output_tokens` already. */
  spentTokens?: number;
  /** Nobody sees a word of the answer before it is whole. */
  isUnwatched?: true;
  /** The model sees its tools, and is to write text: no call, and nothing in the format of the answer. */
  asksForText?: true;
}

/** The fields of a prompt with which the engine has it asked again. */
export type PromptChange = Pick<Prompt, "corrections" | "onlyOffered" | "freeInputs" | "isFinal">;

/** A prompt that ends with what was generated before an upstream died, for the model to go on with. */
export interface Resumption {
  prompt: Prompt;
  /** Text that was generated but could not stand at the end of the prompt: the model will say it again. */
  repeated: string;
  /** How many of the last items the model is to say anew, in other words perhaps: they end as they are. */
  anew?: number;
  /**
   * Tokens generated so far, where the engine knows exactly; the usage that it reports in the end then counts them as
   * output too. Else they are to be measured, and the usage counts them as input.
   */
  sampledTokens?: number;
}

/** Tokens of a prompt as the engine would render it, and the model's context window. */
export interface PromptSize {
  tokens: number;
  contextWindow: number;
  /** The model server counts nothing: the tokens are estimated by the length of the texts. */
  isEstimate?: boolean;
  /** The prompt has an open message, to which the template adds tokens that were not generated. Each delta was a token. */
  isTokenPerDelta?: boolean;
}

/** A way to make a model speak: `chat` over vLLM's chat completions, `harmony` over its completions. */
export interface Engine {
  /** The role of what this server itself tells the model in the middle of a conversation. */
  readonly noteRole: "user" | "developer";

  /**
   * The request in the form in which this engine takes it. Throws the 400 of what it, or any model behind it, cannot
   * do. To be called once, before anything is begun.
   */
  accept(request: CreateRequest): CreateRequest;

  /**
   * Starts one round. Resolves when the upstream has accepted it, with the deltas of each upstream read together.
   * Aborting `signal` closes the upstream request at once and ends the iteration with the signal's reason.
   * Throws ApiError: 4xx for a prompt that the model refuses, 502/503/504 for an upstream that fails, and the same
   * from the iteration when it fails after the start.
   */
  generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>>;

  /**
   * The prompt to go on with after `partial` (items generated so far, the last one unfinished) and all that this round
   * has sampled, or undefined where this engine cannot put a model back into that state.
   */
  resumption(prompt: Prompt, partial: readonly Item[], sampled: Sampled | undefined): Resumption | undefined;

  /**
   * The size of a prompt. A prompt longer than the window may give only that fact; `countsAll` asks for its length, too. Throws ApiError as
   * `generate` does.
   */
  measure(prompt: Prompt, signal: AbortSignal, options?: { countsAll?: boolean }): Promise<PromptSize>;

  /**
   * A call's answer as raw messages, to stand in the prompt after `made`, the last one of the call's own; none for an
   * engine that makes its prompt from the exchange.
   */
  answerMessages?(exchange: ToolExchange, made: RawMessage | undefined): RawMessage[];

  /**
   * The prompt as the raw messages that `input_messages` shows (`enable_response_messages`); at once where nobody has to
   * be asked. Throws, or rejects, as `generate` does.
   */
  inputMessages(prompt: Prompt, signal: AbortSignal): RawMessage[] | Promise<RawMessage[]>;
}

/** A request to a model server that has ended with an answer, or with a fault. */
export interface ServerAttempt {
  /** The server's name. */
  server: string;
  path: string;
  /** Which try of the same request it was: 1 for the first. */
  attempt: number;
  /** 200 once the server has accepted; of a fault the status that its answer had, if there was one. */
  status: number | undefined;
  /** The code of the fault. */
  fault: string | undefined;
  /** When it was sent, and when its headers or the fault had come. Unix milliseconds. */
  sentAt: number;
  answeredAt: number;
}
