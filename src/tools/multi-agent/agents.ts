import { parseItemId, parseResponseId } from "@responses-edge/responses-api/ids";
import { type AgentAction, agentOf, isOfOtherAgent, ROOT_AGENT } from "@responses-edge/responses-api/items/multi-agent";
import { askedId, type Item, repliedId } from "@responses-edge/responses-api/items/registry";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { AgentIdentity } from "../../contract/agent-runs.ts";

/** The agents that an agent has spawned, as the items of its conversation tell of them: they are the only record. */

/** An agent that the present one has spawned. */
export interface Agent {
  /** `/root/researcher`. */
  name: string;
  /** The turn of its first task, and that of its latest one. */
  first: string;
  turn: string;
  /** `active`: its task runs, or its result was not told. `waiting`: for outputs of its calls. */
  status: "active" | "waiting" | "idle";
  /** Its latest task, in the words of the agent that gave it. */
  task: string;
  /** Messages that it reads with its next task. */
  queued: string[];
  /** The calls and requests for approvals that the client has to answer, by id (`askedId`). */
  asks: Map<string, Item["type"]>;
  /** The answers that have come. */
  outputs: Item[];
  /** Resolves when its task has begun, if that was in this turn. */
  begins?: Promise<void> | undefined;
  /** The turn from which it goes on with these outputs, where that may not have begun. */
  resumes?: { after: string; input: Item[] } | undefined;
}

/** The arguments of the actions, as far as a model has given them. */
export function argumentsOf(json: string): Partial<Record<"task_name" | "target" | "message" | "fork_turns", string>> {
  const args = parseArguments(json) ?? {};
  return Object.fromEntries(Object.entries(args).filter(([, value]) => typeof value === "string"));
}

/** The name of an agent of `own`, whether a model gives the whole of it or its last part. */
export function nameOf(own: string, target: string | undefined): string {
  return target === undefined || target.startsWith("/") ? (target ?? "") : `${own}/${target}`;
}

/**
 * Reads the agents that one has spawned from the items of its conversation.
 *
 * @param own - The agent whose agents they are: undefined for the root.
 * @param items - History and input, and the output of a turn that goes on after a crash; each oldest first.
 * @param turnOf - Gives the turn of a task (`AgentRuns.turnOf`).
 */
export function agentsIn(
  own: AgentIdentity | undefined,
  { items, output }: { items: readonly Item[]; output: readonly object[] },
  turnOf: (key: string) => string,
): Map<string, Agent> {
  const agents = new Map<string, Agent>();
  const calls = new Map<string, { action: AgentAction; arguments: string }>();
  const name = own?.name ?? ROOT_AGENT;
  const take = (item: Item) => {
    if (item.type === "multi_agent_call" && !isOfOtherAgent(item)) calls.set(item.call_id, item);
    else if (item.type === "multi_agent_call_output") {
      const call = calls.get(item.call_id);
      if (call) apply(agents, name, call, item as { response_id?: unknown });
    } else if (item.type === "agent_message") {
      const agent = agents.get(item.author);
      if (agent) Object.assign(agent, { status: "idle", resumes: undefined });
    } else takeCall(agents, item, turnOf);
  };
  // What comes before its first task is the conversation of another agent (`fork_turns`).
  const first = own ? items.findIndex(({ id = "" }) => parseItemId(id)?.turn === own.first) : 0;
  if (first >= 0) for (const item of items.slice(first)) take(item);
  refuseUnapproved(agents, turnOf);
  for (const item of output as readonly Item[]) take(item);
  return agents;
}

/** Applies a call of the agent `own`, whose output names the response of the task that it has begun. */
function apply(
  agents: Map<string, Agent>,
  own: string,
  { action, arguments: json }: { action: AgentAction; arguments: string },
  { response_id: id }: { response_id?: unknown },
): void {
  const { task_name, target, message = "" } = argumentsOf(json);
  const turn = typeof id === "string" ? parseResponseId(id)?.turn : undefined;
  const name = nameOf(own, action === "spawn_agent" ? task_name : target);
  if (turn !== undefined) agents.set(name, newAgent(name, { turn, first: agents.get(name)?.first }, message));
  else if (action === "send_message") agents.get(name)?.queued.push(message);
}

/** An agent with a task that begins. `first` is the turn of its first task, if that is another one. */
export function newAgent(
  name: string,
  { turn, first = turn }: { turn: string; first?: string | undefined },
  task: string,
): Agent {
  return { name, first, turn, status: "active", task, queued: [], asks: new Map(), outputs: [] };
}

/**
 * Takes what an agent, or one below it, asks of the client, or an answer of the client's. An agent that has all its answers is
 * `active` again, and `resumes` has what it goes on with.
 */
export function takeCall(agents: Map<string, Agent>, item: Item, turnOf: (key: string) => string): void {
  const asked = isOfOtherAgent(item) ? askedId(item) : undefined;
  if (asked !== undefined) {
    const names = `${agentOf(item)}/`;
    for (const agent of agents.values()) if (names.startsWith(`${agent.name}/`)) noteAsked(agent, asked, item.type);
  }
  const replied = repliedId(item);
  if (replied === undefined) return;
  for (const agent of agents.values()) {
    if (agent.status !== "waiting" || !agent.asks.delete(replied)) continue;
    agent.outputs.push(item);
    if (agent.asks.size > 0) return;
    const { turn: after, outputs: input } = agent;
    Object.assign(agent, { turn: turnOf(resumeKey(after)), status: "active", resumes: { after, input } });
    return;
  }
}

/**
 * Refuses the approvals that the client has passed over with its next request, as for a program: their agents go on without the
 * calls. It cannot pass over the outputs of functions.
 */
function refuseUnapproved(agents: Map<string, Agent>, turnOf: (key: string) => string): void {
  for (const agent of [...agents.values()]) {
    if (agent.status !== "waiting") continue;
    for (const [approval_request_id, type] of [...agent.asks]) {
      if (type !== "mcp_approval_request") continue;
      takeCall(agents, { type: "mcp_approval_response", approval_request_id, approve: false, reason: null }, turnOf);
    }
  }
}

/** Notes what an agent asks of the client, for which it waits. */
export function noteAsked(agent: Agent, id: string, type: Item["type"]): void {
  // The answers from before have been read.
  const fresh = { asks: new Map(), outputs: [], resumes: undefined, begins: undefined };
  if (agent.status !== "waiting") Object.assign(agent, fresh);
  agent.status = "waiting";
  agent.asks.set(id, type);
}

/** The key of the task that goes on after a turn that waits for outputs. */
export function resumeKey(after: string): string {
  return `${after}:outputs`;
}
