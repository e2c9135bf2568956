import fc from "fast-check";
import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { objectId } from "../workerd/storage.ts";
import { expectError } from "./expectations.ts";
import { GPT_OSS } from "./harmony-support.ts";
import { ask, call, type MadeKey, makeKey, newTenant, ROOT, startWithKeys } from "./key-support.ts";
import type { Gateway } from "./support.ts";
import { ended, unique } from "./turns.ts";

/** The encryption keys of a deployment. Another deployment has others. */
const SEALING = [`old:${"a".repeat(43)}=`, `new:${"b".repeat(43)}=`];

let here: Gateway;
let there: Gateway;
beforeAll(async () => {
  const options = SEALING.map((ENCRYPTION_KEYS) => ({ ENCRYPTION_KEYS, TREES_PER_HOME: "1" }));
  const [one, other] = await Promise.all(options.map((each) => startWithKeys(each)));
  if (!one || !other) throw new Error("There are two.");
  [here, there] = [one, other];
});
afterAll(() => Promise.all([here.close(), there.close()]));

type Line = Record<string, unknown> & { object: string };

interface Imported {
  homes: { imported: number; unchanged: number; refused: number };
  refused_homes: string[];
  in_progress: string[];
  [name: string]: unknown;
}

async function exported(gateway: Gateway, tenant: string): Promise<string> {
  const answer = await call(gateway, "GET", `/v1/admin/tenants/${tenant}/export`);
  expect(answer.status).toBe(200);
  return answer.text();
}

function importInto(gateway: Gateway, tenant: string, lines: string, headers: object = {}): Promise<Response> {
  return gateway.fetch(`${gateway.url}/v1/admin/tenants/${tenant}/import`, {
    method: "POST",
    headers: { authorization: `Bearer ${ROOT}`, "content-type": "application/jsonl", ...headers },
    body: lines,
  });
}

async function imported(gateway: Gateway, tenant: string, lines: string): Promise<Imported> {
  const answer = await importInto(gateway, tenant, lines);
  const body = await answer.text();
  expect(answer.status, body).toBe(200);
  return JSON.parse(body) as Imported;
}

const limits = { track_homes: true };

async function tracked(gateway: Gateway): Promise<{ tenant: string; client: OpenAI }> {
  const tenant = newTenant();
  await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits });
  return { tenant, client: await clientOf(gateway, tenant) };
}

async function clientOf(gateway: Gateway, tenant: string): Promise<OpenAI> {
  const { value }: MadeKey = await makeKey(gateway, tenant);
  return gateway.client({ apiKey: value });
}

const model = "simulator";

/** Stores one of everything that a tenant can have. */
async function fill(client: OpenAI) {
  const first = await client.responses.create({ model, input: unique("first"), metadata: { "2": "two", "1": "one" } });
  const second = await client.responses.create({
    model: "simulator?reasoning=1",
    input: unique("second"),
    previous_response_id: first.id,
  });
  const run = await client.responses.create({ model: "simulator?words=40", input: unique("run"), background: true });
  await ended({ openai: client, vllm: here.vllm }, run.id);
  const failed = await client.responses.create({
    model: "simulator?fail=400",
    input: unique("fails"),
    background: true,
  });
  await ended({ openai: client, vllm: here.vllm }, failed.id);
  const sampled = await client.responses.create({ model: GPT_OSS, input: unique("sampled"), background: true });
  await ended({ openai: client, vllm: here.vllm }, sampled.id);
  const said = ["added", "taken out"].map((content) => ({
    type: "message" as const,
    role: "user" as const,
    content: unique(content),
  }));
  const conversation = await client.conversations.create({ items: said, metadata: { topic: "moving" } });
  const [out] = (await client.conversations.items.list(conversation.id)).data;
  await client.conversations.items.delete(out?.id ?? "", { conversation_id: conversation.id });
  const spoken = await client.responses.create({ model, input: unique("spoken"), conversation: conversation.id });
  const unstored = { model, input: unique("unstored"), conversation: conversation.id, store: false };
  await client.responses.create(unstored);
  return {
    responses: [first, second, run, failed, sampled, spoken].map(({ id }) => id),
    runs: [run.id, failed.id, sampled.id],
    second,
    sampled,
    conversation,
  };
}

/** All bytes that the API gives a client for it. */
async function seen({ baseURL, apiKey }: OpenAI, { responses, runs, conversation }: Awaited<ReturnType<typeof fill>>) {
  const paths = [
    ...responses.flatMap((id) => [`/responses/${id}?include[]=timing`, `/responses/${id}/input_items?order=asc`]),
    ...runs.flatMap((id) => [`/responses/${id}?stream=true`, `/responses/${id}?stream=true&starting_after=3`]),
    `/conversations/${conversation.id}`,
    `/conversations/${conversation.id}/items?limit=100`,
  ];
  const texts: Record<string, string> = {};
  for (const path of paths) {
    const answer = await fetch(baseURL + path, { headers: { authorization: `Bearer ${apiKey}` } });
    expect(answer.status, path).toBe(200);
    texts[path] = await answer.text();
  }
  return texts;
}

/** The rows of a home's responses, which must be the same. */
function rowsOf({ storage }: Gateway, tenant: string, id: string) {
  return storage.exec(
    objectId(`${tenant}:${id.slice(5, 27)}`),
    "SELECT * FROM turns WHERE response IS NOT NULL ORDER BY turn, part",
  );
}

/** A model server's request, without the parts that differ by tenant. */
function promptOf(body: unknown) {
  const { messages, prompt } = body as { messages?: unknown; prompt?: unknown };
  return { messages, prompt };
}

describe("the export of a response", () => {
  it("is imported by another deployment, which replays it with the same bytes, with what it continues", async () => {
    const [from, to] = [await tracked(here), await tracked(there)];
    const { id: conversation } = await from.client.conversations.create();
    const before = await from.client.responses.create({ model, input: unique("before"), conversation });
    const first = await from.client.responses.create({
      model,
      input: unique("branch"),
      previous_response_id: before.id,
    });
    const run = await from.client.responses.create({
      ...{ model: "simulator?words=40", input: unique("run"), background: true, previous_response_id: first.id },
    });
    await ended({ openai: from.client, vllm: here.vllm }, run.id);
    const later = await from.client.responses.create({ model, input: unique("later"), conversation });
    const send = (client: OpenAI, method: string, path: string) =>
      fetch(`${client.baseURL}/responses/${path}`, { method, headers: { authorization: `Bearer ${client.apiKey}` } });
    const lines = await (await send(from.client, "GET", `${run.id}/export`)).text();
    const told = lines.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Line]));
    expect(told.map(({ object }) => object)).toEqual([
      ...["home", "conversation", "response", "response", "response", "response.events", "home.end", "export.page"],
    ]);
    expect(told.flatMap(({ object, id }) => (object === "response" ? [id] : []))).toEqual([
      before.id,
      first.id,
      run.id,
    ]);
    expect(await imported(there, to.tenant, lines)).toMatchObject({ homes: { imported: 1 }, turns: 3 });
    for (const id of [first.id, run.id]) {
      const replays = [from, to].map(async ({ client }) => (await send(client, "POST", `${id}/replay`)).text());
      const [there, here] = (await Promise.all(replays)).map((text) => text.replaceAll(/^: .*\n\n/gm, ""));
      expect(there).toContain("response.completed");
      expect(there).toBe(here);
    }
    expect((await send(to.client, "POST", `${later.id}/replay`)).status).toBe(404);
    // Only the tenant's own key reads it.
    expect((await send(to.client, "GET", `${later.id}/export`)).status).toBe(404);
  });
});

describe("the import of a tenant", () => {
  it("into another deployment under another name gives the same data, byte for byte, and the tenant can continue there", async () => {
    const { tenant, client } = await tracked(here);
    const filled = await fill(client);
    const lines = await exported(here, tenant);
    const [other, before] = [newTenant(), await seen(client, filled)];
    const answer = await imported(there, other, lines);
    expect(answer).toMatchObject({
      object: "tenant.imported",
      id: other,
      homes: { imported: 5, unchanged: 0, refused: 0 },
      turns: 8,
      limits: "set",
      api_keys_left_out: 1,
      in_progress: [],
      next: null,
    });
    const moved = await clientOf(there, other);
    expect(await seen(moved, filled)).toEqual(before);
    for (const id of filled.responses) expect(rowsOf(there, other, id)).toEqual(rowsOf(here, tenant, id));
    expect(await ask(there, "GET", `/v1/admin/tenants/${other}`)).toMatchObject({ limits });

    for (const [to, previous] of [
      [model, filled.second.id],
      [GPT_OSS, filled.sampled.id],
    ] as const) {
      const next = { model: to, input: "Go on", previous_response_id: previous };
      const [stayed, went] = [await client.responses.create(next), await moved.responses.create(next)];
      const [prompt, samePrompt] = [here, there].map(({ vllm }) => promptOf(vllm.simulator.lastAsked?.body));
      expect(samePrompt).toEqual(prompt);
      expect(went.output_text).toBe(stayed.output_text);
    }
    await moved.responses.create({ model, input: "Here, too", conversation: filled.conversation.id });
    const items = await moved.conversations.items.list(filled.conversation.id, { order: "asc", limit: 100 });
    expect(items.data).toHaveLength(7);
    expect(await exported(there, other)).toContain("Here, too");
  });

  it("again changes nothing, also when a home has changed since", async () => {
    const { tenant, client } = await tracked(here);
    const filled = await fill(client);
    const lines = await exported(here, tenant);
    // An import into the original tenant changes nothing, too.
    expect(await imported(here, tenant, lines)).toMatchObject({
      homes: { imported: 0, unchanged: 5 },
      limits: "unchanged",
    });
    const other = newTenant();
    await imported(there, other, lines);
    const moved = await clientOf(there, other);
    await moved.responses.create({ model, input: "More", previous_response_id: filled.second.id });
    await ask(there, "POST", `/v1/admin/tenants/${other}`, { limits: { ...limits, requests_per_minute: 9 } });
    const before = await exported(there, other);
    expect(await imported(there, other, lines)).toMatchObject({ homes: { imported: 0, unchanged: 5 }, limits: "kept" });
    expect(withoutUsage(await exported(there, other))).toEqual(withoutUsage(before));
  });

  it("does not change a home with other data, which is a 409, and imports the others", async () => {
    const { tenant, client } = await tracked(here);
    const ids: string[] = [];
    for (const text of ["one", "two"]) ids.push((await client.responses.create({ model, input: text })).id);
    const lines = await exported(here, tenant);
    await client.responses.create({ model, input: "three", previous_response_id: ids[0] ?? "" });
    const more = await exported(here, tenant);
    const other = newTenant();
    const [home = ""] = ids.map((id) => id.slice(5, 27));
    await imported(there, other, only(lines, home));
    const before = rowsOf(there, other, ids[0] ?? "");
    const answer = await importInto(there, other, more);
    expect(await answer.json()).toMatchObject({
      error: { code: "home_differs", type: "invalid_request_error", param: null },
      homes: { imported: 1, unchanged: 0, refused: 1 },
      refused_homes: [home],
    });
    expect(answer.status).toBe(409);
    expect(rowsOf(there, other, ids[0] ?? "")).toEqual(before);
    const moved = await clientOf(there, other);
    for (const id of ids) expect((await moved.responses.retrieve(id)).id).toBe(id);
  });

  it("accepts a home that is longer than one call, and a log that is longer than the maximum beside a turn", async () => {
    const { tenant, client } = await tracked(here);
    // Long words are few tokens.
    const long = `多${"longtext".repeat(3)} `.repeat(140_000);
    const roomy = "simulator?words=3&max_model_len=100000000";
    const root = await client.responses.create({ model: roomy, input: "Root" });
    for (let turn = 0; turn < 5; turn += 1) {
      await client.responses.create({ model: roomy, input: `${turn} ${long}`, previous_response_id: root.id });
    }
    const run = await client.responses.create({
      model: roomy,
      input: "Run",
      instructions: long,
      background: true,
    });
    await ended({ openai: client, vllm: here.vllm }, run.id);
    const [other, lines] = [newTenant(), await exported(here, tenant)];
    expect(await imported(there, other, lines)).toMatchObject({ homes: { imported: 2 }, turns: 7 });
    expect(await imported(there, other, lines)).toMatchObject({ homes: { unchanged: 2 }, turns: 0 });
    for (const id of [root.id, run.id]) expect(rowsOf(there, other, id)).toEqual(rowsOf(here, tenant, id));
    const home = objectId(`${other}:${root.id.slice(5, 27)}`);
    expect(there.storage.exec(home, "SELECT name FROM sqlite_schema WHERE name = 'waiting_lines'")).toEqual([]);
    const streams = [
      [here, client],
      [there, await clientOf(there, other)],
    ] as const;
    const [bytes, sameBytes] = await Promise.all(
      streams.map(async ([{ url }, { apiKey }]) => {
        const headers = { authorization: `Bearer ${apiKey}` };
        return (await fetch(`${url}/v1/responses/${run.id}?stream=true`, { headers })).text();
      }),
    );
    expect(sameBytes).toBe(bytes);
  });

  it("names runs in progress, and encrypted content that this deployment cannot decrypt", async () => {
    const { tenant, client } = await tracked(here);
    const run = await client.responses.create({
      model: "simulator?tps=1&words=100000",
      input: "Runs on",
      background: true,
    });
    const thought = await client.responses.create({
      model: "simulator?reasoning=1",
      input: unique("seal"),
      include: ["reasoning.encrypted_content"],
    });
    expect(JSON.stringify(thought.output)).toContain("encrypted_content");
    const given = thought.output as OpenAI.Responses.ResponseInputItem[];
    await client.responses.create({ model, input: [...given, { role: "user", content: "And now?" }] });
    const lines = await exported(here, tenant);
    const elsewhere = await imported(there, newTenant(), lines);
    expect(elsewhere.in_progress).toEqual([run.id]);
    expect(elsewhere.sealed_unreadable).toBeGreaterThan(0);
    // The same tenant with the same keys can decrypt its own.
    await ask(here, "DELETE", `/v1/admin/tenants/${tenant}`);
    const restored = await imported(here, tenant, lines);
    expect(restored).toMatchObject({ sealed_unreadable: 0, homes: { imported: 3 }, limits: "set" });
    const back = await clientOf(here, tenant);
    expect((await back.responses.retrieve(thought.id)).output_text).toBe(thought.output_text);
    await expect(back.responses.retrieve(run.id)).rejects.toMatchObject({ status: 404 });
  });
});

const withoutUsage = (lines: string) => lines.split("\n").filter((line) => !line.includes('"object":"usage"'));

const linesOf = (text: string) =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);
const textOf = (lines: readonly object[]) => lines.map((line) => `${JSON.stringify(line)}\n`).join("");

/** An export with one of its homes. */
function only(text: string, home: string): string {
  let isIn = false;
  const kept = linesOf(text).filter((line) => {
    if (line.object === "home") isIn = line.id === home;
    return isIn || line.object === "export.page";
  });
  return textOf(kept);
}

describe("an export that is damaged", () => {
  let lines: Line[];
  let turn: Line;
  beforeAll(async () => {
    const { tenant, client } = await tracked(here);
    const first = await client.responses.create({ model: "simulator?words=4", input: "One", background: true });
    await ended({ openai: client, vllm: here.vllm }, first.id);
    await client.responses.create({ model, input: "Two", previous_response_id: first.id });
    lines = linesOf(await exported(here, tenant)).filter(
      ({ object }) => !["api_key", "usage", "tenant"].includes(object),
    );
    const found = lines.find(({ object }) => object === "response");
    if (!found) throw new Error("There is one.");
    turn = found;
    expect(lines.map(({ object }) => object)).toEqual([
      "home",
      "response",
      "response.events",
      "response",
      "home.end",
      "export.page",
    ]);
  });

  /** Changes some of the lines. Undefined leaves a line out. */
  const changed = (change: (line: Line, index: number) => object | undefined) =>
    textOf(lines.map((line, index) => change(structuredClone(line), index)).filter((line) => line !== undefined));
  const at = (index: number, fields: object) =>
    changed((line, each) => (each === index ? { ...line, ...fields } : line));
  const inTurn = (fields: object) => at(1, { turn: { ...(turn.turn as object), ...fields } });
  const inEvents = (change: (events: Record<string, unknown>[]) => unknown) =>
    changed((line) =>
      line.object === "response.events" ? { ...line, events: change(line.events as Record<string, unknown>[]) } : line,
    );

  it.each<[string, () => string, { param: string | null; code?: string }]>([
    ["no JSON", () => "{\n", { param: null, code: "invalid_json" }],
    ["no object", () => "[]\n", { param: null, code: "invalid_json" }],
    ["nesting", () => `${"[".repeat(10_000)}\n`, { param: null, code: "invalid_json" }],
    ["an unknown line", () => '{"object":"secret"}\n', { param: "object" }],
    ["a response of no home", () => textOf([turn]), { param: "object" }],
    ["a version that is not known", () => at(0, { version: 2 }), { param: "version" }],
    ["no end of a home", () => changed((line) => (line.object === "home.end" ? undefined : line)), { param: "object" }],
    ["nothing", () => "", { param: "object" }],
    ["a turn that is missing", () => changed((line, index) => (index === 3 ? undefined : line)), { param: "turns" }],
    ["a turn twice", () => changed((line, index) => (index === 3 ? turn : line)), { param: "turn.id" }],
    ["another home's id", () => at(1, { id: `resp_${"x".repeat(32)}` }), { param: "id" }],
    [
      "a turn that continues itself",
      () => inTurn({ parent: (turn.turn as { id: string }).id }),
      { param: "turn.parent" },
    ],
    ["a time that is none", () => inTurn({ created_at_ms: -1 }), { param: "turn.created_at_ms" }],
    [
      "an item that is none",
      () => at(1, { input: [{ type: "message", role: "user", content: 7 }] }),
      { param: "input[0].content" },
    ],
    ["a reference", () => at(1, { input: [{ type: "item_reference", id: "msg_1" }] }), { param: "input[0].type" }],
    ["a status that nothing kept has", () => at(1, { status: "in_progress" }), { param: "status" }],
    ["an unknown field", () => inTurn({ log: "{}" }), { param: "turn" }],
    ["an event that is missing", () => inEvents((events) => events.toSpliced(1, 1)), { param: "events[1]" }],
    [
      "events that begin later",
      () => changed((line) => (line.object === "response.events" ? { ...line, from: 1 } : line)),
      { param: "from" },
    ],
    [
      "a frame in an event",
      () => inEvents((events) => [`${JSON.stringify(events[0])}\n\nevent: x`]),
      { param: "events[0]" },
    ],
  ])("with %s is a 400 that names the place, and nothing of that home is stored", async (_, damaged, expected) => {
    const tenant = newTenant();
    const answer = await importInto(there, tenant, damaged());
    expect((await answer.clone().json()).error.message).toMatch(/^Line \d+: /);
    await expectError(answer, { status: 400, ...expected });
    expect(await exported(there, tenant)).not.toContain('"object":"response"');
  });

  it("without a last line is a 400, although its homes are imported", async () => {
    const tenant = newTenant();
    const cut = lines.filter(({ object }) => object !== "export.page");
    await expectError(await importInto(there, tenant, textOf(cut)), { status: 400, param: "object" });
    expect(await imported(there, tenant, textOf(lines))).toMatchObject({ homes: { unchanged: 1 } });
  });

  it("in any way is a 4xx or harmless, and its imported data can be read", async () => {
    const values = fc.oneof(
      fc.jsonValue({ maxDepth: 2 }),
      fc.constantFrom(-1, 2 ** 60, "", "__proto__", null, [], {}, "\u2028\ud800", Number.MAX_SAFE_INTEGER),
    );
    const tenant = newTenant();
    const client = await clientOf(there, tenant);
    const id = String(turn.id);
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.nat(), values, async (line, place, value) => {
        const whole = structuredClone(lines);
        replace(whole[line % whole.length] ?? {}, place, value);
        const { status } = await importInto(there, tenant, textOf(whole));
        expect([200, 400, 409]).toContain(status);
        // Nothing of a refused home is there.
        for (const query of status === 200 ? ["", "?stream=true", "/input_items"] : [""]) {
          const { baseURL, apiKey } = client;
          const answer = await fetch(`${baseURL}/responses/${id}${query}`, {
            headers: { authorization: `Bearer ${apiKey}` },
          });
          await answer.text();
          expect(answer.status).toBeLessThan(500);
        }
        if (status === 200) await ask(there, "DELETE", `/v1/admin/tenants/${tenant}`);
      }),
      { numRuns: 40 },
    );
  });

  it("is refused by its content type, and by the request's key", async () => {
    const tenant = newTenant();
    const { value } = await makeKey(there, tenant);
    const text = textOf(lines);
    await expectError(await importInto(there, tenant, text, { authorization: `Bearer ${value}` }), { status: 403 });
    await expectError(await importInto(there, tenant, text, { "content-type": "text/plain" }), { status: 415 });
    await expectError(await importInto(there, tenant, text, { "content-encoding": "gzip" }), { status: 415 });
    await expectError(await importInto(there, "a:b", text), { status: 400, param: "tenant" });
  });
});

/** Replaces a nested value. */
function replace(within: object, place: number, value: unknown): void {
  const places: [Record<string, unknown>, string][] = [];
  const walk = (at: object) => {
    for (const [key, each] of Object.entries(at)) {
      places.push([at as Record<string, unknown>, key]);
      if (typeof each === "object" && each !== null) walk(each);
    }
  };
  walk(within);
  const [owner, key] = places[place % places.length] ?? [];
  if (owner && key !== undefined) owner[key] = value;
}
