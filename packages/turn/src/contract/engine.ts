import type { TokenLogprob, ToolNamespace } from "@responses-edge/harmony";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Usage } from "@responses-edge/responses-api/response";
import type { FunctionTool } from "@responses-edge/responses-api/tools";

export type { TokenLogprob, ToolDescription, ToolNamespace } from "@responses-edge/harmony";

/** The ways to speak to a model: over chat completions, or in Harmony over completions (gpt-oss). */
export const ENGINES = ["chat", "harmony"] as const;
export type EngineName = (typeof ENGINES)[number];

/** A model by the client's name and by vLLM's, and the engine that speaks to it. */
export interface Model {
  name: string;
  upstream: string;
  engine: EngineName;
}

/** Why a model stopped. `repetition`: its server found that it repeats itself (vLLM's `repetition_detection`). */
export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter" | "repetition";

/**
 * Model deltas describe a model's output, in the smallest units that every engine can give. An engine cannot emit
 * events or choose ids and indices: the turn makes those from the deltas, so that all engines follow one order.
 */
export type ModelDelta =
  | { kind: "reasoning"; text: string }
  /** `phase` distinguishes a preamble between calls from the answer, if the model says which it is. */
  | { kind: "text"; text: string; logprobs?: TokenLogprob[]; phase?: Phase }
  | { kind: "refusal"; text: string }
  /** `index` distinguishes parallel calls of one round; `name` and `callId` come with the first delta of an index. */
  | { kind: "tool_call"; index: number; callId?: string; name?: string; arguments: string }
  /** The call ended with incomplete arguments. */
  | { kind: "call_cut"; index: number }
  /** The current item is complete. Without this delta it ends when another kind begins. */
  | { kind: "item_done" }
  /**
   * A message as the model wrote it, once it is complete or cut off, after its deltas. `index` counts the messages of a
   * round; `itemKind` is the kind of item that it has become, if any.
   */
  | { kind: "message"; index: number; itemKind?: "reasoning" | "message" | "call"; message: RawMessage }
  /** The call that is being continued, with all of its arguments so far. Comes before the first delta. */
  | { kind: "resumed_call"; index: number; name: string; arguments: string }
  /**
   * The answer ends in an invalid call. `why` names the field of the request that it violates. The answer stays in the
   * prompt, and the model is asked again after these messages, which tell it so.
   */
  | { kind: "broken"; why: string; messages: RawMessage[] }
  /**
   * The answer is dropped, and the prompt is asked again with `change`. `why` as in `broken`; without it the model made
   * no mistake, and this is not counted.
   */
  | { kind: "ask_again"; why?: string; change: PromptChange }
  /** The tokens sampled since the last of these deltas. All of them together restore the state of a generation. */
  | { kind: "sampled"; sampled: Sampled }
  /** The model has written something that is not given yet. */
  | { kind: "held" }
  /** The text has markup of the model's that could not be read: in words for the client, what is wrong with the answer. */
  | { kind: "unread"; why: string }
  | { kind: "usage"; usage: Usage }
  | { kind: "kv_transfer_params"; value: unknown }
  | { kind: "finish"; reason: FinishReason };

/** The part that a message plays for the reader: a preamble, or the answer (OpenAI's `phase`). */
export type Phase = "commentary" | "final_answer";

/** A message in its engine's own form; JSON. */
export type RawMessage = object;

/** A call of a hosted tool, as the model made it and saw it answered. */
export interface ToolExchange {
  /** A function's name, or a built-in tool's full one: `browser.search`, `python`, `container.exec`. */
  name: string;
  arguments: string;
  output: string;
  /** Images in the output, as data URLs, for models that see: the output has a placeholder for each. */
  images?: readonly string[];
  /** The call failed: the output says why. */
  failed?: true;
  /** Calls with the same step were made in parallel. */
  step: string;
  /** The tool's memory for later turns; JSON. */
  memory?: unknown;
}

/** Raw messages that replace an item in a prompt, or come before it: those that it was made from, or that led to it. */
export interface Replay {
  /** The item's id. */
  item: string;
  messages: RawMessage[];
  /** Set if the item is an answered call. */
  exchange?: ToolExchange;
  /** Set if the item lists tools: identifies the server and the listed tools. */
  origin?: string;
  /** The messages come before the item, which is rendered normally. */
  before?: true;
}

/** Output as it was sampled: token ids, or, if the server gives none, text with special tokens as literals. */
export type Sampled = { ids: number[] } | { text: string };

/** Hosted tools, as models see them. */
export interface PluginTools {
  /** The tools of MCP servers. */
  functions: readonly FunctionTool[];
  /** The built-in tools: by namespace for gpt-oss, as functions for all other models. */
  namespaces: Readonly<Record<string, ToolNamespace>>;
  builtinFunctions: readonly FunctionTool[];
  /** The functions that the model's programs may call. */
  forPrograms?: readonly FunctionTool[];
  /** Names of the functions and namespaces that the turn's choice of tools excludes. */
  withheld?: ReadonlySet<string>;
}

/** The prompt of one round. */
export interface Prompt {
  /** The model's name at vLLM. */
  model: string;
  /** History and input, oldest first; from the second round on followed by the turn's output. */
  items: Item[];
  /** Raw messages that replace some of the items. Only for the engine that made them. */
  replays: readonly Replay[];
  /** Raw messages after all items. */
  trailing?: readonly RawMessage[];
  request: CreateRequest;
  /** The hosted tools of the turn. */
  pluginTools?: PluginTools;
  /** True puts only callable tools into the prompt. Otherwise all tools are in it, whatever `tool_choice` says. */
  onlyOffered?: boolean;
  /** Separates the tenant's part of vLLM's prefix cache. */
  cacheSalt: string;
  /** When the turn was created, Unix milliseconds. */
  createdAt: number;
  /** Output of this round that was sampled already: the model continues after it, unless it is complete. */
  sampled?: Sampled;
  /** Messages after all others that tell the model its earlier mistakes. Only for the engine that made them. */
  corrections?: readonly RawMessage[];
  /** The model must give its final text, in the format of the answer, and may not call tools. */
  isFinal?: true;
  /**
   * The model server refuses the grammars that are made here, of custom tools and of functions that are strict by
   * default, so only the tools' descriptions have them.
   */
  freeInputs?: boolean;
  /** Output tokens that this turn has already used of `max_output_tokens`. */
  spentTokens?: number;
  /** Nobody sees the answer before it is complete. */
  isUnwatched?: true;
  /** The model sees its tools, but must write text: no call, and not in the format of the answer. */
  asksForText?: true;
  /** How often the answer was cut because it repeated itself: it continues with another seed, and penalties. */
  repetitions?: number;
  /**
   * The beginning of a bound answer, or of a call, that the model is to complete: it is asked for the rest only. Only
   * for the engine that made it.
   */
  begun?: object;
}

/** The fields of a prompt that the engine may change to have it asked again. */
export type PromptChange = Pick<Prompt, "corrections" | "onlyOffered" | "freeInputs" | "isFinal">;

/** A prompt that ends with the text generated before an upstream died, for the model to continue. */
export interface Resumption {
  prompt: Prompt;
  /** Generated text that could not be at the end of the prompt. The model will generate it again. */
  repeated: string;
  /** How many of the last items the model generates anew, perhaps with other words. Those items end as they are. */
  anew?: number;
  /**
   * Tokens generated so far, if the engine knows them exactly; its final usage then counts them as output, too.
   * Otherwise they are measured, because the usage counts them as input.
   */
  sampledTokens?: number;
  /** The text so far is quoted in the prompt, with words that were not generated. */
  isQuoted?: true;
  /** The output is complete: the generation ends for this reason, and nobody is asked. */
  ends?: FinishReason;
}

/** The end of a generation that was broken off, without what is dropped of it. */
export interface SampledCut {
  kind: "thought" | "answer";
  /** The number of characters that stay, of a text's. */
  kept: (text: string) => number;
  /** The thought ends, and the model must answer: it may not call a tool instead. */
  mustAnswer: boolean;
}

/** The size of a prompt as the engine would render it, and the model's context window, in tokens. */
export interface PromptSize {
  tokens: number;
  contextWindow: number;
  /** The model server cannot count: the tokens are estimated from the length of the texts. */
  isEstimate?: boolean;
  /**
   * The prompt has an open message, to which the template adds tokens that were not generated. Each delta was a token.
   */
  isTokenPerDelta?: boolean;
}

/** A part of a prompt, in the order in which templates render them. */
export interface PromptPart {
  kind: "effort" | "tool" | "format" | "input";
  /** The role of a message; the name of a tool. */
  name?: string;
  /** As it is sent to the model server. */
  text: string;
}

/** A prompt as the model gets it, without the beginning of its answer: as token ids, or as text where a server gives only that. */
export type RenderedPrompt = readonly number[] | string;

/** A way to make a model generate: `chat` uses vLLM's chat completions, `harmony` its completions. */
export interface Engine {
  /** The role of this server's own notes to the model within a conversation. */
  readonly noteRole: "user" | "developer";

  /**
   * The request in the form that this engine takes. Throws the 400 of features that it, or any model behind it, lacks.
   * To be called once, before anything begins.
   */
  accept(request: CreateRequest): CreateRequest;

  /** Tells whether the prompt has a tool that the model may call. */
  mayCall(prompt: Prompt): boolean;

  /**
   * Starts one round. Resolves once the upstream has accepted it, with the deltas of each upstream read together.
   * Aborting `signal` closes the upstream request at once and ends the iteration with the signal's reason. Throws
   * ApiError: 4xx for a prompt that the model refuses, 502/503/504 for an upstream that fails; the iteration throws the
   * same for a later failure.
   */
  generate(prompt: Prompt, signal: AbortSignal): Promise<AsyncIterable<ModelDelta[]>>;

  /**
   * The prompt that continues after `partial` (items generated so far, the last one unfinished) and everything that
   * this round has sampled; undefined if this engine cannot restore that state.
   */
  resumption(
    prompt: Prompt,
    partial: readonly Item[],
    sampled: Sampled | undefined,
    options?: {
      /** The reasoning in `partial` is over: the model answers, and does not think on. */
      endsThought?: boolean;
    },
  ): Resumption | undefined;

  /**
   * The samples of a generation that was broken off because of its end, from which the model continues: without the
   * characters of its last message that are not kept, and with the end of a thought. Only engines that give samples
   * have it.
   */
  cutSampled?(prompt: Prompt, sampled: Sampled, cut: SampledCut): Promise<Sampled>;

  /**
   * The most reasoning tokens of an answer to this prompt, if its server does not end the reasoning by itself. Known
   * once the server has accepted the prompt.
   */
  unboundThinking(prompt: Prompt): number | undefined;

  /**
   * The size of a prompt. For a prompt longer than the window, the size may say only that; `countsAll` asks for its
   * length, too. Throws ApiError as `generate` does.
   */
  measure(prompt: Prompt, signal: AbortSignal, options?: { countsAll?: boolean }): Promise<PromptSize>;

  /**
   * A call's answer as raw messages, for the prompt after `made`, the last of the call's own messages; none from an
   * engine that makes its prompt from the exchange.
   */
  answerMessages?(exchange: ToolExchange, made: RawMessage | undefined): RawMessage[];

  /** The parts of a prompt. Throws ApiError as `generate` does. */
  parts(prompt: Prompt, signal: AbortSignal): Promise<PromptPart[]>;

  /**
   * The prompt as the model gets it; with `messages`, only so many of its messages. Undefined if the model server does not tell.
   * Throws ApiError as `generate` does.
   */
  rendered(prompt: Prompt, signal: AbortSignal, messages?: number): Promise<RenderedPrompt | undefined>;

  /** The text of a rendered prompt of a model. Throws ApiError as `generate` does. */
  renderedText(rendered: RenderedPrompt, model: string, signal: AbortSignal): Promise<string>;

  /**
   * The prompt as the raw messages of `input_messages` (`enable_response_messages`); synchronous if no server has to be
   * asked. Throws, or rejects, as `generate` does.
   */
  inputMessages(prompt: Prompt, signal: AbortSignal): RawMessage[] | Promise<RawMessage[]>;
}

/** A request to a model server that has ended with an answer, or with a fault. */
export interface ServerAttempt {
  /** The server's name. */
  server: string;
  path: string;
  /** The number of the attempt at the same request, from 1. */
  attempt: number;
  /** 200 once the server has accepted; for a fault, the status of the answer, if there was one. */
  status: number | undefined;
  /** The code of the fault. */
  fault: string | undefined;
  /** The server's own text of a fault, for the operator. */
  text: string | undefined;
  /** When it was sent, and when its headers or the fault came. Unix milliseconds. */
  sentAt: number;
  answeredAt: number;
}
