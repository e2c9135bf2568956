import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { startToolServer, type ToolServer } from "../../dev/tool-server/server.ts";
import { SessionPool } from "../../dev/tool-server/session-pool.ts";
import { optionsFromEnvironment, type ToolServerOptions } from "../../dev/tool-server/settings.ts";
import { COMPLETE, connect, eventually, KEY, toolDirectories, toolProcesses, useOwnDirectory } from "./support.ts";

useOwnDirectory();

let server: ToolServer;

beforeAll(async () => {
  server = await startToolServer({ apiKey: KEY, timeoutMs: 10_000 });
});
afterAll(() => server.close());

describe.skipIf(!COMPLETE)("a session", () => {
  test.each(["auto", "legacy"] as const)("is named by x-session-id, over several connections (%s)", async (mode) => {
    const first = await connect(server.pythonUrl, { session: `named-${mode}`, mode });
    await first.call("python", { code: "x = 'kept'" });
    await first.client.close();
    const second = await connect(server.pythonUrl, { session: `named-${mode}`, mode });
    expect((await second.call("python", { code: "x" })).text).toBe("'kept'\n");
    const other = await connect(server.pythonUrl, { session: `other-${mode}`, mode });
    expect((await other.call("python", { code: "x" })).text).toContain("NameError");
    await Promise.all([second.client.close(), other.client.close()]);
  });

  test("is otherwise MCP's own, and ends with it", async () => {
    const { client, transport, call } = await connect(server.pythonUrl);
    const other = await connect(server.pythonUrl);
    await call("python", { code: "x = 1" });
    expect((await call("python", { code: "x" })).text).toBe("1\n");
    expect((await other.call("python", { code: "x" })).text).toContain("NameError");
    const before = toolProcesses();
    await transport.terminateSession();
    expect(await eventually(() => toolProcesses() === before - 1)).toBe(true);
    await Promise.all([client.close(), other.client.close()]);
  });

  test("otherwise lasts for one call", async () => {
    const { client, call } = await connect(server.pythonUrl, { mode: "auto" });
    await call("python", { code: "x = 1" });
    expect((await call("python", { code: "x" })).text).toContain("NameError");
    await client.close();
  });

  test("runs its calls one after another, while other sessions' calls run", async () => {
    const one = await connect(server.pythonUrl, { session: "serial" });
    const other = await connect(server.pythonUrl, { session: "parallel" });
    await Promise.all([one.call("python", { code: "1" }), other.call("python", { code: "1" })]);
    const log: string[] = [];
    const append = "import time\nn = globals().get('n', 0)\ntime.sleep(0.3)\nn += 1\nn";
    const calls = [1, 2, 3].map(() => one.call("python", { code: append }).then(({ text }) => log.push(text)));
    calls.push(other.call("python", { code: "'other'" }).then(({ text }) => log.push(text)));
    await Promise.all(calls);
    expect(log.filter((text) => text !== "'other'\n")).toEqual(["1\n", "2\n", "3\n"]);
    expect(log.at(-1)).toBe("3\n");
    await Promise.all([one.client.close(), other.client.close()]);
  });

  test("ends with cleanup_session, which stops its running work", async () => {
    const { client, call } = await connect(server.pythonUrl, { session: "cleanup" });
    await call("python", { code: "x = 1" });
    const before = toolProcesses();
    const running = call("python", { code: "import subprocess; print('begun'); subprocess.run(['sleep', '60'])" });
    expect(await eventually(() => toolProcesses() === before + 1)).toBe(true);
    const queue = vi.spyOn(SessionPool.prototype, "run");
    const waiting = call("python", { code: "1" });
    expect(await eventually(() => queue.mock.calls.length === 1)).toBe(true);
    queue.mockRestore();
    expect((await call("cleanup_session")).text).toBe("The session was ended.");
    expect((await running).text).toContain("begun\n[ERROR] The interpreter was ended with its session.");
    expect(await waiting).toEqual({ text: "[ERROR] The session was ended.", failed: true });
    expect((await call("cleanup_session")).text).toBe("There is no session.");
    expect((await call("python", { code: "x" })).text).toContain("NameError");
    await client.close();
  });

  test.each([
    ["auto", "cancels"],
    ["legacy", "cancels"],
    ["auto", "disconnects"],
    ["legacy", "disconnects"],
  ] as const)("ends the call of a client (%s) that %s", async (mode, way) => {
    const { client, call } = await connect(server.containerUrl, { session: "leaving", mode });
    const before = toolProcesses();
    const left = new AbortController();
    const answer = call("exec", { cmd: ["sleep", "60"] }, left.signal);
    const lost = expect(answer).rejects.toThrow();
    expect(await eventually(() => toolProcesses() === before + 1)).toBe(true);
    if (way === "cancels") left.abort();
    else await client.close();
    await lost;
    expect(await eventually(() => toolProcesses() === before)).toBe(true);
    await client.close();
  });
});

test.skipIf(!COMPLETE)("ends when it is idle, but not while it is busy", async () => {
  const short = await startToolServer({ apiKey: KEY, idleMs: 300 });
  const { client, call } = await connect(short.pythonUrl, { session: "idle" });
  const before = toolProcesses();
  expect((await call("python", { code: "import time; time.sleep(0.8); x = 1; 'done'" })).text).toBe("'done'\n");
  expect(await eventually(() => toolProcesses() === before)).toBe(true);
  expect((await call("python", { code: "x" })).text).toContain("NameError");
  await client.close();
  await short.close();
});

test.skipIf(!COMPLETE)("that was idle longest is replaced by a new one, and a busy one is not", async () => {
  const small = await startToolServer({ apiKey: KEY, maxSessions: 2 });
  async function call(session: string, code: string): Promise<string> {
    const { client, call } = await connect(small.pythonUrl, { session });
    const { text } = await call("python", { code });
    await client.close();
    return text;
  }
  await call("a", "x = 'a'");
  await call("b", "x = 'b'");
  expect(await call("a", "x")).toBe("'a'\n");
  await call("c", "x = 'c'");
  expect(await call("a", "x")).toBe("'a'\n");
  const before = toolProcesses();
  // Both wait at the pipe until somebody writes to it.
  const pipe = join(tmpdir(), "pipe");
  execFileSync("mkfifo", [pipe]);
  const busy = ["a", "c"].map((session) => call(session, `import subprocess; subprocess.run(['cat', '${pipe}']); x`));
  expect(await eventually(() => toolProcesses() === before + 2)).toBe(true);
  expect(await call("b", "x")).toBe("[ERROR] All 2 sessions are busy. Try again later.");
  writeFileSync(pipe, "");
  expect(await Promise.all(busy)).toEqual(["'a'\n", "'c'\n"]);
  expect(await call("b", "x")).toContain("NameError");
  await small.close();
});

test.skipIf(!COMPLETE)("closing the server leaves no process and no file", async () => {
  const directories = toolDirectories();
  const processes = toolProcesses();
  const short = await startToolServer({ apiKey: KEY });
  const python = await connect(short.pythonUrl, { session: "s" });
  const container = await connect(short.containerUrl, { session: "s" });
  await python.call("python", { code: "open('file', 'w').write('x')" });
  const running = container.call("exec", { cmd: ["sleep", "60"] }).catch(() => "lost");
  expect(await eventually(() => toolProcesses() === processes + 2)).toBe(true);
  expect(toolDirectories()).toHaveLength(directories.length + 1);
  await short.close();
  expect(await running).toBe("lost");
  expect(toolDirectories()).toEqual(directories);
  expect(toolProcesses()).toBe(processes);
});

test("without Python the tool python returns an error, and the container works", async () => {
  const bare = await startToolServer({ apiKey: KEY, python: "no-such-python" });
  expect(bare.pythonVersion).toBeNull();
  const python = await connect(bare.pythonUrl, { session: "s" });
  expect(await python.call("python", { code: "1" })).toEqual({
    text: "[ERROR] Python is not installed on the tool server (there is no no-such-python).",
    failed: true,
  });
  const container = await connect(bare.containerUrl, { session: "s" });
  expect((await container.call("exec", { cmd: ["echo", "fine"] })).text).toContain("fine");
  await bare.close();
});

test("an impossible option is refused", async () => {
  await expect(startToolServer({ apiKey: KEY, timeoutMs: 0 })).rejects.toThrow(/timeoutMs/);
});

describe("over HTTP", () => {
  const authorization = `Bearer ${KEY}`;

  function status(path: string, given: Record<string, string>): Promise<number | undefined> {
    const headers = { authorization, ...given };
    return new Promise((resolve, reject) => {
      const asked = request({ port: server.port, host: "127.0.0.1", path, method: "POST", headers }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      asked.on("error", reject);
      asked.end("{}");
    });
  }

  test.each([
    ["a foreign host", { host: "evil.example" }],
    ["a host that only begins well", { host: "localhost.evil.example" }],
    ["a page of another origin", { origin: "https://evil.example" }],
    ["a page of no origin", { origin: "null" }],
  ])("%s is refused", async (_, headers) => {
    expect(await status("/python/mcp", headers)).toBe(403);
    expect(await status("/container/mcp", headers)).toBe(403);
  });

  test("only this machine's names are served", async () => {
    expect(await status("/python/mcp", { host: `localhost:${server.port}` })).not.toBe(403);
    expect(await status("/python/mcp", { origin: "http://127.0.0.1:8787" })).not.toBe(403);
    expect(await status("/", {})).toBe(404);
    expect(await status("//", {})).toBe(404);
  });

  test.each([
    ["no key", ""],
    ["another key", "Bearer another-key"],
    ["a key's beginning", authorization.slice(0, -1)],
    ["a key and more", `${authorization}x`],
    ["a key of another scheme", `Basic ${KEY}`],
    ["no scheme", KEY],
  ])("%s is refused, and nothing is run", async (_, authorization) => {
    expect(await status("/python/mcp", { authorization })).toBe(401);
    expect(await status("/container/mcp", { authorization })).toBe(401);
    expect(await status("/", { authorization })).toBe(401);
  });

  test("a server without a key does not start", async () => {
    await expect(startToolServer({ apiKey: "" })).rejects.toThrow(/apiKey/);
    await expect(startToolServer(optionsFromEnvironment({}) as ToolServerOptions)).rejects.toThrow(/apiKey/);
  });

  test("each endpoint has its tool, and cleanup_session", async () => {
    const python = await connect(server.pythonUrl);
    const container = await connect(server.containerUrl, { mode: "auto" });
    const names = async ({ client }: typeof python) => (await client.listTools()).tools.map(({ name }) => name);
    expect(await names(python)).toEqual(["python", "write_file", "read_file", "delete_file", "cleanup_session"]);
    expect(await names(container)).toEqual(["exec", "cleanup_session"]);
    await Promise.all([python.client.close(), container.client.close()]);
  });
});
