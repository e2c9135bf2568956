import type { BetaResponse, BetaResponseStreamEvent } from "openai/resources/beta/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  askTeam,
  endedTeam,
  FIELDS,
  outputsOf,
  play,
  promptsOf,
  shortly,
  spawn,
  type Team,
  tasksIn,
  textOf,
  wait,
} from "./agent-support.ts";
import { type ScriptedGateway, startScripted } from "./scripted-vllm.ts";
import { chatMessages, mcp, startTools, type ToolServer } from "./tool-support.ts";
import { pause } from "./turns.ts";

/** Hosted agents: the model of a request spawns others, whose tasks are responses of their own. */

let gateway: ScriptedGateway;
let server: ToolServer;
beforeAll(async () => {
  server = await startTools({ add: { run: () => "3" } });
  gateway = await startScripted({ MCP_SERVERS: server.url });
});
afterAll(async () => {
  await gateway.close();
  await server.close();
});

const ask = (body: object) => askTeam(gateway, body);

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
      play(gateway, PAIR);
      const begun = await ask({ background: way === "background" });
      const response = await endedTeam(gateway, begun.id);
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
    play(gateway, PAIR);
    const first = await ask({});
    const ofA = promptsOf(gateway, "/root/a").map((messages) => JSON.stringify(messages));
    expect(ofA).toHaveLength(1);
    expect(ofA[0]).toContain("Payload:\\nLook at A.");
    expect(ofA[0]).not.toContain("Compare.");
    play(gateway, { "/root": [{ says: "As I said." }] });
    await ask({ previous_response_id: first.id, input: "Again?" });
    const messages = chatMessages(gateway.asked[0]);
    expect(messages.filter(({ role, content }) => role === "assistant" && content !== undefined)).toHaveLength(1);
    expect(messages.map(({ role }) => role).slice(-2)).toEqual(["assistant", "user"]);
  });

  it("streams events that name their agent", async () => {
    play(gateway, PAIR);
    const stream = await gateway.openai.beta.responses.create({
      ...FIELDS,
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
    play(gateway, team);
    const called = await ask({ tools });
    expect(called.status).toBe("completed");
    expect(shortly(called.output)).toContain("/root/a calls weather");
    expect(shortly(called.output)).toContain("/root/b message: B is fine.");
    const calls = called.output.flatMap((item) => (item.type === "function_call" ? [item] : []));
    expect(calls).toMatchObject([{ name: "weather", agent: { agent_name: "/root/a" } }]);
    const output = { type: "function_call_output", call_id: calls[0]?.call_id, output: "sunny" };
    // The root's turn goes on with its third round.
    play(gateway, {
      ...team,
      "/root": [{ calls: [] }, { calls: [] }, { calls: [wait] }, { says: "Sunny, all agree." }],
    });
    const answered = await ask({ tools, previous_response_id: called.id, input: [output] });
    expect(shortly(answered.output)).toEqual([
      "/root wait_agent",
      "/root output of wait_agent",
      "/root/a message: It is sunny.",
      "/root reads /root/a",
      "/root message: Sunny, all agree.",
    ]);
    expect(promptsOf(gateway, "/root/a").at(-1)?.at(-1)).toMatchObject({ role: "tool", content: "sunny" });
    expect(JSON.stringify(gateway.asked.at(-1)?.messages)).not.toContain('"name":"weather"');
  });

  it("needs its output in the next request", async () => {
    play(gateway, team);
    const called = await ask({ tools });
    const next = ask({ tools, previous_response_id: called.id, input: "Never mind." });
    await expect(next).rejects.toMatchObject({ status: 400, message: /No tool output found for function call/ });
  });
});

describe("an MCP call of an agent that needs an approval", () => {
  const docs = () => [mcp(server, { require_approval: "always" })];
  const team: Team = {
    "/root": [{ calls: [spawn("a"), spawn("b")] }, { calls: [wait] }, { calls: [wait] }, { says: "Done." }],
    "/root/a": [{ calls: [["docs__add", {}]] }, { says: "It is three." }],
    "/root/b": [{ says: "B is fine." }],
  };

  /** A response that ends with the request of `/root/a`, in a process that knows it only from its store. */
  async function asked(): Promise<{ id: string; request: string }> {
    play(gateway, team);
    const response = await ask({ tools: docs() });
    expect(response.status).toBe("completed");
    expect(shortly(response.output)).toContain("/root/b message: B is fine.");
    const requests = response.output.flatMap((item) => (item.type === "mcp_approval_request" ? [item] : []));
    expect(requests).toMatchObject([{ name: "add", server_label: "docs", agent: { agent_name: "/root/a" } }]);
    await gateway.worker.kill();
    await gateway.worker.restart();
    // The root's turn goes on with its third round.
    play(gateway, { ...team, "/root": [{ says: "" }, { says: "" }, { calls: [wait] }, { says: "Done." }] });
    return { id: response.id, request: requests[0]?.id ?? "" };
  }

  it.each([true, false])("ends the response, and goes on when the client has answered it (%s)", async (approve) => {
    const { id, request } = await asked();
    const calls = server.calls.length;
    const input = [{ type: "mcp_approval_response", approval_request_id: request, approve }];
    const response = await ask({ tools: docs(), previous_response_id: id, input });
    expect(server.calls.length).toBe(calls + Number(approve));
    expect(shortly(response.output)).toEqual([
      ...["/root wait_agent", "/root output of wait_agent"],
      ...(approve ? ["/root/a mcp_call: "] : []),
      ...["/root/a message: It is three.", "/root reads /root/a", "/root message: Done."],
    ]);
    const read = promptsOf(gateway, "/root/a").at(-1)?.at(-1);
    expect(read).toMatchObject({ role: "tool", content: approve ? "3" : expect.stringContaining("did not approve") });
    expect(JSON.stringify(promptsOf(gateway, "/root"))).not.toContain("did not approve");
  });

  it("is refused by a next request that has no answer to it", async () => {
    const { id } = await asked();
    play(gateway, { ...team, "/root": [{ calls: [wait] }, { says: "Done." }] });
    const response = await ask({ tools: docs(), previous_response_id: id, input: "Never mind." });
    expect(shortly(response.output)).toContain("/root/a message: It is three.");
    expect(promptsOf(gateway, "/root/a").at(-1)?.at(-1)?.content).toContain("did not approve");
  });
});

describe("an agent of an agent", () => {
  it("works for it alone, and the whole team counts in `max_concurrent_subagents`", async () => {
    const { promise: when, resolve } = Promise.withResolvers<void>();
    play(gateway, {
      "/root": [{ calls: [spawn("a")] }, { calls: [wait] }, { says: "Done." }],
      "/root/a": [{ calls: [spawn("a"), spawn("a2")] }, { calls: [wait] }, { says: "Both." }],
      "/root/a/a": [{ says: "Deep down.", when }],
      "/root/a/a2": [{ says: "Deep down.", when }],
    });
    const asked = ask({ multi_agent: { enabled: true, max_concurrent_subagents: 2 } });
    while (promptsOf(gateway, "/root/a").length < 2) await pause(5);
    resolve();
    const response = await asked;
    const { output } = response;
    expect(outputsOf(output, "spawn_agent")).toContainEqual(expect.stringMatching(/^Error: 2 agents are at work/));
    expect(shortly(output).map((line) => line.replace("a2", "a"))).toEqual([
      ...["/root spawn_agent", "/root output of spawn_agent", "/root wait_agent", "/root output of wait_agent"],
      ...["/root/a spawn_agent", "/root/a spawn_agent"],
      ...["/root/a output of spawn_agent", "/root/a output of spawn_agent"],
      ...["/root/a wait_agent", "/root/a output of wait_agent"],
      ...["/root/a/a message: Deep down.", "/root/a reads /root/a/a", "/root/a message: Both."],
      ...["/root reads /root/a", "/root message: Done."],
    ]);
    // The root reads what its own agent says, and no more.
    expect(JSON.stringify(promptsOf(gateway, "/root"))).not.toContain("Deep down.");
    const tree = await gateway.fetch(`${gateway.url}/v1/responses/${response.id}/tree`);
    expect(((await tree.json()) as { data: object[] }).data).toHaveLength(3);
  });

  it("calls a function, whose output reaches it, also after a kill", async () => {
    const team: Team = {
      "/root": [{ calls: [spawn("a")] }, { calls: [wait] }, { calls: [wait] }, { says: "Sunny, all agree." }],
      "/root/a": [{ calls: [spawn("b")] }, { calls: [wait] }, { calls: [wait] }, { says: "B says so." }],
      "/root/a/b": [{ calls: [["weather", {}]] }, { says: "It is sunny." }],
    };
    play(gateway, team);
    const called = await ask({ tools });
    expect(shortly(called.output)).toContain("/root/a/b calls weather");
    const [call_id] = called.output.flatMap((item) => (item.type === "function_call" ? [item.call_id] : []));
    await gateway.worker.kill();
    await gateway.worker.restart();
    const output = { type: "function_call_output", call_id, output: "sunny" };
    const answered = await ask({ tools, previous_response_id: called.id, input: [output] });
    expect(shortly(answered.output)).toEqual([
      ...["/root wait_agent", "/root output of wait_agent"],
      ...["/root/a wait_agent", "/root/a output of wait_agent"],
      ...["/root/a/b message: It is sunny.", "/root/a reads /root/a/b", "/root/a message: B says so."],
      ...["/root reads /root/a", "/root message: Sunny, all agree."],
    ]);
    expect(promptsOf(gateway, "/root/a/b").at(-1)?.at(-1)).toMatchObject({ role: "tool", content: "sunny" });
    // A task's response goes on as any other.
    const next = await ask({
      multi_agent: null,
      previous_response_id: tasksIn(called.output)[0],
      tools,
      input: [output],
    });
    expect(next.status).toBe("completed");
  });
});

describe("the root", () => {
  it("gives an agent further tasks, with the messages that were sent to it", async () => {
    play(gateway, {
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
    const messages = promptsOf(gateway, "/root/a").at(-1);
    expect(messages?.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
    expect(messages?.at(-1)?.content).toMatch(/By the way\.\n\nSecond\.$/);
  });

  it("forks its conversation for an agent, where it says so", async () => {
    play(gateway, { "/root": [{ says: "Hi." }] });
    const hello = await ask({ input: "My name is Ada." });
    play(gateway, {
      "/root": [{ calls: [spawn("a", "Greet.", { fork_turns: "all" })] }, { calls: [wait] }, { says: "Done." }],
    });
    await ask({ previous_response_id: hello.id, input: "Compare." });
    const [ofA = []] = promptsOf(gateway, "/root/a");
    expect(ofA.map(({ content }) => String(content).split("\n")[0])).toEqual([
      "My name is Ada.",
      "Hi.",
      "Compare.",
      expect.stringMatching(/^You are \/root\/a,/),
    ]);
  });

  it("has at most `max_concurrent_subagents` at work, and hears of its own mistakes", async () => {
    play(gateway, {
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
    play(gateway, {
      "/root": [{ calls: [spawn("a")] }, { calls: [wait] }, { says: "A has failed." }],
      "/root/a": [{ fails: "No such thing." }],
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
  play(gateway, {
    "/root": [{ calls: [spawn("a")] }, { calls: [wait] }],
    "/root/a": [{ says: "A works.", when: held.promise }],
  });
  const { id } = await ask({ background: true });
  while (gateway.asked.length < 3) await pause(10);
  const cancelled = await gateway.openai.responses.cancel(id);
  const [task = ""] = tasksIn((cancelled as unknown as BetaResponse).output);
  const { status } = await endedTeam(gateway, task);
  held.resolve();
  expect([cancelled.status, status]).toEqual(["cancelled", "cancelled"]);
});

describe("a response with agents that is not stored", () => {
  it("has tasks that are not stored, which go on with each other", async () => {
    const said = PAIR["/root"] ?? [];
    const calls = [["followup_task", { target: "a", message: "Again." }] as [string, object]];
    play(gateway, { ...PAIR, "/root": [...said.slice(0, 3), { calls }, { calls: [wait] }, { says: "Both agree." }] });
    const response = await ask({ store: false });
    expect(response.status).toBe("completed");
    expect(shortly(response.output)).toContain("/root/b message: B is fine.");
    expect(shortly(response.output).filter((line) => line === "/root reads /root/a")).toHaveLength(2);
    expect(
      promptsOf(gateway, "/root/a")
        .at(-1)
        ?.map(({ role }) => role),
    ).toEqual(["user", "assistant", "user"]);
    await expect(gateway.openai.responses.retrieve(response.id)).rejects.toMatchObject({ status: 404 });
    const [task = ""] = tasksIn(response.output);
    expect(await gateway.openai.responses.retrieve(task)).toMatchObject({ store: false, output_text: "A is fine." });
    const next = ask({ previous_response_id: task, input: "And you?" });
    await expect(next).rejects.toMatchObject({ status: 400, param: "previous_response_id" });
  });

  it("goes on with the items that its client gives back, which are the root's", async () => {
    play(gateway, {
      "/root": [{ calls: [spawn("a")] }, { calls: [wait] }, { says: "" }, { says: "It is sunny." }],
      "/root/a": [{ calls: [["weather", {}]] }],
    });
    const { output } = await ask({ store: false, tools });
    const [call_id] = output.flatMap((item) => (item.type === "function_call" ? [item.call_id] : []));
    const given = [
      { role: "user", content: "Compare." },
      ...output,
      { type: "function_call_output", call_id, output: "sunny" },
    ];
    const answered = await ask({ store: false, tools, input: given });
    expect(shortly(answered.output)).toEqual(["/root message: It is sunny."]);
    expect(promptsOf(gateway, "/root").at(-1)?.at(-1)).toMatchObject({ role: "tool", content: "sunny" });
  });
});

describe("a request with agents", () => {
  it.each([
    ["max_tool_calls", { max_tool_calls: 3 }],
    ["multi_agent.max_concurrent_subagents", { multi_agent: { enabled: true, max_concurrent_subagents: 0 } }],
  ])("is a 400 that names %s", async (param, body) => {
    await expect(ask(body)).rejects.toMatchObject({ status: 400, param });
  });
});

it("a run that is killed while an agent works goes on, and no task is begun twice", async () => {
  const held = Promise.withResolvers<void>();
  play(gateway, {
    "/root": [{ calls: [spawn("a"), spawn("b")] }, { calls: [wait] }, { calls: [wait] }, { says: "Done." }],
    "/root/a": [{ says: "A works.", when: held.promise }],
    "/root/b": [{ says: "B." }],
  });
  const { id } = await ask({ background: true });
  while (gateway.asked.length < 4) await pause(10);
  await gateway.worker.kill();
  held.resolve();
  await gateway.worker.restart();
  const response = await endedTeam(gateway, id);
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
