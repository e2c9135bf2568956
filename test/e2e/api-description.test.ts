import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { USAGE_REPORTS } from "@responses-edge/usage-limits";
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ApiDescription, descriptionOf } from "../conformance/api-description.ts";
import { type ConformantFetch, conformantFetch } from "../conformance/client.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { ADMIN_KEY, ROOT } from "./key-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway, startGateway } from "./support.ts";
import { startTools, type ToolServer } from "./tool-support.ts";

/**
 * The description at `GET /openapi.json`, checked against each of its operations. Other tests check all of their
 * exchanges against it, too (`startGateway`).
 */

const VARIABLES = { ADMIN_KEY, PROMETHEUS_METRICS: "true", PROMETHEUS_TOKEN: ROOT, TELEMETRY_LOG: "all" };

/** A gateway with a tenant's key and all settings that the drivers need. */
let gateway: Gateway;
let key: string;
let python: ToolServer;
let description: ApiDescription;
/** A gateway in front of a model server with every endpoint that can be passed on. */
let passing: Pick<WorkerdProcess, "url" | "logs" | "close"> & { fetch: ConformantFetch };

beforeAll(async () => {
  const content = [{ type: "text" as const, text: "Done." }];
  python = await startTools({
    python: {
      properties: { code: { type: "string" } },
      run: () => ({ content, structuredContent: { files: [{ name: "a.txt", bytes: 3 }] } }),
    },
    read_file: {
      properties: { name: { type: "string" }, offset: { type: "integer" }, length: { type: "integer" } },
      run: () => ({ content, structuredContent: { data: btoa("Tea") } }),
    },
  });
  gateway = await startGateway({
    ...VARIABLES,
    TOOL_SERVERS: JSON.stringify({ python: python.url }),
    WEBHOOK_URLS: python.url,
    RESPONSE_INDEX: "true",
  });
  description = await descriptionOf(gateway.url);
  const made = await send("POST", "/v1/admin/keys", { body: { tenant: "acme", limits: { track_homes: true } } });
  key = String((await made.json()).value);
  passing = await startPassing();
});
afterAll(async () => {
  await passing.close();
  await gateway.close();
  await python.close();
});

async function startPassing(): Promise<typeof passing> {
  const server = createServer((request, response) => {
    request.resume().once("end", () => {
      response
        .writeHead(200, { "content-type": "application/json" })
        .end('{"object":"list","data":[],"flagged":false}');
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const worker: WorkerdProcess = await startWorkerd({
    VLLM_BASE_URL: `${url}/v1`,
    GUARD_URL: url,
    ALLOW_ANONYMOUS: "true",
    PASSTHROUGH_ENDPOINTS: "all",
    TELEMETRY_LOG: "all",
  });
  const fetch = conformantFetch(undefined, description);
  return {
    url: worker.url,
    logs: () => worker.logs(),
    fetch,
    async close() {
      await worker.close();
      server.closeAllConnections();
      server.close();
    },
  };
}

interface Asked {
  body?: unknown;
  /** The key; default: the root key. */
  bearer?: string | undefined;
  headers?: Record<string, string>;
}

function send(method: string, path: string, { body, bearer = ROOT, headers }: Asked = {}): Promise<Response> {
  return gateway.fetch(gateway.url + path, {
    method,
    headers: {
      ...(bearer !== "" && { authorization: `Bearer ${bearer}` }),
      ...(body !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
  });
}

/** Sends a request with the tenant's key. */
function ask(method: string, path: string, body?: unknown): Promise<Response> {
  return send(method, path, { body, bearer: key });
}

/** The id of the object that a request has created. */
async function idOf(answer: Promise<Response>): Promise<string> {
  return String(((await (await answer).json()) as { id: unknown }).id);
}

const turn = { model: "simulator", input: "Hello!" };
const newResponse = (more: object = {}) => idOf(ask("POST", "/v1/responses", { ...turn, ...more }));
const hook = () => ({ name: "mine", url: python.url, event_types: ["response.completed"] });
const batchOf = (file: string) => ({ input_file_id: file, endpoint: "/v1/responses", completion_window: "24h" });
/** Makes a file of requests, and a batch of it. Gives their ids. */
async function newRequestBatch(): Promise<[file: string, batch: string]> {
  const line = { custom_id: "a", method: "POST", url: "/v1/responses", body: turn };
  const fields = { purpose: "batch", file: new File([JSON.stringify(line)], "batch.jsonl") };
  const file = await idOf(sendForm("/v1/files", fields));
  return [file, await idOf(ask("POST", "/v1/batches", batchOf(file)))];
}
const newHook = () => idOf(ask("POST", "/v1/webhook_endpoints", hook()));
const newConversation = (more: object = {}) => idOf(ask("POST", "/v1/conversations", more));
const newKey = () => idOf(send("POST", "/v1/admin/keys", { body: { tenant: "acme" } }));
const items = [{ role: "user", content: "Hello!" }];

async function newItem(): Promise<string> {
  const conversation = await newConversation({ items });
  const page = (await (await ask("GET", `/v1/conversations/${conversation}/items`)).json()) as { first_id: string };
  return `/v1/conversations/${conversation}/items/${page.first_id}`;
}

function pass(path: string, body: object = { model: "any", input: "Hello!" }): Promise<Response> {
  return passing.fetch(passing.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

function passFile(path: string, field = "file"): Promise<Response> {
  const body = new FormData();
  body.append("model", "any");
  body.append(field, new Blob(["RIFF"]), "speech.wav");
  return passing.fetch(passing.url + path, { method: "POST", body });
}

/** Sends a form with the tenant's key. */
function sendForm(path: string, fields: Record<string, string | File>): Promise<Response> {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  return gateway.fetch(gateway.url + path, { method: "POST", headers: { authorization: `Bearer ${key}` }, body });
}

function sendFile(text = "Owls hoot."): Promise<Response> {
  return sendForm("/v1/files", { purpose: "assistants", file: new File([text], "owls.md") });
}

const newUpload = () =>
  ask("POST", "/v1/uploads", { bytes: 3, filename: "a.txt", mime_type: "text/plain", purpose: "assistants" });
const newUploadPath = async () => `/v1/uploads/${await idOf(newUpload())}`;

const sendPart = (path: string) => sendForm(`${path}/parts`, { data: new File(["Tea"], "part") });

const STORES = "/v1/vector_stores";
const newFile = () => idOf(sendFile());
const newStore = async () => `${STORES}/${await idOf(ask("POST", STORES, { name: "owls" }))}`;

/** Makes a store with a file. Gives the path of each. */
async function newStoreFile(): Promise<string> {
  const [store, file_id] = await Promise.all([newStore(), newFile()]);
  return `${store}/files/${await idOf(ask("POST", `${store}/files`, { file_id }))}`;
}

const newContainer = async () => `/v1/containers/${await idOf(ask("POST", "/v1/containers", { name: "owls" }))}`;

/** Lets a program write a file. Gives the file's path. */
async function newContainerFile(): Promise<string> {
  const tools = [{ type: "code_interpreter", container: { type: "auto" } }];
  const answer = await ask("POST", "/v1/responses", { ...turn, input: "Use python: `1`", tools });
  const [, container, file] = /"container_id":"([^"]+)","file_id":"([^"]+)"/.exec(await answer.text()) ?? [];
  return `/v1/containers/${container}/files/${file}`;
}

async function newBatch(): Promise<string> {
  const [store, file] = await Promise.all([newStore(), newFile()]);
  return `${store}/file_batches/${await idOf(ask("POST", `${store}/file_batches`, { file_ids: [file] }))}`;
}

/** Valid requests for each operation. A new endpoint needs some here. */
const DRIVERS: Record<string, () => Promise<Response>[]> = {
  "GET /v1/responses": () => [
    newResponse({ metadata: { team: "a" } }).then(() => ask("GET", "/v1/responses?limit=2&metadata[team]=a")),
    ask("GET", "/v1/responses?order=asc&status=completed&query=hello&created_at[gte]=1"),
    ask("GET", "/v1/responses?group_by=tree"),
  ],
  "POST /v1/responses": () => [
    ask("POST", "/v1/responses", turn),
    ask("POST", "/v1/responses", { ...turn, stream: true, background: true }),
  ],
  "POST /v1/responses/input_tokens": () => [ask("POST", "/v1/responses/input_tokens", turn)],
  "POST /v1/responses/compact": () => [ask("POST", "/v1/responses/compact", turn)],
  "POST /v1/batches": () => [newRequestBatch().then(([file]) => ask("POST", "/v1/batches", batchOf(file)))],
  "GET /v1/batches": () => [newRequestBatch().then(() => ask("GET", "/v1/batches?limit=5"))],
  "GET /v1/batches/{id}": () => [newRequestBatch().then(([, id]) => ask("GET", `/v1/batches/${id}`))],
  "POST /v1/batches/{id}/cancel": () => [newRequestBatch().then(([, id]) => ask("POST", `/v1/batches/${id}/cancel`))],
  "POST /v1/webhook_endpoints": () => [ask("POST", "/v1/webhook_endpoints", hook())],
  "GET /v1/webhook_endpoints": () => [newHook().then(() => ask("GET", "/v1/webhook_endpoints?limit=5"))],
  "GET /v1/webhook_endpoints/{id}": () => [newHook().then((id) => ask("GET", `/v1/webhook_endpoints/${id}`))],
  "POST /v1/webhook_endpoints/{id}": () => [
    newHook().then((id) => ask("POST", `/v1/webhook_endpoints/${id}`, { name: "other" })),
  ],
  "DELETE /v1/webhook_endpoints/{id}": () => [newHook().then((id) => ask("DELETE", `/v1/webhook_endpoints/${id}`))],
  "POST /v1/webhook_endpoints/{id}/rotate_secret": () => [
    newHook().then((id) => ask("POST", `/v1/webhook_endpoints/${id}/rotate_secret`)),
  ],
  "POST /v1/webhook_endpoints/{id}/test": () => [
    newHook().then((id) => ask("POST", `/v1/webhook_endpoints/${id}/test`, { event_type: "response.completed" })),
  ],
  "GET /v1/webhook_endpoints/{id}/deliveries": () => [
    newHook().then((id) => ask("GET", `/v1/webhook_endpoints/${id}/deliveries?limit=5`)),
  ],
  "GET /v1/webhook_event_types": () => [ask("GET", "/v1/webhook_event_types")],
  "POST /v1/moderations": () => [pass("/v1/moderations", { input: ["Hello!"] })],
  "POST /v1/decisions": () => [
    ask("POST", "/v1/decisions", { ...turn, questions: [{ type: "predicate", instructions: "Is it?" }] }),
  ],
  "GET /v1/responses/{id}": () => [newResponse().then((id) => ask("GET", `/v1/responses/${id}`))],
  "POST /v1/responses/{id}": () => [
    newResponse().then((id) => ask("POST", `/v1/responses/${id}`, { metadata: { a: "b" } })),
  ],
  "DELETE /v1/responses/{id}": () => [newResponse().then((id) => ask("DELETE", `/v1/responses/${id}`))],
  "POST /v1/responses/{id}/cancel": () => [
    newResponse({ background: true }).then((id) => ask("POST", `/v1/responses/${id}/cancel`)),
  ],
  "GET /v1/responses/{id}/input_items": () => [
    newResponse().then((id) => ask("GET", `/v1/responses/${id}/input_items?limit=5&order=asc`)),
  ],
  "POST /v1/conversations": () => [
    ask("POST", "/v1/conversations"),
    ask("POST", "/v1/conversations", { items, metadata: { a: "b" } }),
  ],
  "GET /v1/conversations/{id}": () => [newConversation().then((id) => ask("GET", `/v1/conversations/${id}`))],
  "POST /v1/conversations/{id}": () => [
    newConversation().then((id) => ask("POST", `/v1/conversations/${id}`, { metadata: { a: "b" } })),
  ],
  "DELETE /v1/conversations/{id}": () => [newConversation().then((id) => ask("DELETE", `/v1/conversations/${id}`))],
  "GET /v1/conversations/{id}/items": () => [
    newConversation({ items }).then((id) => ask("GET", `/v1/conversations/${id}/items`)),
  ],
  "POST /v1/conversations/{id}/items": () => [
    newConversation().then((id) => ask("POST", `/v1/conversations/${id}/items`, { items })),
  ],
  "GET /v1/conversations/{id}/items/{item}": () => [newItem().then((path) => ask("GET", path))],
  "DELETE /v1/conversations/{id}/items/{item}": () => [newItem().then((path) => ask("DELETE", path))],
  "POST /v1/files": () => [sendFile()],
  "POST /v1/containers": () => [
    newFile().then((id) => ask("POST", "/v1/containers", { name: "owls", file_ids: [id] })),
    ask("POST", "/v1/containers", { name: "mine", expires_after: { anchor: "last_active_at", minutes: 5 } }),
  ],
  "GET /v1/containers": () => [newContainer().then(() => ask("GET", "/v1/containers?name=owls&limit=2&order=asc"))],
  "GET /v1/containers/{id}": () => [newContainer().then((path) => ask("GET", path))],
  "DELETE /v1/containers/{id}": () => [newContainer().then((path) => ask("DELETE", path))],
  "POST /v1/containers/{id}/files": () => [
    newContainer().then(async (path) => ask("POST", `${path}/files`, { file_id: await newFile() })),
    newContainer().then((path) => sendForm(`${path}/files`, { file: new File(["Tea"], "tea.txt") })),
  ],
  "GET /v1/containers/{id}/files": () => [
    newContainer().then(async (path) => {
      await sendForm(`${path}/files`, { file: new File(["Tea"], "tea.txt") });
      return ask("GET", `${path}/files?order=asc&limit=5`);
    }),
  ],
  "DELETE /v1/containers/{id}/files/{file}": () => [newContainerFile().then((path) => ask("DELETE", path))],
  "GET /v1/containers/{id}/files/{file}": () => [newContainerFile().then((path) => ask("GET", path))],
  "GET /v1/containers/{id}/files/{file}/content": () => [
    newContainerFile().then((path) => ask("GET", `${path}/content`)),
  ],
  "GET /v1/files": () => [ask("GET", "/v1/files?limit=5&purpose=assistants&order=asc")],
  "GET /v1/files/{id}": () => [newFile().then((id) => ask("GET", `/v1/files/${id}`))],
  "GET /v1/files/{id}/content": () => [newFile().then((id) => ask("GET", `/v1/files/${id}/content`))],
  "DELETE /v1/files/{id}": () => [newFile().then((id) => ask("DELETE", `/v1/files/${id}`))],
  "POST /v1/uploads": () => [newUpload()],
  "POST /v1/uploads/{id}/parts": () => [newUploadPath().then(sendPart)],
  "POST /v1/uploads/{id}/complete": () => [
    newUploadPath().then(async (path) => ask("POST", `${path}/complete`, { part_ids: [await idOf(sendPart(path))] })),
  ],
  "POST /v1/uploads/{id}/cancel": () => [newUploadPath().then((path) => ask("POST", `${path}/cancel`))],
  "POST /v1/vector_stores": () => [
    ask("POST", STORES, { name: "owls", metadata: { a: "b" }, expires_after: { anchor: "last_active_at", days: 1 } }),
  ],
  "GET /v1/vector_stores": () => [newStore().then(() => ask("GET", `${STORES}?limit=2&order=desc`))],
  "GET /v1/vector_stores/{id}": () => [newStore().then((path) => ask("GET", path))],
  "POST /v1/vector_stores/{id}": () => [newStore().then((path) => ask("POST", path, { name: "others" }))],
  "DELETE /v1/vector_stores/{id}": () => [newStore().then((path) => ask("DELETE", path))],
  "POST /v1/vector_stores/{id}/reindex": () => [newStore().then((path) => ask("POST", `${path}/reindex`))],
  "POST /v1/vector_stores/{id}/search": () => [
    newStoreFile().then((path) => ask("POST", path.replace(/files.*/, "search"), { query: "Who hoots?" })),
  ],
  "POST /v1/vector_stores/{id}/files": () => [
    Promise.all([newStore(), newFile()]).then(([path, file_id]) =>
      ask("POST", `${path}/files`, { file_id, attributes: { a: 1, b: true, c: "d" } }),
    ),
  ],
  "GET /v1/vector_stores/{id}/files": () => [
    newStoreFile().then((path) => ask("GET", path.replace(/files.*/, "files?limit=5"))),
  ],
  "GET /v1/vector_stores/{id}/files/{file}": () => [newStoreFile().then((path) => ask("GET", path))],
  "POST /v1/vector_stores/{id}/files/{file}": () => [
    newStoreFile().then((path) => ask("POST", path, { attributes: { a: "b" } })),
  ],
  "GET /v1/vector_stores/{id}/files/{file}/content": () => [
    newStoreFile().then(async (path) => {
      await eventually(async () => (await (await ask("GET", path)).text()).includes('"completed"'));
      return ask("GET", `${path}/content`);
    }),
  ],
  "DELETE /v1/vector_stores/{id}/files/{file}": () => [newStoreFile().then((path) => ask("DELETE", path))],
  "POST /v1/vector_stores/{id}/file_batches": () => [
    Promise.all([newStore(), newFile()]).then(([path, file]) =>
      ask("POST", `${path}/file_batches`, { file_ids: [file] }),
    ),
  ],
  "GET /v1/vector_stores/{id}/file_batches/{batch}": () => [newBatch().then((path) => ask("GET", path))],
  "POST /v1/vector_stores/{id}/file_batches/{batch}/cancel": () => [
    newBatch().then((path) => ask("POST", `${path}/cancel`)),
  ],
  "GET /v1/vector_stores/{id}/file_batches/{batch}/files": () => [
    newBatch().then((path) => ask("GET", `${path}/files`)),
  ],
  "GET /v1/models": () => [ask("GET", "/v1/models"), ask("GET", "/v1/models?client_version=0.169.0")],
  "GET /v1/models/{id}": () => [ask("GET", "/v1/models/simulator")],
  "POST /v1/chat/completions": () => [pass("/v1/chat/completions", { model: "any", messages: [] })],
  "POST /v1/completions": () => [pass("/v1/completions")],
  "POST /v1/embeddings": () => [pass("/v1/embeddings")],
  "POST /v1/rerank": () => [pass("/v1/rerank")],
  "POST /v1/score": () => [pass("/v1/score")],
  "POST /v1/audio/transcriptions": () => [passFile("/v1/audio/transcriptions")],
  "POST /v1/audio/translations": () => [passFile("/v1/audio/translations")],
  "POST /v1/images/generations": () => [pass("/v1/images/generations", { prompt: "an owl" })],
  "POST /v1/images/edits": () => [passFile("/v1/images/edits", "image")],
  "POST /v1/messages": () => [pass("/v1/messages", { model: "any", max_tokens: 5, messages: [] })],
  "POST /v1/messages/count_tokens": () => [pass("/v1/messages/count_tokens", { model: "any", messages: [] })],
  "POST /v1/chat/completions/render": () => [pass("/v1/chat/completions/render", { model: "any", messages: [] })],
  "POST /v1/responses/render": () => [pass("/v1/responses/render")],
  "POST /classify": () => [pass("/classify")],
  "POST /pooling": () => [pass("/pooling")],
  "POST /v2/rerank": () => [pass("/v2/rerank")],
  "POST /tokenize": () => [pass("/tokenize")],
  "POST /detokenize": () => [pass("/detokenize")],
  "POST /v1/admin/keys": () => [
    send("POST", "/v1/admin/keys", { body: { tenant: "acme", name: "one", limits: { models: ["simulator"] } } }),
  ],
  "GET /v1/admin/keys": () => [send("GET", "/v1/admin/keys?limit=1&tenant=acme")],
  "GET /v1/admin/keys/{id}": () => [newKey().then((id) => send("GET", `/v1/admin/keys/${id}`))],
  "POST /v1/admin/keys/{id}": () => [
    newKey().then((id) => send("POST", `/v1/admin/keys/${id}`, { body: { disabled: true } })),
  ],
  "DELETE /v1/admin/keys/{id}": () => [newKey().then((id) => send("DELETE", `/v1/admin/keys/${id}`))],
  "POST /v1/admin/keys/{id}/rotate": () => [
    newKey().then((id) => send("POST", `/v1/admin/keys/${id}/rotate`)),
    newKey().then((id) => send("POST", `/v1/admin/keys/${id}/rotate`, { body: { grace_seconds: 1 } })),
  ],
  "GET /v1/admin/configuration": () => [send("GET", "/v1/admin/configuration")],
  "POST /v1/admin/configuration": () => [
    send("POST", "/v1/admin/configuration", { body: { model_prices: { simulator: { input: 1, output: 2 } } } }),
  ],
  "GET /v1/admin/tenants/{tenant}": () => [send("GET", "/v1/admin/tenants/acme")],
  "POST /v1/admin/tenants/{tenant}": () => [
    send("POST", "/v1/admin/tenants/other", { body: { limits: { requests_per_minute: 5 } } }),
  ],
  "DELETE /v1/admin/tenants/{tenant}": () => [send("DELETE", "/v1/admin/tenants/nobody")],
  "GET /v1/admin/tenants/{tenant}/export": () => [send("GET", "/v1/admin/tenants/acme/export?limit=5")],
  "POST /v1/responses/{id}/replay": () => [
    newResponse().then((id) => ask("POST", `/v1/responses/${id}/replay`)),
    newResponse({ background: true }).then((id) => ask("POST", `/v1/responses/${id}/replay`, { speed: 1000 })),
  ],
  "GET /v1/responses/{id}/export": () => [newResponse().then((id) => ask("GET", `/v1/responses/${id}/export`))],
  "POST /v1/responses/{id}/fork": () => [
    newResponse().then((id) => ask("POST", `/v1/responses/${id}/fork`)),
    newResponse().then((id) => ask("POST", `/v1/responses/${id}/fork`, { at: 3, stream: true })),
  ],
  "GET /v1/responses/{id}/prompt": () => [newResponse().then((id) => ask("GET", `/v1/responses/${id}/prompt`))],
  "GET /v1/responses/{id}/tree": () => [newResponse().then((id) => ask("GET", `/v1/responses/${id}/tree`))],
  "GET /v1/conversations/{id}/tree": () => [newConversation().then((id) => ask("GET", `/v1/conversations/${id}/tree`))],
  "GET /v1/admin/runs": () => [send("GET", "/v1/admin/runs?limit=5")],
  "GET /v1/admin/requests": () => [
    send("GET", "/v1/admin/requests?limit=100"),
    send("GET", "/v1/admin/requests?limit=100&status=refused"),
  ],
  "GET /v1/admin/responses/{id}": () => [
    newResponse().then((id) => send("GET", `/v1/admin/responses/${id}?tenant=acme`)),
  ],
  "GET /v1/admin/overview": () => [
    send("GET", `/v1/admin/overview?start_time=${Math.floor(Date.now() / 1000) - 600}&bucket_width=1m`),
  ],
  "POST /v1/admin/runs/{id}/cancel": () => [
    newResponse({ model: "simulator?tps=1", background: true }).then(async (id) => {
      await eventually(async () => (await (await send("GET", "/v1/admin/runs?limit=100")).text()).includes(id));
      return send("POST", `/v1/admin/runs/${id}/cancel`);
    }),
  ],
  "POST /v1/admin/tenants/{tenant}/import": () => [
    send("POST", "/v1/admin/tenants/newcomer/import", {
      body: `${JSON.stringify({ object: "export.page", has_more: false, next: null })}\n`,
      headers: { "content-type": "application/jsonl" },
    }),
  ],
  "GET /v1/organization/audit_logs": () => [send("GET", "/v1/organization/audit_logs?limit=5&project_ids=acme")],
  "GET /v1/organization/costs": () => [
    send("GET", "/v1/organization/costs?start_time=0&limit=180&group_by=line_item,project_id"),
    ask("GET", `/v1/organization/costs?start_time=${Math.floor(Date.now() / 1000) - 60}&group_by[]=api_key_id`),
  ],
  "GET /v1/organization/usage/completions": () => [
    send("GET", "/v1/organization/usage/completions?start_time=0&limit=2&group_by=model,project_id"),
    ask("GET", `/v1/organization/usage/completions?start_time=${Math.floor(Date.now() / 1000) - 60}`),
  ],
  ...Object.fromEntries(
    Object.values(USAGE_REPORTS)
      .filter(({ path }) => path !== "completions")
      .map(({ path }) => [
        `GET /v1/organization/usage/${path}`,
        () => [send("GET", `/v1/organization/usage/${path}?start_time=0&limit=2&group_by=project_id`)],
      ]),
  ),
  "GET /v1/organization/usage/storage": () => [
    send("GET", "/v1/organization/usage/storage?project_ids=acme"),
    ask("GET", "/v1/organization/usage/storage"),
  ],
  "GET /health": () => [send("GET", "/health", { bearer: "" })],
  "GET /health/live": () => [send("GET", "/health/live", { bearer: "" })],
  "GET /health/ready": () => [send("GET", "/health/ready", { bearer: "" })],
  "GET /health/upstream": () => [send("GET", "/health/upstream")],
  "GET /metrics": () => [send("GET", "/metrics")],
  "GET /openapi.json": () => [send("GET", "/openapi.json", { bearer: "" })],
};

const SOCKETS = "GET /v1/responses";

const cases = Object.keys(DRIVERS).map((operation) => {
  const [method = "", path = ""] = operation.split(" ");
  return { operation, method, path, unknown: path.replaceAll(/\{\w+\}/g, "no_such_thing") };
});

describe("the description", () => {
  it("is a valid OpenAPI 3.1 document", async () => {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(structuredClone(description.document));
    expect({ valid, errors }).toEqual({ valid: true, errors: undefined });
    expect(validator.version).toBe("3.1");
  });

  it("is served without a key, also for HEAD", async () => {
    const answer = await send("HEAD", "/openapi.json", { bearer: "" });
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "application/json"]);
  });

  it("refers only to its own components", () => {
    const text = JSON.stringify(description.document);
    const references = [...text.matchAll(/"\$ref":"#\/components\/(\w+)\/(\w+)"/g)];
    const { components } = description.document as { components: Record<string, Record<string, unknown>> };
    expect(references.filter(([, kind = "", name = ""]) => !components[kind]?.[name])).toEqual([]);
    expect(references.length).toBe(text.split('"$ref"').length - 1);
  });

  it("has the same operations as DRIVERS (add a new one there)", () => {
    expect(Object.keys(DRIVERS).toSorted()).toEqual([...description.operations].toSorted());
  });
});

describe.for(cases)("$operation", ({ operation, method, path, unknown }) => {
  it("answers as it is described", async () => {
    const answers = await Promise.all(DRIVERS[operation]?.() ?? []);
    for (const answer of answers) {
      expect(answer.status, await answer.text()).toBe(200);
      expect(description.operationOf(method, new URL(answer.url).pathname)).toBe(operation);
    }
    await settled();
  });

  it("refuses as it is described", async () => {
    const isPassed = JSON.stringify(operationOf(operation)).includes("PASSTHROUGH_ENDPOINTS");
    const { security, requestBody } = operationOf(operation);
    const refused: Promise<Response>[] = [];
    // Requests with an invalid id and with an unknown one, and those for endpoints that this deployment does not have.
    if (path.includes("{id}") || isPassed)
      refused.push(send(method, unknown, { bearer: isPassed ? key : undefined, body: bodyOf(method) }));
    if (security.length > 0) refused.push(send(method, unknown, { bearer: "wrong", body: bodyOf(method) }));
    if (security.length > 0) refused.push(send(method, unknown, { bearer: "", body: bodyOf(method) }));
    if (requestBody) {
      const bearer = path.startsWith("/v1/admin") ? ROOT : key;
      refused.push(send(method, unknown, { bearer, body: "{" }));
      refused.push(send(method, unknown, { bearer, body: [] }));
      refused.push(send(method, unknown, { bearer, body: "x", headers: { "content-type": "text/plain" } }));
    }
    for (const answer of await Promise.all(refused)) {
      expect(answer.status, `${answer.url} ${await answer.text()}`).toBeGreaterThanOrEqual(400);
      expect(answer.status).toBeLessThan(500);
    }
    await settled();
  });
});

describe("the log of these requests", () => {
  interface Line {
    event?: string;
    endpoint?: string;
    status?: number;
    tenant?: string;
  }
  const logs = () => gateway.logs() + passing.logs();
  const lines = () =>
    logs()
      .split("\n")
      .flatMap((text) =>
        text.includes('"event":"request"') ? [JSON.parse(text.slice(text.indexOf("{"))) as Line] : [],
      );

  it.for(cases.filter(({ path }) => !/^\/(health|metrics|openapi)/.test(path)))(
    "has a line of $operation, and one of its refusals",
    async ({ method, path }) => {
      const endpoint = `${method} ${path.replaceAll(/\{(\w+)\}/g, ":$1")}`;
      const own = () => lines().filter((line) => line.endpoint?.replace("{.+}", "") === endpoint);
      await eventually(() => own().some(({ status }) => status === 200));
      const isAdministrators = /^\/v1\/(admin|organization)/.test(path);
      const answered = own().filter(
        ({ status, tenant }) => status === 200 && (isAdministrators || tenant !== undefined),
      );
      expect(answered.length).toBeGreaterThan(0);
      expect(own().some(({ status = 0 }) => status === 401)).toBe(true);
    },
  );

  it("has no text of theirs, no name, no address and no key", async () => {
    const said = ["Hello!", "Owls hoot", "owls.md", "Who hoots?", "an owl", "mine", python.url, "whsec_", key, ROOT];
    for (const text of said) expect(logs().includes(text), text).toBe(false);
  });
});

describe("the audit log", () => {
  /** The actions that are in it, by the operation. */
  const AUDITED: Record<string, string> = {
    "POST /v1/batches": "batch.created",
    "POST /v1/batches/{id}/cancel": "batch.cancelled",
    "POST /v1/webhook_endpoints": "webhook_endpoint.created",
    "POST /v1/webhook_endpoints/{id}": "webhook_endpoint.updated",
    "POST /v1/webhook_endpoints/{id}/rotate_secret": "webhook_endpoint.secret_rotated",
    "DELETE /v1/webhook_endpoints/{id}": "webhook_endpoint.deleted",
    "DELETE /v1/responses/{id}": "response.deleted",
    "DELETE /v1/conversations/{id}": "conversation.deleted",
    "DELETE /v1/files/{id}": "file.deleted",
    "DELETE /v1/vector_stores/{id}": "vector_store.deleted",
    "POST /v1/admin/keys": "api_key.created",
    "POST /v1/admin/keys/{id}": "api_key.updated",
    "POST /v1/admin/keys/{id}/rotate": "api_key.rotated",
    "DELETE /v1/admin/keys/{id}": "api_key.deleted",
    "POST /v1/admin/configuration": "configuration.updated",
    "POST /v1/admin/tenants/{tenant}": "rate_limit.updated",
    "DELETE /v1/admin/tenants/{tenant}": "tenant.erased",
    "GET /v1/admin/tenants/{tenant}/export": "tenant.exported",
    "POST /v1/admin/tenants/{tenant}/import": "tenant.imported",
    "POST /v1/admin/runs/{id}/cancel": "response.cancelled",
  };

  it.for(Object.entries(AUDITED))("has a row of %s, with its actor and no content", async ([, type]) => {
    const rows = await eventually(async () => {
      const answer = await send("GET", `/v1/organization/audit_logs?event_types=${type}`);
      const { data } = (await answer.json()) as { data: { type: string; actor: object }[] };
      return data.length > 0 ? data : undefined;
    });
    expect(rows[0]).toMatchObject({ type, actor: { type: "api_key", api_key: { id: expect.stringMatching(/./) } } });
    for (const text of [python.url, "whsec_", key, ROOT, "Hello!"]) expect(JSON.stringify(rows)).not.toContain(text);
  });
});

describe(SOCKETS, () => {
  it("answers a handshake without its upgrade as it is described", async () => {
    const answer = await send("GET", "/v1/responses", { bearer: key, headers: { "sec-websocket-version": "13" } });
    expect(answer.status).toBe(426);
    await settled();
  });

  it("sends the events that are described", async () => {
    const client = await SocketClient.open(gateway, { headers: { authorization: `Bearer ${key}` } });
    const { events } = await client.turn(turn);
    const at = { method: "POST", url: new URL(`${gateway.url}/v1/responses`) };
    expect(events.flatMap(description.streamedViolations(at))).toEqual([]);
    expect(events.length).toBeGreaterThan(5);
    await client.close();
  });
});

interface Operation {
  security: object[];
  requestBody?: object;
}

function operationOf(operation: string): Operation {
  const [method = "", path = ""] = operation.split(" ");
  const { paths } = description.document as { paths: Record<string, Record<string, Operation>> };
  const found = paths[path]?.[method.toLowerCase()];
  if (!found) throw new Error(`The description has no ${operation}.`);
  return found;
}

function bodyOf(method: string): unknown {
  return method === "POST" ? {} : undefined;
}

/** Throws the violations of the exchanges so far. */
async function settled(): Promise<void> {
  await gateway.fetch.settled();
  await passing.fetch.settled();
}
