import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { BUNDLE_VARIABLE, freePort, isFree, root } from "../workerd/tools.ts";
import { eventually } from "./support.ts";

/** `npm start`, as a developer starts and stops it. A directory in its environment identifies its processes. */

interface Started {
  npm: ChildProcess;
  url: string;
  port: number;
  /** Its whole output. */
  output(): string;
  /** The ids of all its processes, by their programs. */
  processes(): Map<number, string>;
  state: string;
}

/** It bundles the Worker itself, and does not use the test run's bundle. */
const ITS_OWN_BUNDLE = { [BUNDLE_VARIABLE]: "" };

const started: Started[] = [];

function start(port: number, variables: Record<string, string> = {}): Started {
  const directory = mkdtempSync(join(tmpdir(), "npm-start-test-"));
  const state = join(directory, "state");
  mkdirSync(state);
  const npm = spawn("npm", ["start"], {
    cwd: root,
    // Ctrl-C signals a terminal's process group, which must not be the tests' own.
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...process.env,
      VLLM_BASE_URL: "",
      API_KEYS: "",
      PORT: String(port),
      STATE_DIRECTORY: state,
      ...variables,
      TMPDIR: directory,
    },
  });
  let output = "";
  for (const stream of [npm.stdout, npm.stderr]) stream?.on("data", (text) => (output += String(text)));
  const one: Started = {
    npm,
    url: `http://127.0.0.1:${port}`,
    port,
    output: () => output,
    processes: () => processesOf(directory),
    state,
  };
  started.push(one);
  return one;
}

/** Runs `npm start`, and waits until it has printed its address. */
async function ready(variables: Record<string, string> = {}): Promise<Started> {
  const one = start(await freePort(), variables);
  await eventually(() => one.output().includes("listens on") || one.npm.exitCode !== null);
  expect(one.output()).toContain("listens on");
  return one;
}

function processesOf(directory: string): Map<number, string> {
  const found = new Map<number, string>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      // The command line is empty if the process has ended and its parent has not noticed.
      if (!readFileSync(`/proc/${name}/environ`, "latin1").includes(directory)) continue;
      found.set(Number(name), readFileSync(`/proc/${name}/cmdline`, "latin1").replaceAll("\0", " "));
    } catch {
      // The process ended meanwhile, or belongs to another user.
    }
  }
  return found;
}

function idOf(one: Started, what: RegExp): number {
  const [found] = [...one.processes()].find(([, command]) => what.test(command)) ?? [];
  if (found === undefined) throw new Error(`Nothing like ${what} runs: ${[...one.processes().values()].join("; ")}`);
  return found;
}

/** The addresses on which a process listens, as `ADDRESS:PORT`. */
function listening(pid: number): string[] {
  const sockets = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
      } catch {
        return [];
      }
    }),
  );
  const tables = ["/proc/net/tcp", "/proc/net/tcp6"].filter((path) => existsSync(path));
  return tables.flatMap((path) =>
    readFileSync(path, "latin1")
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/))
      // 0A is LISTEN.
      .filter(([, , , state, , , , , , inode]) => state === "0A" && sockets.has(inode ?? ""))
      .map(([, local = ""]) => {
        const [address = "", port = ""] = local.split(":");
        return `${address}:${Number.parseInt(port, 16)}`;
      }),
  );
}

/** The kernel's form of 127.0.0.1 and ::1 on a little-endian machine. */
const LOOPBACK = /^(0100007F|00000000000000000000000001000000):\d+$/;

async function expectGone(one: Started): Promise<void> {
  await eventually(() => one.processes().size === 0).catch(() => {});
  expect([...one.processes().values()]).toEqual([]);
  // The port is free again. The system closes a process's sockets after it has freed the memory.
  await eventually(() => isFree(one.port));
}

afterEach(() => {
  for (const { processes, state } of started.splice(0)) {
    for (const pid of processes().keys()) process.kill(pid, "SIGKILL");
    rmSync(join(state, ".."), { recursive: true, force: true });
  }
});

/** Processes are found in /proc, which macOS does not have. */
describe.runIf(existsSync("/proc/self/environ"))("npm start", () => {
  it.each<[how: string, stop: (one: Started) => void]>([
    ["Ctrl-C", ({ npm }) => process.kill(-(npm.pid as number), "SIGINT")],
    ["SIGTERM to npm", ({ npm }) => npm.kill("SIGTERM")],
    ["SIGKILL to npm", ({ npm }) => npm.kill("SIGKILL")],
    ["SIGKILL to what npm runs", (one) => process.kill(idOf(one, /scripts\/start\.ts/), "SIGKILL")],
  ])("leaves no process behind after %s, not even a running tool", async (_, stop) => {
    const one = await ready({ TOOL_SERVER: "1" });
    const tool = `Use container_exec: \`{"cmd":["sleep","1000"]}\``;
    const answer = fetch(`${one.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "simulator", input: tool, tools: [{ type: "container" }] }),
    }).catch(() => {});
    await eventually(() => [...one.processes().values()].some((command) => command.startsWith("sleep 1000")));
    stop(one);
    await expectGone(one);
    await answer;
  });

  it("leaves no process behind after SIGKILL to npm while it still bundles", async () => {
    const one = start(await freePort(), ITS_OWN_BUNDLE);
    await eventually(() => [...one.processes().values()].some((command) => command.includes("esbuild")));
    one.npm.kill("SIGKILL");
    await expectGone(one);
  });

  it("says which of its variables are wrong, and starts nothing", async () => {
    const one = start(0, { PORT: "abc", MIN_FREE_DISK: "little" });
    await eventually(() => one.npm.exitCode !== null);
    expect(one.npm.exitCode).toBe(78);
    expect(one.output()).toContain("  PORT: expected a whole number from 0 to 65535\n  MIN_FREE_DISK: expected bytes");
    expect(one.output()).not.toContain("listens on");
  });

  it("says how the model server answers; ends when the Worker's process does, with an error", async () => {
    const port = await freePort();
    const one = await ready({ VLLM_BASE_URL: `http://127.0.0.1:${port}` });
    const said = `The model server vllm does not answer (ECONNREFUSED): no program listens at 127.0.0.1:${port}. Start it, or correct VLLM_BASE_URL.`;
    await eventually(() => one.output().includes(said));
    process.kill(idOf(one, /workerd serve/), "SIGKILL");
    await eventually(() => one.npm.exitCode !== null);
    expect(one.npm.exitCode).toBe(1);
    expect(one.output()).toContain("The Worker's process has ended");
    await expectGone(one);
  });

  describe("while it runs", () => {
    let one: Started;
    let mcp: ReturnType<typeof createServer>;
    const asked: IncomingMessage[] = [];
    beforeAll(async () => {
      mcp = createServer((request, response) => {
        asked.push(request);
        response.writeHead(500).end();
      }).listen(0, "127.0.0.1");
      await once(mcp, "listening");
      const { port } = mcp.address() as AddressInfo;
      one = await ready({ ...ITS_OWN_BUNDLE, TOOL_SERVER: "1", MCP_SERVERS: `http://127.0.0.1:${port}` });
      // The process is stopped after all of these tests.
      started.splice(0);
    });
    afterAll(async () => {
      mcp.close();
      one.npm.kill("SIGTERM");
      await expectGone(one);
      rmSync(join(one.state, ".."), { recursive: true, force: true });
    });

    it("does not keep the memory in which its configuration was parsed", () => {
      const status = readFileSync(`/proc/${idOf(one, /workerd serve/)}/status`, "latin1");
      // 79 MB; with what parsing takes, 131.
      expect(Number(/^RssAnon:\s+(\d+) kB$/m.exec(status)?.[1])).toBeLessThan(105 * 1024);
    });

    it("listens only on loopback addresses, with the Worker on one port", () => {
      const ports = [...one.processes().keys()].flatMap(listening);
      expect(ports.length).toBeGreaterThanOrEqual(3);
      for (const port of ports) expect(port).toMatch(LOOPBACK);
      const worker = listening(idOf(one, /workerd serve/)).map((address) => address.replace(/^.*:/, ""));
      expect(new Set(worker)).toEqual(new Set([String(one.port)]));
    });

    it("refuses a second start in the same folder, and says what to do", async () => {
      const second = start(await freePort(), { STATE_DIRECTORY: one.state });
      await eventually(() => second.npm.exitCode !== null);
      expect(second.npm.exitCode).toBe(75);
      const pid = idOf(one, /scripts\/start\.ts/);
      expect(second.output()).toContain(
        `Another responses-edge (process ${pid}) uses the data folder ${one.state}. Stop it (kill ${pid}), or set STATE_DIRECTORY to another folder, and PORT to serve beside it.`,
      );
    });

    it("has no secret in a command line", () => {
      for (const command of one.processes().values()) expect(command).not.toMatch(/API_KEY|TOOL_SERVERS/);
    });

    it.each([
      "/cdn-cgi/local/explorer",
      "/cdn-cgi/local/explorer/api",
      "/cdn-cgi/local/explorer/api/local/workers",
      "/cdn-cgi/local/scheduled",
      "/cdn-cgi/local/email",
      "/cdn-cgi/local/platform-proxy",
      "/cdn-cgi/mf/scheduled",
      "/cdn-cgi/handler/scheduled",
      "/json",
      "/json/list",
    ])("has no %s", async (path) => {
      const answer = await fetch(one.url + path);
      expect(answer.status).toBe(404);
      expect(await answer.json()).toMatchObject({ error: { code: "unknown_url" } });
    });

    it("lets no header change a request's host", async () => {
      const { promise, resolve } = Promise.withResolvers<number | undefined>();
      const { request } = await import("node:http");
      const headers = { host: "rebound.example.com", "MF-Original-URL": `${one.url}/v1/models` };
      request({ port: one.port, host: "127.0.0.1", path: "/v1/models", headers }, (response) => {
        response.resume();
        resolve(response.statusCode);
      }).end();
      expect(await promise).toBe(403);
    });

    it("has a tool server that requires the Worker's key", async () => {
      const here = idOf(one, /scripts\/start\.ts/);
      const statuses = await Promise.all(
        listening(here).map(async (address) => {
          const url = `http://127.0.0.1:${address.replace(/^.*:/, "")}/python/mcp`;
          return (await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" }))
            .status;
        }),
      );
      // The other ports are the simulator's and the image server's.
      expect(statuses.sort()).toEqual([401, 404, 404]);
      const answer = await fetch(`${one.url}/v1/responses`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          model: "simulator",
          input: 'Use container_exec: `{"cmd":["echo","it runs"]}`',
          tools: [{ type: "container" }],
        }),
      });
      expect(await answer.text()).toContain("it runs");
    });

    it("stores the query of an MCP server's URL nowhere", async () => {
      const { port } = mcp.address() as AddressInfo;
      const secret = "sekret-in-the-query";
      const server_url = `http://127.0.0.1:${port}/mcp?key=${secret}`;
      const tools = [{ type: "mcp", server_label: "docs", server_url, require_approval: "never" }];
      const answer = await fetch(`${one.url}/v1/responses`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ model: "simulator", input: "Hello!", tools }),
      });
      expect(answer.status).toBe(200);
      expect(asked.some(({ url }) => url?.includes(secret))).toBe(true);
      const kept = readdirSync(one.state, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
      expect(kept.length).toBeGreaterThan(0);
      for (const { parentPath, name } of kept) {
        expect(readFileSync(join(parentPath, name), "latin1")).not.toContain(secret);
      }
      expect(one.output()).not.toContain(secret);
    });
  });
});
