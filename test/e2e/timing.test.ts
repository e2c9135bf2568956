import type { ResponseTiming } from "@responses-edge/responses-api/response";
import type { Response } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, joinGateway } from "./support.ts";
import { itemsOf, reached, unique } from "./turns.ts";

/** The times of responses: with `timing` in `include`, and kept with every stored response. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

type Timed = Pick<Response, "id" | "status" | "output" | "created_at"> & { timing?: ResponseTiming | null };

/** OpenAI's types do not have the value. */
const include = ["timing"] as unknown as ["reasoning.encrypted_content"];

/** A response as it is kept, with its times. */
async function timed(id: string): Promise<Timed> {
  return (await gateway.openai.responses.retrieve(id, { include })) as Timed;
}

async function endedTimed(id: string): Promise<Timed> {
  return eventually(async () => {
    const response = await timed(id);
    return response.timing ? response : undefined;
  });
}

/** The times of a response, which follow each other as its turn did. */
function timesOf({ timing, output, created_at }: Timed): ResponseTiming {
  if (!timing) throw new Error("The response has no times.");
  expect(Math.floor(timing.accepted_at / 1000)).toBe(created_at);
  expect(timing.items.map(({ id }) => id)).toEqual(output.map(({ id }) => id));
  for (const times of [timing, ...timing.rounds, ...timing.items]) {
    for (const [name, value] of Object.entries(times)) {
      if (name.endsWith("_ms") && value !== null) expect(value, name).toSatisfy(Number.isSafeInteger);
    }
  }
  let last = timing.waited_ms;
  for (const { began_ms, queued_ms, first_token_ms, ended_ms } of timing.rounds) {
    expect(began_ms).toBeGreaterThanOrEqual(last);
    if (first_token_ms !== null) expect(first_token_ms).toBeGreaterThanOrEqual(began_ms + queued_ms);
    expect(ended_ms).toBeGreaterThanOrEqual(first_token_ms ?? began_ms);
    last = ended_ms;
  }
  for (const { began_ms, ended_ms } of timing.items) {
    expect(began_ms).toBeGreaterThanOrEqual(timing.rounds[0]?.first_token_ms ?? 0);
    expect(ended_ms).toBeGreaterThanOrEqual(began_ms);
    expect(ended_ms).toBeLessThanOrEqual(timing.settled_ms);
  }
  expect(timing.settled_ms).toBeGreaterThanOrEqual(last);
  return timing;
}

describe("the times of a response", () => {
  const WAYS: Record<string, () => Promise<Timed>> = {
    json: async () =>
      (await gateway.openai.responses.create({ model: "simulator", input: "Hello!", include })) as Timed,
    stream: async () => {
      const asked = { model: "simulator", input: "Hello!", include, stream: true } as const;
      const events = await Array.fromAsync(await gateway.openai.responses.create(asked));
      for (const event of events.slice(0, -1)) expect(event).not.toHaveProperty("response.timing");
      return (events.at(-1) as unknown as { response: Timed }).response;
    },
    background: async () => {
      const asked = { model: "simulator", input: "Hello!", include, background: true };
      const begun = (await gateway.openai.responses.create(asked)) as Timed;
      expect(begun.timing).toBeNull();
      return endedTimed(begun.id);
    },
    "a key": async () => {
      const asked = { model: "simulator", input: "Hello!", include };
      const headers = { "idempotency-key": unique("timing") };
      return (await gateway.openai.responses.create(asked, { headers })) as Timed;
    },
    websocket: async () => {
      const client = await SocketClient.open(gateway);
      const { last } = await client.turn({ model: "simulator", input: "Hello!", include, store: true });
      client.socket.close();
      return (last as unknown as { response: Timed }).response;
    },
  };

  it.each(Object.keys(WAYS))("are in it, and kept with it: %s", async (way) => {
    const response = (await WAYS[way]?.()) as Timed;
    const { rounds, waited_ms, queued_ms } = timesOf(response);
    const { usage } = await gateway.openai.responses.retrieve(response.id);
    expect({ waited_ms, queued_ms }).toEqual({ waited_ms: 0, queued_ms: 0 });
    expect(rounds).toMatchObject([
      {
        ...{ server: "vllm", model: "simulator", purpose: "round", attempts: 1, error: null },
        ...{ input_tokens: usage?.input_tokens, output_tokens: usage?.output_tokens },
      },
    ]);
    expect(rounds[0]?.first_token_ms).not.toBeNull();
    expect((await timed(response.id)).timing).toEqual(response.timing);
    expect(await gateway.openai.responses.retrieve(response.id)).not.toHaveProperty("timing");
  });

  it("are in the last event of a stream that begins later, whatever the create has asked for", async () => {
    const begun = await gateway.openai.responses.create({ model: "simulator", input: "Hello!", background: true });
    const { timing } = await endedTimed(begun.id);
    const streamed = async (query: string) => {
      const answer = await gateway.fetch(`${gateway.url}/v1/responses/${begun.id}?stream=true${query}`);
      return (await answer.text()).split("\n\n").filter((event) => event.startsWith("event: "));
    };
    const [plain, withTimes] = await Promise.all([streamed(""), streamed("&include[]=timing")]);
    expect(withTimes.slice(0, -1)).toEqual(plain.slice(0, -1));
    const last = (events: string[]) =>
      JSON.parse(events.at(-1)?.split("\ndata: ")[1] ?? "") as { response: { timing?: unknown } };
    expect(last(withTimes).response.timing).toEqual(timing);
    expect(last(plain).response).not.toHaveProperty("timing");
  });

  it("are in an answer that is not stored", async () => {
    const asked = { model: "simulator", input: "Hello!", include, store: false };
    timesOf((await gateway.openai.responses.create(asked)) as Timed);
  });

  it("have each round, and each attempt at it", async () => {
    const asked = { model: "simulator?fault=cut:2&fault_times=1&words=8", input: "Hello!", include };
    const { rounds } = timesOf((await gateway.openai.responses.create(asked)) as Timed);
    expect(rounds).toMatchObject([
      { purpose: "round", attempts: 1, error: "upstream_connection_lost" },
      { purpose: "take_up", attempts: 1, error: null },
    ]);
    const refused = { model: "simulator?fault=http:429&fault_times=2", input: "Hello!", background: true };
    const { id } = await gateway.openai.responses.create(refused);
    expect(timesOf(await endedTimed(id)).rounds).toMatchObject([{ purpose: "round", attempts: 3, error: null }]);
  });

  it("have the wait for the conversation", async () => {
    const { id: conversation } = await gateway.openai.conversations.create();
    const [held, next, last] = [unique("Held"), unique("Next"), unique("Last")];
    const stalled = { model: "simulator?fault=stall:1", input: held, conversation, include };
    const answers = [gateway.openai.responses.create(stalled) as Promise<Response>];
    const release = await reached(gateway, held);
    // Each waits once ten later requests were answered.
    const wait = async () => {
      for (let times = 0; times < 10; times += 1) await itemsOf(gateway, conversation);
    };
    answers.push(gateway.openai.responses.create({ model: "simulator", input: next, conversation, include }));
    await wait();
    answers.push(gateway.openai.responses.create({ model: "simulator", input: last, conversation, background: true }));
    await wait();
    release();
    const [first, second, third] = await Promise.all(answers);
    const turns = [first as Timed, second as Timed, await endedTimed(third?.id ?? "")];
    let ended = 0;
    for (const [index, turn] of turns.entries()) {
      const { accepted_at, waited_ms, settled_ms, rounds } = timesOf(turn);
      if (index > 0) expect(waited_ms).toBeGreaterThan(0);
      expect(accepted_at + (rounds[0]?.began_ms ?? 0)).toBeGreaterThanOrEqual(ended);
      ended = accepted_at + settled_ms;
    }
  });
});
