import type { BetaResponse, BetaResponseStreamEvent } from "openai/resources/beta/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Asked, call, fault, MODEL, type ScriptedGateway, startScripted, stream } from "./scripted-vllm.ts";
import { chatMessages } from "./tool-support.ts";
import { pause } from "./turns.ts";

/** Hosted agents: the model of a request spawns others, whose tasks are responses of their own. */

let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await startScripted();
});
afterAll(() => gateway.close());

type Step = { says: string } | { calls: [name: string, args: object][] };

/** Every model's answer, by who asks (`/root`, or an agent's name) and how often it has asked before in this turn. */
type Team = Record<string, Step[]>;

/** The agent of a prompt, and the number of its rounds so far. */
function askerOf(body: Asked): { name: string; round: number } {
  const messages = chatMessages(body);
  const last = messages.findLastIndex(({ role }) => role === "user");
  const text = String(messages[last]?.content ?? "");
  const name = /^You are (\/root\/\w+),/.exec(text)?.[1] ?? "/root";
  return { name, round: messages.slice(last).filter(({ role }) => role === "assistant").length };
}

function play(team: Team): void {
  gateway.replies((body: Asked) => {
    const { name, round } = askerOf(body);
    const step = team[name]?.[round];
    if (!step) return stream([{ content: `Nothing left for ${name}.` }], "stop");
    if ("says" in step) return stream([{ content: step.says }], "stop");
    const calls = step.calls.flatMap(([tool, args], index) => call(index, tool, JSON.stringify(args)));
    return stream(calls, "tool_calls");
  });
}

const spawn = (task_name: string, message = "Look.", more = {}): [string, object] => [
  "spawn_agent",
  { task_name, message, ...more },
];
const wait: [string, object] = ["wait_agent", {}];
const multi_agent = { enabled: true };
const betas: ["responses_multi_agent=v1"] = ["responses_multi_agent=v1"];

function ask(body: object): Promise<BetaResponse> {
  return gateway.openai.beta.responses.create({
    model: MODEL,
    input: "Compare.",
    multi_agent,
    betas,
    ...body,
  } as never);
}

type Output = BetaResponse["output"];

/** Short forms of items: `/root spawn_agent`, `/root/a message: Fine.`. */
function shortly(output: Output): string[] {
  return output.map((item) => {
    const agent = "agent" in item ? item.agent?.agent_name : undefined;
    if (item.type === "multi_agent_call") return `${agent} ${item.action}`;
    if (item.type === "multi_agent_call_output") return `${agent} output of ${item.action}`;
    if (item.type === "agent_message") return `${agent} reads ${item.author}`;
    if (item.type === "function_call") return `${agent} calls ${item.name}`;
    return `${agent} ${item.type}: ${item.type === "message" ? textOf(item.content) : ""}`;
  });
}

function textOf(content: readonly { type: string }[]): string {
  return content.map((part) => ("text" in part ? part.text : "")).join("");
}

/** The texts of the outputs of an action, in order. */
function outputsOf(output: Output, action: string): string[] {
  return output.flatMap((item) =>
    item.type === "multi_agent_call_output" && item.action === action ? [textOf(item.output)] : [],
  );
}

/** The responses of the tasks, in order. */
function tasksIn(output: Output): string[] {
  return output.flatMap((item) => {
    const { response_id } = item as { response_id?: string };
    return response_id === undefined ? [] : [response_id];
  });
}

const PAIR: Team = {
  "/root": [
    { calls: [spawn("a", "Look at A."), spawn("b")] },
    { calls: [wait] },
    { calls: [wait] },
    { says: "Both agree." },
  ],
  "/root/a": [{ says: "A is fine." }],
  "/root/b": [{ says: "B is fine." }],
};

describe("a response with agents", () => {
  it.each(["json", "background"])(
    "has the calls of its root, the items of its agents, and their messages (%s)",
    async (way) => {
      play(PAIR);
      let response = await ask({ background: way === "background" });
      while (response.status === "queued" || response.status === "in_progress") {
        await pause(10);
        response = await gateway.openai.beta.responses.retrieve(response.id);
      }
      expect(response.status).toBe("completed");
      const [first, second, third, fourth, ...rest] = shortly(response.output);
      expect([first, second, third, fourth]).toEqual([
        ...["/root spawn_agent", "/root spawn_agent"],
        ...["/root output of spawn_agent", "/root output of spawn_agent"],
      ]);
      // Both may have ended when the root first waits.
      for (const name of ["a", "b"]) {
        expect(rest).toContain(`/root/${name} message: ${name.toUpperCase()} is fine.`);
        expect(rest).toContain(`/root reads /root/${name}`);
      }
      expect(rest.at(-1)).toMatch(/^\/root message: /);
      expect(outputsOf(response.output, "wait_agent").join("\n")).toContain(
        "Message Type: FINAL_ANSWER\nTask name: /root\nSender: /root/a\nPayload:\nA is fine.",
      );
      // Each task is a stored response of the same tree.
      const tasks = await Promise.all(tasksIn(response.output).map((id) => gateway.openai.responses.retrieve(id)));
      expect(tasks.map(({ output_text }) => output_text).sort()).toEqual(["A is fine.", "B is fine."]);
      const tree = await gateway.fetch(`${gateway.url}/v1/responses/${response.id}/tree`);
      const { data } = (await tree.json()) as { data: { id: string }[] };
      expect(data.map(({ id }) => id).sort()).toEqual([response.id, ...tasksIn(response.output)].sort());
    },
  );

  it("shows each model its own prompt only", async () => {
    play(PAIR);
    const first = await ask({});
    const prompts = gateway.asked.map((body) => JSON.stringify(body.messages));
    const ofA = prompts.filter((prompt) => prompt.includes("You are /root/a,"));
    expect(ofA).toHaveLength(1);
    expect(ofA[0]).toContain("Payload:\\nLook at A.");
    expect(ofA[0]).not.toContain("Compare.");
    play({ "/root": [{ says: "As I said." }] });
    await ask({ previous_response_id: first.id, input: "Again?" });
    const messages = chatMessages(gateway.asked[0]);
    expect(messages.filter(({ role, content }) => role === "assistant" && content !== undefined)).toHaveLength(1);
    expect(messages.map(({ role }) => role).slice(-2)).toEqual(["assistant", "user"]);
  });

  it("streams events that name their agent", async () => {
    play(PAIR);
    const stream = await gateway.openai.beta.responses.create({
      ...{ model: MODEL, input: "Compare.", multi_agent, betas },
      stream: true,
    });
    const events: BetaResponseStreamEvent[] = await Array.fromAsync(stream);
    for (const event of events) {
      const isOfItem = "output_index" in event;
      expect("agent" in event && event.agent != null).toBe(isOfItem);
    }
    const done = events.flatMap((event) => (event.type === "response.output_item.done" ? [event] : []));
    for (const { agent, item } of done) expect(agent).toEqual("agent" in item ? item.agent : undefined);
    const answer = done.flatMap(({ item }) => (item.type === "message" && item.phase === "final_answer" ? [item] : []));
    expect(answer.map(({ content }) => textOf(content))).toEqual(["Both agree."]);
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, index) => index));
  });
});

const tools = [{ type: "function", name: "weather", parameters: { type: "object", properties: {} }, strict: false }];

describe("a function that an agent calls", () => {
  const team: Team = {
    "/root": [{ calls: [spawn("a"), spawn("b")] }, { calls: [wait] }, { calls: [wait] }, { says: "Sunny, all agree." }],
    "/root/a": [{ calls: [["weather", {}]] }, { says: "It is sunny." }],
    "/root/b": [{ says: "B is fine." }],
  };

  it("ends the response when the others have ended, and the agent goes on with its output", async () => {
    play(team);
    const called = await ask({ tools });
    expect(called.status).toBe("completed");
    expect(shortly(called.output)).toContain("/root/a calls weather");
    expect(shortly(called.output)).toContain("/root/b message: B is fine.");
    const calls = called.output.flatMap((item) => (item.type === "function_call" ? [item] : []));
    expect(calls).toMatchObject([{ name: "weather", agent: { agent_name: "/root/a" } }]);
    const output = { type: "function_call_output", call_id: calls[0]?.call_id, output: "sunny" };
    // The root's turn goes on with its third round.
    play({ ...team, "/root": [{ calls: [] }, { calls: [] }, { calls: [wait] }, { says: "Sunny, all agree." }] });
    const answered = await ask({ tools, previous_response_id: called.id, input: [output] });
    expect(shortly(answered.output)).toEqual([
      "/root wait_agent",
      "/root output of wait_agent",
      "/root/a message: It is sunny.",
      "/root reads /root/a",
      "/root message: Sunny, all agree.",
    ]);
    const ofA = gateway.asked.filter((body) => JSON.stringify(body.messages).includes("You are /root/a,"));
    expect(chatMessages(ofA.at(-1)).at(-1)).toMatchObject({ role: "tool", content: "sunny" });
    expect(JSON.stringify(gateway.asked.at(-1)?.messages)).not.toContain('"name":"weather"');
  });

  it("needs its output in the next request", async () => {
    play(team);
    const called = await ask({ tools });
    const next = ask({ tools, previous_response_id: called.id, input: "Never mind." });
    await expect(next).rejects.toMatchObject({ status: 400, message: /No tool output found for function call/ });
  });
});

describe("the root", () => {
  it("gives an agent further tasks, with the messages that were sent to it", async () => {
    play({
      "/root": [
        { calls: [spawn("a", "First.")] },
        { calls: [wait] },
        { calls: [["send_message", { target: "a", message: "By the way." }]] },
        {
          calls: [
            ["followup_task", { target: "/root/a", message: "Second." }],
            ["list_agents", {}],
          ],
        },
        { calls: [wait] },
        { says: "Done." },
      ],
      "/root/a": [{ says: "One." }],
    });
    const response = await ask({});
    const [first, second] = outputsOf(response.output, "wait_agent");
    expect([first, second]).toEqual([expect.stringMatching(/One\.$/), expect.stringMatching(/One\.$/)]);
    expect(JSON.parse(outputsOf(response.output, "list_agents")[0] ?? "")).toContainEqual({
      ...{ agent_name: "/root/a", agent_status: "active", last_task_message: "Second." },
    });
    const ofA = gateway.asked.filter((body) => JSON.stringify(body.messages).includes("You are /root/a,"));
    const messages = chatMessages(ofA.at(-1));
    expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
    expect(messages.at(-1)?.content).toMatch(/By the way\.\n\nSecond\.$/);
  });

  it("forks its conversation for an agent, where it says so", async () => {
    play({ "/root": [{ says: "Hi." }] });
    const hello = await ask({ input: "My name is Ada." });
    play({ "/root": [{ calls: [spawn("a", "Greet.", { fork_turns: "all" })] }, { calls: [wait] }, { says: "Done." }] });
    await ask({ previous_response_id: hello.id, input: "Compare." });
    const ofA = gateway.asked.find((body) => JSON.stringify(body.messages).includes("You are /root/a,"));
    expect(chatMessages(ofA).map(({ content }) => String(content).split("\n")[0])).toEqual([
      "My name is Ada.",
      "Hi.",
      "Compare.",
      expect.stringMatching(/^You are \/root\/a,/),
    ]);
  });

  it("has at most `max_concurrent_subagents` at work, and hears of its own mistakes", async () => {
    play({
      "/root": [
        { calls: [spawn("a")] },
        { calls: [spawn("b"), spawn("A!"), ["followup_task", { target: "c", message: "?" }]] },
        { calls: [wait] },
        { calls: [spawn("a"), spawn("b")] },
        { calls: [wait] },
        { says: "Done." },
      ],
      "/root/a": [{ says: "One." }],
      "/root/b": [{ says: "Two." }],
    });
    const response = await ask({ multi_agent: { enabled: true, max_concurrent_subagents: 1 } });
    // Calls of one round end in any order.
    expect(outputsOf(response.output, "spawn_agent").sort()).toEqual([
      expect.stringMatching(/^Error: 1 agents are at work/),
      expect.stringMatching(/^Error: The arguments do not match/),
      expect.stringMatching(/^Error: There is an agent '\/root\/a' already/),
      '{"task_name":"/root/a"}',
      '{"task_name":"/root/b"}',
    ]);
    expect(outputsOf(response.output, "followup_task")).toEqual([expect.stringMatching(/^Error: There is no agent/)]);
    expect(tasksIn(response.output)).toHaveLength(2);
  });

  it("hears of a task that has failed", async () => {
    gateway.replies((body) => {
      const { name, round } = askerOf(body);
      if (name !== "/root") return { status: 400, body: fault(400, "No such thing.") };
      const calls = [[spawn("a")], [wait]][round]?.flatMap(([tool, args], index) =>
        call(index, tool, JSON.stringify(args)),
      );
      return calls ? stream(calls, "tool_calls") : stream([{ content: "A has failed." }], "stop");
    });
    const response = await ask({});
    expect(outputsOf(response.output, "wait_agent")[0]).toMatch(
      /The task has not been completed \(failed\)\. .*No such thing/,
    );
    expect(response.status).toBe("completed");
  });
});

it("a response that is cancelled stops its tasks", async () => {
  const held = Promise.withResolvers<void>();
  gateway.replies((body) => {
    const { name, round } = askerOf(body);
    const { events } = stream([{ content: "A " }, { content: "works." }], "stop");
    if (name !== "/root") return { events: stalled(events, held.promise) };
    const [tool, args] = round === 0 ? spawn("a") : wait;
    return stream(call(0, tool, JSON.stringify(args)), "tool_calls");
  });
  const { id } = await ask({ background: true });
  while (gateway.asked.length < 3) await pause(10);
  const cancelled = await gateway.openai.responses.cancel(id);
  const [task = ""] = tasksIn((cancelled as unknown as BetaResponse).output);
  let { status } = await gateway.openai.responses.retrieve(task);
  while (status === "in_progress") {
    await pause(10);
    ({ status } = await gateway.openai.responses.retrieve(task));
  }
  held.resolve();
  expect([cancelled.status, status]).toEqual(["cancelled", "cancelled"]);
});

describe("a request with agents", () => {
  it.each([
    ["store", { store: false }],
    ["max_tool_calls", { max_tool_calls: 3 }],
    ["multi_agent.max_concurrent_subagents", { multi_agent: { enabled: true, max_concurrent_subagents: 0 } }],
  ])("is a 400 that names %s", async (param, body) => {
    await expect(ask(body)).rejects.toMatchObject({ status: 400, param });
  });
});

it("a run that is killed while an agent works goes on, and no task is begun twice", async () => {
  const held = Promise.withResolvers<void>();
  let isHeld = false;
  gateway.replies((body) => {
    const { name, round } = askerOf(body);
    if (name === "/root") {
      const calls = [[spawn("a"), spawn("b")], [wait], [wait]][round];
      if (!calls) return stream([{ content: "Done." }], "stop");
      return stream(
        calls.flatMap(([tool, args], index) => call(index, tool, JSON.stringify(args))),
        "tool_calls",
      );
    }
    if (name === "/root/b") return stream([{ content: "B." }], "stop");
    const { events } = stream([{ content: "A " }, { content: "works." }], "stop");
    if (isHeld) return { events };
    isHeld = true;
    return { events: stalled(events, held.promise) };
  });
  const { id } = await ask({ background: true });
  while (!isHeld || gateway.asked.length < 4) await pause(10);
  await gateway.worker.kill();
  held.resolve();
  await gateway.worker.restart();
  let response = await gateway.openai.beta.responses.retrieve(id);
  while (response.status === "in_progress") {
    await pause(20);
    response = await gateway.openai.beta.responses.retrieve(id);
  }
  expect(response.status).toBe("completed");
  expect(tasksIn(response.output)).toHaveLength(2);
  const said = shortly(response.output);
  for (const line of [
    "/root/a message: A works.",
    "/root/b message: B.",
    "/root reads /root/a",
    "/root reads /root/b",
  ]) {
    expect(said.filter((each) => each === line)).toHaveLength(1);
  }
  const tree = await gateway.fetch(`${gateway.url}/v1/responses/${id}/tree`);
  expect(((await tree.json()) as { data: object[] }).data).toHaveLength(3);
});

async function* stalled(events: Iterable<object>, until: Promise<void>): AsyncGenerator<object> {
  let count = 0;
  for (const event of events) {
    count += 1;
    if (count === 3) await until;
    yield event;
  }
}
