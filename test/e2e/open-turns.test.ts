import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { ended, reached, unique } from "./turns.ts";

let gateway: Gateway;
let openai: OpenAI;
beforeAll(async () => {
  gateway = await startGateway({ MAX_OPEN_TURNS: "3", HEARTBEAT_MS: "50" });
  openai = gateway.openai;
});
afterAll(() => gateway.close());

/** A model that says nothing until the test lets it. */
const HELD = "simulator?words=3&fault=stall:0";

const OVERLOADED = { status: 503, code: "server_is_overloaded", type: "server_error", param: null };

async function expectOverloaded(request: PromiseLike<unknown>): Promise<void> {
  const error = await Promise.resolve(request).catch((error: unknown) => error);
  expect(error).toMatchObject(OVERLOADED);
  expect((error as InstanceType<typeof OpenAI.APIError>).headers?.get("retry-after")).toMatch(/^\d+$/);
}

/** A turn that has reached the model, and what lets it end. */
async function held<T>(create: (input: string) => Promise<T>): Promise<{ turn: Promise<T>; release: () => void }> {
  const input = unique("Held");
  const turn = create(input);
  return { turn, release: await reached(gateway, input) };
}

const json = (input: string) => openai.responses.create({ model: HELD, input });
const background = (input: string) => openai.responses.create({ model: HELD, input, background: true });
const hello = () => openai.responses.create({ input: "Hello!" });

describe("an isolate with all the turns that it may have", () => {
  it("refuses new ones, however they are asked for, and goes on with those that it has", async () => {
    const socket = await SocketClient.open(gateway);
    const whole = await held(json);
    const run = await held(background);
    const frames = await held(async (input) => socket.turn({ model: HELD, input }));
    await expectOverloaded(hello());
    await expectOverloaded(openai.responses.create({ input: "Streamed", stream: true }));
    await expectOverloaded(openai.responses.create({ input: "In the background", background: true }));
    await expectOverloaded(openai.responses.compact({ model: "simulator", input: "Compact me." }));
    const refused = await socket.turn({ stream_id: "other", input: "Hello!" });
    expect(refused.last).toMatchObject({ type: "error", status: 503, error: { code: "server_is_overloaded" } });
    // What is no turn is still answered.
    const { id } = await run.turn;
    expect((await openai.responses.retrieve(id)).status).toBe("in_progress");
    whole.release();
    expect((await whole.turn).status).toBe("completed");
    expect((await hello()).status).toBe("completed");
    run.release();
    expect((await ended(gateway, id)).status).toBe("completed");
    frames.release();
    expect((await frames.turn).last.type).toBe("response.completed");
    await socket.close();
  });

  it("has room again for each that has ended, was refused, or was left", async () => {
    const one = await held(json);
    const two = await held(background);
    const { id } = await two.turn;
    for (let turn = 0; turn < 4; turn += 1) {
      expect((await hello()).status).toBe("completed");
      await expect(openai.responses.create({ input: "Fails", model: "simulator?fault=http:400" })).rejects.toThrow(
        "400",
      );
      await expect(openai.responses.create({ input: "Fails", previous_response_id: "resp_none" })).rejects.toThrow(
        "400",
      );
    }
    for (let turn = 0; turn < 2; turn += 1) {
      const input = unique("Leaves");
      const stream = await openai.responses.create({ model: "simulator?words=4&fault=stall:2", input, stream: true });
      await reached(gateway, input);
      await expectOverloaded(hello());
      stream.controller.abort();
      // Workerd learns of it by the next heartbeat.
      await eventually(() => hello().catch(() => undefined));
    }
    one.release();
    await one.turn;
    await openai.responses.cancel(id);
    expect((await Promise.all([hello(), hello(), hello()])).map(({ status }) => status)).toEqual(
      Array(3).fill("completed"),
    );
  });

  it("lets the key of what it refused be used again", async () => {
    const turns = [await held(json), await held(json), await held(json)];
    const headers = { "idempotency-key": unique("key") };
    await expectOverloaded(openai.responses.create({ input: "Keyed" }, { headers }));
    for (const { turn, release } of turns) {
      release();
      await turn;
    }
    expect((await openai.responses.create({ input: "Keyed" }, { headers })).status).toBe("completed");
  });
});
