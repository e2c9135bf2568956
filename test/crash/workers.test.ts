import { readdirSync } from "node:fs";
import { join } from "node:path";
import { parseResponseId } from "@responses-edge/responses-api/ids";
import type { ResponseTiming } from "@responses-edge/responses-api/response";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { backup } from "../../cli/backup/backup.ts";
import { restore } from "../../cli/backup/restore.ts";
import { shareFolders } from "../../cli/serve/shares.ts";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { diagnose } from "../../cli/tools/doctor.ts";
import { objectId } from "../../cli/tools/object-ids.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { workerOf } from "../../src/store/objects/registry.ts";
import { conformantFetch } from "../conformance/client.ts";
import { ADMIN_KEY, call, makeKey, newTenant } from "../e2e/key-support.ts";
import { cleanUp, newFolder, reload, type Served, start, textIfThere, workerdsOf } from "../e2e/serve-support.ts";
import { eventually } from "../e2e/support.ts";
import { promptsFor, reached, unique } from "../e2e/turns.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { BOUND_INPUT, BOUND_REQUESTS, boundTextOf } from "./bound-answers.ts";
import { beginLoad } from "./hand-over-load.ts";
import { create, hasEnded, type Reader, resume, streamOf } from "./reader.ts";

/** Several workers behind one port (docs/self-hosting.md). */

const WORKERS = 3;

let vllm: SimulatorServer;
beforeAll(async () => {
  vllm = await serveSimulator();
});
afterAll(async () => {
  cleanUp();
  await vllm.close();
});

const serve = (STATE_DIRECTORY = newFolder(), workers = WORKERS, more: Record<string, string> = {}) =>
  start({
    ...{ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", STOP_TIMEOUT_MS: "5000" },
    ...{ STATE_DIRECTORY, WORKERS: String(workers), ...more },
  });

async function stop(served: Served): Promise<void> {
  served.child.kill("SIGTERM");
  expect(await served.exited).toBe(0);
}

/** The worker that has a response, by its id. */
function workerWith(id: string): number {
  const { home } = parseResponseId(id) ?? { home: "" };
  return workerOf(objectId(`local:${home}`, uniqueKeyOf("Home")), WORKERS);
}

/** The process of a worker, whose configuration, its standard input, names it; undefined while there is none. */
function processOf(served: Served, worker: number): number | undefined {
  // Linux also opens a removed file again.
  return workerdsOf(served).find((pid) => textIfThere(`/proc/${pid}/fd/0`).includes(`\0${worker}/${WORKERS}\0`));
}

/** Kills the process of a worker. Throws if there is none. */
function kill(served: Served, worker: number): number {
  const pid = processOf(served, worker);
  if (pid === undefined) throw new Error(`There is no worker ${worker}.`);
  process.kill(pid, "SIGKILL");
  return pid;
}

/** Sends a request on a new connection, so that any worker may answer. */
async function ask<T>(url: string, body?: object, more: Record<string, string> = {}): Promise<T> {
  const headers = { "content-type": "application/json", ...more };
  const answer = await fetchAnew(url, body && { method: "POST", headers, body: JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return JSON.parse(text) as T;
}

type Told = { id: string; status: string; output: { content: { text: string }[] }[] };

const createAt = ({ url }: Served, body: object) => ask<Told>(`${url}/v1/responses`, { model: "simulator", ...body });

/** Does what asks a server once; again where a connection is lost, as OpenAI's clients do. A reload loses none: that is a fact of its own. */
async function again<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      // An answer with an error is no TypeError.
      if (!(error instanceof TypeError)) throw error;
    }
  }
}

/** Removes the first item of a conversation. */
async function removeFirstItem(items: string): Promise<void> {
  const { data } = await again(() => ask<{ data: { id: string }[] }>(`${items}?order=asc&limit=1`));
  await again(() => fetchAnew(`${items}/${data[0]?.id}`, { method: "DELETE" }));
}

/** Creates responses until one has an id as wanted. */
async function createUntil(served: Served, wanted: (id: string) => boolean): Promise<Told> {
  for (;;) {
    const created = await createAt(served, { input: "Hello!" });
    if (wanted(created.id)) return created;
  }
}

const textOf = ({ output }: Told) => output.flatMap(({ content }) => content.map(({ text }) => text)).join("");

describe("workers", () => {
  let served: Served;
  beforeAll(async () => {
    served = await serve(newFolder(), WORKERS, { PROMETHEUS_METRICS: "true" });
  });
  afterAll(() => stop(served));

  it("answer for each other's shares, also while each is replaced: no request fails, and no byte is lost", async () => {
    const load = beginLoad({ url: served.url, streams: 8, words: 60, wordsPerSecond: 20, rate: 20 });
    await eventually(() => load.openStreams() === 8, 30_000);
    await reload(served, WORKERS);
    const { failures, requests } = await load.finish();
    expect(failures).toEqual([]);
    expect(requests).toBeGreaterThan(0);
    // Any worker's metrics have those of all workers.
    const metrics = await (await fetchAnew(`${served.url}/metrics`)).text();
    for (let worker = 0; worker < WORKERS; worker += 1) expect(metrics).toContain(`worker="${worker}"`);
    await eventually(() => served.output().split("The previous process has ended.").length - 1 === WORKERS);
  });

  it("know of each other's streams in progress: such a response cannot be continued yet, which each says", async () => {
    const fields = { model: "simulator?tps=50&words=2000", input: "Go on.", stream: true };
    const headers = { "content-type": "application/json" };
    const stream = await fetchAnew(`${served.url}/v1/responses`, {
      method: "POST",
      headers,
      body: JSON.stringify(fields),
    });
    const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader();
    const [, id = ""] = /"id":"(resp_\w+)"/.exec((await reader?.read())?.value ?? "") ?? [];
    for (let number = 0; number < 4 * WORKERS; number += 1) {
      const next = { input: "And then?", previous_response_id: id, background: number % 2 === 0 };
      await expect(createAt(served, next)).rejects.toThrow(`'${id}' is still in progress.`);
    }
    await reader?.cancel();
  });

  it("answer each Idempotency-Key once, whichever of them has its object", async () => {
    const keyed = (_: unknown, number: number) =>
      ask<Told>(
        `${served.url}/v1/responses`,
        { model: "simulator", input: `Number ${number}` },
        { "idempotency-key": `key ${number}` },
      );
    const first = await Promise.all(Array.from({ length: 40 }, keyed));
    expect(new Set(first.map(({ id }) => id)).size).toBe(40);
    const again = await Promise.all(Array.from({ length: 40 }, keyed));
    expect(again.map(({ id }) => id)).toEqual(first.map(({ id }) => id));
  });

  it("work on a batch, and on the files of a vector store, whichever of them has these", async () => {
    const { url } = served;
    const upload = async (name: string, purpose: string, text: string) => {
      const form = new FormData();
      form.set("purpose", purpose);
      form.set("file", new Blob([text]), name);
      return ((await (await fetch(`${url}/v1/files`, { method: "POST", body: form })).json()) as Told).id;
    };
    const line = (_: unknown, number: number) =>
      JSON.stringify({
        custom_id: String(number),
        method: "POST",
        url: "/v1/responses",
        body: { model: "simulator", input: `Line ${number}` },
      });
    const input_file_id = await upload("lines.jsonl", "batch", Array.from({ length: 48 }, line).join("\n"));
    const batch = { input_file_id, endpoint: "/v1/responses", completion_window: "24h" };
    const { id: batchId } = await ask<Told>(`${url}/v1/batches`, batch);
    const { id: store } = await ask<Told>(`${url}/v1/vector_stores`, {});
    const files = await Promise.all(
      Array.from({ length: 24 }, (_, number) => upload(`${number}.txt`, "assistants", `The weather of day ${number}.`)),
    );
    for (const file_id of files) await ask(`${url}/v1/vector_stores/${store}/files`, { file_id });
    const counts = async () =>
      (await ask<{ file_counts: Record<string, number> }>(`${url}/v1/vector_stores/${store}`)).file_counts;
    await eventually(async () => (await counts()).in_progress === 0);
    expect(await counts()).toMatchObject({ completed: 24, failed: 0 });
    const found = await ask<{ data: unknown[] }>(`${url}/v1/vector_stores/${store}/search`, { query: "weather" });
    expect(found.data).not.toEqual([]);
    type Batch = { status: string; request_counts: object };
    const state = () => ask<Batch>(`${url}/v1/batches/${batchId}`);
    await eventually(async () => (await state()).status === "completed");
    expect((await state()).request_counts).toEqual({ total: 48, completed: 48, failed: 0 });
  });

  it("die alone: their own streams resume without losing a byte, and the others' streams go on", async () => {
    const { url } = served;
    // Long enough that the first streams are not near their end when the last ones have begun, also on a busy machine.
    const MODEL = "simulator?tps=8&words=120";
    const first = await createAt(served, { model: "simulator?words=120", input: "Go on." });
    const expected = textOf(first);
    const roots = await Promise.all(Array.from({ length: 12 }, () => createAt(served, { input: "Hello!" })));
    const conversations = await Promise.all(Array.from({ length: 12 }, () => ask<Told>(`${url}/v1/conversations`, {})));
    const killed = workerWith(roots[0]?.id ?? "");
    const begin = (more: object) => follow(url, { model: MODEL, input: "Go on.", stream: true, ...more });
    const continuing = [
      ...roots.map(({ id }) => begin({ previous_response_id: id })),
      ...conversations.map(({ id }) => begin({ conversation: id })),
    ];
    const beginning = Array.from({ length: 24 }, () => begin({}));
    const streams = [...continuing, ...beginning];
    const readers = Array.from({ length: 24 }, (): Reader => ({ id: "", text: "" }));
    const reading = readers.map((reader) => create(url, reader, { model: MODEL, input: "Go on." }));
    await eventually(() => streams.every(({ text }) => text.length > 40) && readers.every(({ id }) => id !== ""));
    // The killed process may have been storing other streams' turns.
    const live = streams.filter(({ text }) => text.length < expected.length * 0.75);
    kill(served, killed);
    await Promise.all([...reading, ...streams.map(({ ended }) => ended)]);

    // A new tree stays in the process that gets its request, so its id names this process.
    const own = beginning.filter((stream) => live.includes(stream) && workerWith(stream.id) === killed);
    const others = beginning.filter(({ id }) => workerWith(id) !== killed);
    expect(own.length).toBeGreaterThan(0);
    expect(others.length).toBeGreaterThan(0);
    for (const { id, isWhole, text } of others) {
      expect({ id, isWhole, text }).toEqual({ id, isWhole: true, text: expected });
    }
    // A stream that had ended before the kill is complete.
    expect(own.some(({ isWhole }) => !isWhole)).toBe(true);
    // Some of the streams that continue the killed worker's responses ran in other processes, and were stored after its
    // restart.
    expect(continuing.some(({ id, isWhole }) => isWhole && workerWith(id) === killed)).toBe(true);
    for (const { isWhole, text } of live) expect(isWhole).toBe(text === expected);
    for (const { id } of streams.filter(({ isWhole }) => isWhole)) {
      const kept = await ask<Told & { timing: ResponseTiming }>(`${url}/v1/responses/${id}?include[]=timing`);
      expect(textOf(kept)).toBe(expected);
      expect(kept.timing.rounds).toMatchObject([{ server: "vllm", purpose: "round", attempts: 1 }]);
      expect(kept.timing.items).toHaveLength(1);
    }

    const turns = continuing.slice(roots.length);
    for (const [index, { id: conversation }] of conversations.entries()) {
      const turn = turns[index];
      if (!turn || !(turn.isWhole || live.includes(turn))) continue;
      let seen = turn.isWhole ? ["Go on.", expected] : [];
      for (const input of [unique("And then?"), unique("And after that?")]) {
        const told = await createAt(served, { input, conversation });
        expect(promptsFor({ vllm }, input).map(({ texts }) => texts)).toEqual([[...seen, input]]);
        seen = [...seen, input, textOf(told)];
      }
    }

    const cutOff = readers.filter((reader) => !hasEnded(reader));
    expect(cutOff.length).toBeGreaterThan(0);
    for (const reader of cutOff) {
      await eventually(async () => {
        await resume(url, reader);
        return hasEnded(reader);
      });
    }
    const replays = readers.map(({ id }): Reader => ({ id, text: "" }));
    await Promise.all(replays.map((reader) => resume(url, reader)));
    for (const [index, reader] of readers.entries()) {
      expect(reader.text).toBe(replays[index]?.text);
      expect(textOf(streamOf(reader).response as unknown as Told)).toBe(expected);
    }
    expect(served.output()).toContain(`The process of worker ${killed} has ended. It starts again.`);
  });

  it("continue what a client has seen, whichever of them ran the turns before, and nothing that was deleted, also while they are replaced", async () => {
    let isReplaced = false;
    const replaced = reload(served, WORKERS).finally(() => {
      isReplaced = true;
    });
    const talk = async (_: unknown, client: number) => {
      for (let talks = 0; talks < 2 || !isReplaced; talks += 1) {
        const turns: { id: string; texts: string[] }[] = [];
        const conversation =
          client % 4 === 0 ? (await again(() => ask<Told>(`${served.url}/v1/conversations`, {}))).id : undefined;
        for (let number = 0; number < 5; number += 1) {
          const before = number === 4 && !conversation ? turns[1] : turns.at(-1);
          const input = `Client ${client}, talk ${talks}, turn ${number}`;
          const place = conversation ? { conversation } : before && { previous_response_id: before.id };
          const model = `simulator?tps=${number === 2 ? 10 : 500}`;
          const told = await again(() => createAt(served, { input, model, ...place }));
          const seen = before?.texts ?? [];
          expect(promptsFor({ vllm }, input).map(({ texts }) => texts)).toEqual([[...seen, input]]);
          expect(textOf(told)).toBe(`You said: ${input}`);
          const isCut = number === 2 && conversation !== undefined;
          if (isCut) await removeFirstItem(`${served.url}/v1/conversations/${conversation}/items`);
          turns.push({ id: told.id, texts: [...seen, input, textOf(told)].slice(isCut ? 1 : 0) });
        }
        if (conversation) continue;
        await again(() => fetchAnew(`${served.url}/v1/responses/${turns[1]?.id}`, { method: "DELETE" }));
        for (const previous_response_id of [turns[3]?.id, turns[4]?.id].flatMap((id) => Array(WORKERS).fill(id))) {
          const next = again(() => createAt(served, { input: "And then?", previous_response_id }));
          await expect(next).rejects.toThrow("previous_response_not_found");
        }
      }
    };
    await Promise.all(Array.from({ length: 12 }, talk));
    await replaced;
  });

  it.each([
    ["", async () => {}],
    [", in processes that were replaced meanwhile", () => reload(served, WORKERS)],
  ])("store the turns of 32 clients that end together, each once%s", async (_, meanwhile) => {
    const root = await createAt(served, { input: "Hello!" });
    const inputs = Array.from({ length: 32 }, (_, client) => unique(`Client ${client}`));
    const body = { model: "simulator?fault=stall:1", previous_response_id: root.id };
    const answers = Promise.all(inputs.map((input) => createAt(served, { ...body, input })));
    const releases = await Promise.all(inputs.map((input) => reached({ vllm }, input)));
    await meanwhile();
    for (const release of releases) release();
    const ids = (await answers).map(({ id }) => id);
    const read = <T>(path: string) => ask<T>(`${served.url}/v1/responses/${path}`);
    const tree = await read<{ data: { id: string }[] }>(`${root.id}/tree?limit=100`);
    expect(tree.data.map(({ id }) => id).toSorted()).toEqual([root.id, ...ids].toSorted());
    const texts = await Promise.all(ids.map(async (id) => textOf(await read<Told>(id))));
    expect(texts).toEqual(inputs.map((input) => `You said: ${input}`));
    const next = await Promise.all(
      ids.map((id) => createAt(served, { input: `After ${id}`, previous_response_id: id })),
    );
    expect(next.map(textOf)).toEqual(ids.map((id) => `You said: After ${id}`));
    const histories = ids.map((id) => promptsFor({ vllm }, `After ${id}`).map(({ texts }) => texts[2]));
    expect(histories).toEqual(inputs.map((input) => [input]));
  });

  it("replay each other's responses, byte by byte, and fork them", async () => {
    const model = "simulator?words=40";
    const reader: Reader = { id: "", text: "" };
    await create(served.url, reader, { model, input: "Go on." });
    const rebuilt = await createAt(served, { model, input: "Go on." });
    const post = (id: string, what: "replay" | "fork", body: object) =>
      fetchAnew(`${served.url}/v1/responses/${id}/${what}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    const replayOf = async (id: string) => (await (await post(id, "replay", {})).text()).replaceAll(/^: .*\n\n/gm, "");
    const first = await replayOf(rebuilt.id);
    expect(first).toContain("response.completed");
    for (let number = 0; number < 2 * WORKERS; number += 1) {
      expect(await replayOf(reader.id)).toBe(reader.text);
      expect(await replayOf(rebuilt.id)).toBe(first);
      const branch = (await (await post(reader.id, "fork", { at: 20 })).json()) as Told;
      expect(textOf(branch)).toBe(textOf(rebuilt));
    }
  });

  it("complete bound answers and calls within their formats when one of them dies, without a byte lost or repeated", async () => {
    const { url } = served;
    const runs = BOUND_REQUESTS.map((request) => ({ request, reader: { id: "", text: "" } }));
    let reading = runs.map(({ request, reader }) =>
      create(url, reader, { ...request.body, model: `${request.model}?letters=1&tps=30`, input: BOUND_INPUT }),
    );
    await eventually(() => runs.every(({ reader }) => reader.text.includes(".delta")));
    const readOn = async () => {
      await Promise.all(reading);
      const open = runs.filter(({ reader }) => !hasEnded(reader));
      reading = open.map(({ reader }) => resume(url, reader));
      return open.length === 0;
    };
    kill(served, 0);
    await eventually(readOn);
    for (const { request, reader } of runs) {
      const replay = { id: reader.id, text: "" };
      await resume(url, replay);
      expect(reader.text).toBe(replay.text);
      const text = boundTextOf(reader.text, request, true);
      expect([request.kind, text, request.isValid(text)]).toEqual([request.kind, text, true]);
    }
  });

  it("start again, also if they die while they start", async () => {
    const { id } = await createUntil(served, (each) => workerWith(each) === 1);
    const first = kill(served, 1);
    await eventually(() => ![undefined, first].includes(processOf(served, 1)));
    const second = kill(served, 1);
    // A killed process resets the connections that it had accepted.
    await eventually(async () => {
      const answer = await fetchAnew(`${served.url}/v1/responses/${id}`).catch(() => undefined);
      return answer?.status === 200;
    });
    expect([undefined, second]).not.toContain(processOf(served, 1));
  });
});

describe("other workers", () => {
  it("share keys, limits and counts", async () => {
    const served = await serve(newFolder(), WORKERS, { ADMIN_KEY, ALLOW_ANONYMOUS: "false" });
    const root = { url: served.url, fetch: conformantFetch(fetchAnew) };
    const keyed = (limits: object) => makeKey(root, newTenant(), limits);
    const create = (key: { value: string }, body: object) =>
      call(root, "POST", "/v1/responses", { model: "simulator", input: "Hi", ...body }, key.value);
    // Whether all workers know them yet makes no difference.
    const [limited, revoked, shown] = await Promise.all([
      keyed({ requests_per_minute: 7 }),
      keyed({}),
      keyed({ max_concurrent_requests: 5 }),
    ]);
    const answers = await Promise.all(Array.from({ length: 24 }, () => create(limited, {})));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(7);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(17);

    const ask = () => Promise.all(Array.from({ length: 12 }, async () => (await create(revoked, {})).status));
    expect(new Set(await ask())).toEqual(new Set([200]));
    await call(root, "POST", `/v1/admin/keys/${revoked.id}`, { disabled: true });
    expect(new Set(await ask())).toEqual(new Set([401]));

    const body = { model: "simulator?tps=1&words=400", stream: true };
    const streams = await Promise.all(Array.from({ length: 5 }, () => create(shown, body)));
    expect(streams.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect((await create(shown, body)).status).toBe(429);
    const path = `/v1/admin/runs?tenant=${shown.tenant}`;
    const listed = async () => ((await (await call(root, "GET", path)).json()) as { data: { id: string }[] }).data;
    const runs = await listed();
    expect(runs).toHaveLength(5);
    for (const { id } of runs) {
      expect((await call(root, "POST", `/v1/admin/runs/${id}/cancel`, {})).status).toBe(200);
    }
    for (const stream of streams) expect(await stream.text()).toContain('"status":"cancelled"');
    expect(await listed()).toEqual([]);
    await stop(served);
  });

  it("may be more or fewer at the next start, and a backup does not depend on their number", async () => {
    const data = newFolder();
    const model = "simulator?words=3";
    const ids: string[] = [];
    let background = "";
    for (const workers of [1, WORKERS, 2, 1]) {
      const served = await serve(data, workers);
      for (let count = 0; count < 6; count += 1) {
        const { id: conversation } = await ask<Told>(`${served.url}/v1/conversations`, {});
        ids.push((await createAt(served, { model, input: "Hello!", conversation })).id);
      }
      const read = (id: string) => ask<Told>(`${served.url}/v1/responses/${id}`);
      for (const id of ids) expect((await read(id)).status).toBe("completed");
      for (const id of ids.slice(-2)) {
        expect((await createAt(served, { model, input: "And?", previous_response_id: id })).status).toBe("completed");
      }
      if (background !== "") await eventually(async () => (await read(background)).status === "completed");
      const slow = { model: "simulator?tps=20&words=40", input: "Go on.", background: true };
      background = (await createAt(served, slow)).id;
      if (workers === WORKERS) {
        const into = join(newFolder(), "backup");
        const made = await backup({ data, into });
        expect(made).toMatchObject({ damaged: [] });
        const restored = join(newFolder(), "data");
        expect(await restore({ from: into, data: restored })).toMatchObject({ objects: made.objects });
        const other = await serve(restored, 2);
        for (const id of ids) expect((await ask<Told>(`${other.url}/v1/responses/${id}`)).status).toBe("completed");
        await stop(other);
      }
      // The next start uses the data folder that this one leaves.
      await stop(served);
      expect((await diagnose(data, false)).findings).toEqual([]);
    }
    // One process has all data, as if there had never been others.
    expect(shareFolders(data)).toEqual([data]);
    expect(readdirSync(data).filter((name) => name.startsWith("worker-"))).toEqual([]);
  });
});

/** A foreground stream, and the part of it that has arrived. */
interface Followed {
  id: string;
  text: string;
  /** True after its regular end. */
  isWhole: boolean;
  ended: Promise<void>;
}

function follow(url: string, body: object): Followed {
  const followed: Followed = { id: "", text: "", isWhole: false, ended: Promise.resolve() };
  const read = async () => {
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    const answer = await fetchAnew(`${url}/v1/responses`, init);
    const decoder = new TextDecoder();
    let unread = "";
    for await (const bytes of answer.body ?? []) {
      const lines = (unread + decoder.decode(bytes, { stream: true })).split("\n");
      unread = lines.pop() ?? "";
      for (const line of lines.filter((each) => each.startsWith("data: {"))) {
        const event = JSON.parse(line.slice("data: ".length)) as { type: string; delta?: string; response?: Told };
        followed.id ||= event.response?.id ?? "";
        if (event.type === "response.output_text.delta") followed.text += event.delta ?? "";
        if (event.type === "response.completed") followed.isWhole = true;
      }
    }
  };
  followed.ended = read().catch(() => {});
  return followed;
}
