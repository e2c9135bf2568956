import { createHash, randomBytes } from "node:crypto";
import { parseResponseId } from "@responses-edge/responses-api/ids";
import type OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { objectId } from "../workerd/storage.ts";
import { ask, call, type MadeKey, makeKey, newTenant, ROOT, startWithKeys } from "./key-support.ts";
import { eventually, type Gateway, lastPrompt } from "./support.ts";

/** Files, vector stores and homes of several trees move with their tenant from one deployment to another. */

let here: Gateway;
let there: Gateway;
beforeAll(async () => {
  [here, there] = await Promise.all([startWithKeys({}), startWithKeys({})]);
});
afterAll(() => Promise.all([here.close(), there.close()]));

const model = "simulator";

const homeOf = (id: string) => parseResponseId(id)?.home ?? "";

async function clientOf(gateway: Gateway, tenant: string): Promise<OpenAI> {
  const { value }: MadeKey = await makeKey(gateway, tenant);
  return gateway.client({ apiKey: value });
}

interface Page {
  lines: string[];
  next: string | null;
}

async function pageOf(gateway: Gateway, tenant: string, query = ""): Promise<Page> {
  const answer = await call(gateway, "GET", `/v1/admin/tenants/${tenant}/export${query}`);
  expect(answer.status).toBe(200);
  const lines = (await answer.text()).trimEnd().split("\n");
  const last = JSON.parse(lines.at(-1) ?? "{}") as { object: string; has_more: boolean; next: string | null };
  expect(last).toMatchObject({ object: "export.page", has_more: last.next !== null });
  return { lines, next: last.next };
}

interface Answer {
  status: number;
  body: {
    files: object;
    vector_stores: object;
    error?: { message: string; param: string | null; code: string | null };
  };
}

async function importInto(gateway: Gateway, tenant: string, lines: readonly string[]): Promise<Answer> {
  const answer = await gateway.fetch(`${gateway.url}/v1/admin/tenants/${tenant}/import`, {
    method: "POST",
    headers: { authorization: `Bearer ${ROOT}`, "content-type": "application/jsonl" },
    body: lines.join("\n"),
  });
  return { status: answer.status, body: (await answer.json()) as Answer["body"] };
}

async function sumOf({ files }: OpenAI, id: string): Promise<string> {
  const bytes = new Uint8Array(await (await files.content(id)).arrayBuffer());
  return createHash("sha256").update(bytes).digest("hex");
}

/** Makes a tenant with three files, two of which are in a vector store. */
async function filled() {
  const tenant = newTenant();
  const client = await clientOf(here, tenant);
  const upload = (body: string | Uint8Array<ArrayBuffer>, name: string, more: object = {}) =>
    client.files.create({ file: new File([body], name, { type: "text/plain" }), purpose: "assistants", ...more });
  const barn = await upload("A barn owl screeches.", "barn.txt");
  const tawny = await upload("A tawny owl hoots.", "tawny.txt", {
    expires_after: { anchor: "created_at", seconds: 7_200 },
  });
  const large = await upload(new Uint8Array(randomBytes(3_000_000)), "large.bin");
  const empty = await upload("", "empty.txt");
  const store = await client.vectorStores.create({
    name: "owls",
    metadata: { a: "b" },
    expires_after: { anchor: "last_active_at", days: 3 },
  });
  const polled = { pollIntervalMs: 20 };
  await client.vectorStores.files.createAndPoll(store.id, { file_id: barn.id, attributes: { kind: "barn" } }, polled);
  const chunking_strategy = {
    type: "static" as const,
    static: { max_chunk_size_tokens: 200, chunk_overlap_tokens: 50 },
  };
  await client.vectorStores.files.createAndPoll(store.id, { file_id: tawny.id, chunking_strategy }, polled);
  return { tenant, client, files: [barn, tawny, large, empty], store, inStore: [barn, tawny] };
}

it("are unchanged, under their ids; a second import changes nothing", async () => {
  const { tenant, client, files, store, inStore } = await filled();
  const { lines } = await pageOf(here, tenant);
  const done = await importInto(there, tenant, lines);
  expect(done.status, JSON.stringify(done.body)).toBe(200);
  expect(done.body).toMatchObject({
    files: { imported: 4, unchanged: 0, incomplete: 0 },
    vector_stores: { imported: 1, unchanged: 0 },
  });
  const other = await clientOf(there, tenant);
  expect((await other.files.list()).data).toEqual((await client.files.list()).data);
  for (const { id } of files) expect(await sumOf(other, id)).toBe(await sumOf(client, id));
  const { name, metadata, expires_after } = store;
  await eventually(async () => (await other.vectorStores.retrieve(store.id)).status === "completed");
  expect(await other.vectorStores.retrieve(store.id)).toMatchObject({ name, metadata, expires_after });
  for (const { id } of inStore) {
    const [was, is] = await Promise.all(
      [client, other].map((each) => each.vectorStores.files.retrieve(id, { vector_store_id: store.id })),
    );
    expect(is).toMatchObject({ attributes: was?.attributes, chunking_strategy: was?.chunking_strategy });
  }
  const search = (each: OpenAI) => each.vectorStores.search(store.id, { query: "screeches" });
  expect((await search(other)).data.map(({ file_id }) => file_id)).toEqual(
    (await search(client)).data.map(({ file_id }) => file_id),
  );
  const again = await importInto(there, tenant, lines);
  expect(again.body).toMatchObject({
    files: { imported: 0, unchanged: 4, incomplete: 0 },
    vector_stores: { imported: 0, unchanged: 1 },
  });
  // A file that is deleted here is removed from the store, too.
  const [{ id = "" } = {}] = inStore;
  await other.files.delete(id);
  await eventually(async () => (await other.vectorStores.retrieve(store.id)).file_counts.total === 1);
});

it("are exported page by page", async () => {
  const { tenant, files, store } = await filled();
  let next: string | null = "";
  const kinds: string[] = [];
  for (const target = newTenant(); next !== null; ) {
    const page: Page = await pageOf(here, tenant, `?limit=1${next && `&after=${next}`}`);
    const { status, body } = await importInto(there, target, page.lines);
    expect(status, JSON.stringify(body)).toBe(200);
    kinds.push(...page.lines.map((line) => (JSON.parse(line) as { object: string }).object));
    next = page.next;
    if (next === null) {
      const client = await clientOf(there, target);
      expect((await client.files.list()).data).toHaveLength(files.length);
      await client.vectorStores.retrieve(store.id);
    }
  }
  expect(kinds.filter((kind) => kind === "file")).toHaveLength(files.length);
  expect(kinds.filter((kind) => kind === "export.page")).toHaveLength(files.length);
});

it("that are incomplete leave nothing behind", async () => {
  const { tenant } = await filled();
  const { lines } = await pageOf(here, tenant);
  const of = (kind: string) => lines.findIndex((line) => line.includes(`"object":"${kind}"`));
  const end = lines.at(-1) ?? "";
  const file = lines.slice(of("file"), of("file.end") + 1);
  const target = newTenant();
  const client = await clientOf(there, target);

  const cut = await importInto(there, target, [...file.slice(0, -1), end]);
  expect(cut).toMatchObject({ status: 400, body: { error: { message: expect.stringContaining("are incomplete") } } });
  expect((await client.files.list()).data).toEqual([]);

  // The file was deleted in the middle of the export.
  const [about = "", ...rest] = file;
  const longer = about.replace(/"bytes":\d+/, '"bytes":99');
  await eventually(async () => {
    const { status, body } = await importInto(there, target, [longer, ...rest, end]);
    // The previous file is still being removed.
    if (status === 409) return false;
    expect(body).toMatchObject({ files: { imported: 0, unchanged: 0, incomplete: 1 } });
    return true;
  });
  expect((await client.files.list()).data).toEqual([]);

  for (const wrong of [rest[0] ?? "", lines[of("vector_store.file")] ?? "", '{"object":"file","id":"file-x"}']) {
    const { status, body } = await importInto(there, target, [wrong, end]);
    expect({ status, message: body.error?.message }).toEqual({
      status: 400,
      message: expect.stringContaining("Line 1"),
    });
  }
});

it("homes of several trees move as a whole, byte for byte", async () => {
  const [tenant, other] = [newTenant(), newTenant()];
  await ask(here, "POST", `/v1/admin/tenants/${tenant}`, { limits: { track_homes: true } });
  const { responses } = await clientOf(here, tenant);
  const ids: string[] = [];
  for (const input of ["One", "Two"]) ids.push((await responses.create({ model, input })).id);
  for (const previous of [...ids]) {
    const next = { model, input: "Further", previous_response_id: previous, background: true };
    ids.push((await responses.create(next)).id);
  }
  expect(new Set(ids.map(homeOf)).size).toBe(1);
  for (const id of ids) await eventually(async () => (await responses.retrieve(id)).status === "completed");
  const lines = await (await call(here, "GET", `/v1/admin/tenants/${tenant}/export`)).text();
  const { body } = await importInto(there, other, [lines]);
  expect(body).toMatchObject({ homes: { imported: 1, refused: 0 }, turns: 4 });
  const rows = (from: Gateway, of: string) =>
    from.storage.exec(objectId(`${of}:${homeOf(ids[0] ?? "")}`), "SELECT * FROM turns ORDER BY turn, part");
  expect(rows(there, other)).toEqual(rows(here, tenant));
  const moved = await clientOf(there, other);
  for (const id of ids) expect(await moved.responses.retrieve(id)).toEqual(await responses.retrieve(id));
  await moved.responses.create({ model, input: "There", previous_response_id: ids[3] ?? "" });
  const { messages } = lastPrompt(there) as { messages: { content: string }[] };
  expect(messages.map(({ content }) => content)).toEqual([
    "Two",
    "You said: Two",
    "Further",
    "You said: Further",
    "There",
  ]);
});
