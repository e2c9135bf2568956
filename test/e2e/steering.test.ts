import type { ResponsesServerEvent } from "openai/resources/responses/responses";
import { ResponsesWS } from "openai/resources/responses/ws";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { decode, idsOf, lastCompletion, lastPromptIds, sampledIds, saying } from "./harmony-support.ts";
import { SocketClient, type SocketEvent, type SocketTurn, turnViolations } from "./socket-support.ts";
import { eventually, type Gateway, joinGateway, lastPrompt } from "./support.ts";
import { chatMessages } from "./tool-support.ts";
import { unique } from "./turns.ts";

/** Steering over a WebSocket: a message during a response ends it, and another response continues with the message. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const connected = <T>(work: (socket: SocketClient) => Promise<T>) => SocketClient.within(gateway, work);

const SLOW = "simulator?tps=50&words=100000";
const isDelta = ({ type }: SocketEvent) => type.endsWith(".delta");
/** The output tokens of a response. */
const outputTokens = ({ response }: SocketEvent) =>
  (response as { usage?: { output_tokens: number } } | undefined)?.usage?.output_tokens;
const steersIn = ({ events }: SocketTurn) => events.filter(({ type }) => type.startsWith("response.steer."));

/** Waits for a response's first output, and steers it. Gives its id. */
async function steered(socket: SocketClient, input: unknown, lane?: string, fits = isDelta): Promise<string> {
  const [created] = await socket.reached(fits, lane);
  const previous_response_id = created?.response?.id ?? "";
  socket.send({ type: "response.steer", previous_response_id, input });
  return previous_response_id;
}

/** The events of a turn without those of steering, which share its sequence numbers. */
function ownViolations(turn: SocketTurn): readonly string[] {
  const own = turn.events.filter(({ type }) => !type.startsWith("response.steer."));
  const events = own.map((event, index) => ({ ...event, sequence_number: index }) as SocketEvent);
  return turnViolations({ ...turn, events });
}

describe.each([true, false])("a response that is steered (store: %s)", (store) => {
  it("ends at once, and another one continues with the message after the output, with the same settings", async () => {
    await connected(async (socket) => {
      const question = unique("Count");
      socket.create({ model: SLOW, input: question, store, stream_id: "a", metadata: { of: "a" }, temperature: 0.5 });
      const id = await steered(socket, "Backwards, please.", "a");
      const first = await socket.ended("a");
      expect(first.last).toMatchObject({
        type: "response.incomplete",
        stream_id: "a",
        response: { id, status: "incomplete", incomplete_details: { reason: "steered" } },
      });
      expect(steersIn(first)).toMatchObject([
        { type: "response.steer.accepted", stream_id: "a", steer: { previous_response_id: id } },
      ]);
      expect(first.events.map((event) => event.sequence_number)).toEqual(first.events.map((_, index) => index));
      expect(ownViolations(first)).toEqual([]);
      const [created] = await socket.reached(isDelta, "a");
      expect(created?.response).toMatchObject({
        previous_response_id: id,
        metadata: { of: "a" },
        temperature: 0.5,
        model: SLOW,
      });
      const messages = chatMessages(lastPrompt(gateway));
      expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
      expect(messages.map(({ content }) => content)).toEqual([question, first.text, "Backwards, please."]);
      // The next response is steered, too.
      await steered(socket, [{ type: "message", role: "user", content: "Stop." }], "a");
      expect((await socket.ended("a")).last).toMatchObject({ response: { incomplete_details: { reason: "steered" } } });
      await socket.reached(isDelta, "a");
    });
  });
});

describe("gpt-oss", () => {
  it.each([
    ["thoughts", "analysis"],
    ["answer", "final"],
  ])("continues after the sampled tokens of its %s", async (_, channel) => {
    const words = Array.from({ length: 60 }, (__, index) => ` ${"ßwörd".slice(index % 3)}${index}`).join("");
    const script = `<|channel|>${channel}<|message|>One.${words}<|end|>`;
    await connected(async (socket) => {
      socket.create({ model: `${saying(script)}&tps=50`, input: unique("Think"), store: true });
      await socket.reached(isDelta);
      const asked = lastCompletion(gateway);
      await steered(socket, "Stop.", undefined, ({ delta = "" }) => /\d$/.test(delta));
      const { last } = await socket.ended();
      expect(last).toMatchObject({ response: { incomplete_details: { reason: "steered" } } });
      await socket.reached(isDelta);
      const before = await idsOf(asked);
      const sampled = await sampledIds({ ...asked, model: saying(script) });
      const ids = sampled.slice(0, outputTokens(last));
      expect(ids.length).toBeGreaterThan(3);
      const prompt = await lastPromptIds(gateway);
      expect(prompt.slice(0, before.length + ids.length)).toEqual([...before, ...ids]);
      const after = await decode(prompt.slice(before.length + ids.length));
      expect(after).toMatch(/^<\|end\|><\|start\|>user<\|message\|>Stop\.<\|end\|><\|start\|>assistant$/);
    });
  });
});

describe("a message for a response with calls for its client", () => {
  const parameters = { type: "object", properties: {}, required: [], additionalProperties: false };
  const tools = [{ type: "function", name: "weather", strict: true, parameters }];
  const CALL = '‹tool_call›{"name": "weather", "arguments": {}}‹/tool_call›';
  const input = `DELAY=20 NOTHINK SCRIPT[[${CALL}\n${CALL}‹|im_end|›]]`;
  const isCalled = ({ type }: SocketEvent) => type === "response.function_call_arguments.done";

  /** Steers a response that has made one call, and makes another one. */
  async function waiting(socket: SocketClient): Promise<{ id: string; callId: string; turn: SocketTurn }> {
    socket.create({ model: "tiny-qwen3", input, tools, stream_id: "b" });
    const id = await steered(socket, "In Celsius.", "b", isCalled);
    const turn = await socket.ended("b");
    const pending = await socket.reached(({ type }) => type === "response.steer.pending", "b");
    const { required_input: required } = pending.at(-1) as unknown as { required_input: { call_id: string }[] };
    expect(required).toEqual([{ type: "function_call_output", call_id: expect.any(String), name: "weather" }]);
    return { id, callId: required[0]?.call_id ?? "", turn };
  }

  it("waits for their outputs, and comes after these in the next create", async () => {
    await connected(async (socket) => {
      const { id: previous_response_id, callId, turn } = await waiting(socket);
      expect(turn.last).toMatchObject({ response: { incomplete_details: { reason: "steered" } } });
      const output = { type: "function_call_output", call_id: callId, output: "sunny" };
      const fields = { model: "tiny-qwen3", stream_id: "b", previous_response_id, tools };
      socket.create({ ...fields, input: [output] });
      expect((await socket.ended("b")).last.type).toBe("response.completed");
      const messages = chatMessages(lastPrompt(gateway));
      expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "user"]);
      expect(messages.at(-1)?.content).toBe("In Celsius.");
    });
  });

  it("is returned if the next create of the lane does not continue it", async () => {
    await connected(async (socket) => {
      const { id } = await waiting(socket);
      socket.create({ input: "Something else.", stream_id: "b" });
      const { events } = await socket.ended("b");
      expect(events.find(({ type }) => type === "response.steer.failed")).toMatchObject({
        error: { code: "response_not_active" },
        steer: { id: expect.stringMatching(/^steer_/), previous_response_id: id, input: "In Celsius." },
      });
    });
  });
});

describe("openai-node's ResponsesWS", () => {
  it("steers, and gets the result of its message", async () => {
    const connection = new ResponsesWS(gateway.openai);
    const told: string[] = [];
    const ids: string[] = [];
    const ended = new Promise<ResponsesServerEvent>((resolve, reject) => {
      connection.on("error", reject);
      connection.on("event", (event) => {
        if (event.type === "response.created") ids.push(event.response.id);
        if (event.type === "response.output_text.delta" && told.length === 0) {
          told.push("sent");
          connection.send({ type: "response.steer", previous_response_id: ids[0] ?? "", input: "Backwards." });
        }
        if (event.type.startsWith("response.steer.") || event.type === "response.incomplete") told.push(event.type);
        if (event.type === "response.completed") resolve(event);
      });
    });
    connection.send({ type: "response.create", model: "simulator?tps=100&words=50", input: unique("Count") });
    const completed = await ended;
    connection.close();
    expect(told).toEqual(["sent", "response.steer.accepted", "response.incomplete"]);
    expect(completed).toMatchObject({ response: { id: ids[1], previous_response_id: ids[0] } });
  });
});

describe("a steer that is refused", () => {
  const FAULTS: [what: string, create: object, steer: object, code: string][] = [
    ["another role", {}, { input: [{ type: "message", role: "system", content: "No." }] }, "invalid_input"],
    ["no words", {}, { input: "" }, "invalid_input"],
    ["a lane", {}, { input: "No.", stream_id: "a" }, "invalid_input"],
    ["too many messages", {}, { input: Array(129).fill({ role: "user", content: "No." }) }, "invalid_input"],
    [
      "a compacted prompt",
      { context_management: [{ type: "compaction", compact_threshold: 1_000_000 }] },
      {},
      "steering_not_supported",
    ],
  ];

  it.each(FAULTS)("for %s returns its input, and the response goes on", async (_, create, steer, code) => {
    await connected(async (socket) => {
      socket.create({ model: SLOW, input: unique("On and on"), ...create });
      const [created] = await socket.reached(isDelta);
      const previous_response_id = created?.response?.id ?? "";
      socket.send({ type: "response.steer", previous_response_id, input: "Stop.", ...steer });
      const events = await socket.reached(({ type }) => type === "response.steer.failed");
      const input = "input" in steer ? steer.input : "Stop.";
      expect(events.find(({ type }) => type === "response.steer.failed")).toMatchObject({
        error: { type: "invalid_request_error", code },
        steer: { previous_response_id, input },
      });
      const count = events.filter(isDelta).length;
      await eventually(async () => (await socket.reached(isDelta)).filter(isDelta).length > count);
    });
  });

  it("names a response that is not in progress, or not of this connection", async () => {
    await connected(async (socket) => {
      const { id } = await socket.turn({ input: "Hello!", stream_id: "c" });
      socket.send({ type: "response.steer", previous_response_id: id, input: "More." });
      const [ended] = await socket.reached(({ type }) => type === "response.steer.failed", "c");
      expect(ended).toMatchObject({ stream_id: "c", error: { code: "response_already_completed" } });
      socket.send({ type: "response.steer", previous_response_id: "resp_unknown", input: "More." });
      const [unknown] = await socket.reached(({ type }) => type === "response.steer.failed");
      expect(unknown).toMatchObject({ error: { code: "response_not_found" } });
    });
  });
});
