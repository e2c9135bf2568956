import type { Item, OutputItem } from "@responses-edge/responses-api/items/registry";

/** The tasks of a response's sub-agents: each is a run of its own, in the home of the response. */
export interface AgentRuns {
  /** The name of the turn that a task's run has. The same key gives the same turn. */
  turnOf(key: string): string;
  /**
   * Begins the run of a task, unless it has begun already. Rejects with the errors that refuse a run, such as the 429 of
   * a limit.
   */
  begin(task: AgentTask): Promise<void>;
  /** Waits for the end of a run. Rejects with the signal's reason when it is aborted. */
  ended(turn: string, signal: AbortSignal): Promise<AgentResult>;
  /** Stops a run, and waits until it has ended. */
  interrupt(turn: string): Promise<void>;
}

export interface AgentTask {
  /** Identifies the task among all of its response's tree. */
  key: string;
  /** The turn that it continues; `context`: the same as the response itself. Null: it begins anew. */
  after: string | "context" | null;
  /** Its input. */
  input: readonly Item[];
}

/** A run that has ended. */
export interface AgentResult {
  status: string;
  /** The message of its failure. */
  error: string | undefined;
  output: readonly OutputItem[];
}
