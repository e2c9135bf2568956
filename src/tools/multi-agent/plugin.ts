import { ToolFault } from "@responses-edge/hosted-tools/mcp-client";
import { ApiError } from "@responses-edge/responses-api/errors";
import { responseId } from "@responses-edge/responses-api/ids";
import { AGENT_ACTIONS, type AgentAction, ROOT_AGENT } from "@responses-edge/responses-api/items/multi-agent";
import { type Item, type OutputItem, type ServerCall, shownAgain } from "@responses-edge/responses-api/items/registry";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { ToolDescription } from "@responses-edge/turn/contract/engine";
import { stepOf } from "@responses-edge/turn/contract/plugin";
import type { CalledTool, PendingCall, ToolOutcome } from "@responses-edge/turn/contract/tool-session";
import { type AgentResult, type AgentRuns, tooManyAgents } from "../../contract/agent-runs.ts";
import { type PluginSession, type RunnablePlugin, refuseArguments, type SessionOptions, timeLeft } from "../plugin.ts";
import { ACTIONS } from "./actions.ts";
import { type Agent, agentsIn, argumentsOf, nameOf, newAgent, resumeKey, takeCall } from "./agents.ts";
import { asksIn, letter, type Told, tell, waitsForClient } from "./results.ts";

/**
 * `multi_agent` (openai 7.59 beta): the model of a request is the root of a team. It spawns sub-agents, which may spawn others. Each
 * task of one is a run, a response of its own in the same tree. The items of an agent are the only record of those that it has spawned.
 */

interface AgentTool extends CalledTool {
  readonly kind: "multi_agent";
  readonly action: AgentAction;
}

type AgentCall = Extract<ServerCall, { type: "multi_agent_call" }>;

interface AgentOutcome extends ToolOutcome {
  /** The response of the task that the call has begun. */
  response_id?: string;
  /** Items of agents that have come with the call, without ids. */
  items?: readonly OutputItem[];
}

const TOOLS: ReadonlyMap<string, AgentTool> = new Map(
  AGENT_ACTIONS.map((action) => [action, { kind: "multi_agent", action }]),
);

/** As at OpenAI. */
const DEFAULT_CONCURRENT = 3;

/** Most agents that one agent spawns. */
const MAX_AGENTS = 64;

/** The longest wait of one call. Milliseconds. */
const MAX_WAIT_MS = 600_000;

export const MULTI_AGENT: RunnablePlugin<AgentTool, AgentCall> = {
  kind: "multi_agent",
  // A task is named by its call: one that is begun again is found.
  isRepeatable: true,
  functions: ACTIONS,
  tools: TOOLS,
  fullName: ({ action }) => action,
  item: {
    type: "multi_agent_call",
    canShow: (_tool, _text, isComplete) => isComplete,
    create: ({ action }, { id, text }) => ({
      id,
      type: "multi_agent_call",
      call_id: id.replace(/^[a-z]+_/, "call_"),
      action,
      arguments: text === "" ? "{}" : text,
      status: "in_progress",
    }),
    finish: () => undefined,
    *results({ output, response_id, items = [] }: AgentOutcome, { call_id, action }, newId) {
      yield {
        id: newId("multi_agent_call_output"),
        type: "multi_agent_call_output",
        call_id,
        action,
        output: [{ type: "output_text", text: output, annotations: [], logprobs: [] }],
        ...(response_id !== undefined && { response_id }),
      };
      for (const item of items) yield shownAgain(item, newId);
    },
    toolOf: ({ action }) => TOOLS.get(action),
  },
  exchanges: {
    multi_agent_call(item, items) {
      const found = items.find(
        (other): other is Extract<Item, { type: "multi_agent_call_output" }> =>
          other.type === "multi_agent_call_output" && other.call_id === item.call_id,
      );
      const output = found?.output.map(({ text }) => text).join("\n") ?? "The result of this call is not known.";
      return { name: item.action, arguments: item.arguments, output, step: stepOf(item) };
    },
  },
  session: (turn) => new MultiAgentSession(turn),
};

class MultiAgentSession implements PluginSession {
  readonly offered: PluginSession["offered"];
  readonly tools = TOOLS;
  readonly #turn: SessionOptions;
  readonly #runs: AgentRuns | undefined;
  /** The name of the agent whose turn it is. */
  readonly #name: string;
  readonly #agents: Map<string, Agent>;
  readonly #most: number;
  #signal: AbortSignal | undefined;
  /** Called when an agent goes on. */
  readonly #onResumed = new Set<(agent: Agent) => void>();

  constructor(turn: SessionOptions) {
    const { request, agent, agents: runs } = turn;
    this.#turn = turn;
    this.#runs = runs;
    this.#name = agent?.name ?? ROOT_AGENT;
    this.#agents = agentsIn(agent, turn, (key) => runs?.turnOf(key) ?? "");
    this.#most = request.multi_agent?.max_concurrent_subagents ?? DEFAULT_CONCURRENT;
    this.offered = { functions: ACTIONS };
  }

  /** Throws TypeError in a turn that is only counted. */
  get #own(): AgentRuns {
    if (!this.#runs) throw new TypeError("The host of the turn runs no agents.");
    return this.#runs;
  }

  /** Lets the agents go on that waited for the client's answers in the input. */
  async open(signal: AbortSignal): Promise<void> {
    this.#signal = signal;
    await Promise.all([...this.#agents.values()].map((agent) => this.#resume(agent)));
    signal.throwIfAborted();
  }

  /** Waits until an agent's task has begun, which may go on with outputs. After a failure, the next call tries again. */
  async #resume(agent: Agent): Promise<void> {
    const { resumes, name, first } = agent;
    if (resumes)
      agent.begins ??= this.#own.begin({ key: resumeKey(resumes.after), agent: { name, first }, ...resumes });
    try {
      await agent.begins;
    } catch (error) {
      agent.begins = undefined;
      throw error;
    }
  }

  /** Lets an agent go on whose outputs have all come. */
  inject(items: readonly Item[]): void {
    const waiting = [...this.#agents.values()].filter(({ status }) => status === "waiting");
    for (const item of items) takeCall(this.#agents, item, (key) => this.#own.turnOf(key));
    for (const agent of waiting) {
      if (agent.status !== "active") continue;
      // A failure is that of the call that waits for the agent.
      this.#resume(agent).catch(() => {});
      for (const onResumed of this.#onResumed) onResumed(agent);
    }
  }

  /** Stops the tasks of a response that was cancelled, or whose client has left. A hand-over aborts without an ApiError. */
  async close(): Promise<void> {
    if (!(this.#signal?.reason instanceof ApiError)) return;
    const active = [...this.#agents.values()].filter(({ status }) => status === "active");
    await Promise.allSettled(active.map(({ turn }) => this.#own.interrupt(turn)));
  }

  async run(call: PendingCall, signal: AbortSignal): Promise<AgentOutcome> {
    const { action } = call.tool as AgentTool;
    const args = parseArguments(call.arguments);
    const { parameters } = ACTIONS.find(({ name }) => name === action) as ToolDescription;
    refuseArguments(args ?? {}, parameters);
    const given = argumentsOf(call.arguments);
    switch (action) {
      case "spawn_agent":
        return this.#spawn(call, given);
      case "followup_task":
        return this.#followUp(call, given);
      case "send_message":
        this.#known(given.target).queued.push(given.message ?? "");
        return said("The agent reads the message with its next task.");
      case "wait_agent":
        return this.#wait(Number(args?.timeout_ms ?? MAX_WAIT_MS), signal);
      case "interrupt_agent": {
        const agent = this.#known(given.target);
        if (agent.status !== "active") return said(`${agent.name} has no task that runs.`);
        await this.#own.interrupt(agent.turn);
        return said(`${agent.name} is interrupted.`);
      }
      case "list_agents":
        return said(JSON.stringify(this.#listed()));
    }
  }

  /** Throws the fault of an agent that does not exist. */
  #known(target: string | undefined): Agent {
    const name = nameOf(this.#name, target);
    const agent = this.#agents.get(name);
    if (!agent) throw new ToolFault("tool", `There is no agent '${name}' among yours.`);
    return agent;
  }

  async #spawn(
    { item }: PendingCall,
    { task_name, message = "", fork_turns }: ReturnType<typeof argumentsOf>,
  ): Promise<AgentOutcome> {
    const name = nameOf(this.#name, task_name);
    const known = this.#agents.get(name);
    const turn = this.#own.turnOf(item);
    // After a crash the call may be repeated.
    if (known && known.turn !== turn) throw new ToolFault("tool", `There is an agent '${name}' already.`);
    if (!known && this.#agents.size >= MAX_AGENTS) {
      throw new ToolFault("tool", `An agent has at most ${MAX_AGENTS} agents of its own.`);
    }
    const agent = known ?? newAgent(name, { turn }, message);
    return this.#begin(agent, item, { after: fork_turns === "all" ? "context" : null, task: message });
  }

  async #followUp({ item }: PendingCall, given: ReturnType<typeof argumentsOf>): Promise<AgentOutcome> {
    const agent = this.#known(given.target);
    const { name, status, first, turn: after } = agent;
    if (after === this.#own.turnOf(item)) return begun(this.#turn, agent);
    if (status !== "idle") throw new ToolFault("tool", `${name} has a task already. Wait for its result first.`);
    const task = [...agent.queued, given.message ?? ""].join("\n\n");
    const turn = this.#own.turnOf(item);
    return this.#begin(newAgent(name, { turn, first }, given.message ?? ""), item, { after, task });
  }

  /** Begins a task, which counts as active from then on. */
  async #begin(
    agent: Agent,
    key: string,
    { after, task }: { after: string | "context" | null; task: string },
  ): Promise<AgentOutcome> {
    const { name, first } = agent;
    const before = this.#agents.get(name);
    const active = [...this.#agents.values()].filter((each) => each.status === "active" && each.turn !== agent.turn);
    if (active.length >= this.#most) throw new ToolFault("tool", tooManyAgents(active.length));
    this.#agents.set(name, agent);
    const text = [
      `You are ${name}, an agent in a team that ${ROOT_AGENT} leads. Your answer is delivered to ${this.#name}; nobody else reads it.`,
      letter("NEW_TASK", { author: this.#name, recipient: name, text: task }),
    ].join("\n\n");
    const message: Item = {
      type: "message",
      role: "user",
      status: "completed",
      content: [{ type: "input_text", text }],
    };
    agent.begins = this.#own.begin({ key, agent: { name, first, most: this.#most }, after, input: [message] });
    try {
      await agent.begins;
    } catch (error) {
      if (before) this.#agents.set(name, before);
      else this.#agents.delete(name);
      // The model is told, of a limit for example.
      throw error instanceof ApiError ? new ToolFault("tool", error.message) : error;
    }
    return begun(this.#turn, agent);
  }

  /**
   * Waits until a task has ended, at most for this time. If one waits for its client, the response must end: then all others
   * are waited for. Its items are shown at once where outputs may come meanwhile.
   */
  async #wait(timeoutMs: number, signal: AbortSignal): Promise<AgentOutcome> {
    const active = [...this.#agents.values()].filter(({ status }) => status === "active");
    if (active.length === 0) return said("No agent is at work.");
    const stop = new AbortController();
    const either = AbortSignal.any([signal, stop.signal]);
    const ended: { agent: Agent; result: AgentResult }[] = [];
    const told: Told[] = [];
    let running = 0;
    const isOver = Promise.withResolvers<void>();
    const waitFor = async (agent: Agent) => {
      running += 1;
      const { turn } = agent;
      // The model may have called both at once.
      await this.#resume(agent);
      const result = await this.#own.ended(turn, either);
      running -= 1;
      if (this.#turn.show && asksIn(result).size > 0) {
        // Another call may have shown it.
        if (agent.turn === turn && agent.status === "active") this.#turn.show(tell(agent, result, this.#name).items);
      } else ended.push({ agent, result });
      const isHeld = this.#waits() || ended.some((each) => asksIn(each.result).size > 0);
      if (running === 0 || !isHeld) isOver.resolve();
    };
    const begin = (agent: Agent) => void waitFor(agent).catch(isOver.reject);
    this.#onResumed.add(begin);
    either.addEventListener("abort", () => isOver.resolve());
    const time = Math.max(1, timeLeft(this.#turn.deadline, Math.min(timeoutMs, MAX_WAIT_MS)));
    const timer = setTimeout(() => stop.abort(), time);
    try {
      for (const agent of active) begin(agent);
      await isOver.promise;
    } finally {
      clearTimeout(timer);
      this.#onResumed.delete(begin);
      stop.abort();
    }
    signal.throwIfAborted();
    for (const { agent, result } of ended) told.push(tell(agent, result, this.#name));
    for (const { name, status } of this.#agents.values()) {
      const isTold = ended.some(({ agent }) => agent.name === name);
      if (status === "waiting" && !isTold) told.push({ text: waitsForClient(name), items: [] });
    }
    const left = [...this.#agents.values()].filter(({ status }) => status === "active").map(({ name }) => name);
    if (left.length > 0) told.push({ text: `Still at work: ${left.join(", ")}.`, items: [] });
    return { ...said(told.map(({ text }) => text).join("\n\n")), items: told.flatMap(({ items }) => items) };
  }

  /** Tells whether an agent waits for the client. */
  #waits(): boolean {
    return [...this.#agents.values()].some(({ status }) => status === "waiting");
  }

  #listed() {
    const agents = [...this.#agents.values()].map(({ name, status, task }) => ({
      agent_name: name,
      agent_status: status,
      last_task_message: task,
    }));
    return [{ agent_name: this.#name, agent_status: "active", last_task_message: null }, ...agents];
  }
}

function said(output: string): AgentOutcome {
  return { output, failed: false };
}

/** The output of a call that has begun a task. */
function begun({ home }: Pick<SessionOptions, "home">, { name, turn }: Agent): AgentOutcome {
  return { ...said(JSON.stringify({ task_name: name })), response_id: responseId({ home, turn }) };
}
