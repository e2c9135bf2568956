import { createHash } from "node:crypto";
import OpenAI from "openai";
import type { Response, ResponseCodeInterpreterToolCall, Tool } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { startToolServer, type ToolServer } from "../../dev/tool-server/server.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { type ConformantFetch, conformantFetch } from "../conformance/client.ts";
import { COMPLETE, KEY } from "../tool-server/support.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { ADMIN_KEY, ROOT } from "./key-support.ts";
import { cleanUp, newFolder, type Served, start } from "./serve-support.ts";

/** Containers as handles: by the API, and from turn to turn, at a `serve` of three workers. */

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
const OUTPUTS = "code_interpreter_call.outputs";
const python: Tool = { type: "code_interpreter", container: { type: "auto" } };
const inContainer = (container: string): Tool => ({ type: "code_interpreter", container });

let vllm: SimulatorServer;
let tools: ToolServer;
let served: Served;
let checked: ConformantFetch;
const folder = newFolder();

async function serve(): Promise<void> {
  served = await start({
    VLLM_BASE_URL: `${vllm.url}/v1`,
    STATE_DIRECTORY: folder,
    WORKERS: "3",
    ADMIN_KEY,
    API_KEYS: ["a", "b"].map((tenant) => `${tenant}:${sha256(`key-${tenant}`)}`).join(","),
    TOOL_SERVERS: JSON.stringify({ python: tools.pythonUrl }),
    TOOL_SERVER_API_KEY: KEY,
    CONTAINERS_PER_TENANT: "20",
    CONTAINER_MEMORY_LIMITS: "1g",
  });
  // A new connection for each request, so that any worker may answer.
  checked = conformantFetch(fetchAnew, await descriptionOf(served.url));
}

async function stop(): Promise<void> {
  await checked.settled();
  served.child.kill("SIGTERM");
  expect(await served.exited, served.output()).toBe(0);
}

beforeAll(async () => {
  vllm = await serveSimulator();
  tools = await startToolServer({ apiKey: KEY });
  await serve();
});
afterAll(async () => {
  await stop();
  cleanUp();
  await tools.close();
  await vllm.close();
});

const client = (tenant = "a") =>
  new OpenAI({ baseURL: `${served.url}/v1`, apiKey: `key-${tenant}`, maxRetries: 0, fetch: checked });

function use(code: string, more: object = {}, tenant = "a"): Promise<Response> {
  const body = { model: "simulator", tools: [python], input: `Use python: \`${code}\``, include: [OUTPUTS] };
  return client(tenant).responses.create({ ...body, ...more } as OpenAI.Responses.ResponseCreateParamsNonStreaming);
}

const callsOf = ({ output }: Response) =>
  output.filter((item): item is ResponseCodeInterpreterToolCall => item.type === "code_interpreter_call");
const containerOf = (response: Response) => callsOf(response)[0]?.container_id ?? "";
const logsOf = (response: Response) =>
  callsOf(response).map(({ outputs }) => outputs?.map((part) => (part.type === "logs" ? part.logs : part.type)).join());

const upload = (text: string, name: string, tenant = "a") =>
  client(tenant).files.create({ file: new File([text], name), purpose: "user_data" });

async function filesOf(container_id: string) {
  const files = await Array.fromAsync(client().containers.files.list(container_id, { order: "asc" }));
  return files.map(({ path, source, bytes }) => [path, source, bytes]);
}

describe("a container", () => {
  it("is made, listed, retrieved and deleted by openai's helpers", async () => {
    const { containers } = client();
    const made = await containers.create({
      ...{ name: "mine", memory_limit: "1g" },
      expires_after: { anchor: "last_active_at", minutes: 30 },
    });
    expect(made).toEqual({
      ...{ id: expect.stringMatching(/^cntr_[0-9A-Za-z]{32}$/), object: "container", name: "mine", status: "running" },
      ...{ created_at: expect.any(Number), last_active_at: made.created_at, memory_limit: "1g" },
      expires_after: { anchor: "last_active_at", minutes: 30 },
    });
    expect(await containers.retrieve(made.id)).toEqual(made);
    const plain = await containers.create({ name: "other" });
    expect(plain.expires_after).toEqual({ anchor: "last_active_at", minutes: 20 });
    const ids = async (query: object) => (await Array.fromAsync(containers.list(query))).map(({ id }) => id);
    expect(await ids({ limit: 1 })).toEqual([plain.id, made.id]);
    expect(await ids({ name: "mine" })).toEqual([made.id]);
    await containers.delete(made.id);
    await expect(containers.retrieve(made.id)).rejects.toMatchObject({ status: 404, code: "container_not_found" });
    expect(await ids({})).toEqual([plain.id]);
  });

  it("is refused by name where this server cannot do what it asks", async () => {
    const { containers } = client();
    const refused = (more: object) => containers.create({ name: "a", ...more } as { name: string });
    for (const [param, value] of Object.entries({
      memory_limit: "4g",
      network_policy: { type: "disabled" },
      skills: [{ type: "skill_reference", skill_id: "s" }],
      expires_after: { anchor: "last_active_at", minutes: 0 },
    })) {
      const fault = refused({ [param]: value });
      await expect(fault).rejects.toMatchObject({ status: 400, param: expect.stringContaining(param) });
    }
    await expect(refused({ file_ids: ["file-none"] })).rejects.toMatchObject({ status: 404, param: "file_ids[0]" });
    const auto = { type: "code_interpreter", container: { type: "auto", memory_limit: "4g" } };
    await expect(use("1", { tools: [auto] })).rejects.toMatchObject({ param: "tools[0].container.memory_limit" });
  });

  it("that does not exist, or is another tenant's, is a 404 that names the field", async () => {
    const theirs = await client("b").containers.create({ name: "theirs" });
    for (const id of ["cntr_invented", `cntr_${"0".repeat(32)}`, theirs.id]) {
      const named = use("1", { tools: [inContainer(id)] });
      const fault = { status: 404, code: "container_not_found" };
      await expect(named).rejects.toMatchObject({ ...fault, param: "tools[0].container" });
      await expect(client().containers.retrieve(id)).rejects.toMatchObject(fault);
      await expect(client().containers.delete(id)).rejects.toMatchObject(fault);
      await expect(client().containers.files.list(id)).rejects.toMatchObject(fault);
      const file = new File(["a"], "a.txt");
      await expect(client().containers.files.create(id, { file })).rejects.toMatchObject(fault);
    }
    expect(await client("b").containers.retrieve(theirs.id)).toEqual(theirs);
  });

  it("is refused beyond the tenant's maximum", async () => {
    const { containers } = client("b");
    const making = Array.from({ length: 20 }, () => containers.create({ name: "many" }));
    const failures = (await Promise.allSettled(making)).filter(({ status }) => status === "rejected");
    expect(failures).toMatchObject([{ reason: { status: 400, code: "too_many_containers" } }]);
  });
});

describe.skipIf(!COMPLETE)("the memory of a container", () => {
  it("is the one that was asked for, where the tool server holds it", async () => {
    const code = "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0] >> 20)";
    const { id } = await client().containers.create({ name: "small", memory_limit: "1g" });
    const auto = { type: "code_interpreter", container: { type: "auto", memory_limit: "1g" } };
    const answers = await Promise.all([inContainer(id), auto, python].map((tool) => use(code, { tools: [tool] })));
    expect(answers.flatMap(logsOf)).toEqual(["1024\n", "1024\n", "2048\n"]);
  });
});

describe.skipIf(!COMPLETE)("the files of a container", () => {
  it("are given by upload or by id, written by programs, listed, read and deleted", async () => {
    const { containers } = client();
    const first = await upload("one", "first.txt");
    const { id } = await containers.create({ name: "files", file_ids: [first.id] });
    const second = await upload("two", "second.txt");
    await containers.files.create(id, { file_id: second.id });
    const third = await containers.files.create(id, { file: new File(["three"], "third.txt") });
    expect(third).toMatchObject({ object: "container.file", container_id: id, path: "/mnt/data/third.txt", bytes: 5 });
    const program = "import os; print(sorted(os.listdir())); open('out.txt', 'w').write('four')";
    const response = await use(program, { tools: [inContainer(id)] });
    expect(logsOf(response)).toEqual(["['first.txt', 'second.txt', 'third.txt']\n4\n"]);
    expect(await filesOf(id)).toEqual([
      ["/mnt/data/first.txt", "user", 3],
      ["/mnt/data/second.txt", "user", 3],
      ["/mnt/data/third.txt", "user", 5],
      ["/mnt/data/out.txt", "assistant", 4],
    ]);
    const { data } = await containers.files.list(id, { limit: 1 });
    const [written] = data;
    expect(JSON.stringify(response.output)).toContain(`"container_id":"${id}","file_id":"${written?.id}"`);
    const content = await containers.files.content.retrieve(written?.id ?? "", { container_id: id });
    expect(await content.text()).toBe("four");
    for (const file of [first.id, third.id]) await containers.files.delete(file, { container_id: id });
    const gone = containers.files.retrieve(third.id, { container_id: id });
    await expect(gone).rejects.toMatchObject({ status: 404, code: "file_not_found" });
    // A file that was given by its id stays; one that was uploaded into the container is gone with it.
    expect(await client().files.retrieve(first.id)).toMatchObject({ filename: "first.txt" });
    await expect(client().files.retrieve(third.id)).rejects.toMatchObject({ status: 404 });
    const later = await use("import os; print(sorted(os.listdir()))", { tools: [inContainer(id)] });
    expect(logsOf(later)).toEqual(["['out.txt', 'second.txt']\n"]);
    await containers.delete(id);
    await expect(client().files.retrieve(written?.id ?? "")).rejects.toMatchObject({ status: 404 });
    const theirs = client("b").containers.files.retrieve(second.id, { container_id: id });
    await expect(theirs).rejects.toMatchObject({ status: 404 });
  });
});

describe.skipIf(!COMPLETE)("a data analysis of five turns", () => {
  it("has one container, with its state and files, over a restart of the gateway; a lost one is told, and never silently new", async () => {
    const { id: file } = await upload("animal,count\nowl,3\nfox,4\n", "animals.csv");
    const given: Tool = { type: "code_interpreter", container: { type: "auto", file_ids: [file] } };
    const load = "import csv; rows = list(csv.DictReader(open('animals.csv'))); print(len(rows))";
    const first = await use(load, { tools: [given] });
    const then = async (code: string, { id }: Response, more: object = {}) => {
      const next = await use(code, { previous_response_id: id, ...more });
      expect(containerOf(next)).toBe(containerOf(first));
      return next;
    };
    const second = await then("total = sum(int(row['count']) for row in rows); print(total)", first, {
      tools: [given],
    });
    await stop();
    await serve();
    const third = await then("print(total * 2)", second);
    const write = "open('total.txt', 'w').write(str(total)); print('See total.txt')";
    const fourth = await ended((await use(write, { previous_response_id: third.id, background: true })).id);
    const fifth = await then("print(open('total.txt').read(), open('animals.csv').readline())", fourth);
    expect([first, second, third, fourth, fifth].flatMap(logsOf)).toEqual([
      ...["2\n", "7\n", "14\n", "See total.txt\n"],
      "7 animal,count\n\n",
    ]);
    expect(JSON.stringify(fourth.output)).toContain('"type":"container_file_citation"');

    await tools.endSessions();
    const named = containerOf(first);
    const lost = await use("print(total)", { previous_response_id: fifth.id });
    expect(callsOf(lost)).toMatchObject([{ container_id: named, status: "failed" }]);
    expect(logsOf(lost)[0]).toContain("Container is expired: its variables and files are gone.");
    expect(await client().containers.retrieve(named)).toMatchObject({ status: "expired" });
    const fault = { status: 400, code: "container_expired", message: expect.stringContaining("Container is expired.") };
    const again = use("print(total)", { tools: [inContainer(named)] });
    await expect(again).rejects.toMatchObject({ ...fault, param: "tools[0].container" });
    const added = client().containers.files.create(named, { file: new File(["a"], "a.txt") });
    await expect(added).rejects.toMatchObject(fault);
    const anew = await use("print('total' in globals())", { previous_response_id: fifth.id });
    expect(containerOf(anew)).not.toBe(named);
    expect(logsOf(anew)[0]).toMatch(/^\[WARN\] The container of the earlier calls has expired[^\n]*\nFalse\n$/);
  });

  it("is in one container in a conversation, too, and ends with the container", async () => {
    const { id: conversation } = await client().conversations.create({});
    const first = await use("x = 5; print('set')", { conversation });
    const second = await use("print(x)", { conversation });
    expect([logsOf(second), containerOf(second)]).toEqual([["5\n"], containerOf(first)]);
    await client().containers.delete(containerOf(first));
    const third = await use("print('x' in globals())", { conversation });
    expect(logsOf(third)[0]).toMatch(/False\n$/);
    expect(containerOf(third)).not.toBe(containerOf(first));
  });
});

describe("an erasure", () => {
  it("removes a tenant's containers", async () => {
    const { id } = await client("b")
      .containers.create({ name: "erased" })
      .catch(async () => {
        const [first] = (await client("b").containers.list()).data;
        return first ?? { id: "" };
      });
    for (let hasMore = true; hasMore; ) {
      const answer = await checked(`${served.url}/v1/admin/tenants/b`, {
        method: "DELETE",
        headers: { authorization: `Bearer ${ROOT}` },
      });
      ({ has_more: hasMore } = (await answer.json()) as { has_more: boolean });
    }
    await expect(client("b").containers.retrieve(id)).rejects.toMatchObject({ status: 404 });
    expect((await client("b").containers.list()).data).toEqual([]);
  });
});

/** A background response at its end. */
async function ended(id: string): Promise<Response> {
  for (;;) {
    const response = await client().responses.retrieve(id, { include: [OUTPUTS] });
    if (response.status !== "queued" && response.status !== "in_progress") return response;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
