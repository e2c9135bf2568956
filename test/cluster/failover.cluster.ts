import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { create, hasEnded, type Reader, resume, streamOf } from "../crash/reader.ts";
import { expectError } from "../e2e/expectations.ts";
import { eventually } from "../e2e/support.ts";
import { whyNoBucket } from "./bucket.ts";
import { type Cluster, type Instance, startCluster } from "./instances.ts";

/** The facts of docs/kubernetes.md, on three instances of one machine. An instance dies by SIGKILL and loses its disk. */

const why = whyNoBucket();
if (why !== undefined) console.warn(`SKIPPED: ${why}.`);

describe.skipIf(why !== undefined)("a cluster of three instances", () => {
  let vllm: SimulatorServer;
  let cluster: Cluster;
  let one: Instance;
  let two: Instance;
  let three: Instance;
  beforeAll(async () => {
    vllm = await serveSimulator();
    cluster = await startCluster({
      VLLM_BASE_URL: `${vllm.url}/v1`,
      ALLOW_ANONYMOUS: "true",
      STOP_TIMEOUT_MS: "10000",
    });
    [one, two, three] = cluster.instances;
  });
  afterAll(async () => {
    for (const end of cluster?.ends() ?? []) console.warn(`An instance has ended by itself:\n${end}`);
    await cluster?.close();
    await vllm?.close();
  });

  const post = (at: Instance, path: string, body: object) =>
    fetch(`${at.url}/v1/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });

  async function made<T = { id: string; status: string }>(at: Instance, path: string, body: object): Promise<T> {
    const response = await post(at, path, body);
    expect(response.status).toBe(200);
    return (await response.json()) as T;
  }

  const respond = (at: Instance, body: object) =>
    made(at, "responses", { model: "simulator", input: "Hello!", ...body });

  const get = (at: Instance, id: string) => fetch(`${at.url}/v1/responses/${id}`);

  const isReady = async (at: Instance) => (await fetch(`${at.clusterUrl}/ready`)).ok;

  const newReader = (id = ""): Reader => ({ id, text: "" });

  /** Reads to the end, from any of these instances that serves. */
  async function readOn(reader: Reader, ...from: Instance[]): Promise<void> {
    for (let turn = 0; !hasEnded(reader); turn += 1) {
      await resume((from[turn % from.length] as Instance).url, reader);
      if (!hasEnded(reader)) await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  /** The output of a whole stream, without ids. */
  function outputOf(reader: Reader): string {
    const { response } = streamOf(reader);
    expect(response?.status).toBe("completed");
    return JSON.stringify(response?.output).replaceAll(/"id":"[^"]*"/g, "");
  }

  it("serves every response at each instance", async () => {
    const first = await respond(one, {});
    const second = await respond(two, { previous_response_id: first.id });
    for (const at of [one, two, three]) {
      for (const { id } of [first, second]) expect(await (await get(at, id)).json()).toMatchObject({ id });
    }
    const deleted = await fetch(`${three.url}/v1/responses/${first.id}`, { method: "DELETE" });
    expect(deleted.status).toBe(200);
    expect((await get(one, first.id)).status).toBe(404);
  });

  it("answers only after the bucket has stored the response", async () => {
    one.way.block((method, path) => method === "PUT" && path.includes("/log/"));
    let isAnswered = false;
    const answer = respond(one, {}).finally(() => {
      isAnswered = true;
    });
    await eventually(() => one.way.held() > 0);
    // The instance answers other requests, and not this one.
    for (let n = 0; n < 20; n += 1) await respond(one, { store: false });
    expect(isAnswered).toBe(false);
    one.way.open();
    expect((await answer).status).toBe("completed");
  });

  it("lets turns of a conversation wait for each other, and go on when the instance of the one before dies", async () => {
    const { id: conversation } = await made(one, "conversations", {});
    const cut = post(two, "responses", {
      model: "simulator?tps=5&words=500",
      input: "Long.",
      conversation,
      stream: true,
    });
    await (await cut).body?.getReader().read();
    const next = respond(three, { input: "Next.", conversation });
    await two.kill();
    expect((await next).status).toBe("completed");
    await two.restart();
  });

  it("loses no acknowledged response whose instance dies at that moment", async () => {
    const { id: conversation } = await made(one, "conversations", {});
    const answered: string[] = [];
    const ask = async (n: number) => {
      const kinds = [{}, { background: true }, { conversation }];
      const { id } = await respond(one, { input: `Number ${n}.`, ...kinds[n % 3] });
      answered.push(id);
    };
    const asking = Array.from({ length: 60 }, (_, n) => ask(n).catch(() => undefined));
    await eventually(() => answered.length >= 10);
    await one.kill();
    await Promise.all(asking);
    expect(answered.length).toBeGreaterThanOrEqual(10);
    const others = [two, three];
    for (const [n, id] of answered.entries()) {
      const isThere = async () => (await get(others[n % 2] as Instance, id).catch(() => undefined))?.status === 200;
      await eventually(isThere, 60_000);
    }
    await one.restart();
    // The dead instance starts again with an empty disk.
    for (const id of answered) expect((await get(one, id)).status).toBe(200);
  });

  it("resumes background runs at other instances: readers get the same bytes, and runs without readers end, too", async () => {
    const model = "simulator?tps=20&words=60";
    const uninterrupted = newReader();
    await create(two.url, uninterrupted, { model, input: "Go on." });
    const expected = outputOf(uninterrupted);

    const readers = Array.from({ length: 12 }, () => newReader());
    // All of them run at the first instance, also those that are read at another.
    const reading = readers.map(async (reader, n) => {
      if (n % 2 === 1) reader.id = (await respond(one, { model, input: "Go on.", background: true })).id;
      // A connection to the process that has died before may break first.
      while (reader.text === "") {
        await (reader.id === "" ? create(one.url, reader, { model, input: "Go on." }) : resume(two.url, reader));
      }
    });
    const unread = await Promise.all(
      Array.from({ length: 4 }, () => respond(one, { model, input: "Go on.", background: true })),
    );
    await eventually(() => readers.every(({ text }) => text.split("response.output_text.delta").length > 10));
    await one.kill();
    await Promise.all(reading);
    expect(readers.filter(hasEnded)).toHaveLength(0);

    // The others do not know the runs' owner before the dead instance's lease has expired.
    const refused = await get(two, readers[0]?.id ?? "");
    await expectError(refused, { status: 503, code: "storage_unavailable" });
    expect(refused.headers.get("retry-after")).toBe("5");

    await Promise.all(readers.map((reader) => readOn(reader, two, three)));
    const asked = () => vllm.simulator.requests.filter(({ body }) => JSON.stringify(body)?.includes(model));
    // The model server was asked twice for each run, also for those without readers, and once for the uninterrupted
    // one.
    await eventually(() => asked().length >= 1 + 2 * (readers.length + unread.length));
    for (const reader of [...readers, ...unread.map(({ id }) => newReader(id))]) {
      const replay = newReader(reader.id);
      await readOn(replay, three);
      if (reader.text !== "") expect(reader.text).toBe(replay.text);
      expect(outputOf(replay)).toBe(expected);
    }
    await one.restart();
  });

  it("ends an instance that does not reach the bucket before another takes over its objects", async () => {
    const model = "simulator?tps=20&words=300";
    const reader = newReader();
    const reading = create(one.url, reader, { model, input: "Go on." });
    await eventually(() => reader.text.includes("response.output_text.delta"));
    one.way.block(() => true);
    await one.untilEnded();
    await reading;
    await readOn(reader, two, three);
    const replay = newReader(reader.id);
    await readOn(replay, two);
    expect(reader.text).toBe(replay.text);
    outputOf(reader);
    one.way.open();
    await eventually(() => isReady(one).catch(() => false));
  });

  it("hands an instance's objects over when it is told to stop", async () => {
    const model = "simulator?tps=20&words=200";
    const readers = [newReader(), newReader()];
    const reading = readers.map((reader) => create(one.url, reader, { model, input: "Go on." }));
    await eventually(() => readers.every(({ text }) => text.includes("response.output_text.delta")));
    const stopped = one.stop();
    await eventually(async () => !(await isReady(one).catch(() => false)));
    expect(await stopped).toBe(0);
    await Promise.all(reading);
    for (const reader of readers) {
      // This takes no wait for a lease.
      expect((await get(two, reader.id)).status).toBe(200);
      await readOn(reader, two);
      const replay = newReader(reader.id);
      await readOn(replay, three);
      expect(reader.text).toBe(replay.text);
      outputOf(reader);
    }
    await one.restart();
  });
});
