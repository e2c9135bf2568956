import type { BetaResponseInjectFailedEvent } from "openai/resources/beta/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { held, play, promptsOf, spawn, type Team, wait } from "./agent-support.ts";
import { GPT_OSS } from "./harmony-support.ts";
import { type ProgramGateway, startPrograms } from "./program-support.ts";
import { call, MODEL, type ScriptedGateway, startScripted, stream } from "./scripted-vllm.ts";
import { SocketClient, type SocketEvent, type SocketTurn } from "./socket-support.ts";
import { chatMessages } from "./tool-support.ts";

/** `response.inject`: outputs of a client's calls that become part of a response while it is under way. */

let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await startScripted();
});
afterAll(() => gateway.close());

const connected = <T>(work: (socket: SocketClient) => Promise<T>) => SocketClient.within(gateway, work);

const weather = { type: "function", name: "weather", parameters: { type: "object", properties: {} }, strict: false };

function outputOf(call_id: string, output: unknown = "sunny") {
  return { type: "function_call_output", call_id, output };
}

const itemOf = (event: SocketEvent) => (event as { item?: { type: string; call_id: string; agent?: object } }).item;
const callOf = (event: SocketEvent) =>
  event.type === "response.output_item.done" && itemOf(event)?.type === "function_call" ? itemOf(event) : undefined;
const failures = (events: SocketEvent[]) =>
  events.filter(({ type }) => type === "response.inject.failed") as unknown as BetaResponseInjectFailedEvent[];

function inject(socket: SocketClient, response_id: string, ...input: object[]): void {
  socket.send({ type: "response.inject", response_id, input });
}

/** Sends outputs that are refused. Gives the failure. */
async function refused(socket: SocketClient, id: string, ...input: object[]): Promise<BetaResponseInjectFailedEvent> {
  inject(socket, id, ...input);
  const isIt = (event: BetaResponseInjectFailedEvent) => JSON.stringify(event.input) === JSON.stringify(input);
  const events = await socket.reached((event) => failures([event]).some(isIt));
  const found = failures(events).find(isIt);
  if (!found) throw new Error("It was not refused.");
  return found;
}

/** Types of the items, by `agent` where there is one. */
function items({ last }: SocketTurn): string[] {
  const output = (last.response as unknown as { output: { type: string; agent?: { agent_name: string } }[] }).output;
  return output.map(({ type, agent }) => (agent ? `${agent.agent_name} ${type}` : type));
}

function isNumbered({ events }: SocketTurn): void {
  expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, index) => index));
}

describe("outputs of an agent's calls", () => {
  /** `/root/a` calls a function; `/root/b` works until it is released. */
  const team = (released: Promise<void>): Team => ({
    "/root": [{ calls: [spawn("a"), spawn("b")] }, { calls: [wait] }, { calls: [wait] }, { says: "All agree." }],
    "/root/a": [{ calls: [["weather", {}]] }, { calls: [["weather", {}]] }, { says: "Sunny." }],
    "/root/b": [{ says: "B ok.", when: released }],
  });

  it("resume the agent while others work, and the response goes on", async () => {
    const b = Promise.withResolvers<void>();
    play(gateway, team(b.promise));
    await connected(async (socket) => {
      const fields = { model: MODEL, input: "Compare.", tools: [weather], multi_agent: { enabled: true }, store: true };
      socket.create(fields);
      const events = await socket.reached((event) => callOf(event) !== undefined);
      const id = events[0]?.response?.id ?? "";
      const called = events.flatMap((event) => callOf(event) ?? [])[0];
      expect(called?.agent).toEqual({ agent_name: "/root/a" });
      const own = outputOf(called?.call_id ?? "");
      // All or nothing: the first of these is right.
      expect(await refused(socket, id, own, outputOf("call_other"))).toMatchObject({
        ...{ response_id: id, error: { code: "invalid_input", message: expect.stringContaining("'input[1]'") } },
      });
      expect((await refused(socket, id, own, own)).error).toMatchObject({ code: "invalid_input" });
      expect((await refused(socket, id, { role: "user", content: "Hurry." })).error).toMatchObject({
        code: "invalid_input",
      });
      const picture = { type: "input_image", image_url: "https://example.com/a.png" };
      expect((await refused(socket, id, outputOf(called?.call_id ?? "", [picture]))).error.message).toContain("images");
      expect((await refused(socket, "resp_other", own)).error).toMatchObject({ code: "response_not_found" });
      inject(socket, id, own);
      const isSecond = (event: SocketEvent) =>
        callOf(event) !== undefined && !events.some((each) => each.sequence_number === event.sequence_number);
      const second = (await socket.reached(isSecond)).flatMap((event) => callOf(event) ?? [])[1];
      inject(socket, id, outputOf(second?.call_id ?? "", "still sunny"));
      const isAnswer = (event: SocketEvent) => itemOf(event)?.type === "agent_message";
      const created = (await socket.reached(isAnswer)).filter(({ type }) => type === "response.inject.created");
      const each = { type: "response.inject.created", response_id: id, sequence_number: expect.any(Number) };
      expect(created).toEqual([each, each]);
      b.resolve();
      const turn = await socket.ended();
      expect(turn.last.response?.status).toBe("completed");
      const made = items(turn);
      expect(made.indexOf("/root/a function_call_output")).toBe(made.indexOf("/root/a function_call") + 1);
      expect(made.filter((each) => each === "/root agent_message")).toHaveLength(2);
      expect(made.at(-1)).toBe("/root message");
      const own_events = turn.events.filter(
        (event) => !failures([event]).some(({ response_id }) => response_id !== id),
      );
      isNumbered({ ...turn, events: own_events });
      expect(promptsOf(gateway, "/root/a").at(-1)?.at(-1)).toMatchObject({ role: "tool", content: "still sunny" });
      inject(socket, id, own);
      const [late] = failures(await socket.reached(({ type }) => type === "response.inject.failed"));
      expect(late).toMatchObject({ response_id: id, input: [own], error: { code: "response_already_completed" } });
      const replayed = await gateway.fetch(`${gateway.url}/v1/responses/${id}/replay`, { method: "POST" });
      expect(await replayed.text()).toContain('"type":"function_call_output"');
      // Nothing is left to answer, also for a process that has only what is stored.
      await gateway.worker.kill();
      await gateway.worker.restart();
      gateway.replies(stream([{ content: "As I said." }], "stop"));
      const next = await gateway.openai.responses.create({ model: MODEL, previous_response_id: id, input: "Again?" });
      expect(next.output_text).toBe("As I said.");
    });
  });

  it("end the response without them, and come with the next one", async () => {
    play(gateway, team(Promise.resolve()));
    await connected(async (socket) => {
      const fields = { model: MODEL, tools: [weather], multi_agent: { enabled: true }, store: true };
      const turn = await socket.turn({ ...fields, input: "Compare." });
      expect(items(turn).filter((each) => each === "/root/a function_call")).toHaveLength(1);
      const [called] = turn.events.flatMap((event) => callOf(event) ?? []);
      const input = [outputOf(called?.call_id ?? "")];
      const next = await socket.turn({ ...fields, previous_response_id: turn.id, input });
      expect(next.last.response?.status).toBe("completed");
      expect(items(next)).toContain("/root/a function_call");
    });
  });
});

describe("outputs of asynchronous calls", () => {
  const tools = [{ ...weather, async: true }];

  /** Sends a create whose second generation waits. Gives the response's id and its call. */
  async function begun(socket: SocketClient, until: Promise<void>): Promise<{ id: string; call_id: string }> {
    gateway.replies(
      stream(call(0, "weather", "{}"), "tool_calls"),
      { events: held(stream([{ content: "Pack " }, { content: "socks." }], "stop").events, until) },
      stream([{ content: "And a hat." }], "stop"),
    );
    socket.create({ model: MODEL, tools, input: "What to pack?", store: true });
    const events = await socket.reached((event) => callOf(event) !== undefined);
    const called = events.flatMap((event) => callOf(event) ?? [])[0];
    await socket.reached(({ type }) => type === "response.output_text.delta" || gateway.asked.length > 1);
    return { id: events[0]?.response?.id ?? "", call_id: called?.call_id ?? "" };
  }

  it("are read by the model after what it is writing", async () => {
    const written = Promise.withResolvers<void>();
    await connected(async (socket) => {
      const { id, call_id } = await begun(socket, written.promise);
      inject(socket, id, outputOf(call_id));
      // It waits for the message to end, and is counted already.
      expect((await refused(socket, id, outputOf(call_id))).error).toMatchObject({ code: "invalid_input" });
      written.resolve();
      const turn = await socket.ended();
      expect(items(turn)).toEqual(["function_call", "message", "function_call_output", "message"]);
      expect(turn.text).toBe("Pack socks.And a hat.");
      isNumbered(turn);
      const messages = chatMessages(gateway.asked.at(-1));
      expect(messages.at(-1)).toMatchObject({ role: "tool", content: "sunny" });
      const { data } = await gateway.openai.responses.inputItems.list(id);
      expect(data).toHaveLength(1);
    });
  });

  it("are given back if the response ends before", async () => {
    const never = Promise.withResolvers<void>();
    await connected(async (socket) => {
      const { id, call_id } = await begun(socket, never.promise);
      inject(socket, id, outputOf(call_id));
      socket.send({ type: "response.steer", previous_response_id: id, input: "Stop." });
      const turn = await socket.ended();
      expect(turn.last.response?.status).toBe("incomplete");
      expect(items(turn)).not.toContain("function_call_output");
      const [failed] = failures(await socket.reached(({ type }) => type === "response.inject.failed"));
      expect(failed).toMatchObject({ response_id: id, input: [outputOf(call_id)] });
      expect(failed?.error.code).toBe("response_already_completed");
      never.resolve();
    });
  });
});

describe("an output for a response behind three workers", () => {
  let workers: ProgramGateway;
  beforeAll(async () => {
    workers = await startPrograms({ WORKERS: "3" });
  });
  afterAll(() => workers.close());

  it.each(["simulator", GPT_OSS])("is read by the model, and kept when all are killed (%s)", async (model) => {
    const turn = await SocketClient.within(workers, async (socket) => {
      const fields = { model: `${model}?tps=20`, tools: [{ ...weather, async: true }], store: true };
      socket.create({ ...fields, input: "Call weather." });
      const events = await socket.reached((event) => callOf(event) !== undefined);
      const called = events.flatMap((event) => callOf(event) ?? [])[0];
      inject(socket, events[0]?.response?.id ?? "", outputOf(called?.call_id ?? "", "a purple sky"));
      return await socket.ended();
    });
    expect(failures(turn.events)).toEqual([]);
    // It may come before the model goes on, or while it writes.
    const made = items(turn).filter((type) => type !== "reasoning");
    expect([made[0], ...made.slice(-2)]).toEqual(["function_call", "function_call_output", "message"]);
    expect(turn.text).toContain("a purple sky");
    isNumbered(turn);
    await workers.restart();
    const next = await workers.openai.responses.create({ model, previous_response_id: turn.id, input: "Again?" });
    expect(next.status).toBe("completed");
    const replayed = await workers.fetch(`${workers.url}/v1/responses/${turn.id}/replay`, { method: "POST" });
    expect(await replayed.text()).toContain("a purple sky");
  });
});
