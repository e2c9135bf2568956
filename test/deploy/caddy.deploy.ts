import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { connect } from "node:http2";
import { request } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chunk, MODEL } from "../e2e/scripted-vllm.ts";
import { SocketClient } from "../e2e/socket-support.ts";
import { eventually } from "../e2e/support.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { freePort, root } from "../workerd/tools.ts";

/** Caddy with deploy/Caddyfile: only the ports and the gateway's address are the tests' own. CADDY names another binary. */

const caddy = process.env.CADDY ?? "caddy";
const why = spawnSync(caddy, ["version"]).status === 0 ? undefined : "there is no caddy; CADDY may name one";
if (why !== undefined) console.warn(`SKIPPED: ${why}.`);

/** A model that outputs the next word when it is told to. */
interface Model {
  url: string;
  /** Sends a word of the current answer. Waits until there is an answer. */
  say(word: string): Promise<void>;
  finish(): Promise<void>;
  /** Resolves when the reader of the current answer has disconnected. */
  left(): Promise<void>;
  close(): void;
}

async function startModel(): Promise<Model> {
  let answer: ServerResponse | undefined;
  const event = (data: object | string) => `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
  const server = createServer((asked, response) => {
    asked.resume();
    if (asked.url === "/v1/models") {
      const card = { id: MODEL, object: "model", created: 1, owned_by: "vllm", root: MODEL, max_model_len: 4096 };
      response.end(JSON.stringify({ object: "list", data: [card] }));
    } else if (asked.url === "/v1/chat/completions") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(event(chunk({ role: "assistant", content: "" })));
      answer = response;
    } else response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const current = () => eventually(() => answer);
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    say: async (word) => void (await current()).write(event(chunk({ content: word }))),
    async finish() {
      const response = await current();
      answer = undefined;
      const usage = { prompt_tokens: 1, completion_tokens: 1 };
      response.write(event(chunk({}, "stop")));
      response.end(event({ ...chunk({}), choices: [], usage }) + event("[DONE]"));
    },
    async left() {
      const response = await current();
      answer = undefined;
      if (!response.closed) await once(response, "close");
    },
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** The body of a create, as a client reads it through Caddy. */
interface Reading {
  /** The text that has arrived. */
  text(): string;
  /** Waits until the text contains something. */
  until(expected: string): Promise<void>;
  /** Reads to the end. */
  rest(): Promise<string>;
  hangUp(): void;
}

const BODY = JSON.stringify({ model: MODEL, input: "Hello!", stream: true, store: false });
const HEADERS = { "content-type": "application/json" };

function reading(body: Readable, hangUp: () => void): Reading {
  let text = "";
  const ended = once(body, "end");
  // The end of a request that is hung up on is not awaited.
  ended.catch(() => {});
  body.on("data", (piece) => (text += String(piece)));
  return {
    text: () => text,
    until: async (expected) => void (await eventually(() => text.includes(expected))),
    rest: async () => {
      await ended;
      return text;
    },
    hangUp,
  };
}

describe.skipIf(why !== undefined)("Caddy", () => {
  const folder = mkdtempSync(join(tmpdir(), "responses-edge-"));
  let model: Model;
  let gateway: WorkerdProcess;
  let stopCaddy: () => Promise<void>;
  let url: string;
  let authority: Buffer;

  beforeAll(async () => {
    model = await startModel();
    gateway = await startWorkerd({ VLLM_BASE_URL: model.url, ALLOW_ANONYMOUS: "true", HEARTBEAT_MS: "100" });
    const port = await freePort();
    const env = { ...process.env, DOMAIN: "localhost", GATEWAY: new URL(gateway.url).host, HOME: folder };
    const adapted = execFileSync(caddy, ["adapt", "--config", join(root, "deploy/Caddyfile")], { env, stdio: "pipe" });
    const config = JSON.parse(adapted.toString());
    config.admin = { disabled: true };
    config.storage = { module: "file_system", root: folder };
    config.apps.http.https_port = port;
    config.apps.http.servers.srv0.listen = [`127.0.0.1:${port}`];
    config.apps.http.servers.srv0.automatic_https = { disable_redirects: true };
    const file = join(folder, "caddy.json");
    writeFileSync(file, JSON.stringify(config));
    const child = spawn(caddy, ["run", "--config", file], { env, stdio: "ignore" });
    stopCaddy = async () => {
      child.kill("SIGKILL");
      if (child.exitCode === null) await once(child, "exit");
    };
    const certificate = join(folder, "pki/authorities/local/root.crt");
    await eventually(() => existsSync(certificate));
    authority = readFileSync(certificate);
    url = `https://localhost:${port}`;
    await eventually(async () => {
      const asked = request(`${url}/health`, { ca: authority });
      asked.end();
      const [answer] = await once(asked, "response").catch(() => []);
      answer?.resume();
      return answer?.statusCode === 200;
    });
  });
  afterAll(async () => {
    await stopCaddy?.();
    await gateway?.close();
    model?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const OVER: Record<string, () => Promise<Reading>> = {
    async "HTTP/1.1"() {
      const asked = request(`${url}/v1/responses`, { method: "POST", ca: authority, headers: HEADERS, agent: false });
      asked.end(BODY);
      asked.on("error", () => {});
      const [answer] = await once(asked, "response");
      return reading(answer, () => asked.destroy());
    },
    async "HTTP/2"() {
      const session = connect(url, { ca: authority });
      const stream = session.request({ ":method": "POST", ":path": "/v1/responses", ...HEADERS });
      stream.end(BODY);
      stream.on("end", () => session.close());
      return reading(stream, () => session.destroy());
    },
  };

  describe.each(Object.keys(OVER))("over %s", (protocol) => {
    const create = () => OVER[protocol]?.() as Promise<Reading>;

    it("forwards each word before the next one is generated, and sends heartbeats while the model is silent", async () => {
      const answer = await create();
      for (const word of ["one ", "two ", "three "]) {
        await model.say(word);
        await answer.until(`"delta":"${word}"`);
      }
      const heard = () => answer.text().split(": heartbeat").length;
      const before = heard();
      await eventually(() => heard() >= before + 3);
      await model.finish();
      expect(await answer.rest()).toContain("event: response.completed");
    });

    it("lets the gateway, and so the model, notice that a client has hung up", async () => {
      const answer = await create();
      await model.say("one ");
      await answer.until("one ");
      answer.hangUp();
      await model.left();
    });
  });

  it("forwards WebSocket mode", async () => {
    const socket = await SocketClient.open({ url }, { ca: authority });
    const turn = socket.turn({ model: MODEL, input: "Hello!" });
    await model.say("Hello.");
    await model.finish();
    expect((await turn).text).toBe("Hello.");
    await socket.close();
  });
});
