import type { Item, OutputItem } from "@responses-edge/responses-api/items/registry";

/** An agent whose task a turn is. */
export interface AgentIdentity {
  /** `/root/researcher`. */
  name: string;
  /** The turn of its first task, from which on the conversation is its own. */
  first: string;
  /** The turn of the root, whose team it is in. */
  team: string;
  /** Most agents of the team that may work at a time when this task begins; absent if it goes on with answers of the client. */
  most?: number | undefined;
}

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

/** The words, for a model, of a task that cannot begin because so many agents are at work. */
export function tooManyAgents(count: number): string {
  return `${count} agents are at work, which is the most. Wait for a result first.`;
}

export interface AgentTask {
  /** Identifies the task among all of its response's tree. */
  key: string;
  /** The agent, with the turn of its first task; and `most` as in `AgentIdentity`. */
  agent: Pick<AgentIdentity, "name" | "first" | "most">;
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
