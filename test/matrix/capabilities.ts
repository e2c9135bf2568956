import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type OpenAI from "openai";
import type { ObjectBinding } from "../../src/store/objects/registry.ts";
import { hasEnded, type Reader, create as readNew, resume, streamOf } from "../crash/reader.ts";
import { eventually } from "../e2e/support.ts";
import { COMPLETE } from "../tool-server/support.ts";

/** Every capability that stores something, for the matrix of capabilities and of the places of their objects. */

/** A server, as a tenant of its own uses it. */
export interface Tenant {
  url: string;
  name: string;
  key: string;
  openai: OpenAI;
  /** A call of the admin API that must succeed. Gives the text of the answer. */
  admin(method: string, path: string, body?: object): Promise<string>;
  /** Calls the API with the tenant's key. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  /** Where the tenant's webhooks arrive, and the ids of the events that have arrived there, by their response. */
  hook: { url: string; events: ReadonlyMap<string, ReadonlySet<string>> };
  /** Where processes may die, a request is sent again until it is answered. */
  server: { readonly hasDeaths: boolean };
}

/** Tells again and again, on any worker, that what was stored is still right: it throws if not. */
export type Check = () => Promise<void>;

export interface Capability {
  /** The classes whose objects store it. */
  stores: readonly ObjectBinding[];
  /** The limits and permissions of its tenant. */
  limits?: Record<string, unknown>;
  /** Stores something, uses it, and gives the check of what has to stay true. `text` is new each time. */
  use(tenant: Tenant, text: string): Promise<Check>;
}

const MODEL = "simulator";
/** Says its words slowly enough for something to happen in the middle. */
const SLOW = "simulator?tps=40&words=60";

const once = () => ({ headers: { "idempotency-key": randomUUID() } });
const said = (text: string) => `You said: ${text}`;

async function isResponse({ openai }: Tenant, id: string, text: string): Promise<void> {
  const { status, output_text } = await openai.responses.retrieve(id);
  assert.deepEqual([status, output_text], ["completed", said(text)]);
}

function create({ openai }: Tenant, text: string, more: object = {}): Promise<OpenAI.Responses.Response> {
  return openai.responses.create({ model: MODEL, input: text, ...more }, once());
}

async function upload({ openai }: Tenant, text: string, purpose: "assistants" | "batch"): Promise<string> {
  return (await openai.files.create({ file: new File([text], `${purpose}.txt`), purpose })).id;
}

/** A store with a file that says where an animal lives. */
async function storeWith(tenant: Tenant, text: string): Promise<{ store: string; file: string }> {
  const { openai } = tenant;
  const { id: store } = await openai.vectorStores.create({ name: text });
  const file = await upload(tenant, `The animal ${text} lives in a tree.`, "assistants");
  await openai.vectorStores.files.create(store, { file_id: file });
  const ended = await eventually(async () => {
    const found = await openai.vectorStores.files.retrieve(file, { vector_store_id: store });
    return found.status === "in_progress" ? undefined : found;
  });
  assert.deepEqual([ended.status, ended.last_error], ["completed", null]);
  return { store, file };
}

/** The tenants that have run a program. */
const withPrograms = new WeakSet<Tenant>();

/** Runs a program in a container. Where processes die, a program that died with one of them is run again. */
async function runUntil(tenant: Tenant, container: string, code: string, printed: string): Promise<void> {
  const tools = [{ type: "code_interpreter", container }];
  const include = ["code_interpreter_call.outputs"];
  await eventually(async () => {
    const { output } = await create(tenant, `Use python: \`${code}\``, { tools, include });
    const isPrinted = JSON.stringify(output).includes(`"logs":"${printed}\\n"`);
    assert.ok(isPrinted || tenant.server.hasDeaths, JSON.stringify(output));
    return isPrinted;
  });
}

/** A batch of lines, to its end. */
async function batchOf(tenant: Tenant, texts: readonly string[]): Promise<OpenAI.Batch> {
  const lines = texts.map((text) => {
    const body = { model: SLOW, input: text };
    return JSON.stringify({ custom_id: text, method: "POST", url: "/v1/responses", body });
  });
  const input_file_id = await upload(tenant, lines.join("\n"), "batch");
  const fields = { input_file_id, endpoint: "/v1/responses" as const, completion_window: "24h" as const };
  const { id } = await tenant.openai.batches.create(fields);
  return eventually(async () => {
    const batch = await tenant.openai.batches.retrieve(id);
    return ["completed", "failed", "expired", "cancelled"].includes(batch.status) ? batch : undefined;
  });
}

/** Makes something, until what workers report beside requests has it. A dead worker may take its last reports with it. */
async function untilReported(
  { server }: Tenant,
  make: () => Promise<void>,
  isReported: () => Promise<boolean>,
): Promise<void> {
  await make();
  if (!server.hasDeaths) return void (await eventually(isReported));
  for (let looks = 1; !(await isReported()); looks += 1) {
    if (looks % 40 === 0) await make();
    await sleep(100);
  }
}

/** The lines of an export, on all its pages. */
async function exported(tenant: Tenant): Promise<string> {
  return tenant.admin("GET", `/v1/admin/tenants/${tenant.name}/export?limit=200`);
}

export const CAPABILITIES: Record<string, Capability> = {
  "a response": {
    stores: ["HOME"],
    async use(tenant, text) {
      const { id } = await create(tenant, text);
      await tenant.openai.post(`/responses/${id}`, { body: { metadata: { title: text } } });
      return async () => {
        await isResponse(tenant, id, text);
        assert.deepEqual((await tenant.openai.responses.retrieve(id)).metadata, { title: text });
      };
    },
  },

  "a follow-up": {
    stores: ["HOME"],
    async use(tenant, text) {
      const first = await create(tenant, `${text} 1`);
      const next = await create(tenant, `${text} 2`, { previous_response_id: first.id });
      return async () => {
        await isResponse(tenant, next.id, `${text} 2`);
        const input = await Array.fromAsync(tenant.openai.responses.inputItems.list(next.id));
        assert.ok(JSON.stringify(input).includes(`${text} 2`));
        const last = await create(tenant, `${text} 3`, { previous_response_id: next.id });
        assert.equal(last.output_text, said(`${text} 3`));
      };
    },
  },

  "a turn in a conversation": {
    stores: ["HOME"],
    async use(tenant, text) {
      const { openai } = tenant;
      const { id } = await openai.conversations.create({ metadata: { about: text } });
      for (const turn of [1, 2]) await create(tenant, `${text} ${turn}`, { conversation: id });
      return async () => {
        const items = await Array.fromAsync(openai.conversations.items.list(id, { order: "asc", limit: 100 }));
        const texts = items.map((item) => (item.type === "message" ? item.content : []));
        const expected = [1, 2].flatMap((turn) => [`${text} ${turn}`, said(`${text} ${turn}`)]);
        assert.deepEqual(
          texts.map((content) => content.map((part) => ("text" in part ? part.text : "")).join("")),
          expected,
        );
      };
    },
  },

  "a background run with readers": {
    stores: ["HOME", "BOARD"],
    async use(tenant, text) {
      const headers = { authorization: `Bearer ${tenant.key}` };
      const readers = Array.from({ length: 2 }, (): Reader => ({ id: "", text: "" }));
      const [first, second] = readers as [Reader, Reader];
      const reading = (async () => {
        // One that breaks off before its first event leaves nothing to resume.
        do await readNew(tenant.url, first, { model: SLOW, input: text }, headers);
        while (tenant.server.hasDeaths && first.id === "");
      })();
      await eventually(() => first.id !== "" || hasEnded(first));
      second.id = first.id;
      await Promise.all([reading, resume(tenant.url, second, headers)]);
      for (const reader of readers) {
        // Only a death breaks a reader off.
        assert.ok(
          tenant.server.hasDeaths || hasEnded(reader),
          `The stream has broken off after ${reader.text.slice(-200)}`,
        );
        await eventually(async () => {
          if (!hasEnded(reader)) await resume(tenant.url, reader, headers);
          return hasEnded(reader);
        });
      }
      streamOf(first);
      assert.equal(second.text, first.text);
      return async () => {
        const again: Reader = { id: first.id, text: "" };
        await resume(tenant.url, again, headers);
        assert.equal(again.text, first.text);
      };
    },
  },

  "a background response with store: false": {
    stores: ["HOME"],
    async use(tenant, text) {
      const { responses } = tenant.openai;
      const { id } = await responses.create({ model: MODEL, input: text, background: true, store: false });
      const hasEnded = async () =>
        !["queued", "in_progress"].includes((await tenant.openai.responses.retrieve(id)).status ?? "");
      await eventually(hasEnded);
      return async () => {
        await isResponse(tenant, id, text);
        const next = create(tenant, text, { previous_response_id: id });
        await assert.rejects(next, { status: 400, code: "previous_response_not_found" });
      };
    },
  },

  "an Idempotency-Key": {
    stores: ["HOME"],
    async use(tenant, text) {
      const headers = { "idempotency-key": text };
      const ask = (input: string) => tenant.openai.responses.create({ model: MODEL, input }, { headers });
      const ids = (await Promise.all([ask(text), ask(text), ask(text)])).map(({ id }) => id);
      assert.equal(new Set(ids).size, 1);
      return async () => {
        assert.equal((await ask(text)).id, ids[0]);
        await assert.rejects(ask(`not ${text}`), { status: 422, code: "idempotency_key_reused" });
      };
    },
  },

  "a file": {
    stores: ["FILE_DIRECTORIES", "FILE_BYTES"],
    async use(tenant, text) {
      const id = await upload(tenant, text, "assistants");
      return async () => {
        assert.equal(await (await tenant.openai.files.content(id)).text(), text);
        const listed = await Array.fromAsync(tenant.openai.files.list());
        assert.ok(listed.some((file) => file.id === id));
      };
    },
  },

  "a container": {
    stores: ["FILE_DIRECTORIES", "FILE_BYTES"],
    async use(tenant, text) {
      const { containers } = tenant.openai;
      const { id } = await containers.create({ name: text });
      const { id: file } = await containers.files.create(id, { file: new File([text], "text.txt") });
      // One for each tenant runs a program: each has an interpreter on this machine.
      const runs = COMPLETE && !withPrograms.has(tenant);
      withPrograms.add(tenant);
      if (runs) await runUntil(tenant, id, "text = open('text.txt').read(); print(text)", text);
      return async () => {
        assert.deepEqual((await containers.retrieve(id)).name, text);
        const files = await Array.fromAsync(containers.files.list(id));
        assert.deepEqual(
          files.map((each) => each.id),
          [file],
        );
        if (runs) await runUntil(tenant, id, "print(text)", text);
      };
    },
  },

  "an upload": {
    stores: ["FILE_DIRECTORIES", "FILE_BYTES"],
    async use(tenant, text) {
      const { openai } = tenant;
      const bytes = text.length * 2;
      const fields = { bytes, filename: "parts.txt", mime_type: "text/plain", purpose: "assistants" as const };
      const { id } = await openai.uploads.create(fields);
      const parts: string[] = [];
      for (const _ of [1, 2])
        parts.push((await openai.uploads.parts.create(id, { data: new File([text], "part") })).id);
      const { file } = await openai.uploads.complete(id, { part_ids: parts });
      return async () => assert.equal(await (await openai.files.content(file?.id ?? "")).text(), text + text);
    },
  },

  "a vector store": {
    stores: ["VECTOR_STORES", "FILE_DIRECTORIES", "FILE_BYTES"],
    async use(tenant, text) {
      const { store, file } = await storeWith(tenant, text);
      return async () => {
        const { data } = await tenant.openai.vectorStores.search(store, { query: `Where does ${text} live?` });
        assert.deepEqual([data[0]?.file_id, data[0]?.content[0]?.text], [file, `The animal ${text} lives in a tree.`]);
        const { file_counts } = await tenant.openai.vectorStores.retrieve(store);
        assert.equal(file_counts.completed, 1);
      };
    },
  },

  "file_search in a turn": {
    stores: ["VECTOR_STORES", "FILE_DIRECTORIES", "FILE_BYTES", "HOME"],
    async use(tenant, text) {
      const { store, file } = await storeWith(tenant, text);
      const tools = [{ type: "file_search", vector_store_ids: [store] }];
      const asked = { tools, include: ["file_search_call.results"] };
      const { id } = await create(tenant, `Use file_search for \`${text}\``, asked);
      return async () => {
        const { output } = await tenant.openai.responses.retrieve(id, { include: ["file_search_call.results"] });
        const call = output.find(({ type }) => type === "file_search_call");
        assert.ok(call?.type === "file_search_call");
        assert.equal(call.results?.[0]?.file_id, file);
      };
    },
  },

  "a batch": {
    stores: ["BATCHES", "FILE_DIRECTORIES", "FILE_BYTES", "HOME"],
    async use(tenant, text) {
      const texts = Array.from({ length: 8 }, (_, index) => `${text} ${index}`);
      const batch = await batchOf(tenant, texts);
      assert.deepEqual([batch.status, batch.request_counts], ["completed", { total: 8, completed: 8, failed: 0 }]);
      assert.equal(batch.error_file_id, undefined);
      return async () => {
        const output = await (await tenant.openai.files.content(batch.output_file_id ?? "")).text();
        const lines = output
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line));
        assert.deepEqual(
          lines.map(({ custom_id }) => custom_id),
          texts,
        );
        const ids = lines.map(({ response }) => response.body.id as string);
        const stored = await Promise.all(ids.map((id) => tenant.openai.responses.retrieve(id)));
        assert.deepEqual(
          stored.map(({ status }) => status),
          texts.map(() => "completed"),
        );
      };
    },
  },

  "a webhook": {
    stores: ["WEBHOOKS", "HOME"],
    async use(tenant, text) {
      const { openai, hook } = tenant;
      const event_types = ["response.completed" as const];
      const endpoint = await openai.webhooks.create({ name: text, url: hook.url, event_types });
      const { id } = await create(tenant, text, { background: true });
      const events = await eventually(() => hook.events.get(id));
      return async () => {
        // It may arrive twice, as the same event.
        assert.equal(events.size, 1);
        assert.equal((await openai.webhooks.retrieve(endpoint.id)).name, text);
        // Other endpoints of the tenant get it, too, and perhaps earlier. The endpoint also gets the events of later uses.
        await eventually(async () => {
          const deliveries = await tenant.fetch(`/v1/webhook_endpoints/${endpoint.id}/deliveries?limit=100`);
          return (await deliveries.text()).includes(id);
        });
      };
    },
  },

  "a key": {
    stores: ["KEYS"],
    async use(tenant, text) {
      const made = JSON.parse(await tenant.admin("POST", "/v1/admin/keys", { tenant: tenant.name, name: text }));
      const asked = await tenant.fetch("/v1/models", { headers: { authorization: `Bearer ${made.value}` } });
      assert.equal(asked.status, 200);
      return async () => assert.ok((await tenant.admin("GET", `/v1/admin/keys/${made.id}`)).includes(text));
    },
  },

  "a limit": {
    stores: ["KEYS", "QUOTAS"],
    async use(tenant, text) {
      const limits = { budget: { tokens: 100 } };
      const made = JSON.parse(await tenant.admin("POST", "/v1/admin/keys", { tenant: tenant.name, limits }));
      const headers = { authorization: `Bearer ${made.value}`, "content-type": "application/json" };
      const body = JSON.stringify({ model: MODEL, input: text, store: false, max_output_tokens: 10 });
      const ask = () => tenant.fetch("/v1/responses", { method: "POST", headers, body });
      let used = 0;
      const spend = async () => {
        for (let answer = await ask(); answer.status === 200; answer = await ask()) {
          used += ((await answer.json()) as { usage: { total_tokens: number } }).usage.total_tokens;
        }
        assert.ok(used > 0 && used <= 100, `${used} of 100 tokens were used`);
      };
      await spend();
      // What a request had reserved and not used may be used by another one.
      return spend;
    },
  },

  "the list of responses": {
    stores: ["RESPONSE_INDEXES", "HOME"],
    async use(tenant, text) {
      const { id } = await create(tenant, text);
      await tenant.openai.post(`/responses/${id}`, { body: { metadata: { about: text } } });
      const isListed = async (more = "") => {
        const answer = await tenant.fetch(`/v1/responses?metadata[about]=${encodeURIComponent(text)}${more}`);
        return (await answer.text()).includes(id);
      };
      await eventually(isListed);
      return async () => {
        await eventually(isListed);
        await eventually(() => isListed("&group_by=tree"));
      };
    },
  },

  usage: {
    stores: ["QUOTAS", "HOME"],
    async use(tenant, text) {
      const usage = async () => {
        const path = `/v1/organization/usage/completions?start_time=${Math.floor(Date.now() / 1000) - 86_400}`;
        const { data } = (await (await tenant.fetch(path)).json()) as {
          data: { results: { num_model_requests: number }[] }[];
        };
        return data.flatMap(({ results }) => results).reduce((sum, result) => sum + result.num_model_requests, 0);
      };
      const before = await usage();
      const both = async () => {
        await create(tenant, text);
        await create(tenant, text, { background: true });
      };
      const least = before + (tenant.server.hasDeaths ? 1 : 2);
      await untilReported(tenant, both, async () => (await usage()) >= least);
      const counted = await usage();
      return async () => void (await eventually(async () => (await usage()) >= counted));
    },
  },

  "the log of requests": {
    stores: ["BOARD", "HOME"],
    async use(tenant, text) {
      const ids = async () => {
        const { data } = (await (await tenant.fetch("/v1/admin/requests?limit=100")).json()) as {
          data: { response_id: string | null }[];
        };
        return data.map(({ response_id: id }) => id);
      };
      let id = "";
      const times = async () => (await ids()).filter((each) => each === id).length;
      const make = async () => {
        ({ id } = await create(tenant, text));
      };
      await untilReported(tenant, make, async () => (await times()) > 0);
      return async () => {
        const found = await times();
        // A report is repeated where its answer was lost.
        assert(tenant.server.hasDeaths ? found > 0 : found === 1, `${found} times`);
      };
    },
  },

  "an export": {
    stores: ["HOME", "KEYS", "FILE_DIRECTORIES", "FILE_BYTES"],
    limits: { track_homes: true },
    async use(tenant, text) {
      await create(tenant, text);
      await upload(tenant, `file of ${text}`, "assistants");
      return async () => {
        await eventually(async () => (await exported(tenant)).includes(said(text)));
      };
    },
  },

  "an erasure": {
    stores: [
      "HOME",
      "KEYS",
      "FILE_DIRECTORIES",
      "FILE_BYTES",
      "VECTOR_STORES",
      "WEBHOOKS",
      "BATCHES",
      "RESPONSE_INDEXES",
      "QUOTAS",
    ],
    async use(tenant, text) {
      const name = `erased-${randomUUID()}`;
      await tenant.admin("POST", `/v1/admin/tenants/${name}`, { limits: { track_homes: true } });
      const { value } = JSON.parse(await tenant.admin("POST", "/v1/admin/keys", { tenant: name }));
      const openai = tenant.openai.withOptions({ apiKey: value });
      const theirs: Tenant = { ...tenant, name, key: value, openai };
      const { id } = await create(theirs, text);
      const { store, file } = await storeWith(theirs, text);
      await eventually(async () => (await exported(theirs)).includes(id));
      // The homes of the last hour are named again by a later call.
      await tenant.admin("DELETE", `/v1/admin/tenants/${name}`);
      const again = JSON.parse(await tenant.admin("POST", "/v1/admin/keys", { tenant: name }));
      const afterwards = tenant.openai.withOptions({ apiKey: again.value });
      return async () => {
        await assert.rejects(afterwards.responses.retrieve(id), { status: 404 });
        await assert.rejects(afterwards.files.retrieve(file), { status: 404 });
        await assert.rejects(afterwards.vectorStores.retrieve(store), { status: 404 });
        assert.ok(!(await exported(theirs)).includes(text));
      };
    },
  },
};
