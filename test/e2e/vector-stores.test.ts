import { readFileSync } from "node:fs";
import type OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { casesOf } from "../../packages/file-text/test/right-text.ts";
import { joinWithKeys, newKeys } from "./key-support.ts";
import { eventually, type Gateway } from "./support.ts";

/** Vector stores, by openai-node. The embeddings are the simulator's. */

let gateway: Gateway;
let keys: Record<"one" | "other", string>;
let openai: OpenAI;
beforeAll(async () => {
  // Its model of embeddings is one of the pool's.
  gateway = await joinWithKeys();
  keys = await newKeys(gateway, "one", "other");
  openai = gateway.client({ apiKey: keys.one });
});
afterAll(() => gateway.close());

/** The error of a refused request. */
async function expectError(asked: Promise<unknown>, status: number, fields: object): Promise<void> {
  expect(await asked.catch((error: unknown) => error)).toMatchObject({ status, ...fields });
}

const FAST = { pollIntervalMs: 20 };

const TEXTS = {
  "wings.txt": "The wing stalls when the angle of attack grows too large. Lift is lost, and drag grows.",
  "bread.txt": "Bread is baked of flour, water, salt and yeast. The dough rests overnight.",
  "rivers.md": "# Rivers\n\nThe Danube flows through ten countries into the Black Sea.",
};

const file = (name: string, text: string, client = openai) =>
  client.files.create({ file: new File([text], name), purpose: "assistants" });

/** Makes a store with the texts above, and waits until all of them are searchable. */
async function filledStore(client = openai) {
  const files = await Promise.all(Object.entries(TEXTS).map(([name, text]) => file(name, text, client)));
  const store = await client.vectorStores.create({ name: "texts" });
  const batch = await client.vectorStores.fileBatches.createAndPoll(
    store.id,
    { files: files.map(({ id, filename }, index) => ({ file_id: id, attributes: { name: filename, rank: index } })) },
    FAST,
  );
  expect(batch).toMatchObject({ status: "completed", file_counts: { completed: 3, in_progress: 0, total: 3 } });
  return { store, files };
}

const names = (page: { data: { filename: string }[] }) => page.data.map(({ filename }) => filename);

describe.concurrent("a vector store", () => {
  it("is created, shown, changed, listed and deleted like OpenAI's", async () => {
    const made = await openai.vectorStores.create({ name: "one", description: "of tests", metadata: { a: "b" } });
    expect(made).toEqual({
      id: expect.stringMatching(/^vs_\w{22}$/),
      object: "vector_store",
      created_at: expect.any(Number),
      name: "one",
      description: "of tests",
      status: "completed",
      usage_bytes: 0,
      file_counts: { in_progress: 0, completed: 0, failed: 0, cancelled: 0, total: 0 },
      last_active_at: expect.any(Number),
      metadata: { a: "b" },
      expires_at: null,
      embedding_model: null,
      embedding_dimensions: null,
    });
    expect(await openai.vectorStores.retrieve(made.id)).toEqual(made);
    const changed = await openai.vectorStores.update(made.id, {
      name: "two",
      metadata: null,
      expires_after: { anchor: "last_active_at", days: 2 },
    });
    expect(changed).toMatchObject({ name: "two", metadata: null, expires_after: { days: 2 } });
    expect(changed.expires_at).toBe((changed.last_active_at ?? 0) + 2 * 86_400);
    const other = await openai.vectorStores.create({});
    const after = await openai.vectorStores.list({ order: "asc", after: made.id, limit: 100 });
    expect(after.data.map(({ id }) => id)).toContain(other.id);
    const before = await openai.vectorStores.list({ order: "asc", before: other.id, limit: 100 });
    expect(before.data.map(({ id }) => id)).toContain(made.id);
    expect(await openai.vectorStores.delete(made.id)).toEqual({
      id: made.id,
      object: "vector_store.deleted",
      deleted: true,
    });
    await expectError(openai.vectorStores.retrieve(made.id), 404, { code: "vector_store_not_found" });
    await expectError(openai.vectorStores.delete(made.id), 404, { code: "vector_store_not_found" });
  });

  it("finds its contents by meaning and by words, and names the model of its embeddings", async () => {
    const { store } = await filledStore();
    expect(await openai.vectorStores.retrieve(store.id)).toMatchObject({
      status: "completed",
      embedding_model: "simulator",
      embedding_dimensions: 256,
      usage_bytes: expect.toSatisfy((bytes: number) => bytes > 200),
    });
    const page = await openai.vectorStores.search(store.id, { query: "Why do wings stall?", max_num_results: 2 });
    expect(names(page)).toEqual(["wings.txt", expect.any(String)]);
    const [best] = page.data;
    expect(best).toEqual({
      file_id: expect.stringMatching(/^file-/),
      filename: "wings.txt",
      score: 1,
      attributes: { name: "wings.txt", rank: 0 },
      content: [{ type: "text", text: TEXTS["wings.txt"] }],
    });
    const several = await openai.vectorStores.search(store.id, { query: ["baked dough", "flows into a sea"] });
    expect(new Set(names(several).slice(0, 2))).toEqual(new Set(["bread.txt", "rivers.md"]));
    const strict = await openai.vectorStores.search(store.id, {
      query: "dough of flour",
      ranking_options: { score_threshold: 0.99, ranker: "auto" },
    });
    expect(names(strict)).toEqual(["bread.txt"]);
  });

  it("gives the reason for each result on request, and no other difference", async () => {
    const { store } = await filledStore();
    const search = (fields: object) =>
      openai.vectorStores.search(store.id, { query: ["Why do wings stall?", "salted dough"], ...fields });
    const plain = await search({});
    const { data } = await search({ include: ["explanation"] });
    expect(plain.data.every((result) => !("explanation" in result))).toBe(true);
    expect(data.map((result) => ({ ...result, explanation: undefined }))).toEqual(plain.data);
    expect(data.find(({ filename }) => filename === "wings.txt")).toMatchObject({
      explanation: {
        fusion_score: plain.data.find(({ filename }) => filename === "wings.txt")?.score,
        page: null,
        last_page: null,
        queries: [
          { embedding_rank: 1, text_rank: 1, words: ["wings", "stall"] },
          { embedding_rank: expect.any(Number), text_rank: null, words: [] },
        ],
      },
    });
    expect(data.find(({ filename }) => filename === "bread.txt")).toMatchObject({
      explanation: { queries: [{ text_rank: null }, { embedding_rank: 1, text_rank: 1, words: ["salted", "dough"] }] },
    });
    await expectError(search({ include: ["reasons"] }), 400, { param: "include[0]" });
  });

  it("weighs meaning and words by `hybrid_search`", async () => {
    const { store } = await filledStore();
    const search = async (embedding_weight: number, text_weight: number) => {
      const ranking_options: object = { hybrid_search: { embedding_weight, text_weight } };
      return names(await openai.vectorStores.search(store.id, { query: "zebra crossing", ranking_options }));
    };
    // No file has the words, but each has some similarity of meaning.
    expect(await search(0, 1)).toEqual([]);
    expect(await search(1, 0)).toHaveLength(3);
  });

  it("searches only files whose attributes match a filter, also after changes", async () => {
    const { store, files } = await filledStore();
    const found = async (filters: OpenAI.VectorStores.VectorStoreSearchParams["filters"]) =>
      new Set(names(await openai.vectorStores.search(store.id, { query: "wing dough Danube", filters })));
    expect(await found({ type: "eq", key: "name", value: "bread.txt" })).toEqual(new Set(["bread.txt"]));
    expect(await found({ type: "gte", key: "rank", value: 1 })).toEqual(new Set(["bread.txt", "rivers.md"]));
    expect(await found({ type: "nin", key: "rank", value: [0, 2] })).toEqual(new Set(["bread.txt"]));
    const either = [
      { type: "eq" as const, key: "rank", value: 0 },
      { type: "eq" as const, key: "name", value: "rivers.md" },
    ];
    expect(await found({ type: "or", filters: either })).toEqual(new Set(["wings.txt", "rivers.md"]));
    expect(await found({ type: "and", filters: [either[0] ?? {}, { type: "or", filters: either }] as never })).toEqual(
      new Set(["wings.txt"]),
    );
    const [first] = files;
    const updated = await openai.vectorStores.files.update(first?.id ?? "", {
      vector_store_id: store.id,
      attributes: { rank: 7 },
    });
    expect(updated.attributes).toEqual({ rank: 7 });
    expect(await found({ type: "gt", key: "rank", value: 5 })).toEqual(new Set(["wings.txt"]));
    expect(await found({ type: "eq", key: "name", value: "wings.txt" })).toEqual(new Set());
  });

  it("gets a file from the client's helper, and shows its chunks", async () => {
    const store = await openai.vectorStores.create({ name: "long" });
    const text = Array.from({ length: 400 }, (_, index) => `Sentence ${index} speaks of nothing new.`).join(" ");
    const { id } = await openai.vectorStores.files.uploadAndPoll(store.id, new File([text], "long.txt"), FAST);
    expect(await openai.vectorStores.files.retrieve(id, { vector_store_id: store.id })).toMatchObject({
      status: "completed",
      last_error: null,
      chunking_strategy: { type: "static", static: { max_chunk_size_tokens: 800, chunk_overlap_tokens: 400 } },
    });
    const content = await openai.vectorStores.files.content(id, { vector_store_id: store.id });
    expect(content.data.length).toBeGreaterThan(3);
    expect(content.data[0]?.text?.startsWith("Sentence 0 speaks")).toBe(true);
    const [found] = (await openai.vectorStores.search(store.id, { query: "Sentence 399" })).data;
    expect(found?.content[0]?.text).toContain("Sentence 399 speaks");
  });

  it("tells of a file that is searchable which of its pages could not be read", async () => {
    const archive = readFileSync(new URL("../../packages/file-text/test/corpus.bin", import.meta.url));
    const scanned = casesOf(archive).find(({ about }) => about.path === "damage/scanned-pages.pdf");
    const store = await openai.vectorStores.create({ name: "scans" });
    const pdf = new File([new Uint8Array(scanned?.bytes ?? [])], "scans.pdf");
    const file = await openai.vectorStores.files.uploadAndPoll(store.id, pdf, FAST);
    expect(file).toMatchObject({
      status: "completed",
      last_error: {
        code: "unsupported_file",
        message: "A part of the file (pages 1, 3 to 4) cannot be read. The rest of it can be searched.",
      },
    });
    const [found] = (await openai.vectorStores.search(store.id, { query: "Page two" })).data;
    expect(found?.content[0]?.text).toContain("[This page has no text: it is an image.]");
  });

  it("lists its files, those of one status, and pages of them", async () => {
    const { store, files } = await filledStore();
    const all = await openai.vectorStores.files.list(store.id, { order: "asc", limit: 2 });
    expect(all.data.map(({ id }) => id)).toEqual(files.slice(0, 2).map(({ id }) => id));
    const rest = await openai.vectorStores.files.list(store.id, { order: "asc", after: files[1]?.id });
    expect(rest.data.map(({ id }) => id)).toEqual([files[2]?.id]);
    const failed = await openai.vectorStores.files.list(store.id, { filter: "failed" });
    expect(failed.data).toEqual([]);
    await expectError(openai.vectorStores.files.list(store.id, { after: "file-none" }), 400, { param: "after" });
  });

  it("drops a file that is removed or deleted", async () => {
    const { store, files } = await filledStore();
    const [wings, bread] = files;
    const gone = await openai.vectorStores.files.delete(wings?.id ?? "", { vector_store_id: store.id });
    expect(gone).toEqual({ id: wings?.id, object: "vector_store.file.deleted", deleted: true });
    expect(names(await openai.vectorStores.search(store.id, { query: "wing stall" }))).not.toContain("wings.txt");
    expect(await openai.files.retrieve(wings?.id ?? "")).toMatchObject({ id: wings?.id });
    await openai.files.delete(bread?.id ?? "");
    await eventually(async () => (await openai.vectorStores.retrieve(store.id)).file_counts.total === 1);
    expect(names(await openai.vectorStores.search(store.id, { query: "dough of flour" }))).toEqual(["rivers.md"]);
  });

  it("gives the reason for a file's failure, and continues with the others", async () => {
    const { id: picture } = await file("a.png", "\u0089PNG\r\n\u001a\n\0\0\0");
    const { id: text } = await file("a.txt", "Something to be found.");
    const store = await openai.vectorStores.create({ file_ids: [picture, "file-0000000000000000000000", text] });
    await eventually(async () => (await openai.vectorStores.retrieve(store.id)).status === "completed");
    const { data } = await openai.vectorStores.files.list(store.id, { order: "asc" });
    expect(data.map(({ status, last_error: error }) => [status, error?.code])).toEqual([
      ["failed", expect.stringMatching(/^(unsupported|invalid)_file$/)],
      ["failed", "invalid_file"],
      ["completed", undefined],
    ]);
    await expectError(openai.vectorStores.files.create(store.id, { file_id: "file-none" }), 404, {
      code: "file_not_found",
    });
  });

  it("is indexed again on request", async () => {
    const { store } = await filledStore();
    const answer = await gateway.fetch(`${gateway.url}/v1/vector_stores/${store.id}/reindex`, {
      method: "POST",
      headers: { authorization: `Bearer ${keys.one}` },
    });
    expect(await answer.json()).toMatchObject({ status: "in_progress", embedding_model: null });
    await eventually(async () => (await openai.vectorStores.retrieve(store.id)).status === "completed");
    const page = await openai.vectorStores.search(store.id, { query: "wing stall", max_num_results: 1 });
    expect(names(page)).toEqual(["wings.txt"]);
    expect(await openai.vectorStores.retrieve(store.id)).toMatchObject({ embedding_model: "simulator" });
  });

  it("of another tenant, its files and its uploads are unknown at every endpoint", async () => {
    const { store, files } = await filledStore();
    const { id: fileId } = files[0] ?? { id: "" };
    const batch = await openai.vectorStores.fileBatches.create(store.id, { file_ids: [fileId] });
    const upload = { bytes: 1, filename: "a.txt", mime_type: "text/plain", purpose: "assistants" } as const;
    const { id: uploadId } = await openai.uploads.create(upload);
    const owned: Record<string, Record<string, string>> = {
      vector_stores: { id: store.id, file: fileId, batch: batch.id },
      files: { id: fileId },
      uploads: { id: uploadId },
      containers: { id: `cntr_${"0".repeat(32)}`, file: fileId },
    };
    const part = new FormData();
    part.append("data", new Blob(["x"]), "x");
    const bodies: Record<string, object> = {
      "/v1/vector_stores/{id}/search": { query: "wing" },
      "/v1/vector_stores/{id}/files": { file_id: fileId },
      "/v1/vector_stores/{id}/files/{file}": { attributes: {} },
      "/v1/vector_stores/{id}/file_batches": { file_ids: [fileId] },
      "/v1/containers/{id}/files": { file_id: fileId },
      "/v1/uploads/{id}/complete": { part_ids: ["part_x"] },
      "/v1/uploads/{id}/parts": part,
    };
    // The API's description lists every endpoint, also future ones.
    const { paths } = (await (await fetch(`${gateway.url}/openapi.json`)).json()) as { paths: Record<string, object> };
    const asked: [string, Promise<Response>][] = Object.entries(paths).flatMap(([path, methods]) => {
      const ids = owned[path.split("/")[2] ?? ""];
      if (!ids || !path.includes("{")) return [];
      const url = gateway.url + path.replaceAll(/\{(\w+)\}/g, (_, name) => ids[name] ?? `{${name}}`);
      const operations = Object.keys(methods).filter((method) => ["get", "post", "delete"].includes(method));
      return operations.map((method): [string, Promise<Response>] => {
        const body = method === "post" ? (bodies[path] ?? {}) : undefined;
        const isForm = body instanceof FormData;
        const headers = {
          authorization: `Bearer ${keys.other}`,
          ...(body && !isForm && { "content-type": "application/json" }),
        };
        const init = {
          method: method.toUpperCase(),
          headers,
          ...(body && { body: isForm ? body : JSON.stringify(body) }),
        };
        return [`${init.method} ${path}`, fetch(url, init)];
      });
    });
    const statuses = await Promise.all(asked.map(async ([endpoint, answer]) => [endpoint, (await answer).status]));
    expect(statuses.length).toBeGreaterThan(20);
    expect(statuses.filter(([, status]) => status !== 404)).toEqual([]);
    const other = gateway.client({ apiKey: keys.other });
    // A tenant cannot add its own file to another's store, nor another's file to its own store.
    const { id: theirs } = await file("theirs.txt", "Theirs.", other);
    await expectError(Promise.resolve(other.vectorStores.files.create(store.id, { file_id: theirs })), 404, {});
    const { id: theirStore } = await other.vectorStores.create({});
    await expectError(Promise.resolve(other.vectorStores.files.create(theirStore, { file_id: fileId })), 404, {});
    // In a batch, another tenant's file fails like an unknown one.
    const ids = [fileId, `file-${"0".repeat(22)}`];
    const mixed = await other.vectorStores.fileBatches.createAndPoll(theirStore, { file_ids: ids }, FAST);
    expect(mixed.file_counts).toMatchObject({ failed: 2, total: 2 });
    const { data } = await other.vectorStores.files.list(theirStore);
    const messages = data.map(({ id, last_error: error }) => error?.message.replaceAll(id, "ID"));
    expect(new Set(messages).size).toBe(1);
    expect((await other.vectorStores.list()).data.map(({ id }) => id)).toEqual([theirStore]);
    expect((await other.files.list()).data.map(({ id }) => id)).toEqual([theirs]);
    expect(names(await openai.vectorStores.search(store.id, { query: "wing stall" }))[0]).toBe("wings.txt");
    expect(await openai.files.retrieve(fileId)).toMatchObject({ id: fileId });
  });

  it("refuses filters with too many levels, and says how many there may be", async () => {
    const store = await openai.vectorStores.create({});
    let filters: object = { type: "eq", key: "a", value: 1 };
    for (let level = 0; level < 7; level += 1) {
      await openai.vectorStores.search(store.id, { query: "a", filters } as never);
      filters = { type: "and", filters: [filters] };
    }
    const answer = openai.vectorStores.search(store.id, { query: "a", filters } as never);
    const message = expect.stringContaining("Expected at most 6 levels of 'and' and 'or'.");
    await expectError(Promise.resolve(answer), 400, { param: `filters${".filters[0]".repeat(6)}.filters`, message });
  });

  it.each([
    [{ query: "" }, "query"],
    [{ query: [] }, "query"],
    [{ query: "a", max_num_results: 51 }, "max_num_results"],
    [{ query: "a", filters: { type: "like", key: "a", value: "b" } }, "filters"],
    [{ query: "a", filters: { type: "and", filters: [{ type: "eq", key: "a", value: null }] } }, "filters"],
    [{ query: "a", ranking_options: { score_threshold: 2 } }, "ranking_options.score_threshold"],
  ])("refuses the search %j", async (body, param) => {
    const store = await openai.vectorStores.create({});
    const answer = openai.vectorStores.search(store.id, body as never);
    await expectError(Promise.resolve(answer), 400, { param: expect.stringContaining(param) });
  });
});

describe.concurrent("a batch of files", () => {
  it("is uploaded by the client's helper, and lists its files", async () => {
    const store = await openai.vectorStores.create({});
    const files = [new File(["One of two."], "1.txt"), new File(["Two of two."], "2.txt")];
    const batch = await openai.vectorStores.fileBatches.uploadAndPoll(store.id, { files }, FAST);
    expect(batch).toMatchObject({ object: "vector_store.files_batch", status: "completed" });
    const { data } = await openai.vectorStores.fileBatches.listFiles(batch.id, { vector_store_id: store.id });
    expect(data.map(({ status }) => status)).toEqual(["completed", "completed"]);
    const cancelled = await openai.vectorStores.fileBatches.cancel(batch.id, { vector_store_id: store.id });
    expect(cancelled.file_counts).toMatchObject({ completed: 2, cancelled: 0 });
  });

  it("accepts each file once", async () => {
    const store = await openai.vectorStores.create({});
    const both = { file_ids: ["file-a"], files: [{ file_id: "file-a" }] };
    await expectError(openai.vectorStores.fileBatches.create(store.id, both), 400, { param: "file_ids" });
    await expectError(openai.vectorStores.fileBatches.create(store.id, {}), 400, { param: "file_ids" });
  });
});
