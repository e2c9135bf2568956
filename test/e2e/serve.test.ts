import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { appendFileSync, copyFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer, request } from "node:https";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect } from "node:tls";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { callsOf, untilHung } from "../../cli/serve/launcher-socket.ts";
import type { SimulatedRequest } from "../../dev/simulator/handler.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { freePort } from "../workerd/tools.ts";
import {
  certificate,
  cleanUp,
  deafSocket,
  mayMount,
  newFolder,
  run,
  type Served,
  start,
  workerdsOf,
} from "./serve-support.ts";
import { eventually } from "./support.ts";

/** `responses-edge serve`: the process, from its configuration to its end. Other tests cover the API. */

let vllm: SimulatorServer;
beforeAll(async () => {
  vllm = await serveSimulator();
});
afterAll(() => vllm.close());
afterEach(cleanUp);

/** The minimal configuration. */
function least(): Record<string, string> {
  return { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", STATE_DIRECTORY: newFolder() };
}

function create(url: string, body: object): Promise<Response> {
  const headers = { "content-type": "application/json" };
  return fetch(`${url}/v1/responses`, { method: "POST", headers, body: JSON.stringify({ input: "Hello!", ...body }) });
}

async function stop(served: Served): Promise<number | null> {
  served.child.kill("SIGTERM");
  return served.exited;
}

/** The process of workerd that `serve` has started. */
const workerdOf = (served: Served) => Number(workerdsOf(served)[0]);

const portOf = (server: { address(): unknown }) => (server.address() as AddressInfo).port;

it.each(["127.0.0.1", "::1"])("stops a JSON request whose client has left, at %s", async (HOST) => {
  const served = await start({ ...least(), HOST, VLLM_IDLE_TIMEOUT_MS: "600000" });
  const leaving = new AbortController();
  const input = `Hello from ${HOST}!`;
  const body = { model: "simulator?words=30&fault=stall:3", input, stream_interval: 1 };
  const left = fetch(`${served.url}/v1/responses`, {
    ...{ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) },
    signal: leaving.signal,
  });
  const seen = () => vllm.simulator.requests.findLast(({ body }) => JSON.stringify(body)?.includes(input));
  await eventually(() => seen()?.deltasSent === 3);
  leaving.abort();
  await expect(left).rejects.toThrow();
  await eventually(() => seen()?.state === "aborted");
  expect(await stop(served)).toBe(0);
});

describe("its configuration", () => {
  it("needs keys, unless it permits anonymous access", async () => {
    const [code, output] = await run({ ...least(), ALLOW_ANONYMOUS: "" });
    expect(code).toBe(78);
    const { level, message } = JSON.parse(output) as { level: string; message: string };
    expect(level).toBe("error");
    expect(message).toMatch(
      /API_KEYS: needed.* \(`npm run create-key -- TENANT` or `responses-edge create-key TENANT` makes/,
    );
  });

  it("is refused with all errors at once, and no value is printed", async () => {
    const [code, output] = await run({
      ...{ STATE_DIRECTORY: newFolder(), LOG_FORMAT: "text" },
      ...{ VLLM_BASE_URL: "sekret-1", API_KEYS: "sekret-2", ENCRYPTION_KEYS_FILE: "/nowhere/sekret-3" },
      ...{ PORT: "sekret-4", HOST: "sekret 5", STOP_TIMEOUT_MS: "sekret-6", TLS_KEY_FILE: "/nowhere/sekret-7" },
    });
    expect(code).toBe(78);
    const named = output.split("\n").flatMap((line) => /^ {2}(\w+): /.exec(line)?.[1] ?? []);
    expect(named.sort()).toEqual([
      ...[
        "API_KEYS",
        "ENCRYPTION_KEYS_FILE",
        "HOST",
        "PORT",
        "STOP_TIMEOUT_MS",
        "TLS_CERTIFICATE_FILE",
        "VLLM_BASE_URL",
      ],
    ]);
    expect(output).not.toContain("sekret");
  });

  it("may name files with values, such as mounted secrets", async () => {
    const [key, entry] = await run({}, "create-key");
    expect([key, entry]).toEqual([64, expect.stringContaining("TENANT")]);
    const file = join(newFolder(), "keys");
    const sha256 = Buffer.from(await crypto.subtle.digest("SHA-256", Buffer.from("sk-test"))).toString("hex");
    writeFileSync(file, `acme:${sha256}\n`);
    const served = await start({ ...least(), ALLOW_ANONYMOUS: "", API_KEYS_FILE: file });
    const status = async (apiKey: string) =>
      (await fetch(`${served.url}/v1/models`, { headers: { authorization: `Bearer ${apiKey}` } })).status;
    expect([await status("sk-test"), await status("sk-other")]).toEqual([200, 401]);
    expect(await stop(served)).toBe(0);
  });

  it("is refused with an error if another program listens on the port", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const port = portOf(other);
    const [code, output] = await run({ ...least(), PORT: String(port) });
    other.close();
    expect(code).toBe(69);
    const said = `Cannot listen on 127.0.0.1:${port}: another program listens there (PORT sets another port).`;
    expect(JSON.parse(output).message).toBe(said);
  });
});

describe("`check`", () => {
  it("names every error, as `serve` does, and no value", async () => {
    const [code, output] = await run({ VLLM_BASE_URL: "nowhere", API_KEYS: "a:secret" }, "check");
    expect(code).toBe(78);
    expect(output).toMatch(/VLLM_BASE_URL: /);
    expect(output).toMatch(/API_KEYS: /);
    expect(output).not.toContain("secret");
  });

  it("lists the model servers that answer, and serves nothing", async () => {
    const pool = JSON.stringify([
      { name: "here", url: `${vllm.url}/v1` },
      { name: "gone", url: "http://127.0.0.1:1/v1" },
    ]);
    const [code, output] = await run({ UPSTREAMS: pool, ALLOW_ANONYMOUS: "true", API_KEY: "x" }, "check");
    expect(code).toBe(0);
    expect(output).toMatch(
      /^here: answers as vLLM, with simulator \(calls functions\), .+, simulator-gpt-oss \(gpt-oss, thinks, calls functions\), .+, tiny-qwen3 \(Qwen3, thinks, calls functions\), and 1 more$/m,
    );
    expect(output).toMatch(/^gone: does not answer \(.+\)/m);
    expect(output).toContain("the variable API_KEY is unknown. Do you mean API_KEYS?");
    expect(output).toMatch(/The configuration has no errors in itself, but .+: gone\.\n$/);
    expect(output).not.toContain("is right");
  });

  it("does not say that a configuration is right whose requests would all fail", async () => {
    const checked = (variables: Record<string, string>) => run({ ALLOW_ANONYMOUS: "true", ...variables }, "check");
    const [code, output] = await checked({ VLLM_BASE_URL: `${vllm.url}/v1/chat/completions` });
    expect([code, output]).toEqual([78, expect.stringContaining("VLLM_BASE_URL: expected the URL of the server")]);
    const [, rootless] = await checked({ VLLM_BASE_URL: vllm.url });
    const meant = `Did you mean ${vllm.url}/v1? Correct VLLM_BASE_URL`;
    expect(rootless).toContain(`vllm: answers with status 404 at ${vllm.url}/models. ${meant}\n`);
    expect(rootless).not.toContain("is right");
    const llamacpp = await serveSimulator({ kind: "llamacpp" });
    const server = { name: "desk", url: `${llamacpp.url}/v1` };
    const API_KEYS = ["a", "b"].map((tenant) => `${tenant}:${tenant.repeat(64)}`).join();
    const keyed = (...servers: object[]) => checked({ UPSTREAMS: JSON.stringify(servers), API_KEYS });
    const [refused, why] = await keyed(server);
    expect(refused).toBe(78);
    expect(why).toContain("desk: answers, and does not separate the prompts of different tenants");
    expect(why).toContain('set \\"shared_cache\\": true for it in UPSTREAMS');
    const accepted =
      /^desk: answers as llama\.cpp, with simulator \(calls functions\), .+\nThe configuration is right\.\n$/;
    expect(await keyed({ ...server, shared_cache: true })).toEqual([0, expect.stringMatching(accepted)]);
    expect(await keyed({ ...server, salted: true })).toEqual([0, expect.stringMatching(accepted)]);
    const [, mixed] = await keyed(server, { name: "here", url: `${vllm.url}/v1` });
    expect(mixed).toMatch(/here: answers as vLLM, .+\nThe configuration has no errors in itself, but .+: desk\.\n$/);
    await llamacpp.close();
  });
});

it("`check` names the parsers that a model server runs without, and their flags", async () => {
  const UPSTREAMS = JSON.stringify([{ name: "bare", url: `${vllm.url}/v1` }]);
  const UPSTREAM_SECRETS = JSON.stringify({ bare: { headers: { "x-simulator": "parsers=0" } } });
  const least = { UPSTREAMS, ALLOW_ANONYMOUS: "true" };
  const [, output] = await run({ ...least, UPSTREAM_SECRETS }, "check");
  expect(output).toMatch(
    /bare: runs without a parser of tool calls for .+\. Start it with --enable-auto-tool-choice --tool-call-parser NAME\.\n/,
  );
  const right = expect.stringMatching(/^bare: answers as vLLM, .+\nThe configuration is right\.\n$/);
  expect(await run(least, "check")).toEqual([0, right]);
});

it("`check` says of a model server that cannot be used what is wrong, and what to do", async () => {
  const answers: Record<string, [status: number, body: object]> = {
    "/keyed/v1/models": [401, {}],
    // llama.cpp lists its models without a key.
    "/listed/v1/models": [200, { data: [{ id: "m", owned_by: "llamacpp" }] }],
    "/listed/v1/chat/completions/input_tokens": [401, {}],
    "/empty/v1/models": [200, { data: [] }],
    "/page/v1/models": [200, { page: true }],
    "/broken/v1/models": [500, {}],
  };
  const server = createHttpServer(({ url = "" }, response) => {
    const [status, body] = answers[url] ?? [404, {}];
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${portOf(server)}`;
  const gone = await freePort();
  const pool = {
    ...Object.fromEntries(
      ["keyed", "listed", "empty", "page", "broken", "away"].map((name) => [name, `${url}/${name}/v1`]),
    ),
    gone: `http://127.0.0.1:${gone}/v1`,
    named: "http://name.invalid/v1",
    plain: `https://127.0.0.1:${portOf(server)}/v1`,
  };
  const UPSTREAMS = JSON.stringify(Object.entries(pool).map(([name, url]) => ({ name, url })));
  const UPSTREAM_SECRETS = JSON.stringify({ page: { api_key: "sekret" } });
  const [code, output] = await run({ UPSTREAMS, UPSTREAM_SECRETS, ALLOW_ANONYMOUS: "true" }, "check");
  expect(code).toBe(0);
  expect(output.split("\n")).toEqual([
    "keyed: wants a key (status 401): set its api_key in UPSTREAM_SECRETS",
    "listed: wants a key (status 401): set its api_key in UPSTREAM_SECRETS",
    "empty: answers, and has no model: load one there",
    "page: answers, but lists no models as a model server does",
    "broken: answers with status 500",
    `away: answers with status 404 at ${url}/away/v1/models. Most URLs end in /v1: correct its url in UPSTREAMS`,
    `gone: does not answer (ECONNREFUSED): no program listens at 127.0.0.1:${gone}. Start it, or correct its url in UPSTREAMS`,
    expect.stringMatching(
      /^named: does not answer \((?:ENOTFOUND|EAI_AGAIN)\): no host has the name name\.invalid\. Correct/,
    ),
    "plain: does not answer (EPROTO): does it speak http? Correct its url in UPSTREAMS",
    "The configuration has no errors in itself, but not every model server can be used: keyed, listed, empty, page, broken, away, gone, named, plain.",
    "",
  ]);
  const [, refused] = await run(
    { VLLM_BASE_URL: `${url}/keyed/v1`, VLLM_API_KEY: "sekret", ALLOW_ANONYMOUS: "true" },
    "check",
  );
  expect(refused).toMatch(/^vllm: refuses the key \(status 401\): set VLLM_API_KEY\n/);
  expect(output + refused).not.toContain("sekret");
  server.close();
});

it("the start says how each model server answers, and which cannot be used", async () => {
  const port = await freePort();
  const UPSTREAMS = JSON.stringify([
    { name: "here", url: `${vllm.url}/v1` },
    { name: "gone", url: `http://127.0.0.1:${port}/v1` },
  ]);
  const { VLLM_BASE_URL: _, ...others } = least();
  const served = await start({ ...others, UPSTREAMS });
  const lines = () =>
    served
      .output()
      .split("\n")
      .flatMap((line) => (line.startsWith("{") ? [JSON.parse(line)] : []));
  const told = (name: string) => lines().find(({ model_server }) => model_server === name);
  const message = expect.stringMatching(/^The model server here answers as vLLM, with simulator \(calls functions\), /);
  expect(await eventually(() => told("here"))).toMatchObject({ level: "info", message });
  const why = `The model server gone does not answer (ECONNREFUSED): no program listens at 127.0.0.1:${port}. Start it, or correct its url in UPSTREAMS.`;
  expect(await eventually(() => told("gone"))).toMatchObject({ level: "warn", message: why, fault: "absent" });
});

/** The SHA-256 of the certificate that a port shows. */
async function fingerprintAt(port: number): Promise<string> {
  const socket = connect({ host: "127.0.0.1", port, rejectUnauthorized: false });
  try {
    await once(socket, "secureConnect");
    return socket.getPeerX509Certificate()?.fingerprint256 ?? "";
  } finally {
    socket.destroy();
  }
}

describe("its certificate", () => {
  it("is used for TLS, and trusted by the health check", async () => {
    const { certificateFile, keyFile } = certificate(1);
    const tls = { TLS_CERTIFICATE_FILE: certificateFile, TLS_KEY_FILE: keyFile };
    const served = await start({ ...least(), ...tls });
    expect(served.url).toMatch(/^https:/);
    const { port } = new URL(served.url);
    expect(await run({ ...tls, PORT: port }, "health")).toEqual([0, `${served.url} is healthy.\n`]);
    // Plain HTTP gets no answer, and causes no crash.
    expect((await run({ PORT: port }, "health"))[0]).toBe(1);
    expect(await stop(served)).toBe(0);
  });

  it("is served by another process after its renewal, without a stop", async () => {
    const { certificateFile, keyFile } = certificate(1);
    const served = await start({ ...least(), TLS_CERTIFICATE_FILE: certificateFile, TLS_KEY_FILE: keyFile });
    const port = Number(new URL(served.url).port);
    const before = await fingerprintAt(port);
    const renewed = certificate(2);
    copyFileSync(renewed.certificateFile, certificateFile);
    copyFileSync(renewed.keyFile, keyFile);
    const { fingerprint256 } = new X509Certificate(readFileSync(certificateFile));
    expect(fingerprint256).not.toBe(before);
    await eventually(async () => (await fingerprintAt(port)) === fingerprint256);
    expect(await stop(served)).toBe(0);
  });

  it("has its end in a gauge, beside the newest backup's time and a configuration file that is refused", async () => {
    const { certificateFile, keyFile } = certificate(3);
    const CONFIG_FILE = join(newFolder(), "edge.yaml");
    const lines = `tls_certificate_file: ${certificateFile}\ntls_key_file: ${keyFile}\nprometheus_metrics: true\n`;
    writeFileSync(CONFIG_FILE, lines);
    const variables = { ...least(), CONFIG_FILE };
    const served = await start(variables);
    const gauge = async (name: string) => {
      const asked = request(`${served.url}/metrics`, { rejectUnauthorized: false, agent: false }).end();
      const [answer] = await once(asked, "response");
      const value = new RegExp(`^responses_edge_${name} (.*)$`, "m").exec(await text(answer))?.[1];
      return value === undefined ? undefined : Number(value);
    };
    const { validToDate } = new X509Certificate(readFileSync(certificateFile));
    await eventually(async () => (await gauge("certificate_end_seconds")) === validToDate.getTime() / 1000);
    expect(await gauge("configuration_refused")).toBe(0);
    expect(await gauge("backup_time_seconds")).toBeUndefined();
    const before = Date.now() / 1000;
    expect((await run(variables, ["backup", join(newFolder(), "copy")]))[0]).toBe(0);
    writeFileSync(CONFIG_FILE, `${lines}unknown: 1\n`);
    await eventually(async () => (await gauge("configuration_refused")) === 1);
    await eventually(async () => ((await gauge("backup_time_seconds")) ?? 0) >= before);
    writeFileSync(CONFIG_FILE, lines);
    await eventually(async () => (await gauge("configuration_refused")) === 0);
    expect(await stop(served)).toBe(0);
  });

  it("is watched where the configuration file names another one, too", async () => {
    const CONFIG_FILE = join(newFolder(), "edge.yaml");
    const name = (pair: ReturnType<typeof certificate>) =>
      writeFileSync(CONFIG_FILE, `tls_certificate_file: ${pair.certificateFile}\ntls_key_file: ${pair.keyFile}\n`);
    const shown = ({ certificateFile }: ReturnType<typeof certificate>) => {
      const { fingerprint256 } = new X509Certificate(readFileSync(certificateFile));
      return eventually(async () => (await fingerprintAt(port)) === fingerprint256);
    };
    name(certificate(1));
    const served = await start({ ...least(), CONFIG_FILE });
    const port = Number(new URL(served.url).port);
    const another = certificate(1);
    name(another);
    await shown(another);
    const renewed = certificate(2);
    copyFileSync(renewed.certificateFile, another.certificateFile);
    copyFileSync(renewed.keyFile, another.keyFile);
    await shown(renewed);
    expect(await stop(served)).toBe(0);
  });

  it.each([
    ["has expired", () => certificate(-1), "TLS_CERTIFICATE_FILE: the certificate expired on"],
    [
      "is another key's",
      () => ({ ...certificate(1), keyFile: certificate(1).keyFile }),
      "TLS_KEY_FILE: expected the key of TLS_CERTIFICATE_FILE",
    ],
    ["is no certificate", () => ({ ...certificate(1), certificateFile: "/dev/null" }), "expected a certificate in PEM"],
  ])("is refused if it %s", async (_, make, why) => {
    const { certificateFile, keyFile } = make();
    const [code, output] = await run({ ...least(), TLS_CERTIFICATE_FILE: certificateFile, TLS_KEY_FILE: keyFile });
    expect(code).toBe(78);
    expect(JSON.parse(output).message).toContain(why);
  });

  it("may not be expired for a model server either: 502, and the log has the reason", async () => {
    const { certificateFile, keyFile } = certificate(-1);
    const model = createHttpsServer({ cert: readFileSync(certificateFile), key: readFileSync(keyFile) });
    await once(model.listen(0, "127.0.0.1"), "listening");
    const served = await start({
      ...least(),
      VLLM_BASE_URL: `https://127.0.0.1:${portOf(model)}/v1`,
      NODE_EXTRA_CA_CERTS: certificateFile,
    });
    const answer = await create(served.url, { model: "m" });
    expect([answer.status, await answer.json()]).toMatchObject([502, { error: { code: "upstream_unreachable" } }]);
    await eventually(() => /invalid peer certificate: .*[Ee]xpired/.test(served.output()));
    expect(served.output()).not.toContain("stack:");
    expect(await stop(served)).toBe(0);
    model.close();
  });
});

describe("its data folder", () => {
  it("belongs to one process; after a kill the next one waits until its workerd has ended", async () => {
    const variables = least();
    const first = await start(variables);
    const { id } = (await (await create(first.url, {})).json()) as { id: string };
    const [code, output] = await run(variables);
    const { pid } = first.child;
    const said = `Another responses-edge (process ${pid}) uses the data folder ${variables.STATE_DIRECTORY}. Stop it (kill ${pid}), or set STATE_DIRECTORY to another folder, and PORT to serve beside it.`;
    expect([code, JSON.parse(output).message]).toEqual([75, said]);
    first.child.kill("SIGKILL");
    const second = await start(variables);
    expect((await fetch(`${second.url}/v1/responses/${id}`)).status).toBe(200);
    expect(await stop(second)).toBe(0);
    await first.exited;
  });

  it.each([
    [
      "of a newer schema",
      { format: 2, version: "9.0.0", schema: { Home: 9 } },
      "by responses-edge 9.0.0, which is newer",
    ],
    ["of a newer form", { format: 3, version: "9.0.0", schema: {} }, "by a newer version of responses-edge"],
    ["of before the first release", { version: "0.1.0", schema: { Home: 8 } }, "before the first release"],
  ])("%s is refused, and stays unchanged", async (_, written, reason) => {
    const variables = least();
    const marker = join(variables.STATE_DIRECTORY ?? "", "responses-edge.json");
    writeFileSync(marker, JSON.stringify(written));
    const [code, output] = await run(variables);
    expect(code).toBe(78);
    expect(output).toContain(`was written ${reason}`);
    expect(readFileSync(marker, "utf8")).toBe(JSON.stringify(written));
  });

  it("is reported if it cannot be written", async () => {
    const file = join(newFolder(), "file");
    writeFileSync(file, "");
    const [code, output] = await run({ ...least(), STATE_DIRECTORY: join(file, "data") });
    expect([code, output]).toMatchObject([77, expect.stringContaining("cannot be used: ENOTDIR")]);
  });
});

describe("its end", () => {
  it("comes, too, if SIGTERM follows a request to reload at once: no other process starts then", async () => {
    const served = await start(least());
    served.child.kill("SIGHUP");
    served.child.kill("SIGTERM");
    expect(await served.exited).toBe(0);
    expect(served.output()).not.toContain('"level":"error"');
  });

  it("by SIGTERM in the middle of 200 streams lets all of them finish", async () => {
    const served = await start({ ...least(), STOP_TIMEOUT_MS: "200000" });
    const texts = Array.from({ length: 200 }, () => "");
    let open = texts.length;
    const streams = texts.map(async (_, index) => {
      const answer = await create(served.url, { model: "simulator?fault=stall:2", stream: true });
      const decoder = new TextDecoder();
      for await (const bytes of answer.body ?? []) texts[index] += decoder.decode(bytes, { stream: true });
      open -= 1;
    });
    await eventually(() => texts.every((text) => text.includes("response.output_text.delta")));
    // The signal comes twice, as to a process under npm.
    served.child.kill("SIGTERM");
    served.child.kill("SIGTERM");
    const health = () => fetch(`${served.url}/health`, { headers: { connection: "close" } });
    const refused = await eventually(async () => {
      const answer = await health();
      return answer.status === 503 ? answer : undefined;
    });
    expect(refused.headers.get("retry-after")).toBe("2");
    expect(await refused.json()).toMatchObject({ error: { code: "server_is_stopping" } });
    expect(open).toBe(200);
    await eventually(() => {
      for (const { release } of vllm.simulator.requests) release();
      return open === 0;
    });
    await Promise.all(streams);
    const ended = texts.filter((text) => text.includes("response.completed") && text.endsWith("data: [DONE]\n\n"));
    expect(ended).toHaveLength(200);
    expect(await served.exited).toBe(0);
    expect(served.output()).toContain('"message":"Stopped."');
  });

  it("by SIGTERM waits for the lines of a batch that have begun, and begins no others; the next process does", async () => {
    const variables = { ...least(), STOP_TIMEOUT_MS: "20000", BATCH_CONCURRENCY: "2" };
    const served = await start(variables);
    const openai = new OpenAI({ baseURL: `${served.url}/v1`, apiKey: "none" });
    const lines = Array.from({ length: 6 }, (_, index) =>
      JSON.stringify({
        ...{ custom_id: `${index}`, method: "POST", url: "/v1/responses" },
        body: { model: "simulator?fault=stall:20&words=100", input: `Line ${index}` },
      }),
    );
    const file = new File([lines.join("\n")], "batch.jsonl");
    const { id: input_file_id } = await openai.files.create({ file, purpose: "batch" });
    const fields = { input_file_id, endpoint: "/v1/responses", completion_window: "24h" } as const;
    const { id } = await openai.batches.create(fields);
    const asked = () =>
      vllm.simulator.requests.filter(({ body }) => JSON.stringify(body ?? null).includes("stall:20&words=100"));
    await eventually(() => asked().length === 2);
    served.child.kill("SIGTERM");
    await eventually(
      async () => (await fetch(`${served.url}/health`, { headers: { connection: "close" } })).status === 503,
    );
    for (const { release } of asked()) release();
    expect(await served.exited).toBe(0);
    expect(asked()).toHaveLength(2);
    const next = await start({ ...variables, PORT: new URL(served.url).port });
    await eventually(async () => {
      for (const { release } of asked()) release();
      return (await openai.batches.retrieve(id)).status === "completed";
    });
    expect(asked()).toHaveLength(6);
    expect((await openai.batches.retrieve(id)).request_counts).toEqual({ total: 6, completed: 6, failed: 0 });
    expect(await stop(next)).toBe(0);
  });

  it("cuts off requests that take longer than STOP_TIMEOUT_MS", async () => {
    const served = await start({ ...least(), STOP_TIMEOUT_MS: "200" });
    const answer = await create(served.url, { model: "simulator?tps=1&words=1000", stream: true });
    expect(await stop(served)).toBe(0);
    expect(served.output()).toContain("were cut off");
    await expect(answer.text()).rejects.toThrow();
  });

  it("by the death of workerd has an error as exit code", async () => {
    const served = await start(least());
    process.kill(workerdOf(served), "SIGKILL");
    expect(await served.exited).toBe(1);
    expect(served.output()).toContain("The Worker's process has ended.");
  });

  it("does not follow from a hanging workerd, which is killed and started again at the same port", async () => {
    const served = await start(least());
    const { id } = (await (await create(served.url, {})).json()) as { id: string };
    const hanging = workerdOf(served);
    process.kill(hanging, "SIGSTOP");
    await eventually(() => served.output().includes("did not answer any more"), 30_000);
    const answer = await eventually(() => fetch(`${served.url}/v1/responses/${id}`).catch(() => undefined), 30_000);
    expect(await answer.json()).toMatchObject({ id, status: "completed" });
    expect(workerdOf(served)).not.toBe(hanging);
    expect(await stop(served)).toBe(0);
  }, 90_000);

  it("does not follow from too much work: a process that reads and writes is not killed before many checks", async () => {
    const silent = createServer((socket) => void socket.on("error", () => {})).listen(join(newFolder(), "socket"));
    await once(silent, "listening");
    const checks = { intervalMs: 1, timeoutMs: 20, misses: 2 };
    let made = 0;
    let asked = 0;
    const measured = async () => {
      asked += 1;
      return {};
    };
    const hung = (calls: () => number | undefined) =>
      untilHung(String(silent.address()), { measured, calls }, new AbortController().signal, checks);
    expect(await hung(() => 5)).toBe(true);
    expect(asked).toBe(2);
    expect(await hung(() => undefined)).toBe(true);
    expect(asked).toBe(4);
    expect(await hung(() => (made += 100))).toBe(true);
    expect(asked).toBe(24);
    silent.close();
    expect(callsOf(process.pid)).toBeGreaterThan(0);
  });

  it("does not wait for idle WebSockets, which are closed with 1012, or for readers of runs", async () => {
    const served = await start({ ...least(), STOP_TIMEOUT_MS: "200000" });
    const socket = new WebSocket(`${served.url.replace("http", "ws")}/v1/responses`);
    await new Promise((resolve) => socket.addEventListener("open", resolve));
    const closed = new Promise<number>((resolve) => socket.addEventListener("close", ({ code }) => resolve(code)));
    const deaf = await deafSocket(served.url);
    const answer = await create(served.url, { model: "simulator?fault=stall:2", stream: true, background: true });
    let text = "";
    const decoder = new TextDecoder();
    const read = (async () => {
      for await (const bytes of answer.body ?? []) text += decoder.decode(bytes, { stream: true });
    })().catch(() => {});
    await eventually(() => text.includes("response.output_text.delta"));
    expect(await stop(served)).toBe(0);
    expect(await closed).toBe(1012);
    await deaf.ended;
    await read;
    expect(text).not.toContain("response.completed");
    expect(served.output()).toContain('"message":"Stopped."');
  });

  it("by SIGKILL leaves temporary folders, which the next process removes", async () => {
    const variables = { ...least(), TMPDIR: newFolder() };
    const served = await start(variables);
    served.child.kill("SIGKILL");
    await served.exited;
    // One is its worker's, one has the links by which workers find each other, and one is for processes that read files.
    const left = () => readdirSync(variables.TMPDIR).filter((name) => name.startsWith("responses-edge-"));
    expect(left()).toHaveLength(3);
    // Those of programs that run, of another data folder, stay.
    const other = await start({ ...least(), TMPDIR: variables.TMPDIR });
    expect(left()).toHaveLength(3);
    const next = await eventually(() => start(variables).catch(() => undefined));
    expect(left()).toHaveLength(6);
    expect(await stop(other)).toBe(0);
    expect(left()).toHaveLength(3);
    expect(await stop(next)).toBe(0);
    expect(left()).toEqual([]);
  });
});

describe.runIf(mayMount())("in a mount namespace of its own", () => {
  it("a client's name that resolves to a private address is not called, and the operator's is", async () => {
    let connections = 0;
    const canary = createServer((socket) => {
      connections += 1;
      socket.destroy();
    });
    await once(canary.listen(0, "127.0.0.1"), "listening");
    const hosts = join(newFolder(), "hosts");
    writeFileSync(hosts, "127.0.0.1 rebound.example.com");
    const { port } = new URL(vllm.url);
    const served = await start(
      { ...least(), VLLM_BASE_URL: `http://rebound.example.com:${port}/v1` },
      { mounts: `mount --bind ${hosts} /etc/hosts` },
    );
    // The name resolves to this machine.
    expect((await create(served.url, {})).status).toBe(200);
    const server_url = `https://rebound.example.com:${portOf(canary)}/mcp`;
    const tools = [{ type: "mcp", server_label: "docs", server_url, require_approval: "never" }];
    const { output } = (await (await create(served.url, { tools })).json()) as { output: object[] };
    expect(output[0]).toMatchObject({ type: "mcp_list_tools", error: expect.anything() });
    expect(connections).toBe(0);
    expect(await stop(served)).toBe(0);
    canary.close();
  });

  it("below MIN_FREE_DISK no new data is stored, and everything else works", async () => {
    const admin = `sk-admin-${"a1b2c3d4".repeat(8)}`;
    const variables: Record<string, string> = {
      ...least(),
      ALLOW_ANONYMOUS: "",
      ADMIN_KEY: admin,
      MIN_FREE_DISK: "50%",
    };
    const folder = variables.STATE_DIRECTORY ?? "";
    const served = await start(variables, { mounts: `mount -t tmpfs -o size=16m none ${folder}` });
    const filler = `/proc/${served.child.pid}/root${folder}/filler`;
    const send = async (method: string, path: string, key: string, body?: object) => {
      const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
      return fetch(`${served.url}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
    };
    const made = await send("POST", "/v1/admin/keys", admin, { tenant: "acme" });
    const { value: key, id: keyId } = (await made.json()) as { value: string; id: string };
    const idOf = async (path: string, body: object) =>
      ((await (await send("POST", path, key, body)).json()) as { id: string }).id;
    const [kept, other] = [
      await idOf("/v1/responses", { input: "Hello!" }),
      await idOf("/v1/responses", { input: "!" }),
    ];
    const conversation = await idOf("/v1/conversations", {});
    const health = async () => (await (await fetch(`${served.url}/health`)).json()) as object;
    expect(await health()).toMatchObject({ status: "ok", disk: "ok" });
    const stalled = { input: "Hello!", model: "simulator?fault=stall:2" };
    const stream = await send("POST", "/v1/responses", key, { ...stalled, stream: true });
    const run = await idOf("/v1/responses", { ...stalled, background: true });
    await eventually(
      () => vllm.simulator.requests.filter(({ body }) => JSON.stringify(body)?.includes("stall")).length > 1,
    );

    appendFileSync(filler, Buffer.alloc(10 * 1024 * 1024));
    await eventually(async () => "disk" in (await health()) && JSON.stringify(await health()).includes('"low"'));
    await eventually(() => /"level":"warn","message":"The disk is low: .*MIN_FREE_DISK/.test(served.output()));
    const items = [{ role: "user", content: "Hello!" }];
    const storing: [path: string, body: object, key?: string][] = [
      ["/v1/responses", { input: "Hello!" }],
      ["/v1/responses", { input: "Hello!", stream: true }],
      ["/v1/responses", { input: "Hello!", background: true }],
      ["/v1/responses", { input: "Hello!", previous_response_id: kept }],
      ["/v1/responses", { input: "Hello!", conversation }],
      ["/v1/responses", { input: "Hello!", conversation, store: false }],
      ["/v1/conversations", { items }],
      [`/v1/conversations/${conversation}/items`, { items }],
      ["/v1/admin/keys", { tenant: "acme" }, admin],
      ["/v1/admin/tenants/acme/import", {}, admin],
    ];
    for (const [path, body, as = key] of storing) {
      const answer = await send("POST", path, as, body);
      const refused = { error: { code: "insufficient_storage", type: "server_error", param: null } };
      expect([path, answer.status, await answer.json()]).toMatchObject([path, 507, refused]);
    }
    const going: [method: string, path: string, body?: object, key?: string][] = [
      ["POST", "/v1/responses", { input: "Hello!", store: false }],
      ["POST", "/v1/responses/input_tokens", { input: "Hello!" }],
      ["GET", `/v1/responses/${kept}`],
      ["GET", `/v1/conversations/${conversation}/items`],
      ["POST", `/v1/conversations/${conversation}`, { metadata: { a: "b" } }],
      ["DELETE", `/v1/responses/${other}`],
      ["DELETE", `/v1/conversations/${conversation}`],
      ["POST", `/v1/responses/${run}/cancel`],
      ["POST", `/v1/admin/keys/${keyId}`, { name: "renamed" }, admin],
    ];
    for (const [method, path, body, as = key] of going) {
      expect([method, path, (await send(method, path, as, body)).status]).toEqual([method, path, 200]);
    }
    // The turns in progress are stored.
    for (const { release } of vllm.simulator.requests) release();
    const [, id] = /"id":"(resp_\w+)".*response\.completed/s.exec(await stream.text()) ?? [];
    expect((await send("GET", `/v1/responses/${id}`, key)).status).toBe(200);

    rmSync(filler);
    await eventually(async () => (await send("POST", "/v1/conversations", key, { items })).status === 200);
    expect(await health()).toMatchObject({ status: "ok", disk: "ok" });
    await eventually(() => served.output().includes("The disk takes new data again"));
    expect(await stop(served)).toBe(0);
  });

  it("a full disk is a 507 and leaves nothing half-written, also for a running turn; it works again when there is space", async () => {
    const variables: Record<string, string> = { ...least(), MIN_FREE_DISK: "0", TELEMETRY_LOG: "errors" };
    const folder = variables.STATE_DIRECTORY ?? "";
    const served = await start(variables, { mounts: `mount -t tmpfs -o size=8m none ${folder}` });
    const filler = `/proc/${served.child.pid}/root${folder}/filler`;
    const kept = (await (await create(served.url, {})).json()) as { id: string };
    const stalled = { model: "simulator?fault=stall:2&words=507" };
    const underWay = [create(served.url, { ...stalled, stream: true }), create(served.url, stalled)];
    const isStalled = ({ body }: SimulatedRequest) => JSON.stringify(body ?? null).includes(stalled.model);
    await eventually(() => vllm.simulator.requests.filter(isStalled).length === 2);
    await eventually(async () => {
      // An object that could not write gives space back.
      fill(filler);
      return (await (await fetch(`${served.url}/health`)).text()).includes('"low"');
    });
    const bodies = [{}, { previous_response_id: kept.id }, { background: true }, { stream: true }];
    for (const body of bodies) {
      const answer = await create(served.url, body);
      expect([answer.status, await answer.json()]).toMatchObject([507, { error: { code: "insufficient_storage" } }]);
    }
    const deletion = await fetch(`${served.url}/v1/responses/${kept.id}`, { method: "DELETE" });
    expect([deletion.status, await deletion.json()]).toMatchObject([507, { error: { code: "insufficient_storage" } }]);
    // The log has the code that the client got.
    await eventually(() => /"DELETE \/v1\/responses\/:id".+"error":"insufficient_storage"/.test(served.output()));
    const ready = await fetch(`${served.url}/health/ready`);
    expect([ready.status, await ready.json()]).toEqual([200, { status: "limited", reasons: ["disk_low"] }]);
    for (const { release } of vllm.simulator.requests) release();
    const [streamed, whole] = await Promise.all(underWay);
    const stream = (await streamed?.text()) ?? "";
    expect(stream).toContain('"code":"insufficient_storage"');
    expect(stream).toMatch(/"type":"response\.failed".*\n\ndata: \[DONE\]\n\n$/);
    expect([whole?.status, await whole?.json()]).toMatchObject([507, { error: { code: "insufficient_storage" } }]);
    const [, lost] = /"id":"(resp_\w+)"/.exec(stream) ?? [];

    rmSync(filler);
    await eventually(async () => (await create(served.url, { previous_response_id: kept.id })).status === 200);
    const statuses = [kept.id, lost].map(async (id) => (await fetch(`${served.url}/v1/responses/${id}`)).status);
    expect(await Promise.all(statuses)).toEqual([200, 404]);
    expect(await stop(served)).toBe(0);
  });
});

/** Writes until the disk is full. */
function fill(file: string): void {
  for (const size of [65_536, 1_024, 1]) {
    try {
      for (;;) appendFileSync(file, Buffer.alloc(size));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    }
  }
}
