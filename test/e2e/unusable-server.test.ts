import { createServer, type RequestListener, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { eventually } from "./support.ts";

/** A model server that answers, but not with usable answers, or not at all: its state, and the log's lines about it. */

const json = (status: number, body: object) => (response: ServerResponse) =>
  void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));

const sse = (body: string) => (response: ServerResponse) =>
  void response.writeHead(200, { "content-type": "text/event-stream" }).end(body);

const models = json(200, { object: "list", data: [{ id: "m", object: "model", owned_by: "vllm" }] });
const page = (response: ServerResponse) =>
  void response.writeHead(200, { "content-type": "text/html" }).end("<title>Sign in</title>");
const chunk = (delta: object, finish_reason: string | null = null) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
const answer = sse(`${chunk({ content: "Hello." })}${chunk({}, "stop")}data: [DONE]\n\n`);

/** The answers to a prompt; all other paths answer as they should. */
let generates: (response: ServerResponse) => void = answer;
/** The answers of every path. */
let everything: ((response: ServerResponse) => void) | undefined = json(500, {});

const listener: RequestListener = (request, response) => {
  if (everything) return everything(response);
  if (request.url === "/v1/models") return models(response);
  if (request.url === "/v1/chat/completions") return generates(response);
  if (request.url === "/version") return json(200, { version: "0.33.0" })(response);
  return void response.writeHead(404).end();
};

let server: Server;
let gateway: WorkerdProcess;

beforeAll(async () => {
  server = createServer(listener).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  gateway = await startWorkerd(
    {
      VLLM_BASE_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
      ...{ ALLOW_ANONYMOUS: "true", PROMETHEUS_METRICS: "true", VLLM_MAX_RETRIES: "0", VLLM_CONNECT_TIMEOUT_MS: "500" },
    },
    { readsFormats: false },
  );
});
afterAll(async () => {
  await gateway.close();
  server.closeAllConnections();
  server.close();
});

async function create(): Promise<number> {
  const body = JSON.stringify({ model: "m", input: "Hi!" });
  const headers = { "content-type": "application/json" };
  return (await fetch(`${gateway.url}/v1/responses`, { method: "POST", body, headers })).status;
}

const got = async (path: string) => (await fetch(`${gateway.url}${path}`)).text();
const isUp = async () => /^responses_edge_upstream_up\{.*\} (.)$/m.exec(await got("/metrics"))?.[1];
const reasons = async () => JSON.parse(await got("/health/ready")).reasons;
const upstream = async () => JSON.parse(await got("/health/upstream"));

/** The states of the server that the log has, from an earlier number of them on. */
const states = (from: number) =>
  [...gateway.logs().matchAll(/^\{.*"event":"model_server".*\}$/gm)]
    .slice(from)
    .map(([line]) => JSON.parse(line).state);

let from = 0;
beforeEach(() => {
  from = states(0).length;
});

async function expectUnusable(state: string): Promise<void> {
  expect(await isUp()).toBe("0");
  expect(await reasons()).toEqual(["model_servers_down"]);
  await eventually(async () => states(from).length > 0);
  expect(states(from)).toEqual([state]);
}

async function expectUsableAgain(state: string): Promise<void> {
  [everything, generates] = [undefined, answer];
  expect(await create()).toBe(200);
  expect(await isUp()).toBe("1");
  expect(await reasons()).toEqual([]);
  expect(await upstream()).toMatchObject({ status: "ok" });
  await create();
  await eventually(async () => states(from).length > 1);
  expect(states(from)).toEqual([state, "up"]);
}

describe("a model server is not up while it answers everything with", () => {
  it.each([
    ["500, so that its kind is unknown", json(500, {})],
    ["500", json(500, { error: { message: "Broken." } })],
    ["401", json(401, { error: "Unauthorized" })],
    ["a web page", page],
  ])("%s; the log has one line, and one when it is usable again", async (_, all) => {
    everything = all;
    for (let asked = 0; asked < 5; asked += 1) expect(await create()).toBeGreaterThanOrEqual(500);
    await expectUnusable("failing");
    expect(await upstream()).toMatchObject({ status: "unreachable", error: { code: expect.any(String) } });
    await expectUsableAgain("failing");
  });
});

describe("a model server is failing while it lists its models and answers each prompt with", () => {
  it.each([
    ["500", json(500, { error: { message: "Broken." } }), "upstream_error"],
    ["404", json(404, {}), "upstream_error"],
    ["a web page", page, "upstream_malformed_response"],
    ["an error in its stream", sse(`data: {"error":{"message":"Broken.","code":500}}\n\n`), "upstream_error"],
    ["a stream that is no answer", sse("data: nothing\n\n"), "upstream_malformed_response"],
    ["a stream without an end", sse(chunk({ content: "Hello" })), "upstream_connection_lost"],
  ])("%s", async (_, prompts, code) => {
    generates = prompts;
    for (let asked = 0; asked < 5; asked += 1) await create();
    await expectUnusable("failing");
    const health = await fetch(`${gateway.url}/health/upstream`);
    expect(health.status).toBe(503);
    expect(await health.json()).toMatchObject({
      ...{ status: "failing", models: ["m"], down_since: null, error: { code } },
      failing_since: expect.stringMatching(/^20/),
    });
    await expectUsableAgain("failing");
  });

  it("and not after two such answers, which may be the prompts' fault", async () => {
    generates = json(500, {});
    for (let asked = 0; asked < 2; asked += 1) await create();
    expect(await isUp()).toBe("1");
    generates = answer;
    expect(await create()).toBe(200);
    expect(states(from)).toEqual([]);
  });
});

it("a model server that does not answer is one line of the log, and one when it does again", async () => {
  everything = () => {};
  for (let asked = 0; asked < 2; asked += 1) expect(await create()).toBe(504);
  await expectUnusable("hanging");
  await expectUsableAgain("hanging");
});

it("a model server that cannot be reached is one line of the log, and one when it can", async () => {
  const { port } = server.address() as AddressInfo;
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  for (let asked = 0; asked < 2; asked += 1) expect(await create()).toBe(502);
  await expectUnusable("down");
  server = createServer(listener).listen(port, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  await expectUsableAgain("down");
});
