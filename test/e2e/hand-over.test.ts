import { spawn, spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { beginLoad } from "../crash/hand-over-load.ts";
import { type McpTestServer, startMcpServer } from "../tools/mcp-server.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { ADMIN_KEY, ROOT, sha256 } from "./key-support.ts";
import { begin, cleanUp, deafSocket, newFolder, run, type Served, start, workerdsOf } from "./serve-support.ts";
import { eventually } from "./support.ts";

/** A process that takes the place of another one under `serve`, while both get requests (docs/self-hosting.md). */

let vllm: SimulatorServer;
beforeAll(async () => {
  vllm = await serveSimulator();
});
afterAll(() => vllm.close());

const least = () => ({ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", STATE_DIRECTORY: newFolder() });

const SERVES = "Another process serves";
const HAS_ENDED = "The previous process has ended.";

/** The number of times that a text is in the output. */
const times = ({ output }: Served, what: string) => output().split(what).length - 1;

async function created(url: string, what: string, body: object): Promise<{ id: string; status: string }> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/${what}`, { method: "POST", headers, body: JSON.stringify(body) });
  return (await answer.json()) as { id: string; status: string };
}

const create = (url: string, body: object) => created(url, "responses", body);

/** Waits until the model was asked with this text. */
const untilAsked = (text: string) =>
  eventually(() => vllm.simulator.requests.some(({ body }) => JSON.stringify(body)?.includes(text)), 30_000);

/** The files that a process has open; none if it has ended. */
function openFiles(pid: number | undefined): string[] {
  const folder = `/proc/${pid}/fd`;
  if (!existsSync(folder)) return [];
  return readdirSync(folder).flatMap((name) => {
    try {
      return [readlinkSync(join(folder, name))];
    } catch {
      return [];
    }
  });
}

async function stop(served: Served): Promise<number | null> {
  served.child.kill("SIGTERM");
  return served.exited;
}

describe("another process that takes the place of the serving one", () => {
  describe("again and again", () => {
    let mcp: McpTestServer;
    let served: Served;
    beforeAll(async () => {
      mcp = await toolServer();
      served = await start({ ...least(), MCP_SERVERS: new URL(mcp.url).origin });
    });
    afterAll(async () => {
      try {
        expect(await stop(served)).toBe(0);
      } finally {
        cleanUp();
        await mcp.close();
      }
    });

    let before: Record<string, number> = {};
    /** The number of times that a text was written since the beginning of the test. */
    const since = (what: string) => times(served, what) - (before[what] ?? 0);
    // One process serves, and all before it have ended.
    beforeEach(async () => {
      await eventually(() => times(served, HAS_ENDED) === times(served, SERVES));
      before = Object.fromEntries([SERVES, HAS_ENDED].map((what) => [what, times(served, what)]));
    });

    it("loses no request and no byte: stored, in the background, in conversations", async () => {
      const load = beginLoad({ url: served.url, streams: 8, words: 60, wordsPerSecond: 20, rate: 20 });
      await eventually(() => load.openStreams() === 8, 30_000);
      served.child.kill("SIGHUP");
      await eventually(() => since(SERVES) === 1, 30_000);
      const { failures, requests } = await load.finish();
      expect(failures).toEqual([]);
      expect(requests).toBeGreaterThan(0);
      await eventually(() => since(HAS_ENDED) === 1, 30_000);
    }, 120_000);

    it("has the objects' files for itself, also when alarms ring in its predecessor", async () => {
      const left = new AbortController();
      const body = JSON.stringify({
        model: "simulator?words=300&tps=10",
        input: "Keep the predecessor.",
        stream: true,
      });
      const headers = { "content-type": "application/json" };
      const stream = await fetch(`${served.url}/v1/responses`, { method: "POST", headers, body, signal: left.signal });
      // Homes report to the list of responses 2 s after their creation, by an alarm.
      const made = await Promise.all(
        Array.from({ length: 8 }, (_, index) => create(served.url, { model: "simulator", input: `${index}` })),
      );
      const [predecessor] = workerdsOf(served);
      served.child.kill("SIGHUP");
      await eventually(() => since(SERVES) === 1, 30_000);
      const held = () =>
        openFiles(predecessor).filter((path) => /[0-9a-f]{64}\.sqlite$/.test(path) && path.includes("-Home/"));
      // An alarm opens its file for a moment.
      let longest = 0;
      const seen = new Map<string, number>();
      for (let look = 0; look < 12; look += 1) {
        const now = new Set(held());
        for (const path of seen.keys()) if (!now.has(path)) seen.delete(path);
        for (const path of now) seen.set(path, (seen.get(path) ?? 0) + 1);
        longest = Math.max(longest, ...seen.values());
        await sleep(500);
      }
      expect(longest).toBeLessThan(4);
      await eventually(async () => {
        const text = await (await fetch(`${served.url}/v1/responses?limit=100`)).text();
        return made.every(({ id }) => text.includes(id));
      });
      left.abort();
      await stream.body?.cancel().catch(() => {});
    });

    it("serves a conversation after the turn that its predecessor has in it, also if a third one is requested meanwhile", async () => {
      const { id: conversation } = await created(served.url, "conversations", {});
      const slow = { model: "simulator?words=40&tps=10", input: "Count.", conversation };
      const first = create(served.url, slow);
      await untilAsked("Count.");
      served.child.kill("SIGHUP");
      await eventually(() => since(SERVES) === 1, 30_000);
      served.child.kill("SIGHUP");
      const next = await create(served.url, { model: "simulator", input: "Hello!", conversation });
      expect([(await first).status, next.status]).toEqual(["completed", "completed"]);
      await eventually(() => since(SERVES) === 2, 30_000);
    });

    it("resets no connection whose client asks again at once", async () => {
      let isGoing = true;
      const failures: string[] = [];
      const asked = async (connection: Agent, body: object) => {
        const answer = await post(served.url, { model: "simulator", input: "Again!", ...body }, connection);
        if (!answer.includes('"status":"completed"')) failures.push(answer);
      };
      // Answers that take some time, so that clients who ask again at once send few requests.
      const bodies = [{ model: "simulator?ttft=30" }, { model: "simulator?words=30&tps=20", stream: true }];
      const clients = Array.from({ length: 6 }, async (_, index) => {
        const connection = new Agent({ keepAlive: true, maxSockets: 1 });
        while (isGoing) {
          await asked(connection, bodies[index % 2] ?? {}).catch((error: Error) => failures.push(error.message));
        }
        connection.destroy();
      });
      await untilAsked("Again!");
      for (const time of [1, 2]) {
        served.child.kill("SIGHUP");
        await eventually(() => since(SERVES) === time, 60_000);
      }
      isGoing = false;
      await Promise.all(clients);
      expect(failures).toEqual([]);
    }, 180_000);

    it("is followed by the next one while streams go on in the ones before, and WebSockets have moved", async () => {
      const codes: number[] = [];
      const sockets: WebSocket[] = [];
      const connect = () => {
        const socket = new WebSocket(`${served.url.replace("http", "ws")}/v1/responses`);
        sockets.push(socket);
        socket.addEventListener("close", ({ code }) => {
          codes.push(code);
          if (code === 1012) connect();
        });
      };
      for (let index = 0; index < 4; index += 1) connect();
      const deaf = await deafSocket(served.url);
      const slow = { model: "simulator?words=300&tps=10", input: "Take long.", stream: true };
      const stream = post(served.url, slow);
      await untilAsked("Take long.");
      for (const time of [1, 2, 3]) {
        served.child.kill("SIGHUP");
        await eventually(() => since(SERVES) === time, 60_000);
        expect(since(HAS_ENDED)).toBeLessThan(time);
        // Each WebSocket is closed once for each hand-over.
        await eventually(() => codes.length === 4 * time, 30_000);
      }
      await deaf.ended;
      expect(await stream).toContain("event: response.completed");
      expect(codes).toEqual(Array(12).fill(1012));
      for (const socket of sockets) socket.close();
      await eventually(() => since(HAS_ENDED) === 3, 60_000);
    }, 240_000);

    it("sends the readers of a background run the same bytes, and resumes it", async () => {
      const body = { model: "simulator?words=120&tps=15", input: "Read on.", stream: true, background: true };
      const reading = post(served.url, body);
      await untilAsked("Read on.");
      for (const time of [1, 2]) {
        served.child.kill("SIGHUP");
        await eventually(() => since(SERVES) === time, 60_000);
      }
      const read = await reading;
      const id = /"id":"(resp_\w+)"/.exec(read)?.[1];
      const again = await (await fetch(`${served.url}/v1/responses/${id}?stream=true`)).text();
      expect(read).toContain("event: response.completed");
      const events = (bytes: string) => bytes.split("\n").filter((line) => line !== "" && !line.startsWith(":"));
      expect(events(again)).toEqual(events(read));
    }, 180_000);

    it("lets the call of an MCP tool end first, and resumes its run with the access that only memory has", async () => {
      const tool = { type: "mcp", server_label: "sample", server_url: mcp.url, require_approval: "never" };
      const { id } = await create(served.url, {
        model: "simulator?rounds=2",
        input: "With a preamble, call sample__slow.",
        background: true,
        tools: [{ ...tool, authorization: "secret" }],
      });
      await eventually(() => mcp.requests.some(({ message }) => message?.method === "tools/call"), 30_000);
      served.child.kill("SIGHUP");
      await eventually(() => since(SERVES) === 1, 60_000);
      type Run = { status: string; output: { type: string; status: string }[] };
      const retrieve = async () => (await (await fetch(`${served.url}/v1/responses/${id}`)).json()) as Run;
      await eventually(async () => (await retrieve()).status !== "in_progress", 60_000);
      const { status, output } = await retrieve();
      expect(status).toBe("completed");
      expect(output.filter(({ type }) => type === "mcp_call").map((call) => call.status)).toEqual([
        "completed",
        "completed",
      ]);
      expect(mcp.requests.filter(({ message }) => message?.method === "tools/call")).toHaveLength(2);
    }, 180_000);

    it("leaves nothing behind in the launcher", async () => {
      const held = () => {
        const { pid } = served.child;
        const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
        return [readdirSync(`/proc/${pid}/fd`).length, children.length];
      };
      const reload = async (time: number) => {
        served.child.kill("SIGHUP");
        await eventually(() => since(HAS_ENDED) === time, 60_000);
      };
      await reload(1);
      const before = held();
      for (const time of [2, 3, 4]) await reload(time);
      // It opens files of the system for a moment.
      await eventually(() => held().every((count, at) => count <= (before[at] ?? 0)), 10_000);
    }, 180_000);
  });

  describe("of a server of its own", () => {
    afterEach(cleanUp);

    it.each([1, 3])(
      "loses and repeats no usage, nor does a stop at the last answer: %i workers",
      async (workers) => {
        const variables = { ...least(), WORKERS: `${workers}`, API_KEYS: `one:${sha256("key")}`, ADMIN_KEY };
        const served = await start(variables);
        let made = 0;
        let isOver = false;
        const send = async (index: number) => {
          // Each client always has a request under way, and few of them.
          const body = JSON.stringify({ model: "simulator?ttft=30", input: "Hello!", store: index % 2 === 0 });
          const headers = { "content-type": "application/json", authorization: "Bearer key" };
          while (!isOver) {
            const answer = await fetchAnew(`${served.url}/v1/responses`, { method: "POST", headers, body });
            expect(await answer.json()).toMatchObject({ status: "completed" });
            made += 1;
          }
        };
        const sending = Promise.all([0, 1, 2, 3].map(send));
        served.child.kill("SIGHUP");
        await eventually(() => times(served, SERVES) === workers, 60_000);
        isOver = true;
        await sending;
        expect(await stop(served)).toBe(0);
        const next = await start(variables);
        const from = Math.floor(Date.now() / 1000) - 86_400;
        const asRoot = { headers: { authorization: `Bearer ${ROOT}` } };
        const read = async <T>(path: string) =>
          (await (await fetch(`${next.url}/v1/${path}`, asRoot)).json()) as { data: T[] };
        const usage = await read<{ results: { num_model_requests: number; num_errors: number }[] }>(
          `organization/usage/completions?start_time=${from}`,
        );
        const overview = await read<{ requests: number }>(`admin/overview?start_time=${from}&bucket_width=1d`);
        const used = usage.data.flatMap(({ results }) => results);
        expect({
          usage: used.reduce((sum, each) => sum + each.num_model_requests, 0),
          errors: used.reduce((sum, each) => sum + each.num_errors, 0),
          overview: overview.data.reduce((sum, each) => sum + each.requests, 0),
        }).toEqual({ usage: made, errors: 0, overview: made });
        expect(await stop(next)).toBe(0);
      },
      120_000,
    );

    it("starts by `reload`, again and again, and reads changes", async () => {
      const variables = least();
      const file = join(newFolder(), "aliases");
      writeFileSync(file, '{"one":"simulator"}');
      const served = await start({ ...variables, MODEL_ALIASES_FILE: file });
      const statusOf = async (model: string) => (await create(served.url, { model, input: "Hello!" })).status;
      expect(await statusOf("one")).toBe("completed");
      for (const name of ["two", "three"]) {
        writeFileSync(file, JSON.stringify({ [name]: "simulator" }));
        expect(await run({ STATE_DIRECTORY: variables.STATE_DIRECTORY }, "reload")).toEqual([
          0,
          "Another process serves.\n",
        ]);
        expect(await statusOf(name)).toBe("completed");
      }
      writeFileSync(file, "nonsense");
      const [code, output] = await run({ STATE_DIRECTORY: variables.STATE_DIRECTORY }, "reload");
      expect([code, output]).toEqual([1, expect.stringContaining("MODEL_ALIASES")]);
      expect(await statusOf("three")).toBe("completed");
      expect(await stop(served)).toBe(0);
      const nobody = await run({ STATE_DIRECTORY: variables.STATE_DIRECTORY }, "reload");
      expect(nobody).toEqual([1, expect.stringContaining("Nothing serves the data folder")]);
    }, 120_000);

    it("starts as soon as the first one serves, if it was requested during its start", async () => {
      const served = begin(least());
      // The program handles the signal from some moment of its start on: its bit is the first.
      await eventually(() =>
        /SigCgt:\s+\w+[13579bdf]\n/.test(readFileSync(`/proc/${served.child.pid}/status`, "latin1")),
      );
      served.child.kill("SIGHUP");
      await eventually(() => times(served, SERVES) === 1, 60_000);
      expect(await stop(served)).toBe(0);
    }, 120_000);

    it("does not keep `serve` from its end", async () => {
      const served = await start({ ...least(), STOP_TIMEOUT_MS: "600000" });
      await create(served.url, { model: "simulator?tps=1&words=600", input: "Go on.", background: true });
      served.child.kill("SIGHUP");
      await eventually(() => workerdsOf(served).length === 2, 30_000);
      expect(await stop(served)).toBe(0);
    });

    it("has a configuration file that changed while it started", async () => {
      const file = join(newFolder(), "edge.json");
      const named = (alias: string) => JSON.stringify({ model_aliases: { [alias]: "simulator" } });
      writeFileSync(file, named("one"));
      const served = await start({ ...least(), CONFIG_FILE: file });
      served.child.kill("SIGHUP");
      const successor = await eventually(() => workerdsOf(served)[1], 30_000);
      process.kill(successor, "SIGSTOP");
      writeFileSync(file, named("two"));
      await eventually(() => times(served, "has changed, and was applied") === 1, 30_000);
      expect(times(served, SERVES)).toBe(0);
      process.kill(successor, "SIGCONT");
      await eventually(() => times(served, SERVES) === 1, 30_000);
      for (const [model, status] of [
        ["two", "completed"],
        ["one", undefined],
      ] as const) {
        expect((await create(served.url, { model, input: "Hello!" })).status).toBe(status);
      }
      expect(await stop(served)).toBe(0);
    });

    it("ends with its predecessor as soon as the turns of both have ended", async () => {
      // Whoever waits for this time outlasts the test.
      const served = await start({ ...least(), STOP_TIMEOUT_MS: "600000" });
      const turns = [create(served.url, { model: "simulator?words=40&tps=10", input: "Wait." })];
      await untilAsked("Wait.");
      served.child.kill("SIGHUP");
      await eventually(() => times(served, SERVES) === 1, 30_000);
      turns.push(create(served.url, { model: "simulator?words=10&tps=10", input: "Wait again." }));
      await untilAsked("Wait again.");
      expect(await stop(served)).toBe(0);
      expect((await Promise.all(turns)).map(({ status }) => status)).toEqual(["completed", "completed"]);
    });
  });
});

/** Sends a request on a connection; gives the answer's body. Rejects if the connection is reset. */
async function post(url: string, body: object, agent?: Agent): Promise<string> {
  const headers = { "content-type": "application/json" };
  const asked = request(`${url}/v1/responses`, { method: "POST", headers, ...(agent && { agent }) });
  asked.end(JSON.stringify(body));
  const answer = await new Promise<NodeJS.ReadableStream>((resolve, reject) => {
    asked.on("response", resolve);
    asked.on("error", reject);
  });
  return text(answer);
}

/** A server with the tool `slow`, whose model gives it a second. */
function toolServer(): Promise<McpTestServer> {
  const inputSchema = { type: "object", properties: { ms: { enum: [1_000] } }, required: ["ms"] };
  const slow = { name: "slow", description: "Takes its time.", inputSchema };
  return startMcpServer({ mode: "stateless", tools: [slow] });
}

/** The service manager's side of systemd's protocol: it prints every message that arrives. */
const LISTENER = `
import socket, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(sys.argv[1])
while True:
    message = manager.recv(4096).decode().replace("\\n", " ").strip()
    # By this \`systemd-notify\` finds out that the one before it was read.
    if message != "BARRIER=1":
        print(message, flush=True)
`;

const mayNotify = ["systemd-notify", "python3"].every((name) => spawnSync(name, ["--version"]).status === 0);
if (!mayNotify) console.log("Not shown here: this machine has no systemd-notify, or no python3.");

describe.runIf(mayNotify)("under systemd", () => {
  afterEach(cleanUp);

  it("reports readiness, life signs, reloads and the stop", async () => {
    const path = join(newFolder(), "notify");
    const listener = spawn("python3", ["-c", LISTENER, path], { stdio: ["ignore", "pipe", "inherit"] });
    let heard = "";
    listener.stdout.on("data", (text) => (heard += String(text)));
    try {
      await eventually(() => existsSync(path));
      const served = await start({ ...least(), NOTIFY_SOCKET: path, WATCHDOG_USEC: "1000000" });
      const ready = `READY=1 MAINPID=${served.child.pid}\n`;
      await eventually(() => heard.includes(ready) && heard.includes("WATCHDOG=1\n"), 30_000);
      heard = "";
      served.child.kill("SIGHUP");
      await eventually(() => heard.includes(ready), 30_000);
      expect(heard.replaceAll("WATCHDOG=1\n", "")).toMatch(/^RELOADING=1 MONOTONIC_USEC=\d+\nREADY=1 /);
      expect(await stop(served)).toBe(0);
      await eventually(() => heard.includes("STOPPING=1\n"), 30_000);
    } finally {
      listener.kill();
    }
  }, 120_000);
});
