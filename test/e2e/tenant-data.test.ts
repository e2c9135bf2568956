import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectError } from "./expectations.ts";
import { ask, call, create, joinWithKeys, type MadeKey, makeKey, newTenant } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";
import { ended, unique } from "./turns.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinWithKeys();
});
afterAll(() => gateway.close());

type Line = Record<string, unknown> & { object: string };

async function exported(tenant: string, query = ""): Promise<Line[]> {
  const answer = await call(gateway, "GET", `/v1/admin/tenants/${tenant}/export${query}`);
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toBe("application/jsonl");
  const lines = (await answer.text()).split("\n");
  expect(lines.pop()).toBe("");
  return lines.map((line) => JSON.parse(line) as Line);
}

/** Makes a tenant whose homes are noted. */
async function tracked(): Promise<{ tenant: string; key: MadeKey }> {
  const tenant = newTenant();
  await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits: { track_homes: true } });
  return { tenant, key: await makeKey(gateway, tenant) };
}

/** Stores one of everything that a tenant can have. Gives the texts. */
async function fill({ value }: MadeKey): Promise<{ texts: string[]; ids: string[] }> {
  const client = gateway.client({ apiKey: value });
  const texts = ["stored", "streamed", "in the background", "under a key", "in a conversation", "an item"].map((text) =>
    unique(text),
  );
  const [stored = "", streamed = "", background = "", keyed = "", spoken = "", item = ""] = texts;
  const first = await client.responses.create({ model: "simulator", input: stored });
  const next = { model: "simulator", input: streamed, previous_response_id: first.id, stream: true as const };
  for await (const _ of await client.responses.create(next));
  const run = await client.responses.create({ model: "simulator", input: background, background: true });
  await ended({ openai: client, vllm: gateway.vllm }, run.id);
  const headers = { "idempotency-key": unique("key") };
  const once = await client.responses.create({ model: "simulator", input: keyed }, { headers });
  const items = [{ type: "message" as const, role: "user" as const, content: item }];
  const conversation = await client.conversations.create({ items });
  await client.responses.create({ model: "simulator", input: spoken, conversation: conversation.id });
  return { texts, ids: [first.id, run.id, once.id] };
}

describe("the export of a tenant", () => {
  it("has all of its stored data, its keys without their text, and its usage, and nothing of another's", async () => {
    const [one, other] = [await tracked(), await tracked()];
    const { texts, ids } = await fill(one.key);
    const theirs = await fill(other.key);
    await eventually(async () => (await exported(one.tenant)).some(({ object }) => object === "usage"));
    const lines = await exported(one.tenant);
    const whole = JSON.stringify(lines);
    for (const text of texts) expect(whole).toContain(text);
    for (const text of theirs.texts) expect(whole).not.toContain(text);
    const responses = lines.filter(({ object }) => object === "response");
    expect(responses).toHaveLength(5);
    expect(responses.map(({ id }) => id)).toEqual(expect.arrayContaining(ids));
    expect(lines.find(({ object }) => object === "tenant")).toMatchObject({
      id: one.tenant,
      limits: { track_homes: true },
    });
    expect(lines.find(({ object }) => object === "api_key")).toMatchObject({ id: one.key.id });
    expect(lines.filter(({ object }) => object === "conversation")).toHaveLength(1);
    expect(whole).not.toContain(one.key.value);
    expect(lines.at(-1)).toEqual({ object: "export.page", has_more: false, next: null });
  });

  it("has pages of homes, with each home on one page", async () => {
    const { tenant, key } = await tracked();
    const client = gateway.client({ apiKey: key.value });
    const ids: string[] = [];
    for (let turn = 0; turn < 5; turn += 1)
      ids.push((await client.responses.create({ model: "simulator", input: "Hello!" })).id);
    const found: unknown[] = [];
    for (let after: unknown = ""; after !== null; ) {
      const lines = await exported(tenant, `?limit=2${after === "" ? "" : `&after=${after}`}`);
      found.push(...lines.filter(({ object }) => object === "response").map(({ id }) => id));
      after = lines.at(-1)?.next;
    }
    expect(found.toSorted()).toEqual(ids.toSorted());
  });

  it("has no deleted item, and no deleted response", async () => {
    const { tenant, key } = await tracked();
    const client = gateway.client({ apiKey: key.value });
    const [gone, out, left] = [unique("gone"), unique("out"), unique("left")];
    const { id } = await client.responses.create({ model: "simulator", input: gone });
    await client.responses.delete(id);
    const conversation = await client.conversations.create({
      items: [out, left].map((content) => ({ type: "message" as const, role: "user" as const, content })),
    });
    const [newest, oldest] = (await client.conversations.items.list(conversation.id)).data;
    expect(JSON.stringify(newest)).toContain(left);
    await client.conversations.items.delete(oldest?.id ?? "", { conversation_id: conversation.id });
    const whole = JSON.stringify(await exported(tenant));
    expect(whole).toContain(left);
    expect(whole).not.toContain(out);
    expect(whole).not.toContain(gone);
  });

  it("of a tenant without noted homes has its keys, and calls no home", async () => {
    const key = await makeKey(gateway, newTenant());
    expect((await create(gateway, key)).status).toBe(200);
    expect((await exported(key.tenant)).map(({ object }) => object)).toEqual(["tenant", "api_key", "export.page"]);
  });

  it.each(["GET", "DELETE"])(
    "%s with a tenant's own key is a 403, and with an invalid tenant a 400",
    async (method) => {
      const { tenant, key } = await tracked();
      const path = (of: string) => `/v1/admin/tenants/${of}${method === "GET" ? "/export" : ""}`;
      await expectError(await call(gateway, method, path(tenant), undefined, key.value), { status: 403 });
      await expectError(await call(gateway, method, path("a:b")), { status: 400, param: "tenant" });
    },
  );
});

/** An endpoint of events that do not happen in these tests. */
const HOOK = { name: "mine", url: "https://example.com/hook", event_types: ["response.failed" as const] };

/** Makes a batch of one request. Gives its id. */
async function batchOf(client: Gateway["openai"]): Promise<string> {
  const line = { custom_id: "a", method: "POST", url: "/v1/responses", body: { model: "simulator", input: "Hello!" } };
  const file = await client.files.create({ file: new File([JSON.stringify(line)], "a.jsonl"), purpose: "batch" });
  const batch = { input_file_id: file.id, endpoint: "/v1/responses" as const, completion_window: "24h" as const };
  return (await client.batches.create(batch)).id;
}

describe("a batch and a webhook endpoint of another tenant", () => {
  it.each([
    ["GET", "/v1/batches/{batch}"],
    ["POST", "/v1/batches/{batch}/cancel"],
    ["GET", "/v1/webhook_endpoints/{hook}"],
    ["POST", "/v1/webhook_endpoints/{hook}", { name: "theirs" }],
    ["POST", "/v1/webhook_endpoints/{hook}/rotate_secret"],
    ["POST", "/v1/webhook_endpoints/{hook}/test", { event_type: "response.failed" }],
    ["GET", "/v1/webhook_endpoints/{hook}/deliveries"],
    ["DELETE", "/v1/webhook_endpoints/{hook}"],
  ])("%s %s is the 404 of an unknown id", async (method, template, body?: object) => {
    const [one, other] = [await makeKey(gateway, newTenant()), await makeKey(gateway, newTenant())];
    const client = gateway.client({ apiKey: one.value });
    const [batch, hook] = [await batchOf(client), (await client.webhooks.create({ ...HOOK })).id];
    const refusal = async (ids: { batch: string; hook: string }) => {
      const path = template.replace("{batch}", ids.batch).replace("{hook}", ids.hook);
      const answer = await call(gateway, method, path, body, other.value);
      return [answer.status, (await answer.text()).replaceAll(ids.batch, "id").replaceAll(ids.hook, "id")];
    };
    const found = await refusal({ batch, hook });
    expect(found[0]).toBe(404);
    expect(found).toEqual(await refusal({ batch: `batch_${"0".repeat(22)}`, hook: `we_${"0".repeat(22)}` }));
    expect((await client.webhooks.retrieve(hook)).name).toBe("mine");
    expect((await client.batches.retrieve(batch)).status).not.toMatch(/cancel/);
  });
});

describe("the erasure of a tenant", () => {
  it("ends its keys, stops its runs and empties its homes; another tenant's stay; the audit log has it", async () => {
    const [one, other] = [await tracked(), await tracked()];
    const { ids } = await fill(one.key);
    const theirs = await fill(other.key);
    const client = gateway.client({ apiKey: one.key.value });
    await client.responses.create({ model: "simulator?tps=20&words=100000", input: "Runs on", background: true });
    const file = await client.files.create({ file: new File(["Owls hoot."], "owls.md"), purpose: "assistants" });
    const store = await client.vectorStores.create({ file_ids: [file.id] });
    const batch = await batchOf(client);
    const hook = await client.webhooks.create({ ...HOOK });
    const erased = await ask(gateway, "DELETE", `/v1/admin/tenants/${one.tenant}`);
    // Data that was used within the last hour is checked again later.
    expect(erased).toMatchObject({ object: "tenant.erased", id: one.tenant, has_more: true });
    // While the key is cached, it could store data again.
    await eventually(async () => (await create(gateway, one.key, { store: false })).status === 401);
    // A new key of that tenant finds nothing.
    const heir = gateway.client({ apiKey: (await makeKey(gateway, one.tenant)).value });
    for (const id of ids) await expect(heir.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
    expect((await exported(one.tenant)).some(({ object }) => object === "response")).toBe(false);
    await expect(heir.files.content(file.id)).rejects.toMatchObject({ status: 404 });
    await expect(heir.vectorStores.retrieve(store.id)).rejects.toMatchObject({ status: 404 });
    await expect(heir.batches.retrieve(batch)).rejects.toMatchObject({ status: 404 });
    await expect(heir.webhooks.retrieve(hook.id)).rejects.toMatchObject({ status: 404 });
    const { files, vectorStores, batches, webhooks } = heir;
    for (const list of [files, vectorStores, batches, webhooks]) expect((await list.list()).data).toEqual([]);
    const stays = gateway.client({ apiKey: other.key.value });
    for (const id of theirs.ids) expect((await stays.responses.retrieve(id)).id).toBe(id);
    const log = await ask<{ data: Line[] }>(gateway, "GET", `/v1/organization/audit_logs?project_ids=${one.tenant}`);
    expect(log.data.map(({ type }) => type)).toContain("tenant.erased");
  });

  it("of one without data ends at once, and can be repeated", async () => {
    const tenant = newTenant();
    for (let turn = 0; turn < 2; turn += 1) {
      expect(await ask(gateway, "DELETE", `/v1/admin/tenants/${tenant}`)).toMatchObject({ homes: 0, has_more: false });
    }
  });
});
