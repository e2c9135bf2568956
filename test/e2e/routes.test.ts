import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { isObject } from "../../dev/simulator/json.ts";
import { isWhole, replay } from "./event-streams.ts";
import { expectError } from "./expectations.ts";
import { type Fleet, type Replica, startFleet } from "./fleet.ts";
import { tolerating } from "./harmony-support.ts";

/** Routes: the models that answer for a name. */

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
      // A stream begins after all failures that come before it.
      HEARTBEAT_MS: "60000",
    },
  });
});
afterAll(() => fleet.close());
afterEach(() => fleet.clear());

/** The models in a server's requests. */
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
  it("is in the list of models, and its answers name the model that answered", async () => {
    const listed = (await fleet.openai.models.list()).data.map(({ id }) => id);
    expect(listed).toEqual(expect.arrayContaining(["canary", "best", "oss", "plain", "ours/small"]));
    const answer = await fleet.post({ model: "canary", input: "Hello!" });
    const { model } = (await answer.json()) as { model: string };
    expect(answer.headers.get("x-model")).toBe(model);
  });

  it("gives each its share of the conversations, and all turns of a conversation the same one", async () => {
    const { responses } = fleet.openai;
    const firsts = await Promise.all(
      Array.from({ length: 120 }, (_, index) => responses.create({ model: "canary", input: `Hello ${index}!` })),
    );
    const models = firsts.map(({ model }) => model);
    const canaries = models.filter((model) => model === "simulator-reasoning").length;
    expect(models.filter((model) => model === "simulator").length).toBe(120 - canaries);
    // A share of a fifth of 120 is 24 on average. Fewer than 5 or more than 50 are less likely than one in a million.
    expect(canaries).toBeGreaterThanOrEqual(5);
    expect(canaries).toBeLessThanOrEqual(50);
    const next = firsts.slice(0, 40);
    const seconds = await Promise.all(
      next.map(({ id }) => responses.create({ model: "canary", input: "And now?", previous_response_id: id })),
    );
    expect(seconds.map(({ model }) => model)).toEqual(next.map(({ model }) => model));
  });

  it("also gives a client that sends its history the same one", async () => {
    const ask = (key: number, input: string) =>
      fleet.openai.responses.create({ model: "canary", input, prompt_cache_key: `s${key}` });
    const keys = Array.from({ length: 24 }, (_, key) => key);
    const firsts = await Promise.all(keys.map((key) => ask(key, "Hello!")));
    const seconds = await Promise.all(keys.map((key) => ask(key, "Hello! And now?")));
    expect(seconds.map(({ model }) => model)).toEqual(firsts.map(({ model }) => model));
    expect(new Set(firsts.map(({ model }) => model)).size).toBe(2);
  });
});

describe("a request that fails before any output", () => {
  it.each([false, true])("goes to the next model of its route (stream: %s)", async (stream) => {
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

  it("goes to the next model in a background run, too, whose events and response name the model that answers", async () => {
    big().trouble = "fault=http:500";
    const { id } = await fleet.openai.responses.create({ model: "best", input: "one two three", background: true });
    // The first events have named the requested model.
    await tolerating(fleet, /snapshotsAreOneResponse: .* has model/, async () => {
      const events = await replay(fleet, id);
      expect(isWhole(events)).toBe(true);
      expect(/"type":"response.in_progress".*?"model":"([^"]+)"/.exec(events)?.[1]).toBe("oss");
    });
    expect(await fleet.openai.responses.retrieve(id)).toMatchObject({ status: "completed", model: "oss" });
  });

  it("by the model's refusal goes to no other, because the client must change it", async () => {
    const answer = await fleet.post({ model: "best", input: "Hello!", temperature: 17 });
    await expectError(answer, { status: 400, param: "temperature" });
    expect(fleet.servers()).not.toContain("small");
  });

  it("gives the first model's failure if all have failed", async () => {
    for (const replica of [big(), harmony(), small()]) replica.trouble = "fault=http:503";
    await expectError(await fleet.post({ model: "best", input: "Hello!" }), {
      status: 503,
      code: "server_is_overloaded",
    });
  });

  it("because its prompt is longer than the window goes to a model with a longer window only", async () => {
    const input = Array.from({ length: 3_000 }, (_, index) => `word${index}`).join(" ");
    const answer = await fleet.post({ model: "best", input });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({ status: "completed", model: "plain" });
    expect(askedFor("harmony")).toEqual([]);
  });
});

describe("a server with another name for a model", () => {
  it("gets its own name, and clients use theirs", async () => {
    const answer = await fleet.post({ model: "ours/small", input: "Hello!" });
    expect(await answer.json()).toMatchObject({ status: "completed", model: "ours/small" });
    expect(askedFor("renamed")).toEqual(["simulator"]);
    expect(askedFor("small")).toEqual([]);
  });
});
