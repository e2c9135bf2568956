import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { homesFolder, uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { startWorkerd } from "../workerd/process.ts";
import { ObjectStorage } from "../workerd/storage.ts";
import { cleanUp, newFolder, type Served, start } from "./serve-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually } from "./support.ts";

/** `serve` under a low limit of open files, and the files that it leaves in its data folder. */

const OPEN_FILES = 1_024;

/** The file of a home that gave its storage back, or of a request for an unknown id: a page, and no table. */
const vacant = (letter: string) => `${letter.repeat(64)}.sqlite`;

let vllm: SimulatorServer;
let served: Served;
let homes: string;
beforeAll(async () => {
  vllm = await serveSimulator();
  const data = newFolder();
  await (await serve(data)).stop();
  homes = homesFolder(data);
  writeFileSync(join(homes, vacant("a")), Buffer.alloc(4_096));
  writeFileSync(join(homes, vacant("b")), Buffer.alloc(8_192));
  served = (await serve(data)).served;
});
afterAll(async () => {
  cleanUp();
  await vllm.close();
});

async function serve(data: string) {
  const own = { STATE_DIRECTORY: data, VLLM_BASE_URL: `${vllm.url}/v1`, STOP_TIMEOUT_MS: "1000" };
  const variables = { ...own, ALLOW_ANONYMOUS: "true", CONVERSATION_LOCK_WAIT_MS: "0" };
  const begun = await start(variables, { openFiles: OPEN_FILES });
  const stop = async () => {
    begun.child.kill("SIGTERM");
    await begun.exited;
  };
  return { served: begun, stop };
}

const databases = () => readdirSync(homes).filter((name) => /^[0-9a-f]{64}\.sqlite/.test(name));

interface Asked {
  status: number;
  body: { id?: string; error?: { code: string } };
}

async function ask(method: string, path: string, body?: object, headers: Record<string, string> = {}): Promise<Asked> {
  const answer = await fetch(`${served.url}/v1${path}`, {
    method,
    headers: { "content-type": "application/json", ...headers },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, body: text ? JSON.parse(text) : {} };
}

const say = { model: "simulator", input: "Hello" };
const key = () => ({ "idempotency-key": crypto.randomUUID() });

/** Unknown ids, in every form of this server's ids. */
const INVENTED = ["k".repeat(32), `000000${"x".repeat(26)}`];

describe("a missing object makes no file", () => {
  /** The requests for a response or a conversation, by the part of its id after the prefix. */
  const questions: Record<string, (key: string) => Promise<Asked>> = {
    "GET a response": (id) => ask("GET", `/responses/resp_${id}`),
    "GET its events": (id) => ask("GET", `/responses/resp_${id}?stream=true`),
    "DELETE a response": (id) => ask("DELETE", `/responses/resp_${id}`),
    "cancel a response": (id) => ask("POST", `/responses/resp_${id}/cancel`),
    "its input items": (id) => ask("GET", `/responses/resp_${id}/input_items`),
    "its tree": (id) => ask("GET", `/responses/resp_${id}/tree`),
    "continue it": (id) => ask("POST", "/responses", { ...say, previous_response_id: `resp_${id}` }),
    "continue it in a stream": (id) =>
      ask("POST", "/responses", { ...say, previous_response_id: `resp_${id}`, stream: true }),
    "continue it in the background": (id) =>
      ask("POST", "/responses", { ...say, previous_response_id: `resp_${id}`, background: true }),
    "continue it under a key": (id) => ask("POST", "/responses", { ...say, previous_response_id: `resp_${id}` }, key()),
    "count what would continue it": (id) =>
      ask("POST", "/responses/input_tokens", { ...say, previous_response_id: `resp_${id}` }),
    "compact it": (id) => ask("POST", "/responses/compact", { model: "simulator", previous_response_id: `resp_${id}` }),
    "GET a conversation": (id) => ask("GET", `/conversations/conv_${id}`),
    "update a conversation": (id) => ask("POST", `/conversations/conv_${id}`, { metadata: {} }),
    "DELETE a conversation": (id) => ask("DELETE", `/conversations/conv_${id}`),
    "list its items": (id) => ask("GET", `/conversations/conv_${id}/items`),
    "add items": (id) =>
      ask("POST", `/conversations/conv_${id}/items`, { items: [{ role: "user", content: "Hello" }] }),
    "GET an item": (id) => ask("GET", `/conversations/conv_${id}/items/msg_${id}i0`),
    "DELETE an item": (id) => ask("DELETE", `/conversations/conv_${id}/items/msg_${id}i0`),
    "the tree of a conversation": (id) => ask("GET", `/conversations/conv_${id}/tree`),
    "a turn in it": (id) => ask("POST", "/responses", { ...say, conversation: `conv_${id}` }),
    "a background turn in it": (id) =>
      ask("POST", "/responses", { ...say, conversation: `conv_${id}`, background: true }),
    "a turn in it under a key": (id) => ask("POST", "/responses", { ...say, conversation: `conv_${id}` }, key()),
    "count a turn in it": (id) => ask("POST", "/responses/input_tokens", { ...say, conversation: `conv_${id}` }),
    "refer to an item": (id) => ask("POST", "/responses", { ...say, input: [reference(id)] }),
    "refer to an item in the background": (id) =>
      ask("POST", "/responses", { ...say, input: [reference(id)], background: true }),
    "refer to an item under a key": (id) => ask("POST", "/responses", { ...say, input: [reference(id)] }, key()),
    "refer to an item in a new conversation": (id) => ask("POST", "/conversations", { items: [reference(id)] }),
  };
  const reference = (id: string) => ({ type: "item_reference", id: `msg_${id}o0` });

  it.each(Object.entries(questions))("%s", async (_, question) => {
    const before = databases();
    // The id of a response with store: false.
    const { body } = await ask("POST", "/responses", { ...say, store: false });
    for (const id of [...INVENTED, body.id?.slice("resp_".length) ?? ""]) {
      const { status, body } = await question(id);
      expect([400, 404], JSON.stringify(body)).toContain(status);
      expect(body.error?.code).toMatch(/not_found$/);
    }
    expect(databases()).toEqual(before);
  });

  it("a WebSocket", async () => {
    const before = databases();
    const client = await SocketClient.open(served);
    for (const id of INVENTED) {
      const turn = await client.turn({ ...say, previous_response_id: `resp_${id}` });
      expect(turn.last).toMatchObject({ type: "error", error: { code: "previous_response_not_found" } });
    }
    await client.close();
    expect(databases()).toEqual(before);
  });
});

describe("a refusal leaves no file", () => {
  const refusals: Record<string, () => Promise<Asked>> = {
    "an unknown model": () => ask("POST", "/responses", { ...say, model: "none" }),
    "what the model server refuses": () => ask("POST", "/responses", { ...say, model: "simulator?fault=http:400" }),
    "an item that cannot be there": () =>
      ask("POST", "/responses", { ...say, input: [{ type: "item_reference", id: "msg_1" }] }, key()),
    "a conversation with too much metadata": () =>
      ask("POST", "/conversations", { metadata: { a: "x".repeat(10_000) } }),
    "a conversation that cannot be there": () => ask("POST", "/responses", { ...say, conversation: "conv_1" }),
  };

  it.each(Object.entries(refusals))("%s", async (_, refuse) => {
    const before = databases();
    const { status } = await refuse();
    expect(status).toBeGreaterThanOrEqual(400);
    expect(databases()).toEqual(before);
  });

  it("of a turn in a conversation that is locked", async () => {
    const conversation = (await ask("POST", "/conversations", {})).body.id;
    const holder = new AbortController();
    const held = fetch(`${served.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...say, model: "simulator?fault=stall:1", conversation, stream: true }),
      signal: holder.signal,
    });
    await (await held).body?.getReader().read();
    const before = databases();
    for (const background of [false, true]) {
      const { status, body } = await ask("POST", "/responses", { ...say, conversation, background });
      expect([status, body.error?.code]).toEqual([409, "conversation_locked"]);
    }
    expect(databases()).toEqual(before);
    holder.abort();
  });

  it("expiry of a whole home leaves no file", async () => {
    const worker = await startWorkerd({
      VLLM_BASE_URL: `${vllm.url}/v1`,
      RETENTION_DAYS: "1",
      ALLOW_ANONYMOUS: "true",
    });
    const answer = await fetch(`${worker.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(say),
    });
    expect(answer.status).toBe(200);
    const [home = ""] = worker.storage.ids();
    await worker.kill();
    worker.storage.exec(home, "UPDATE turns SET created_at = 0");
    worker.passTime(2 * 86_400_000);
    await worker.restart();
    await eventually(() => worker.storage.ids().length === 0);
    await worker.close();
  });
});

describe("the files of objects", () => {
  it("are removed at the start if they are empty", () => {
    expect(existsSync(join(homes, vacant("a")))).toBe(false);
    expect(existsSync(join(homes, vacant("b")))).toBe(true);
  });

  it("of deleted files and vector stores are removed at the next start", async () => {
    const data = newFolder();
    const first = await serve(data);
    const { files, vectorStores } = new OpenAI({ apiKey: "any", baseURL: `${first.served.url}/v1`, maxRetries: 0 });
    const { id } = await files.create({ file: new File(["Tea"], "tea.txt"), purpose: "assistants" });
    const { id: store } = await vectorStores.create({});
    const of = (name: string) => join(data, uniqueKeyOf(name));
    const databasesIn = (folder: string) => readdirSync(folder).filter((name) => /^[0-9a-f]{64}\.sqlite$/.test(name));
    expect([...databasesIn(of("FileBytes")), ...databasesIn(of("VectorStore"))]).toHaveLength(2);
    await files.delete(id);
    await vectorStores.delete(store);
    const bytes = new ObjectStorage(of("FileBytes"));
    const tables = "SELECT 1 FROM sqlite_schema WHERE name = 'piece'";
    await eventually(() => bytes.ids().every((each) => bytes.exec(each, tables).length === 0));
    await first.stop();
    await (await serve(data)).stop();
    expect([...databasesIn(of("FileBytes")), ...databasesIn(of("VectorStore"))]).toEqual([]);
  });

  it("stay within the process's limit for 48 clients that create conversations, each with its own items", async () => {
    const { open_files } = (await (await fetch(`${served.url}/health`)).json()) as Health;
    expect(open_files).toMatchObject({ limit: OPEN_FILES, used: expect.any(Number) });
    // Three files each: all of them at once would be more than the process may have.
    const perClient = Math.ceil(OPEN_FILES / 3 / 48) + 1;
    const clients = Array.from({ length: 48 }, async (_, client) => {
      const ids: string[] = [];
      for (let index = 0; index < perClient; index += 1) {
        const text = `${client}/${index}`;
        const { status, body } = await ask("POST", "/conversations", { items: [{ role: "user", content: text }] });
        expect(status, JSON.stringify(body)).toBe(200);
        ids.push(body.id ?? "");
      }
      return ids;
    });
    const made = await Promise.all(clients);
    const { open_files: after } = (await (await fetch(`${served.url}/health`)).json()) as Health;
    expect(after.objects.open).toBeLessThanOrEqual(after.objects.limit);
    expect(after.used).toBeLessThan(OPEN_FILES);
    // The first of them have been closed and opened again.
    for (const [client, [first = ""]] of made.entries()) {
      const { body } = await ask("GET", `/conversations/${first}/items`);
      expect(JSON.stringify(body)).toContain(`"${client}/0"`);
    }
  });

  it("stay within the process's limit for 40 clients that upload files and create vector stores", async () => {
    const { files, vectorStores, responses } = new OpenAI({
      baseURL: `${served.url}/v1`,
      apiKey: "none",
      maxRetries: 5,
    });
    // Each file and each store is an object.
    const perClient = Math.ceil(OPEN_FILES / 3 / 2 / 40) + 1;
    const made: { file: string; store: string; text: string }[] = [];
    const clients = Array.from({ length: 40 }, async (_, client) => {
      for (let index = 0; index < perClient; index += 1) {
        const text = `${client}/${index}`;
        const { id: file } = await files.create({ file: new File([text], "a.txt"), purpose: "assistants" });
        const { id: store } = await vectorStores.create({ name: text, file_ids: index === 0 ? [file] : [] });
        made.push({ file, store, text });
      }
    });
    await Promise.all(clients);
    const { open_files } = (await (await fetch(`${served.url}/health`)).json()) as Health;
    expect(open_files.used).toBeLessThan(OPEN_FILES);
    expect((await responses.create({ model: "simulator", input: "Hello!" })).output_text).toBe("You said: Hello!");
    for (const { file, store, text } of [made[0], made.at(-1)].filter((each) => each !== undefined)) {
      expect(await (await files.content(file)).text()).toBe(text);
      expect(await vectorStores.retrieve(store)).toMatchObject({ name: text });
    }
    // Alarms that had to wait have rung.
    for (const { store } of made.filter(({ text }) => text.endsWith("/0"))) {
      await eventually(async () => (await vectorStores.retrieve(store)).file_counts.completed === 1);
    }
  });

  it("are nearly used up when connections have taken their reserve, which /health/ready reports", async () => {
    const { port, hostname } = new URL(served.url);
    const readiness = async () => (await (await fetch(`${served.url}/health/ready`)).json()) as { reasons: string[] };
    const connections: Socket[] = [];
    let counted = 0;
    try {
      await eventually(async () => {
        const { open_files } = (await (await fetch(`${served.url}/health`)).json()) as Health;
        // Each takes up to three files. An eighth is kept free, and a half of that is enough for the questions.
        const more = open_files.used === counted ? 0 : ((OPEN_FILES * 15) / 16 - open_files.used) / 3;
        counted = open_files.used;
        for (let index = 0; index < more; index += 1) connections.push(connect(Number(port), hostname));
        return (await readiness()).reasons.includes("files_used");
      });
    } finally {
      for (const connection of connections) connection.destroy();
    }
    await eventually(async () => !(await readiness()).reasons.includes("files_used"));
  });
});

interface Health {
  open_files: { limit: number; used: number; objects: { limit: number; open: number } };
}
