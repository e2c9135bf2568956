import type { BetaResponse } from "openai/resources/beta/responses/responses";
import { type Asked, call, fault, MODEL, type Reply, type ScriptedGateway, stream } from "./scripted-vllm.ts";
import { chatMessages } from "./tool-support.ts";
import { pause } from "./turns.ts";

/** Teams of agents whose models are scripted. */

export const FIELDS = {
  model: MODEL,
  input: "Compare.",
  multi_agent: { enabled: true },
  betas: ["responses_multi_agent=v1" as const],
};

type Openai = Pick<ScriptedGateway, "openai">;

export function askTeam({ openai }: Openai, body: object): Promise<BetaResponse> {
  return openai.beta.responses.create({ ...FIELDS, ...body } as never);
}

/** A response when it has ended. */
export async function endedTeam({ openai }: Openai, id: string): Promise<BetaResponse> {
  for (;;) {
    const response = await openai.beta.responses.retrieve(id);
    if (response.status !== "queued" && response.status !== "in_progress") return response;
    await pause(10);
  }
}

/** `when`: the rest of the words comes then. */
type Step = { says: string; when?: Promise<void> } | { fails: string } | { calls: [name: string, args: object][] };

/** Every model's answer, by who asks (`/root`, or an agent's name) and how often it has asked before in this turn. */
export type Team = Record<string, Step[]>;

/** The agent of a prompt, and the number of its rounds so far. One that ends in its own words continues these. */
function askerOf(messages: ReturnType<typeof chatMessages>): { name: string; round: number } {
  const last = messages.findLastIndex(({ role }) => role === "user");
  const text = String(messages[last]?.content ?? "");
  const name = /^You are (\/root[\w/]+),/.exec(text)?.[1] ?? "/root";
  const rounds = messages.slice(last, -1).filter(({ role }) => role === "assistant");
  return { name, round: rounds.length };
}

export function play(gateway: Pick<ScriptedGateway, "replies">, team: Team): void {
  gateway.replies((body: Asked): Reply => {
    const { name, round } = askerOf(chatMessages(body));
    const step = team[name]?.[round];
    if (!step) return stream([{ content: `Nothing left for ${name}.` }], "stop");
    if ("fails" in step) return { status: 400, body: fault(400, step.fails) };
    if ("calls" in step) {
      const calls = step.calls.flatMap(([tool, args], index) => call(index, tool, JSON.stringify(args)));
      return stream(calls, "tool_calls");
    }
    const [first = "", ...rest] = step.says.split(/(?<= )/);
    const { events } = stream([{ content: first }, { content: rest.join("") }], "stop");
    return { events: step.when ? held(events, step.when) : events };
  });
}

export async function* held(events: Iterable<object>, until: Promise<void>): AsyncGenerator<object> {
  for (const [index, event] of [...events].entries()) {
    if (index === 2) await until;
    yield event;
  }
}

/** The prompts of an agent, oldest first. */
export function promptsOf({ asked }: Pick<ScriptedGateway, "asked">, name: string): ReturnType<typeof chatMessages>[] {
  return asked.map((body) => chatMessages(body)).filter((messages) => askerOf(messages).name === name);
}

export const spawn = (task_name: string, message = "Look.", more = {}): [string, object] => [
  "spawn_agent",
  { task_name, message, ...more },
];
export const wait: [string, object] = ["wait_agent", {}];
type Output = BetaResponse["output"];

/** Short forms of items: `/root spawn_agent`, `/root/a message: Fine.`. */
export function shortly(output: Output): string[] {
  return output.map((item) => {
    const agent = "agent" in item ? item.agent?.agent_name : undefined;
    if (item.type === "multi_agent_call") return `${agent} ${item.action}`;
    if (item.type === "multi_agent_call_output") return `${agent} output of ${item.action}`;
    if (item.type === "agent_message") return `${agent} reads ${item.author}`;
    if (item.type === "function_call") return `${agent} calls ${item.name}`;
    return `${agent} ${item.type}: ${item.type === "message" ? textOf(item.content) : ""}`;
  });
}

export function textOf(content: readonly { type: string }[]): string {
  return content.map((part) => ("text" in part ? part.text : "")).join("");
}

/** The texts of the outputs of an action, in order. */
export function outputsOf(output: Output, action: string): string[] {
  return output.flatMap((item) =>
    item.type === "multi_agent_call_output" && item.action === action ? [textOf(item.output)] : [],
  );
}

/** The responses of the tasks, in order. */
export function tasksIn(output: Output): string[] {
  return output.flatMap((item) => {
    const { response_id } = item as { response_id?: string };
    return response_id === undefined ? [] : [response_id];
  });
}
