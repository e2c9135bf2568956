import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { ApiError, contextLengthExceeded, invalidRequest } from "@responses-edge/responses-api/errors";
import { calledId, type Item } from "@responses-edge/responses-api/items/registry";
import type { Usage } from "@responses-edge/responses-api/response";
import { type NoteRole, noteOf, SUMMARY_ID, standingItems } from "./compacted-past.ts";
import { answeredCalls, lengthOf, promptLength, type Selection, selectKept } from "./compaction-selection.ts";
import type { ModelDelta, Prompt, PromptSize } from "./contract/engine.ts";
import type { CompactionKind, Outcome } from "./decide.ts";
import type { Generations } from "./generation.ts";
import type { TurnOptions } from "./options.ts";
import type { RoundPrompt } from "./prompt.ts";
import type { Generation } from "./resume.ts";
import type { CompactionContent } from "./sealed-content/sealing.ts";
import { openCompaction } from "./state.ts";
import { measureOrExplain, truncateToFit } from "./truncation.ts";
import type { TurnOutput } from "./turn-output.ts";

/**
 * The compaction of a turn's prompt (docs/reasoning.md): before a round whose prompt reaches the threshold of
 * `context_management`, or as the only work of a turn whose input asks for it. At most one in a round.
 */

/** The share of the window at which a prompt is compacted if the request gives no threshold. */
const DEFAULT_SHARE = 0.8;
const MIN_THRESHOLD = 1000;

/** The share of the threshold that each part of a compacted prompt may take. */
const KEPT_SHARE = 0.25;
const TAIL_SHARE = 0.5;
const SUMMARY_SHARE = 0.25;
/** Bounds in tokens, at any threshold. */
const MAX_KEPT_TOKENS = 20_000;
const MIN_SUMMARY_TOKENS = 256;
const MAX_SUMMARY_TOKENS = 8_192;
/** Most reasoning tokens before a summary. */
const THINKING_TOKENS = 4_096;

/** A prompt is left as it is if the summary would replace fewer characters. */
const MIN_REPLACED_LENGTH = 512;

/** Attempts to get a required text from the model. */
const MAX_ATTEMPTS = 2;

/**
 * Upper bound of tokens per character: a token has at least a byte, and templates add some around items and prompts.
 */
const MAX_TOKENS_PER_CHARACTER = 3;
const MAX_TOKENS_AROUND_ITEM = 64;
const MAX_TOKENS_AROUND_PROMPT = 8_192;

/** The threshold that a request names, in tokens. */
function namedThreshold({ context_management: entries }: CreateRequest): number | undefined {
  const named = (entries ?? []).flatMap(({ compact_threshold: threshold }) => (threshold == null ? [] : [threshold]));
  return named.length > 0 ? Math.min(...named) : undefined;
}

/** The threshold of a request in tokens, for a window of this size. */
export function thresholdOf(request: CreateRequest, window: number): number {
  const named = namedThreshold(request);
  if (named !== undefined) return named;
  const { max_output_tokens } = request;
  const least = Math.min(MIN_THRESHOLD, Math.floor(window / 2));
  return Math.max(least, Math.floor(window * DEFAULT_SHARE) - (max_output_tokens ?? 0));
}

/**
 * Tells whether a prompt certainly has fewer tokens than the threshold. Content that is not text has an unknown length.
 */
function isSurelyBelow({ items, replays, trailing, request, pluginTools }: Prompt, threshold: number): boolean {
  const { instructions, tools, text } = request;
  const json = JSON.stringify([items, replays, trailing, instructions, tools, text, pluginTools]);
  const around = MAX_TOKENS_AROUND_PROMPT + items.length * MAX_TOKENS_AROUND_ITEM;
  if (around + json.length * MAX_TOKENS_PER_CHARACTER >= threshold) return false;
  return !/"type":"input_(image|audio|video)"/.test(json);
}

/** Tells whether the prompt ends with an assistant's message that the model is to continue. */
function isOpenEnded({ items }: Prompt): boolean {
  const last = items.at(-1);
  return last?.type === "message" && last.role === "assistant" && last.status !== "completed";
}

/** A compaction that is to be made, and its inputs. */
export interface DueCompaction {
  prompt: Prompt;
  size: PromptSize;
  threshold: number;
  selection: Selection;
  /** Tokens per character of the prompt, on average. */
  density: number;
}

export class Compaction {
  readonly #kind: CompactionKind;
  readonly #options: Pick<TurnOptions, "asked" | "model" | "secrets" | "host">;
  readonly #output: TurnOutput;
  readonly #prompt: RoundPrompt;
  readonly #generations: Generations;

  constructor(
    kind: CompactionKind,
    options: Pick<TurnOptions, "asked" | "model" | "secrets" | "host">,
    output: TurnOutput,
    prompt: RoundPrompt,
    generations: Generations,
  ) {
    this.#kind = kind;
    this.#options = options;
    this.#output = output;
    this.#prompt = prompt;
    this.#generations = generations;
  }

  /**
   * The compaction that this round's prompt needs; undefined if it needs none. Throws ApiError as `engine.measure`
   * does, and the 400 of a requested compaction with nothing to compact.
   */
  async due(): Promise<DueCompaction | undefined> {
    const { request } = this.#options.asked;
    const { state, size: output } = this.#output;
    const kind = this.#kind;
    const prompt = this.#prompt.current;
    const hasBegun = openCompaction(state) !== undefined;
    const named = namedThreshold(request);
    const isBelow = named !== undefined && isSurelyBelow(prompt, named);
    if (kind === "managed" && !hasBegun && (isOpenEnded(prompt) || isBelow)) return undefined;
    if (kind === "asked" && prompt.items.every((item) => lengthOf(item) === 0)) {
      throw invalidRequest("input", "There is nothing to compact: the conversation is empty.", "empty_array");
    }
    const size = await measureOrExplain(
      this.#options.model.engine,
      prompt,
      this.#options.host.signal,
      "'context_management'",
    );
    const threshold = thresholdOf(request, size.contextWindow);
    if (kind === "managed" && !hasBegun && size.tokens < threshold) return undefined;
    const { items, replays, pluginTools } = prompt;
    const length =
      promptLength(items, replays) + lengthOf([prompt.request.instructions, prompt.request.tools, pluginTools]);
    const density = Math.min(1, size.tokens / Math.max(1, length));
    const lengthFor = (tokens: number) => Math.floor(tokens / density);
    const lists = state.output.filter(({ type }) => type === "mcp_list_tools");
    const selection = selectKept(prompt.items, lists as Item[], {
      keptLength: lengthFor(Math.min(MAX_KEPT_TOKENS, threshold * KEPT_SHARE)),
      tailLength: kind === "asked" ? 0 : lengthFor(threshold * TAIL_SHARE),
      replays,
    });
    const isWorthwhile = hasBegun || kind === "asked" || selection.replacedLength >= MIN_REPLACED_LENGTH;
    const fits = output.fits([prompt.items, selection]);
    if (kind === "asked" && !fits) {
      throw contextLengthExceeded("The items that a compaction must keep of this conversation are too large.");
    }
    return isWorthwhile && fits ? { prompt, size, threshold, selection, density } : undefined;
  }

  /**
   * Makes the summary, and begins the prompt anew with it. Never rejects: gives the outcome that ends the turn, if it
   * cannot continue. If the model has written nothing, or its server refuses the question, the turn continues with its
   * prompt as it is, unless the compaction was requested.
   */
  async run(due: DueCompaction): Promise<Outcome | undefined> {
    const output = this.#output;
    const { model, secrets, host } = this.#options;
    const mustEnd = () => this.#kind === "asked" || openCompaction(output.state) !== undefined;
    for (let attempt = 1; ; attempt += 1) {
      const said = new SummaryText(Math.floor(summaryTokens(due.threshold) / due.density));
      const broken = await this.#ask(due, said);
      if (broken) {
        const isRefused = broken.status === "failed" && broken.error.status === 400;
        return isRefused && !mustEnd() ? undefined : broken;
      }
      output.response.addSummary(said.usage, due.size.tokens);
      if (said.hasBegun) {
        const content = contentOf(due, said.text);
        output.endCompaction(secrets.compactions.write(content));
        this.#prompt.change({ items: standingItems(content, model.engine.noteRole), trailing: [] });
        // Stored at once, because this work is expensive to repeat.
        if (host.sink?.commit) host.sink.commit();
        else await host.sink?.flush();
        return host.signal.aborted ? { status: "cancelled" } : undefined;
      }
      if (!mustEnd()) return undefined;
      if (attempt === MAX_ATTEMPTS) return { status: "failed", error: noSummary() };
    }
  }

  /** Asks for the summary. Gives the outcome that prevents it. */
  async #ask(due: DueCompaction, said: SummaryText): Promise<Outcome | undefined> {
    let prompt: Prompt;
    try {
      prompt = await this.#summaryPrompt(due);
    } catch (error) {
      if (this.#options.host.signal.aborted) return { status: "cancelled" };
      return { status: "failed", error: error instanceof ApiError ? error : noSummary() };
    }
    const { signal } = this.#options.host;
    const begin = () => {
      said.clear();
      return this.#generations.generate(prompt, signal, "summary");
    };
    return this.#generations.runToEnd({
      started: begin(),
      again: begin,
      consume: (generation) => this.#consume(generation, said),
      said,
    });
  }

  /** The prompt for the summary. If the window cannot hold the summary as well, the oldest turns are left out. */
  async #summaryPrompt({ prompt, size, threshold }: DueCompaction): Promise<Prompt> {
    const { model, host } = this.#options;
    const wanted = summaryTokens(threshold);
    const left = size.contextWindow - size.tokens - INSTRUCTION_TOKENS;
    const maxOutputTokens = Math.min(wanted + THINKING_TOKENS, Math.max(left, wanted));
    const whole = summaryPrompt(prompt, model.engine.noteRole, maxOutputTokens);
    return left >= wanted ? whole : truncateToFit(model.engine, whole, host.signal);
  }

  async #consume(generation: Generation, said: SummaryText): Promise<undefined> {
    for await (const deltas of generation) {
      this.#generations.calls.first();
      said.take(deltas);
      if (said.hasBegun) {
        this.#output.beginCompaction();
        const full = this.#options.host.sink?.flush();
        if (full) await full;
      }
    }
  }
}

/** The longest summary, in tokens. */
function summaryTokens(threshold: number): number {
  return Math.min(MAX_SUMMARY_TOKENS, Math.max(MIN_SUMMARY_TOKENS, Math.floor(threshold * SUMMARY_SHARE)));
}

/**
 * The content of the compaction item. If the summary is no shorter than the items that it would replace, the content
 * has the items instead.
 */
function contentOf({ prompt: { items }, selection }: DueCompaction, summary: string): CompactionContent {
  const { before, after, replacedLength } = selection;
  const earlier = items.filter(({ id }) => id === SUMMARY_ID);
  if (summary.length < replacedLength + lengthOf(earlier)) return { before, summary, after };
  const known = new Set(items);
  const lists = before.filter((item) => item.type === "mcp_list_tools" && !known.has(item));
  return { before: [...items, ...lists], summary: "", after: [] };
}

function noSummary(): ApiError {
  const message = "The model has written no summary of the conversation.";
  return new ApiError({ status: 502, message, code: "upstream_malformed_response" });
}

/** Asks a model for a summary of its own conversation. */
const INSTRUCTION = `This conversation has become too long for your context window, so everything up to here is about to be replaced by a summary that you write now. Whoever goes on with the conversation will have its instructions, the user's own messages (the oldest of them perhaps not), and your summary, and nothing else: no earlier answer of yours, no tool call and no result of one.

Write the summary in the language of the conversation, as briefly as it can be done without losing anything that matters:
- what the user wants in the end, and what of it is done, decided or ruled out, with the reasons
- facts, numbers, names, paths, identifiers, code and results of tools that are still needed, word for word
- constraints and preferences that were given
- what was being done just now, and the next steps

If an earlier summary stands in the conversation, take over what still holds. Do not call any tool, do not answer the user, and write nothing but the summary.`;

const INSTRUCTION_ID = "compaction_instruction";

/** Lower bound of the average characters per token, in any text that is summarized. */
const MIN_CHARACTERS_PER_TOKEN = 2;

/** Most tokens of the instruction, with the template around it. */
const INSTRUCTION_TOKENS = Math.ceil(INSTRUCTION.length / MIN_CHARACTERS_PER_TOKEN) + 64;

/**
 * The turn's own prompt with the instruction at its end, so that vLLM's prefix cache has everything before it. The same
 * tools are shown, but none can be called. Calls without an output are left out, because nothing may follow them.
 */
function summaryPrompt(prompt: Prompt, role: NoteRole, maxOutputTokens: number): Prompt {
  const instruction = noteOf(INSTRUCTION, role, INSTRUCTION_ID);
  const { trailing = [], replays } = prompt;
  const answered = answeredCalls(prompt.items);
  const isAnswered = (call: string | undefined) => call === undefined || answered.has(call);
  return {
    ...prompt,
    items: [...prompt.items.filter((item) => isAnswered(calledId(item))), instruction],
    replays:
      trailing.length > 0 ? [...replays, { item: INSTRUCTION_ID, messages: [...trailing], before: true }] : replays,
    trailing: [],
    request: requestOf(prompt.request, maxOutputTokens),
    spentTokens: 0,
    asksForText: true,
  };
}

/** The parts of a request that shape the prompt. Sampling and the format of the answer are left out. */
function requestOf(request: CreateRequest, max_output_tokens: number): CreateRequest {
  const { model, instructions, tools, tool_choice, parallel_tool_calls, reasoning, text, background } = request;
  const { cache_salt, priority, chat_template_kwargs, mm_processor_kwargs, vllm_fields } = request;
  return {
    model,
    input: [],
    instructions,
    tools,
    tool_choice,
    parallel_tool_calls,
    reasoning,
    text,
    background,
    cache_salt,
    priority,
    chat_template_kwargs,
    mm_processor_kwargs,
    ...(vllm_fields && { vllm_fields }),
    stream: true,
    max_output_tokens,
  };
}

/** The text of the model's answer to the request for a summary, without reasoning and calls. */
class SummaryText {
  readonly #maxLength: number;
  #text = "";
  /** Grows with everything that the model generates. */
  progress = 0;
  /** Its usage, once the model server has reported it. */
  usage: Usage | undefined;

  /** The text is cut at this many characters. */
  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  /** Tells whether it has any words. */
  get hasBegun(): boolean {
    return this.#text.trim() !== "";
  }

  get text(): string {
    return this.#text.slice(0, this.#maxLength).trim().toWellFormed();
  }

  /** Clears the text, because the model begins anew. */
  clear(): void {
    this.#text = "";
    this.usage = undefined;
  }

  take(deltas: readonly ModelDelta[]): void {
    for (const delta of deltas) {
      this.progress += 1;
      if (delta.kind === "text" && this.#text.length < this.#maxLength) this.#text += delta.text;
      else if (delta.kind === "usage") this.usage = delta.usage;
    }
  }
}
