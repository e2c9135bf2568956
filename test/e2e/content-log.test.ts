import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Grants } from "../../src/contract/grants.ts";
import { ask, call, create, type MadeKey, makeKey, newTenant, startWithKeys } from "./key-support.ts";
import { SocketClient } from "./socket-support.ts";
import { eventually, type Gateway } from "./support.ts";
import { unique } from "./turns.ts";

/** The log of contents, which the operator's sink gets: of keys that have consented, and of no others. */

interface Entry {
  response_id?: string;
  endpoint?: string;
  tenant: string;
  key_id: string;
  status: string;
  model: string;
  instructions?: string;
  input: unknown;
  output: unknown;
  truncated?: boolean;
}

/** The guard's hook, which finds no fault with any text. */
const NO_FAULT = '{"flagged":false}';
/** The hook fails for a text with this word. */
const UNJUDGED = "unjudgeable";

const entries: Entry[] = [];
const headers: Record<string, unknown>[] = [];
let sink: Server;
let gateway: Gateway;
beforeAll(async () => {
  sink = createServer(async (request, response) => {
    let body = "";
    for await (const part of request.setEncoding("utf8")) body += part;
    if (request.url === "/guard") return void response.writeHead(body.includes(UNJUDGED) ? 500 : 200).end(NO_FAULT);
    headers.push(request.headers);
    for (const line of body.split("\n").slice(0, -1)) entries.push(JSON.parse(line) as Entry);
    // The answer of Vector and Loki.
    response.writeHead(204).end();
  });
  sink.listen(0, "127.0.0.1");
  await once(sink, "listening");
  const url = `http://127.0.0.1:${(sink.address() as AddressInfo).port}`;
  gateway = await startWithKeys({
    CONTENT_LOG: `${url}/contents`,
    CONTENT_LOG_HEADERS: "authorization=Bearer%20of-the-sink",
    CONTENT_LOG_REDACT: JSON.stringify(["\\b\\d{16}\\b", "alice@\\S+"]),
    CONTENT_LOG_MAX_LENGTH: "2000",
    GUARD_URL: `${url}/guard`,
    GUARD_FAILURE: "pass",
    PASSTHROUGH_ENDPOINTS: "all",
    TELEMETRY_LOG: "all",
    // An export whose answer is late is repeated: an entry would come twice.
    OTEL_EXPORTER_OTLP_TIMEOUT: "20000",
  });
});
afterAll(async () => {
  await gateway.close();
  sink.close();
});

const agreed = (limits: Partial<Grants> = {}): Promise<MadeKey> =>
  makeKey(gateway, newTenant(), { ...limits, log_content: true });

const entryOf = (text: string) => eventually(() => entries.find((entry) => JSON.stringify(entry).includes(text)));

it("has the contents of every way to create a response, once each, with their owner", async () => {
  const key = await agreed();
  const [whole, stream, background, socket] = ["Whole", "Stream", "Background", "Socket"].map((name) => unique(name));
  const client = await SocketClient.open(gateway, { headers: { authorization: `Bearer ${key.value}` } });
  client.send({ type: "response.create", model: "simulator", input: socket });
  await Promise.all([
    create(gateway, key, { input: whole, instructions: "Be brief." }).then((answer) => answer.text()),
    create(gateway, key, { input: stream, stream: true, store: false }).then((answer) => answer.text()),
    create(gateway, key, { input: background, background: true }),
  ]);
  for (const said of [whole, stream, background, socket]) {
    expect(await entryOf(said ?? "")).toMatchObject({
      event: "content",
      response_id: expect.stringMatching(/^resp_/),
      tenant: key.tenant,
      key_id: key.id,
      model: "simulator",
      status: "completed",
      output: [{ type: "message", content: [{ type: "output_text", text: `You said: ${said}` }] }],
    });
    expect(entries.filter((entry) => JSON.stringify(entry.input).includes(said ?? ""))).toHaveLength(1);
  }
  expect((await entryOf(whole ?? "")).instructions).toBe("Be brief.");
  expect(headers[0]).toMatchObject({ authorization: "Bearer of-the-sink", "content-type": "application/x-ndjson" });
  client.close();
});

it("has a turn that the operator admits in spite of a failed guard", async () => {
  const key = await agreed();
  const said = unique(UNJUDGED);
  const policy = { input: { mode: "block" }, output: { mode: "block" } };
  const answer = await create(gateway, key, { input: said, moderation: { model: "guard", policy } });
  const error = { type: "error", code: "moderation_unavailable" };
  expect(await answer.json()).toMatchObject({ status: "completed", moderation: { input: error, output: error } });
  expect(await entryOf(said)).toMatchObject({ status: "completed" });
});

/** Requests to a model other than turns: their content, and the logged answers. */
const REQUESTS: Record<string, [path: string, body: (said: string) => object, output: (said: string) => unknown]> = {
  "a decision": [
    "/v1/decisions",
    (input) => ({ input, questions: [{ type: "predicate", name: "asks", instructions: "It asks." }] }),
    () => [{ name: "asks" }],
  ],
  "a moderation": ["/v1/moderations", (input) => ({ input, model: "guard" }), () => [{ flagged: false }]],
  "a compaction": [
    "/v1/responses/compact",
    (input) => ({ input: `${input} ${"word ".repeat(50)}` }),
    () => [{ type: "compaction" }],
  ],
  "a chat completion": [
    "/v1/chat/completions",
    (content) => ({ messages: [{ role: "user", content }] }),
    (said) => ({ choices: [{ message: { role: "assistant", content: `You said: ${said}` } }] }),
  ],
  "a streamed chat completion": [
    "/v1/chat/completions",
    (content) => ({ stream: true, messages: [{ role: "user", content }] }),
    (said) => ({ choices: { 0: { role: "assistant", content: `You said: ${said}` } } }),
  ],
  embeddings: ["/v1/embeddings", (input) => ({ input }), () => undefined],
};

it.each(Object.entries(REQUESTS))(
  "has the contents of %s; the log has its model and tokens",
  async (name, [path, body, output]) => {
    const key = await agreed({});
    const said = unique(name);
    const answer = await call(gateway, "POST", path, { model: "simulator", ...body(said) }, key.value);
    expect(answer.status, await answer.text()).toBe(200);
    const model = path === "/v1/moderations" ? "guard" : "simulator";
    const entry = await entryOf(said);
    expect(entry).toMatchObject({ tenant: key.tenant, key_id: key.id, status: "completed", model });
    expect(entry.response_id ?? entry.endpoint).toMatch(/^resp_|^POST \/v1\//);
    if (output(said) === undefined) expect(entry).not.toHaveProperty("output");
    else expect(entry.output).toMatchObject(output(said) as object);
    expect(entries.filter((each) => JSON.stringify(each.input).includes(said))).toHaveLength(1);
    const told = await eventually(() =>
      gateway
        .logs()
        .split("\n")
        .find((line) => line.includes(key.id)),
    );
    const { output_tokens: written, ...event } = JSON.parse(told.slice(told.indexOf("{"))) as Record<string, unknown>;
    expect(event).toMatchObject({
      ...{ event: "request", endpoint: `POST ${path}`, tenant: key.tenant, key_id: key.id, status: 200, model },
      input_tokens: expect.toSatisfy((tokens: number) => tokens > 0),
    });
    expect(written).toEqual(expect.any(Number));
    expect(gateway.logs()).not.toContain(said);
  },
);

it("leaves out matches of the operator's patterns and the bytes of images, and has a maximum length", async () => {
  const key = await agreed();
  const said = unique("Redacted");
  const image = `data:image/png;base64,${"A".repeat(4_000)}`;
  const content = [
    { type: "input_text", text: `${said}: 4111111111111111 is alice@example.com's.` },
    { type: "input_image", image_url: image, detail: "auto" },
  ];
  await create(gateway, key, { input: [{ role: "user", content }] });
  const entry = await entryOf(said);
  const text = JSON.stringify(entry);
  expect(text).toContain(`${said}: [redacted] is [redacted]`);
  expect(text).toContain("data:image/png;base64,…");
  expect(text).not.toMatch(/41111111|alice@|AAAAAAAA/);
  const long = unique("Long");
  await create(gateway, key, { input: `${long} ${"word ".repeat(2_000)}` });
  const cut = await entryOf(long);
  expect(cut.truncated).toBe(true);
  expect(JSON.stringify(cut).length).toBeLessThan(3_000);
});

it("has nothing of a key without consent; a tenant consents for all of its keys", async () => {
  const tenant = newTenant();
  const key = await makeKey(gateway, tenant, { requests_per_minute: 100 });
  const before = unique("Before");
  await create(gateway, key, { input: before });
  await create(gateway, key, { input: before, background: true });
  await ask(gateway, "POST", `/v1/admin/tenants/${tenant}`, { limits: { log_content: true } });
  const after = unique("After");
  await eventually(async () => {
    await create(gateway, key, { input: after });
    return entries.some((entry) => JSON.stringify(entry).includes(after));
  });
  expect(JSON.stringify(entries)).not.toContain(before);
});
