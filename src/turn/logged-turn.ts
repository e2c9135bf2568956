import type { StreamEvent } from "../items/events.ts";
import { isRecord, parseRecord } from "./records.ts";
import { applyEvent, applyRecord, newTurnState, type TurnState } from "./state.ts";

/**
 * The state of a turn that was cut off, from the lines of its log, in order: events and records, as JSON texts.
 * Throws SyntaxError or TypeError where they are none, or do not follow each other.
 */
export function readLoggedTurn(lines: Iterable<string>): TurnState {
  const state = newTurnState();
  for (const line of lines) {
    if (isRecord(line)) {
      applyRecord(state, parseRecord(line));
      continue;
    }
    const event = JSON.parse(line) as StreamEvent;
    if (event.sequence_number !== state.sequence) throw new SyntaxError("An event is missing.");
    state.sequence += 1;
    applyEvent(state, event);
  }
  return state;
}
