import type { ModelDelta, Prompt } from "../contract/engine.ts";
import { calledId } from "../items/registry.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import type { Usage } from "../protocol/response.ts";
import { type NoteRole, noteOf } from "./compacted-past.ts";
import { answeredCalls } from "./compaction-selection.ts";

/** How a model is asked for a summary of its own conversation, and what it says. */

const INSTRUCTION = `This conversation has become too long for your context window, so everything up to here is about to be replaced by a summary that you write now. Whoever goes on with the conversation will have its instructions, the user's own messages (the oldest of them perhaps not), and your summary, and nothing else: no earlier answer of yours, no tool call and no result of one.

Write the summary in the language of the conversation, as briefly as it can be done without losing anything that matters:
- what the user wants in the end, and what of it is done, decided or ruled out, with the reasons
- facts, numbers, names, paths, identifiers, code and results of tools that are still needed, word for word
- constraints and preferences that were given
- what was being done just now, and the next steps

If an earlier summary stands in the conversation, take over what still holds. Do not call any tool, do not answer the user, and write nothing but the summary.`;

const INSTRUCTION_ID = "compaction_instruction";

/** About how many characters a token has at least, on the average, in any text that a summary is made of. */
const MIN_CHARACTERS_PER_TOKEN = 2;

/** Tokens that the instruction takes at most, with what a template puts around it. */
export const INSTRUCTION_TOKENS = Math.ceil(INSTRUCTION.length / MIN_CHARACTERS_PER_TOKEN) + 64;

/**
 * The very prompt of the turn, with the instruction at its end: vLLM's prefix cache has all that comes before it. The
 * same tools are shown, and none can be called. Calls without an output are left out: nothing can follow them.
 */
export function summaryPrompt(prompt: Prompt, role: NoteRole, maxOutputTokens: number): Prompt {
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

/** What makes the same prompt of a request. How the answer is sampled, and what it must be, is another matter. */
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

/** What a model says when it is asked for a summary: its text; thoughts and calls are none of it. */
export class SummaryText {
  readonly #maxLength: number;
  #text = "";
  /** Grows with all that the model says. */
  progress = 0;
  /** What it has cost, once the model server has said so. */
  usage: Usage | undefined;

  /** It is cut after so many characters. */
  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  /** Whether there are words in it. */
  get hasBegun(): boolean {
    return this.#text.trim() !== "";
  }

  get text(): string {
    return this.#text.slice(0, this.#maxLength).trim().toWellFormed();
  }

  /** The model begins anew. */
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
