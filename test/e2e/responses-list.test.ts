import { randomBytes } from "node:crypto";
import type { ListedResponse } from "@responses-edge/responses-api/platform/listed-response";
import type OpenAI from "openai";
import type { ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { homeKey, objectId } from "../workerd/storage.ts";
import { ADMIN_KEY, ROOT } from "./key-support.ts";
import { eventually, type Gateway, gatewayAt } from "./support.ts";
import { ended, reached } from "./turns.ts";

/** The list of a tenant's stored responses, and its filters. */

const DAY_MS = 86_400_000;

let vllm: SimulatorServer;
let worker: WorkerdProcess;
let gateway: Gateway;
beforeAll(async () => {
  vllm = await serveSimulator();
  worker = await startWorkerd(
    {
      VLLM_BASE_URL: `${vllm.url}/v1`,
      ADMIN_KEY,
      RESPONSE_INDEX: "true",
      MODEL_PRICES: JSON.stringify({ simulator: { input: 1, output: 2 } }),
      CONVERSATION_LOCK_WAIT_MS: "60000",
      UNSTORED_RETENTION_MS: "2000",
    },
    { readsFormats: false },
  );
  gateway = gatewayAt(worker, vllm, await descriptionOf(worker.url));
});
afterAll(() => gateway.close());

interface Page {
  data: ListedResponse[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** A tenant for one test. */
class Tenant {
  readonly name: string;
  readonly #key: string;
  readonly openai: OpenAI;

  constructor(name: string, key: string) {
    this.name = name;
    this.#key = key;
    this.openai = gateway.client({ apiKey: key });
  }

  get(query: string): Promise<Response> {
    return gateway.fetch(`${gateway.url}/v1/responses${query}`, { headers: { authorization: `Bearer ${this.#key}` } });
  }

  async page(query = ""): Promise<Page> {
    const answer = await this.get(query);
    expect(answer.status, await answer.clone().text()).toBe(200);
    return (await answer.json()) as Page;
  }

  async ids(query = ""): Promise<string[]> {
    return (await this.page(query)).data.map(({ id }) => id);
  }

  /** The roots of a page of trees. */
  async roots(query = ""): Promise<(string | undefined)[]> {
    return (await this.page(`?group_by=tree${query}`)).data.map(({ tree }) => tree?.root_id);
  }

  /** Replaces the metadata of a response. */
  change(id: string, metadata: Record<string, string> | null): Promise<{ metadata: Record<string, string> }> {
    return this.openai.post(`/responses/${id}`, { body: { metadata } });
  }

  async create(body: Omit<ResponseCreateParamsNonStreaming, "model">, model = "simulator"): Promise<string> {
    return (await this.openai.responses.create({ ...body, model })).id;
  }

  /** Waits until these responses are listed, and gives the first. */
  listed(...ids: string[]): Promise<ListedResponse> {
    return eventually(async () => {
      const { data } = await this.page("?limit=100");
      const listed = ids.map((id) => data.find((each) => each.id === id));
      return listed.includes(undefined) ? undefined : listed[0];
    });
  }

  /** The rows of a tenant's index. */
  rows(sql: string) {
    return worker.responseIndexes.exec(objectId(this.name, uniqueKeyOf("ResponseIndex")), sql);
  }
}

async function newTenant(): Promise<Tenant> {
  const name = `t${randomBytes(6).toString("hex")}`;
  const made = await gateway.fetch(`${gateway.url}/v1/admin/keys`, {
    method: "POST",
    headers: { authorization: `Bearer ${ROOT}`, "content-type": "application/json" },
    body: JSON.stringify({ tenant: name, limits: { track_homes: true } }),
  });
  return new Tenant(name, String(((await made.json()) as { value: unknown }).value));
}

describe("the list", () => {
  it("has each stored response with the beginning of its text, its usage, cost and time, newest first", async () => {
    const tenant = await newTenant();
    const first = await tenant.create({ input: "Where is the harbour?", metadata: { team: "blue" } });
    const second = await tenant.create({ input: "And the lighthouse?", previous_response_id: first });
    await tenant.listed(first, second);
    const { data, ...rest } = await tenant.page();
    expect(rest).toEqual({ object: "list", first_id: second, last_id: first, has_more: false });
    const { usage } = await tenant.openai.responses.retrieve(first);
    expect(data[1]).toMatchObject({
      id: first,
      object: "response.summary",
      status: "completed",
      model: "simulator",
      metadata: { team: "blue" },
      input: { type: "message", text: "Where is the harbour?" },
      output: { type: "message", text: expect.stringContaining("harbour") },
      usage,
      duration_ms: expect.any(Number),
      ...{ server: "vllm", waited_ms: 0, first_token_ms: expect.any(Number), attempts: 1 },
    });
    expect(data[1]?.cost_usd).toBeCloseTo(((usage?.input_tokens ?? 0) + 2 * (usage?.output_tokens ?? 0)) / 1e6, 9);
    expect(data[0]).toMatchObject({ previous_response_id: first });
    expect(data[0]).not.toHaveProperty("output_text");
  });

  it("continues page by page in both orders, also beside new responses", async () => {
    const tenant = await newTenant();
    const ids: string[] = [];
    for (let index = 0; index < 5; index += 1) ids.push(await tenant.create({ input: `Number ${index}` }));
    await tenant.listed(...ids);
    const walk = async (order: string) => {
      const seen: string[] = [];
      for (let after = ""; ; ) {
        const { data, has_more: hasMore, last_id: last } = await tenant.page(`?limit=2&order=${order}${after}`);
        seen.push(...data.map(({ id }) => id));
        if (!hasMore) return seen;
        after = `&after=${last}`;
      }
    };
    expect(await walk("asc")).toEqual(ids);
    expect(await walk("desc")).toEqual(ids.toReversed());
    expect((await tenant.get(`?after=resp_${"x".repeat(32)}`)).status).toBe(400);
  });

  it("has no response with store: false, none that was deleted, and none of another tenant", async () => {
    const [mine, other] = [await newTenant(), await newTenant()];
    const kept = await mine.create({ input: "Keep this." });
    const gone = await mine.create({ input: "Delete this." });
    await mine.openai.responses.create({ model: "simulator", input: "Never keep this.", store: false });
    await mine.listed(kept, gone);
    await mine.openai.responses.delete(gone);
    await eventually(async () => !(await mine.ids()).includes(gone));
    expect(await mine.ids()).toEqual([kept]);
    expect(await mine.ids("?query=delete")).toEqual([]);
    expect(mine.rows("SELECT COUNT(*) AS count FROM response")).toEqual([{ count: 1 }]);
    expect(await other.ids()).toEqual([]);
    expect(await other.ids("?query=keep")).toEqual([]);
    expect((await other.get(`?after=${kept}`)).status).toBe(400);
  });

  it("never has a background response with store: false, which nothing is left of some time after its end", async () => {
    const tenant = await newTenant();
    const begin = (input: string, more: object = {}) =>
      tenant.create({ input, background: true, store: false, ...more });
    const first = await tenant.create({ input: "Keep this." });
    const unstored = [await begin("Forget this."), await begin("Forget this, too.", { previous_response_id: first })];
    for (const id of unstored) {
      const isGone = () =>
        tenant.openai.responses.retrieve(id).then(
          (response) => (response as { store?: boolean }).store !== false,
          () => true,
        );
      await eventually(isGone);
      await expect(tenant.openai.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
      await expect(tenant.openai.responses.inputItems.list(id)).rejects.toMatchObject({ status: 404 });
    }
    const last = await tenant.create({ input: "Keep this, too.", previous_response_id: first });
    await tenant.listed(first, last);
    expect(await tenant.ids()).toEqual([last, first]);
    expect(tenant.rows("SELECT COUNT(*) AS count FROM response")).toEqual([{ count: 2 }]);
  });

  it("has a background response during and after its run", async () => {
    const tenant = await newTenant();
    const input = "Take your time.";
    const { openai } = tenant;
    const model = "simulator?tps=20&words=1000";
    const { id } = await openai.responses.create({ model, input, background: true });
    await reached(gateway, input);
    expect(await tenant.listed(id)).toMatchObject({
      status: "queued",
      duration_ms: null,
      server: null,
      attempts: null,
    });
    await openai.responses.cancel(id);
    await ended({ openai, vllm }, id);
    await eventually(async () => (await tenant.ids("?status=cancelled")).includes(id));
    expect(await tenant.ids("?status=queued")).toEqual([]);
  });
});

describe("filters", () => {
  it("find by model, status, metadata, conversation, time and words, alone and together", async () => {
    const tenant = await newTenant();
    const { id: conversation } = await tenant.openai.conversations.create();
    const plain = await tenant.create({ input: "The ferry leaves at noon." });
    const tagged = await tenant.create({ input: "Ferries need captains.", metadata: { team: "blue", Team: "red" } });
    const cut = await tenant.create({ input: "A long story", max_output_tokens: 2 });
    const joined = await tenant.create({ input: "東京の天気", conversation });
    await tenant.listed(plain, tagged, cut, joined);
    expect(await tenant.ids("?status=incomplete")).toEqual([cut]);
    expect(await tenant.ids("?metadata[team]=blue")).toEqual([tagged]);
    expect(await tenant.ids("?metadata[team]=blue&metadata[Team]=red")).toEqual([tagged]);
    expect(await tenant.ids("?metadata[team]=Blue")).toEqual([]);
    expect(await tenant.ids(`?conversation=${conversation}`)).toEqual([joined]);
    expect(await tenant.ids("?query=ferry")).toEqual([tagged, plain]);
    expect(await tenant.ids("?query=ferry%20captain")).toEqual([tagged]);
    expect(await tenant.ids(`?query=${encodeURIComponent("天気")}`)).toEqual([joined]);
    expect(await tenant.ids("?query=ferry&status=incomplete")).toEqual([]);
    expect(await tenant.ids("?model=simulator&limit=100")).toHaveLength(4);
    expect(await tenant.ids("?model=another")).toEqual([]);
    const { created_at: at } = await tenant.openai.responses.retrieve(cut);
    expect(await tenant.ids(`?created_at[gte]=${at}&created_at[lt]=${at + 1}`)).toContain(cut);
    expect(await tenant.ids(`?created_at[lt]=${at - 3600}`)).toEqual([]);
    expect(await tenant.ids(`?id=${joined}`)).toEqual([joined]);
    expect(await tenant.ids(`?id=${joined}&order=asc`)).toEqual([joined]);
    expect(await tenant.ids(`?id=${joined}&status=incomplete`)).toEqual([]);
    expect(await tenant.ids("?id=resp_unknown")).toEqual([]);
    expect(await (await newTenant()).ids(`?id=${joined}`)).toEqual([]);
  });

  it.each([
    '"',
    'a" OR tags : "b',
    "tags : x",
    "NEAR(a b)",
    "*",
    "-text:a",
    "a AND",
    "(".repeat(200),
    "\u0000",
    "%",
    "a ".repeat(250),
  ])("treat %j as mere words", async (query) => {
    const tenant = await newTenant();
    const answer = await tenant.get(`?query=${encodeURIComponent(query)}`);
    expect([answer.status, ((await answer.json()) as Page).data]).toEqual([200, []]);
  });

  it.each([
    ["limit=0", "limit"],
    ["limit=101", "limit"],
    ["order=up", "order"],
    ["status=done", "status"],
    [`query=${"x".repeat(513)}`, "query"],
    ["query=", "query"],
    ["id=", "id"],
    ["created_at[gte]=yesterday", "created_at[gte]"],
    [`metadata[${"k".repeat(65)}]=v`, "metadata"],
    [`metadata[k]=${"v".repeat(513)}`, "metadata"],
    ["metadata=x", "metadata"],
  ])("refuse ?%s, and name the field", async (query, param) => {
    const answer = await (await newTenant()).get(`?${query}`);
    expect(answer.status).toBe(400);
    const { error } = (await answer.json()) as { error: { param: string } };
    expect(error.param.startsWith(param)).toBe(true);
  });

  it("do not find an item that was deleted from its conversation", async () => {
    const tenant = await newTenant();
    const { conversations } = tenant.openai;
    const { id: conversation } = await conversations.create();
    const id = await tenant.create({ input: "My number is 55512.", conversation });
    await tenant.listed(id);
    for await (const item of conversations.items.list(conversation)) {
      await conversations.items.delete(item.id ?? "", { conversation_id: conversation });
    }
    await eventually(async () => (await tenant.listed(id)).input === null);
    expect(await tenant.ids("?query=55512")).toEqual([]);
  });
});

describe.concurrent("group_by=tree", () => {
  it("lists each tree as its newest response, with its root, the latest activity first", async () => {
    const tenant = await newTenant();
    const first = await tenant.create({ input: "Where is the harbour?", metadata: { title: "Harbour" } });
    const second = await tenant.create({ input: "Where is the mill?" });
    const branch = await tenant.create({ input: "And its lighthouse?", previous_response_id: first });
    const newest = await tenant.create({ input: "And its crane?", previous_response_id: first, metadata: { a: "b" } });
    await tenant.listed(first, second, branch, newest);
    const { data, ...rest } = await tenant.page("?group_by=tree");
    expect(rest).toEqual({ object: "list", first_id: newest, last_id: second, has_more: false });
    const { created_at } = await tenant.openai.responses.retrieve(first);
    const [summary] = (await tenant.page(`?id=${newest}`)).data;
    const tree = { root_id: first, metadata: { title: "Harbour" }, created_at, responses: 3 };
    expect(data[0]).toEqual({
      ...summary,
      tree: { ...tree, input: { type: "message", text: "Where is the harbour?" } },
    });
    expect(data[1]).toMatchObject({ id: second, tree: { root_id: second, responses: 1 } });
    expect(summary).not.toHaveProperty("tree");
  });

  it("has a conversation as one tree, and trees that share a home as several", async () => {
    const tenant = await newTenant();
    const { id: conversation } = await tenant.openai.conversations.create();
    const opened = await tenant.create({ input: "One.", conversation });
    const apart = [await tenant.create({ input: "Two." }), await tenant.create({ input: "Three." })];
    expect(new Set(apart.map(homeKey)).size).toBe(1);
    const last = await tenant.create({ input: "Four.", conversation });
    await tenant.listed(opened, ...apart, last);
    expect(await tenant.roots()).toEqual([opened, ...apart.toReversed()]);
  });

  it("continues page by page in both orders, after a response that was the newest of its tree", async () => {
    const tenant = await newTenant();
    const roots: string[] = [];
    for (let index = 0; index < 5; index += 1) roots.push(await tenant.create({ input: `Number ${index}` }));
    await tenant.listed(...roots);
    const walk = async (order: string) => {
      const seen: unknown[] = [];
      for (let after = ""; ; ) {
        const { data, has_more, last_id } = await tenant.page(`?group_by=tree&limit=2&order=${order}${after}`);
        seen.push(...data.map(({ tree }) => tree?.root_id));
        if (!has_more) return seen;
        after = `&after=${last_id}`;
      }
    };
    expect(await walk("asc")).toEqual(roots);
    expect(await walk("desc")).toEqual(roots.toReversed());
    const [oldest, older, middle] = roots;
    const next = await tenant.create({ input: "Go on.", previous_response_id: middle ?? "" });
    await tenant.listed(next);
    expect(await tenant.roots(`&after=${middle}`)).toEqual([older, oldest]);
    expect((await tenant.get(`?group_by=tree&after=resp_${"x".repeat(32)}`)).status).toBe(400);
  });

  it("lists a tree if any of its responses passes all filters, by its latest activity", async () => {
    const tenant = await newTenant();
    const ferry = await tenant.create({ input: "The ferry leaves at noon.", metadata: { pinned: "true" } });
    const train = await tenant.create({ input: "The train is late." });
    const cut = await tenant.create({ input: "Another ferry", max_output_tokens: 2, metadata: { pinned: "true" } });
    const last = await tenant.create({ input: "Thanks.", previous_response_id: ferry });
    await tenant.listed(ferry, train, cut, last);
    expect(await tenant.roots("&query=ferry")).toEqual([ferry, cut]);
    expect(await tenant.roots("&query=ferry&limit=1")).toEqual([ferry]);
    expect(await tenant.roots(`&query=ferry&after=${last}`)).toEqual([cut]);
    expect(await tenant.roots("&query=ferry&order=asc")).toEqual([cut, ferry]);
    expect(await tenant.roots("&query=ferry&metadata[pinned]=true&status=incomplete")).toEqual([cut]);
    expect(await tenant.roots("&query=ferry%20thanks")).toEqual([]);
    expect(await tenant.roots("&query=train&metadata[pinned]=true")).toEqual([]);
    expect(await tenant.roots("&status=incomplete")).toEqual([cut]);
    expect(await tenant.roots(`&id=${ferry}`)).toEqual([ferry]);
    expect(await tenant.roots(`&id=${last}`)).toEqual([ferry]);
    const { created_at: at } = await tenant.openai.responses.retrieve(ferry);
    expect(await tenant.roots(`&created_at[gte]=${at}`)).toEqual([ferry, cut, train]);
    expect(await tenant.roots(`&created_at[lt]=${at + 3600}`)).toEqual([ferry, cut, train]);
    expect(await tenant.roots(`&created_at[lt]=${at - 3600}`)).toEqual([]);
    expect(await (await newTenant()).roots("&query=ferry")).toEqual([]);
    expect((await tenant.get("?group_by=model")).status).toBe(400);
  });

  it("has the oldest response that is left for a root that was deleted, and no tree without responses", async () => {
    const tenant = await newTenant();
    const root = await tenant.create({ input: "The first." });
    const middle = await tenant.create({ input: "The second.", previous_response_id: root });
    const newest = await tenant.create({ input: "The third.", previous_response_id: middle });
    await tenant.listed(root, middle, newest);
    const treesWithout = async (gone: string) => {
      await tenant.openai.responses.delete(gone);
      await eventually(async () => !(await tenant.ids()).includes(gone));
      return (await tenant.page("?group_by=tree")).data.map(({ id, tree }) => [id, tree?.root_id, tree?.responses]);
    };
    expect(await treesWithout(root)).toEqual([[newest, middle, 2]]);
    expect(await treesWithout(newest)).toEqual([[middle, middle, 1]]);
    expect(await treesWithout(middle)).toEqual([]);
    expect(tenant.rows("SELECT COUNT(*) AS count FROM tree")).toEqual([{ count: 0 }]);
  });
});

describe.concurrent("changed metadata", () => {
  it("are listed and found instead of the earlier ones, with the duration that the response had", async () => {
    const tenant = await newTenant();
    const root = await tenant.create({ input: "Where is the harbour?", metadata: { title: "Old" } });
    const before = await tenant.listed(root);
    expect(await tenant.change(root, { title: "New", pinned: "true" })).toMatchObject({
      id: root,
      metadata: { title: "New", pinned: "true" },
    });
    await eventually(async () => (await tenant.ids("?metadata[pinned]=true")).includes(root));
    expect(await tenant.listed(root)).toEqual({ ...before, metadata: { title: "New", pinned: "true" } });
    expect(await tenant.ids("?metadata[title]=Old")).toEqual([]);
    expect((await tenant.page("?group_by=tree")).data[0]?.tree?.metadata).toEqual({ title: "New", pinned: "true" });
  });

  it("of a background response that is not stored are not listed", async () => {
    const tenant = await newTenant();
    const id = await tenant.create({ input: "Forget this.", background: true, store: false });
    await ended({ openai: tenant.openai, vllm }, id);
    await tenant.change(id, { a: "b" });
    await tenant.listed(await tenant.create({ input: "Keep this.", background: true }));
    expect(await tenant.ids("?metadata[a]=b")).toEqual([]);
  });
});

describe("the index", () => {
  it("gets a change that was made just before its process was killed", async () => {
    const tenant = await newTenant();
    const { conversations } = tenant.openai;
    const { id: conversation } = await conversations.create();
    const renamed = await tenant.create({ input: "Rename this.", metadata: { title: "Old" } });
    const cleared = await tenant.create({ input: "My number is 55512.", conversation });
    await tenant.listed(renamed, cleared);
    const items = await Array.fromAsync(conversations.items.list(conversation));
    await Promise.all([
      tenant.change(renamed, { title: "New" }),
      ...items.map((item) => conversations.items.delete(item.id ?? "", { conversation_id: conversation })),
    ]);
    await worker.kill();
    await worker.restart();
    expect((await tenant.openai.responses.retrieve(renamed)).metadata).toEqual({ title: "New" });
    await eventually(async () => (await tenant.ids("?metadata[title]=New")).includes(renamed));
    await eventually(async () => (await tenant.ids("?query=55512")).length === 0);
  });

  it("gets a response whose process was killed at once, and loses one that was deleted just before", async () => {
    const tenant = await newTenant();
    const gone = await tenant.create({ input: "This will be deleted." });
    await tenant.listed(gone);
    const kept = await tenant.create({ input: "Nobody has reported this." });
    await tenant.openai.responses.delete(gone);
    await worker.kill();
    await worker.restart();
    await tenant.listed(kept);
    await eventually(async () => !(await tenant.ids()).includes(gone));
    expect(await tenant.ids()).toEqual([kept]);
    expect(await tenant.ids("?query=nobody")).toEqual([kept]);
  });

  it("drops expired responses, also without a request", async () => {
    const tenant = await newTenant();
    const old = await tenant.create({ input: "An old story." });
    await tenant.listed(old);
    const index = objectId(tenant.name, uniqueKeyOf("ResponseIndex"));
    await worker.kill();
    const createdAt = Date.now() - 31 * DAY_MS;
    worker.responseIndexes.exec(index, "UPDATE response SET no = ?", createdAt * 1000);
    worker.responseIndexes.exec(index, "UPDATE tree SET newest = ?", createdAt * 1000);
    const home = objectId(`${tenant.name}:${homeKey(old)}`);
    worker.storage.exec(home, "UPDATE turns SET created_at = ?", createdAt);
    await worker.restart();
    expect([await tenant.ids(), await tenant.roots()]).toEqual([[], []]);
    await worker.kill();
    worker.passTime(31 * DAY_MS);
    await worker.restart();
    await eventually(() => tenant.rows("SELECT 1 FROM response").length === 0);
  });

  it("is erased with its tenant, and stays so, also if a response was not reported yet", async () => {
    const [tenant, other] = [await newTenant(), await newTenant()];
    await tenant.listed(await tenant.create({ input: "Forget me." }));
    await tenant.create({ input: "Forget me, too." });
    await gateway.fetch(`${gateway.url}/v1/admin/tenants/${tenant.name}`, {
      method: "DELETE",
      headers: { authorization: `Bearer ${ROOT}` },
    });
    const tables = () => tenant.rows("SELECT 1 FROM sqlite_schema WHERE name IN ('response', 'words')");
    expect(tables()).toEqual([]);
    // A report of the erased tenant would come before this one.
    await other.listed(await other.create({ input: "Keep this." }));
    expect(tables()).toEqual([]);
  });
});
