import { parseResponseId } from "@responses-edge/responses-api/ids";
import { type AgentAction, agentOf, ROOT_AGENT } from "@responses-edge/responses-api/items/multi-agent";
import { answeredId, calledId, type Item } from "@responses-edge/responses-api/items/registry";
import { parseArguments } from "@responses-edge/responses-api/json";

/** The sub-agents of a conversation, as its items tell of them: they are the only record. */

/** An agent that the root has spawned. */
export interface Agent {
  /** `/root/researcher`. */
  name: string;
  /** The turn of its latest task. */
  turn: string;
  /** `active`: its task runs, or its result was not told. `waiting`: for outputs of its calls. */
  status: "active" | "waiting" | "idle";
  /** Its latest task, in the words of the root. */
  task: string;
  /** Messages that it reads with its next task. */
  queued: string[];
  /** Calls that it has made and that the client answers. */
  calls: Set<string>;
  /** The outputs that have come for them. */
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

/** The name of an agent, whether a model gives the whole of it or its last part. */
export function nameOf(target: string | undefined): string {
  return target === undefined || target.startsWith("/") ? (target ?? "") : `${ROOT_AGENT}/${target}`;
}

/**
 * Reads the agents from the items of a conversation, oldest first.
 *
 * @param items - History, input, and the output of a turn that goes on after a crash.
 * @param turnOf - Gives the turn of a task (`AgentRuns.turnOf`).
 */
export function agentsIn(items: readonly object[], turnOf: (key: string) => string): Map<string, Agent> {
  const agents = new Map<string, Agent>();
  const calls = new Map<string, { action: AgentAction; arguments: string }>();
  for (const item of items as readonly Item[]) {
    if (item.type === "multi_agent_call") calls.set(item.call_id, item);
    else if (item.type === "multi_agent_call_output") {
      const call = calls.get(item.call_id);
      if (call) apply(agents, call, item as { response_id?: unknown });
    } else if (item.type === "agent_message") {
      const agent = agents.get(item.author);
      if (agent) Object.assign(agent, { status: "idle", resumes: undefined });
    } else takeCall(agents, item, turnOf);
  }
  return agents;
}

/** Applies a call of the root, whose output names the response of the task that it has begun. */
function apply(
  agents: Map<string, Agent>,
  { action, arguments: json }: { action: AgentAction; arguments: string },
  { response_id: id }: { response_id?: unknown },
): void {
  const { task_name, target, message = "" } = argumentsOf(json);
  const turn = typeof id === "string" ? parseResponseId(id)?.turn : undefined;
  const name = nameOf(action === "spawn_agent" ? task_name : target);
  if (turn !== undefined) agents.set(name, newAgent(name, turn, message));
  else if (action === "send_message") agents.get(name)?.queued.push(message);
}

export function newAgent(name: string, turn: string, task: string): Agent {
  return { name, turn, status: "active", task, queued: [], calls: new Set(), outputs: [] };
}

/**
 * Takes an agent's call for the client, or the output of one. An agent that has all its outputs is `active` again, and
 * `resumes` has what it goes on with.
 */
export function takeCall(agents: Map<string, Agent>, item: Item, turnOf: (key: string) => string): void {
  const caller = agents.get(agentOf(item) ?? "");
  const call = calledId(item);
  if (caller && call !== undefined) noteCall(caller, call);
  const answered = answeredId(item);
  if (answered === undefined) return;
  for (const agent of agents.values()) {
    if (agent.status !== "waiting" || !agent.calls.delete(answered)) continue;
    agent.outputs.push(item);
    if (agent.calls.size > 0) return;
    const { turn: after, outputs: input } = agent;
    Object.assign(agent, { turn: turnOf(resumeKey(after)), status: "active", resumes: { after, input } });
    return;
  }
}

/** Notes a call of an agent, which waits for its output. */
export function noteCall(agent: Agent, call: string): void {
  // Its outputs from before have been read.
  const fresh = { calls: new Set(), outputs: [], resumes: undefined, begins: undefined };
  if (agent.status !== "waiting") Object.assign(agent, fresh);
  agent.status = "waiting";
  agent.calls.add(call);
}

/** The key of the task that goes on after a turn that waits for outputs. */
export function resumeKey(after: string): string {
  return `${after}:outputs`;
}
