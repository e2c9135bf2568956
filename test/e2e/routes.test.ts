import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { isObject } from "../../dev/simulator/json.ts";
import { isWhole, replay } from "./event-streams.ts";
import { expectError } from "./expectations.ts";
import { type Fleet, type Replica, startFleet } from "./fleet.ts";
import { tolerating } from "./harmony-support.ts";

/** Routes, as clients and the servers see them: which model answers for a name. */

let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet({
    servers: {
      big: { models: ["simulator-reasoning"], maxModelLen: 2_000 },
      small: { models: ["simulator"] },
      harmony: { models: ["simulator-gpt-oss"] },
      renamed: { models: ["simulator"], fields: { models: { "ours/small": "simulator" } } },
    },
    variables: {
      ROUTES: JSON.stringify({
        canary: {
          to: [
            { model: "simulator", weight: 80 },
            { model: "simulator-reasoning", weight: 20 },
          ],
        },
        best: { to: "simulator-reasoning", fallbacks: ["oss", "plain"], context_window_fallbacks: ["plain"] },
        oss: "simulator-gpt-oss",
      }),
      MODEL_ALIASES: '{"plain":"simulator"}',
      MAX_OPEN_TURNS: "1000",
      // A stream begins late enough for all that fails before it.
      HEARTBEAT_MS: "60000",
    },
  });
});
afterAll(() => fleet.close());
afterEach(() => fleet.clear());

/** The models that a server was asked for. */
function askedFor(name: string): unknown[] {
  const replica = fleet.replicas.find((each) => each.name === name);
  return replica?.asked.map(({ body }) => (isObject(body) ? body.model : undefined)) ?? [];
}

const [big, small, harmony] = [0, 1, 2].map((index) => () => fleet.replicas[index] as Replica) as [
  () => Replica,
  () => Replica,
  () => Replica,
];

describe("a route to several models", () => {
  it("is a model of the list, and its answers say which model they are of", async () => {
    const listed = (await fleet.openai.models.list()).data.map(({ id }) => id);
    expect(listed).toEqual(expect.arrayContaining(["canary", "best", "oss", "plain", "ours/small"]));
    const answer = await fleet.post({ model: "canary", input: "Hello!" });
    const { model } = (await answer.json()) as { model: string };
    expect(answer.headers.get("x-model")).toBe(model);
  });

  it("gives each its share of the conversations, and a conversation the same one in all of its turns", async () => {
    const { responses } = fleet.openai;
    const firsts = await Promise.all(
      Array.from({ length: 120 }, (_, index) => responses.create({ model: "canary", input: `Hello ${index}!` })),
    );
    const models = firsts.map(({ model }) => model);
    const canaries = models.filter((model) => model === "simulator-reasoning").length;
    expect(models.filter((model) => model === "simulator").length).toBe(120 - canaries);
    // Of 120 with a share of a fifth, there are 24 on average; less than once in a million times fewer than 5 or more than 50.
    expect(canaries).toBeGreaterThanOrEqual(5);
    expect(canaries).toBeLessThanOrEqual(50);
    const next = firsts.slice(0, 40);
    const seconds = await Promise.all(
      next.map(({ id }) => responses.create({ model: "canary", input: "And now?", previous_response_id: id })),
    );
    expect(seconds.map(({ model }) => model)).toEqual(next.map(({ model }) => model));
  });

  it("a client that brings its history along, too", async () => {
    const ask = (key: number, input: string) =>
      fleet.openai.responses.create({ model: "canary", input, prompt_cache_key: `s${key}` });
    const keys = Array.from({ length: 24 }, (_, key) => key);
    const firsts = await Promise.all(keys.map((key) => ask(key, "Hello!")));
    const seconds = await Promise.all(keys.map((key) => ask(key, "Hello! And now?")));
    expect(seconds.map(({ model }) => model)).toEqual(firsts.map(({ model }) => model));
    expect(new Set(firsts.map(({ model }) => model)).size).toBe(2);
  });
});

describe("a request that fails before anything was shown", () => {
  it.each([false, true])("is asked of the next model of its route (stream: %s)", async (stream) => {
    big().trouble = "fault=http:500";
    harmony().trouble = "fault=refuse";
    const answer = await fleet.post({ model: "best", input: "one two three", stream });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-model")).toBe("simulator");
    const text = await answer.text();
    expect(text).toContain('"model":"plain"');
    expect(text).toContain('"status":"completed"');
    expect(askedFor("big").length).toBeGreaterThan(0);
    expect(askedFor("harmony").length).toBeGreaterThan(0);
  });

  it("so is a background run, whose events and response name the model that answers", async () => {
    big().trouble = "fault=http:500";
    const { id } = await fleet.openai.responses.create({ model: "best", input: "one two three", background: true });
    // Its first events have named the model that was asked for.
    await tolerating(fleet, /snapshotsAreOneResponse: .* has model/, async () => {
      const events = await replay(fleet, id);
      expect(isWhole(events)).toBe(true);
      expect(/"type":"response.in_progress".*?"model":"([^"]+)"/.exec(events)?.[1]).toBe("oss");
    });
    expect(await fleet.openai.responses.retrieve(id)).toMatchObject({ status: "completed", model: "oss" });
  });

  it("that the model refuses is the client's own, and is asked of no other", async () => {
    const answer = await fleet.post({ model: "best", input: "Hello!", temperature: 17 });
    await expectError(answer, { status: 400, param: "temperature" });
    expect(fleet.servers()).not.toContain("small");
  });

  it("is the first model's failure where all have failed", async () => {
    for (const replica of [big(), harmony(), small()]) replica.trouble = "fault=http:503";
    await expectError(await fleet.post({ model: "best", input: "Hello!" }), {
      status: 503,
      code: "server_is_overloaded",
    });
  });

  it("because its prompt is longer than the window goes to a model with a longer one, and to none for a failure", async () => {
    const input = Array.from({ length: 3_000 }, (_, index) => `word${index}`).join(" ");
    const answer = await fleet.post({ model: "best", input });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({ status: "completed", model: "plain" });
    expect(askedFor("harmony")).toEqual([]);
  });
});

describe("a server that knows a model by another name", () => {
  it("is asked for that, and clients say theirs", async () => {
    const answer = await fleet.post({ model: "ours/small", input: "Hello!" });
    expect(await answer.json()).toMatchObject({ status: "completed", model: "ours/small" });
    expect(askedFor("renamed")).toEqual(["simulator"]);
    expect(askedFor("small")).toEqual([]);
  });
});
