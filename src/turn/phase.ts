import type { OutputItem } from "../items/registry.ts";
import type { CompactionKind, DueCompaction } from "./compaction.ts";
import type { Generation } from "./continuation.ts";
import type { Outcome } from "./outcome.ts";
import type { TurnState } from "./state.ts";

/**
 * What a turn does next. It prepares its tools, compacts its prompt, generates, answers the calls that the model has made,
 * generates again, and ends. One that was cut off begins where its log ends.
 */
export type Phase =
  | { kind: "prepare"; next: RoundPhase }
  | RoundPhase
  /** There is nothing more to do but to settle the turn. */
  | { kind: "end"; outcome: Outcome };

type RoundPhase =
  /** The prompt of a new round is compacted, if it must be. `begun` tells, where that is being found out already. */
  | { kind: "compact"; begun?: Promise<BegunRound> }
  /** The model is asked. `started` is the generation, where it is under way already. */
  | { kind: "generate"; started?: Promise<Generation> }
  /** A generation that was cut off with its process goes on. */
  | { kind: "take_up" }
  /** Calls that the model has made are run. */
  | { kind: "answer" };

/** How a round begins: with a compaction, or with a generation that is under way. */
export type BegunRound = { due: DueCompaction } | { due?: undefined; started: Promise<Generation> };

/** Where a turn in this state begins: a new one, or one that its log tells of. */
export function firstPhase(state: TurnState, mustPrepare: boolean, compaction?: CompactionKind): Phase {
  // What a compaction alone is made of needs no tools.
  if (compaction === "asked") return state.round.compacted ? end({ status: "completed" }) : { kind: "compact" };
  const next = firstRoundPhase(state, compaction);
  return mustPrepare ? { kind: "prepare", next } : next;
}

function firstRoundPhase(state: TurnState, compaction: CompactionKind | undefined): RoundPhase {
  const { answering, output, round } = state;
  if (answering) return { kind: "answer" };
  const isWord = ({ type }: OutputItem) => type !== "mcp_list_tools" && type !== "compaction";
  const hasSpoken = output.slice(round.firstItem).some(isWord) || round.sampled !== undefined;
  return hasSpoken ? { kind: "take_up" } : newRoundPhase(state, compaction);
}

/** How a round begins in which nothing has been said. */
export function newRoundPhase({ round }: TurnState, compaction: CompactionKind | undefined): RoundPhase {
  return compaction && !round.compacted ? { kind: "compact" } : { kind: "generate" };
}

export function end(outcome: Outcome): Phase {
  return { kind: "end", outcome };
}
