import type { ResponseTiming } from "@responses-edge/responses-api/response";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { eventually } from "../e2e/support.ts";
import { newSeed, randomFrom } from "../random.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { BOUND_INPUT, BOUND_REQUESTS, boundTextOf } from "./bound-answers.ts";
import { create as createAt, hasEnded, type Reader, resume as resumeAt, streamOf } from "./reader.ts";

/** Processes that really die. */

let vllm: SimulatorServer;
let worker: WorkerdProcess;
beforeAll(async () => {
  vllm = await serveSimulator();
  worker = await startWorkerd({ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true" }, { through: "serve" });
});
afterAll(async () => {
  await worker.close();
  await vllm.close();
});

const newReader = (id = ""): Reader => ({ id, text: "" });

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function post(body: object): Promise<Response> {
  const headers = { "content-type": "application/json" };
  return fetchAnew(`${worker.url}/v1/responses`, { method: "POST", headers, body: JSON.stringify(body) });
}

const create = (reader: Reader, model: string) => createAt(worker.url, reader, { model, input: "Go on." });
const resume = (reader: Reader) => resumeAt(worker.url, reader);

async function timingOf({ id }: Reader): Promise<ResponseTiming> {
  const answer = await fetchAnew(`${worker.url}/v1/responses/${id}?include[]=timing`);
  return ((await answer.json()) as { timing: ResponseTiming }).timing;
}

/** Checks a stream from its first event to its last by the rules of every stream. Gives its output without ids. */
function outputOf(reader: Reader): string {
  const { response, events } = streamOf(reader);
  const ends = events.filter(({ type }) => /^response\.(completed|incomplete|failed)$/.test(type));
  expect(ends.map(({ type }) => type)).toEqual(["response.completed"]);
  return JSON.stringify(response?.output).replaceAll(/"id":"[^"]*"/g, "");
}

describe("kill -9", () => {
  const STREAMS = 100;
  const ROUNDS = 5;
  const MODEL = "simulator?tps=30&words=40";

  it(`in the middle of ${STREAMS} background streams, at random moments, loses and repeats no byte`, async () => {
    const random = randomFrom(newSeed("streams"));
    const readers: Reader[] = [];
    let reading: Promise<void>[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const begun = Array.from({ length: STREAMS / ROUNDS }, () => newReader());
      reading.push(...begun.map((reader) => create(reader, MODEL)));
      readers.push(...begun);
      // The kill comes after most of them have begun. The last ones may be at any point of their creation.
      await eventually(() => begun.filter(({ id }) => id !== "").length >= begun.length - 2);
      await pause(random() * 1_000);
      await worker.kill();
      await Promise.all(reading);
      await worker.restart();
      reading = readers.filter((reader) => reader.id !== "" && !hasEnded(reader)).map(resume);
    }
    // Only the readers request the runs, each once.
    await Promise.all(reading);

    // A client that has no id yet has nothing to resume.
    const known = readers.filter((reader) => reader.id !== "");
    expect(known.length).toBeGreaterThanOrEqual(STREAMS - 2 * ROUNDS);
    expect(new Set(known.map(({ id }) => id)).size).toBe(known.length);
    const uninterrupted = newReader();
    await create(uninterrupted, MODEL);
    const expected = outputOf(uninterrupted);
    const replays = known.map(({ id }) => newReader(id));
    await Promise.all(replays.map(resume));
    for (const [index, reader] of known.entries()) {
      expect(hasEnded(reader)).toBe(true);
      expect(reader.text).toBe(replays[index]?.text);
      expect(outputOf(reader)).toBe(expected);
    }
    const times = await Promise.all(known.map(timingOf));
    for (const { rounds, settled_ms, items } of times) {
      let before = 0;
      for (const { began_ms, first_token_ms, ended_ms } of rounds) {
        expect(began_ms).toBeGreaterThanOrEqual(before);
        expect(first_token_ms).toBeGreaterThanOrEqual(began_ms);
        expect(ended_ms).toBeGreaterThanOrEqual(first_token_ms ?? 0);
        before = ended_ms;
      }
      expect(settled_ms).toBeGreaterThanOrEqual(before);
      expect(items).toHaveLength(1);
      expect(rounds.at(-1)?.error).toBeNull();
      // All rounds but the last one were cut off.
      for (const { error } of rounds.slice(0, -1)) expect(error).toBe("server_restarted");
    }
    // Some must have been cut off: otherwise the test proves nothing.
    expect(times.filter(({ rounds }) => rounds.length > 1).length).toBeGreaterThan(STREAMS / 4);
    const continued = vllm.simulator.requests.filter(({ body }) => JSON.stringify(body)?.includes("continue_final"));
    expect(continued.length).toBeGreaterThan(STREAMS / 4);
  });
});

describe("kill -9 while many JSON answers end at the same time, which share the commits of their homes", () => {
  it("keeps each response that was answered", async () => {
    type Answer = { id: string; output: unknown };
    const answered: Answer[] = [];
    const askUntilKilled = async (): Promise<void> => {
      try {
        for (;;) answered.push((await (await post({ model: "simulator", input: "Go on." })).json()) as Answer);
      } catch {
        // The process has died.
      }
    };
    const clients = Array.from({ length: 32 }, askUntilKilled);
    await eventually(() => answered.length >= 100);
    await worker.kill();
    await Promise.all(clients);
    await worker.restart();
    await Promise.all(
      answered.map(async ({ id, output }) => {
        const kept = (await (await fetchAnew(`${worker.url}/v1/responses/${id}`)).json()) as Answer;
        expect(kept).toMatchObject({ id, output });
      }),
    );
  });
});

describe("kill -9 in the middle of bound answers and calls", () => {
  it("of background runs loses and repeats no byte, and each is completed within its format", async () => {
    const runs = BOUND_REQUESTS.map((request) => ({ request, reader: newReader() }));
    let reading = runs.map(({ request, reader }) =>
      createAt(worker.url, reader, { ...request.body, model: `${request.model}?letters=1&tps=50`, input: BOUND_INPUT }),
    );
    await eventually(() => runs.every(({ reader }) => reader.id !== ""));
    for (let kill = 0; kill < 3; kill += 1) {
      // The characters of answers come one by one, some 50 a second.
      await pause(400);
      await worker.kill();
      await Promise.all(reading);
      await worker.restart();
      reading = runs.filter(({ reader }) => !hasEnded(reader)).map(({ reader }) => resume(reader));
    }
    await Promise.all(reading);
    for (const { request, reader } of runs) {
      const replay = newReader(reader.id);
      await resume(replay);
      expect(reader.text).toBe(replay.text);
      const text = boundTextOf(reader.text, request, true);
      expect([request.kind, text, request.isValid(text)]).toEqual([request.kind, text, true]);
    }
  });
});

describe("kill -9 without a reader", () => {
  const RUNS = 20;
  /** Events in the first half of a run. */
  const MOMENTS = 30;

  /**
   * Begins runs without readers, and kills the process when the model server has sent `moment` events of one of them.
   */
  async function killUnread(model: string, moment: number): Promise<string[]> {
    const bodies = Array.from({ length: RUNS }, () => ({ model, input: "Go on.", background: true }));
    const ids = await Promise.all(bodies.map(async (body) => ((await (await post(body)).json()) as { id: string }).id));
    // Several runs share a home.
    expect(new Set(ids.map((id) => id.slice(0, 27))).size).toBeLessThanOrEqual(2);
    await eventually(() => asked(model).some(({ deltasSent }) => deltasSent >= moment));
    await worker.kill();
    return ids;
  }

  const asked = (model: string) =>
    vllm.simulator.requests.filter(
      ({ path, body }) => path.endsWith("/completions") && JSON.stringify(body).includes(model),
    );

  async function expectEach(ids: string[], model: string): Promise<void> {
    const uninterrupted = newReader();
    await create(uninterrupted, model);
    const expected = outputOf(uninterrupted);
    const replays = ids.map(newReader);
    await Promise.all(replays.map(resume));
    for (const replay of replays) expect(outputOf(replay)).toBe(expected);
  }

  it("leaves runs that the first access resumes", async () => {
    const random = randomFrom(newSeed("first access"));
    const model = "simulator?tps=40&words=60";
    const ids = await killUnread(model, random() * MOMENTS);
    await worker.restart();
    const done = async (id: string) => {
      const response = (await (await fetchAnew(`${worker.url}/v1/responses/${id}`)).json()) as { status: string };
      expect(["in_progress", "completed"]).toContain(response.status);
      return response.status === "completed";
    };
    // Each run ends, however often it is requested, and ends once.
    await Promise.all(ids.map((id) => eventually(() => done(id))));
    await expectEach(ids, model);
  });

  it("leaves runs that the alarm resumes within 60 seconds without a request", async () => {
    const random = randomFrom(newSeed("alarm"));
    const model = "simulator?tps=40&words=61";
    const ids = await killUnread(model, random() * MOMENTS);
    worker.passTime(60_000);
    await worker.restart();
    // The model server sees each run resumed once, and ended. It may notice only now that the dead process's requests
    // broke off.
    const ended = (state: string) => asked(model).filter((request) => request.state === state).length;
    await eventually(() => ended("completed") >= RUNS);
    expect(ended("completed")).toBe(RUNS);
    expect(ended("aborted")).toBeLessThanOrEqual(RUNS);
    expect(ended("completed") + ended("aborted")).toBe(asked(model).length);
    await expectEach(ids, model);
  });

  it("keeps the response and the events of an ended run", async () => {
    const reader = newReader();
    await create(reader, "simulator");
    await worker.kill();
    await worker.restart();
    const replay = newReader(reader.id);
    await resume(replay);
    expect(replay.text).toBe(reader.text);
    outputOf(replay);
    const again = await fetchAnew(`${worker.url}/v1/responses/${reader.id}/replay`, { method: "POST" });
    expect((await again.text()).replaceAll(/^: .*\n\n/gm, "")).toBe(reader.text);
  });

  it("in the middle of a branch leaves what it has of the other response, and it goes on", async () => {
    const source = newReader();
    await create(source, "simulator?tps=0&words=60");
    const model = "simulator?tps=40&words=60&max_model_len=60001";
    const branch = newReader();
    const answer = await fetchAnew(`${worker.url}/v1/responses/${source.id}/fork`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ at: 25, model, background: true }),
    });
    branch.id = ((await answer.json()) as { id: string }).id;
    await eventually(() => asked(model).some(({ deltasSent }) => deltasSent > 5));
    await worker.kill();
    await worker.restart();
    await resume(branch);
    expect(outputOf(branch)).toBe(outputOf(source));
    const kept = (text: string) =>
      text
        .replaceAll(/[0-9A-Za-z]{32}(?=o)/g, "")
        .split("\n\n")
        .slice(3, 26);
    expect(kept(branch.text)).toEqual(kept(source.text));
  });
});
