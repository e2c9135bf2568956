import type { Engine, PluginTools, Prompt, PromptChange, RawMessage, Replay } from "../contract/engine.ts";
import type { Item } from "../items/registry.ts";
import { ClientTools } from "../protocol/client-tools.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { mustCall } from "../protocol/tools.ts";
import { type NoteRole, standingPast } from "./compacted-past.ts";
import { matchOutputs, promptItems } from "./history.ts";
import { withLoadedTools } from "./loaded-tools.ts";
import type { Asked, TurnPast } from "./options.ts";
import type { TurnOutput } from "./output.ts";
import { spentTokens, type TurnState, withoutSuperseded, withThoughts } from "./state.ts";
import { truncateToFit } from "./truncation.ts";

/** What the first prompt of a turn is made of. */
export interface PromptSource {
  asked: Omit<Asked, "address" | "model"> & { model: { upstream: string } };
  past: Omit<TurnPast, "removed">;
}

/**
 * The prompt of a turn's first round: what a create sends, to be counted (`engine.measure`) or shortened
 * (`truncateToFit`) without a turn. Calls and outputs of its items may still be without each other
 * (`checkCallPairs`). `noteRole` is that of its engine.
 */
export function makePrompt({ asked, past }: PromptSource, noteRole: NoteRole, pluginTools?: PluginTools): Prompt {
  const { request, model, cacheSalt, createdAt } = asked;
  const { replays, opened } = past;
  const { history, input } = standingPast(past, opened, noteRole);
  // The client's own messages stand before the first item of its input, by that item's id, or after all items where the
  // input is empty. Those that came before a compaction are out of sight with all else.
  const messages = opened ? null : request.previous_input_messages;
  const item = input[0]?.id;
  const before = messages != null && item !== undefined ? ({ item, messages, before: true } as const) : undefined;
  const items = promptItems(history, matchOutputs(history, input));
  return {
    model: model.upstream,
    items,
    replays: before ? [...replays, before] : replays,
    trailing: before ? [] : (messages ?? []),
    // Tools that came before a compaction are there all the same: the model may have been told of them.
    request: withLoadedTools(request, [...past.history, ...past.input]),
    pluginTools,
    // The grammar of a forced call knows no tool but those of the prompt.
    onlyOffered: mustCall(request.tool_choice),
    cacheSalt,
    createdAt,
    spentTokens: 0,
  };
}

/** What a turn has put out, as it stands in the prompt of its next round. */
export interface PromptOutput {
  /** Items of all rounds before. */
  items: readonly Item[];
  /** Raw messages behind them. */
  replays: readonly Replay[];
  /** Raw messages after all items. */
  trailing: readonly RawMessage[];
  /** Output tokens of all rounds before. */
  spentTokens: number;
}

/** The prompt of the round in progress. */
export class RoundPrompt {
  readonly #engine: Engine;
  readonly #signal: AbortSignal;
  current: Prompt;
  /** The prompt, being shortened to fit; undefined where it has changed since. */
  #fitting: Promise<Prompt> | undefined;
  /** With what it is asked again in this round. */
  #again: PromptChange | undefined;

  constructor(prompt: Prompt, engine: Engine, signal: AbortSignal) {
    this.current = prompt;
    this.#engine = engine;
    this.#signal = signal;
  }

  /**
   * The prompt as it is asked, with `truncation: "auto"` shortened to fit. Throws ApiError as `truncateToFit` does, and the
   * signal's reason when it is aborted.
   */
  async fitting(): Promise<Prompt> {
    let fitted = this.current;
    if (fitted.request.truncation === "auto") {
      this.#fitting ??= truncateToFit(this.#engine, fitted, this.#signal);
      const fitting = this.#fitting;
      fitted = await fitting;
      if (this.#fitting === fitting) this.current = fitted;
    }
    return this.#again ? { ...fitted, ...this.#again } : fitted;
  }

  /** It is asked again in this round, so changed. */
  askAgain(change: PromptChange): void {
    this.#again = change;
  }

  /** The next round's: what the last one has put out follows. `replays` are those of history and output together. */
  next({ items, replays, trailing, spentTokens }: PromptOutput): void {
    this.#again = undefined;
    const request = withLoadedTools(afterFirstRound(this.current.request), items);
    this.change({ items: [...this.current.items, ...items], replays, trailing, spentTokens, request });
  }

  /** The round, and those after it, have a prompt that differs in this. */
  change(changed: Partial<Prompt>): void {
    this.current = { ...this.current, ...changed };
    this.#fitting = undefined;
  }
}

/** What a turn has put out by now, of which `items` are to follow in its prompt. */
export function promptOutput(past: TurnPast, { messages, state }: TurnOutput, items: readonly Item[]): PromptOutput {
  return {
    items,
    replays: [...past.replays, ...messages.replays],
    trailing: [...messages.trailing],
    spentTokens: spentTokens(state),
  };
}

/** The items of the rounds before this one, as prompts have them. */
export function earlierOutput(state: TurnState): Item[] {
  const earlier = state.output.slice(0, state.round.firstItem);
  return withThoughts(state, withoutSuperseded(state, earlier)) as Item[];
}

/** What holds for the first round only: a choice that forces a call, and the remote prefill of its prompt. */
export function afterFirstRound({ kv_transfer_params: _, ...request }: CreateRequest): CreateRequest {
  const { tool_choice: choice } = request;
  if (!mustCall(choice) || choice == null || ClientTools.of(request.tools).named(choice)) return request;
  if (typeof choice === "object" && choice.type === "allowed_tools") {
    return { ...request, tool_choice: { ...choice, mode: "auto" } };
  }
  return { ...request, tool_choice: "auto" };
}
