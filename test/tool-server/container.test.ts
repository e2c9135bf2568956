import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startToolServer, type ToolServer } from "../../dev/tool-server/server.ts";
import { COMPLETE, connect, eventually, KEY, type ToolClient, toolProcesses, useOwnDirectory } from "./support.ts";

useOwnDirectory();

let server: ToolServer;
let tool: ToolClient;

beforeAll(async () => {
  server = await startToolServer({ apiKey: KEY, timeoutMs: 5_000, maxOutputBytes: 1000 });
  tool = await connect(server.containerUrl, { session: "container" });
});
afterAll(async () => {
  await tool.client.close();
  await server.close();
});

function exec(...cmd: string[]) {
  return tool.call("exec", { cmd });
}

function sh(script: string, rest: Record<string, unknown> = {}) {
  return tool.call("exec", { cmd: ["sh", "-c", script], ...rest });
}

describe("a command", () => {
  test("gives its output and its exit code", async () => {
    expect(await exec("echo", "hello")).toEqual({ text: "hello\n[exit code 0]", failed: false });
    expect(await exec("true")).toEqual({ text: "[exit code 0]", failed: false });
    expect(await sh("echo out; echo err >&2; echo out; exit 3")).toEqual({
      text: "out\nerr\nout\n[exit code 3]",
      failed: false,
    });
  });

  test("is not read by a shell", async () => {
    expect((await exec("echo", "$HOME", "$(id)", ";", "ls", "'\"")).text).toBe("$HOME $(id) ; ls '\"\n[exit code 0]");
  });

  test("that does not exist says so", async () => {
    const { text } = await exec("no-such-program");
    expect(text).toMatch(/no-such-program: not found\n\[exit code 127\]$/);
  });

  test("leaves its files to the next, and has the given variables", async () => {
    await sh("mkdir -p sub && echo kept > sub/file");
    expect((await sh('cat file; echo "$COLOUR"', { workdir: "sub", env: { COLOUR: "blue" } })).text).toBe(
      "kept\nblue\n[exit code 0]",
    );
  });

  test("has no input to wait for", async () => {
    expect((await exec("cat")).text).toBe("[exit code 0]");
  });

  test("with much output is cut in the middle", async () => {
    const { text } = await sh("echo start; yes | head -c 1000000; echo end");
    expect(text).toMatch(/^start\ny\n[\s\S]*\[… 999\d+ bytes left out …\]\n[\s\S]*y\nend\n\[exit code 0\]$/);
    expect(text.length).toBeLessThan(1200);
  });

  test("is ended after its timeout, in seconds or in milliseconds", async () => {
    expect(await sh("echo begun; sleep 60", { timeout: 0.8 })).toEqual({
      text: "begun\n[ERROR] The command took more than 0.8 s, and was ended.",
      failed: true,
    });
    expect((await sh("sleep 60", { timeout: 1000 })).text).toContain("took more than 1 s");
  });

  test.skipIf(!COMPLETE)("ends with all processes that it has started", async () => {
    const answer = await sh("sleep 60 & setsid sleep 60 & echo started");
    expect(answer.text).toBe("started\n[exit code 0]");
    expect(await eventually(() => toolProcesses() === 0)).toBe(true);
  });

  test("names arguments without an effect", async () => {
    expect((await tool.call("exec", { cmd: ["true"], user: "root", session_name: "main", env: null })).text).toBe(
      "[WARN] user has no effect here.\n[WARN] session_name has no effect here.\n[exit code 0]",
    );
  });
});

describe("a workdir", () => {
  test.each(["/", "..", "sub/../..", "link"])("outside of the session's directory is refused: %s", async (workdir) => {
    await sh("ln -sfn / link; mkdir -p sub");
    const answer = await sh("pwd", { workdir });
    expect(answer.failed).toBe(true);
    expect(answer.text).toContain(`[ERROR] The workdir ${workdir} is outside of the session's directory.`);
  });

  test("that does not exist is refused", async () => {
    expect((await sh("pwd", { workdir: "nowhere" })).text).toBe("[ERROR] The workdir nowhere does not exist.");
  });
});

test("and an argument or a variable that no process can have are refused", async () => {
  expect((await exec("echo", "a\0b")).text).toBe("[ERROR] An argument contains a NUL character.");
  expect((await sh("true", { env: { "A=B": "1" } })).text).toContain('[ERROR] The variable "A=B" is not possible');
  expect((await exec()).failed).toBe(true);
});
