import type { Generation } from "./continuation.ts";
import type { Outcome } from "./response-builder.ts";
import type { TurnState } from "./state.ts";

/**
 * What a turn does next. It prepares its tools, generates, answers the calls that the model has made, generates again,
 * and ends. One that was cut off begins where its log ends.
 */
export type Phase =
  | { kind: "prepare"; next: RoundPhase }
  | RoundPhase
  /** There is nothing more to do but to settle the turn. */
  | { kind: "end"; outcome: Outcome };

type RoundPhase =
  /** The model is asked. `started` is the generation, where it is under way already. */
  | { kind: "generate"; started?: Promise<Generation> }
  /** A generation that was cut off with its process goes on. */
  | { kind: "take_up" }
  /** Calls that the model has made are run. */
  | { kind: "answer" };

/** Where a turn in this state begins: a new one, or one that its log tells of. */
export function firstPhase(state: TurnState, mustPrepare: boolean): Phase {
  const next = firstRoundPhase(state);
  return mustPrepare ? { kind: "prepare", next } : next;
}

function firstRoundPhase({ answering, output, round }: TurnState): RoundPhase {
  if (answering) return { kind: "answer" };
  const hasSpoken = output.length > 0 || round.sampled !== undefined;
  return hasSpoken ? { kind: "take_up" } : { kind: "generate" };
}

export function end(outcome: Outcome): Phase {
  return { kind: "end", outcome };
}
