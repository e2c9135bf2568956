import { existsSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startToolServer, type ToolServer } from "../../dev/tool-server/server.ts";
import {
  type Answer,
  COMPLETE,
  connect,
  eventually,
  KEY,
  toolProcesses,
  toolProcessIds,
  useOwnDirectory,
} from "./support.ts";

const NO_OUTPUT = "[WARN] No output available. Use print() to output anything to stdout to receive the output";

useOwnDirectory();

let server: ToolServer;
let sessions = 0;

beforeAll(async () => {
  server = await startToolServer({ apiKey: KEY, timeoutMs: 120_000, memoryMb: 512, maxProcesses: 16, maxFileMb: 2 });
});
afterAll(() => server.close());

/** Runs cells in a new session. Gives the answer of each. */
async function cells(...code: string[]): Promise<Answer[]> {
  sessions += 1;
  const { client, call } = await connect(server.pythonUrl, { session: `cells-${sessions}` });
  const answers: Answer[] = [];
  for (const cell of code) answers.push(await call("python", { code: cell }));
  await call("cleanup_session");
  await client.close();
  return answers;
}

async function texts(...code: string[]): Promise<string[]> {
  return (await cells(...code)).map(({ text }) => text);
}

describe.skipIf(!COMPLETE)("a cell", () => {
  test("gives its printed output", async () => {
    expect(await cells("print(2**10)")).toEqual([{ text: "1024\n", failed: false }]);
  });

  test("gives the value of a last expression, as a notebook does", async () => {
    expect(await texts("x = 20\nx + 1", "_ * 2", "None")).toEqual(["21\n", "42\n", NO_OUTPUT]);
  });

  test("without output gives a hint", async () => {
    expect(await texts("x = 1")).toEqual([NO_OUTPUT]);
    expect(await texts("")).toEqual([NO_OUTPUT]);
  });

  test("sees what earlier cells defined, and the files they wrote", async () => {
    const answers = await texts(
      "import math\ndef area(r): return math.pi * r ** 2",
      "open('helper.py', 'w').write('answer = 42')",
      "import helper\nround(area(2), 2), helper.answer",
    );
    expect(answers[2]).toBe("(12.57, 42)\n");
  });

  test("prints stdout and stderr in the order of printing, and what its children print", async () => {
    const code = `import os, sys
print("one")
print("two", file=sys.stderr)
os.system("echo three")
print("four", end="")`;
    expect(await texts(code)).toEqual(["one\ntwo\nthree\nfour"]);
  });

  test("speaks Unicode", async () => {
    expect(await texts("s = 'Grüße, 世界 👩‍🚀'\nprint(s); len('👩')", "print('\\ud800')")).toEqual([
      "Grüße, 世界 👩‍🚀\n1\n",
      "\\ud800\n",
    ]);
  });

  test("that raises gives a traceback with its source, and keeps the state", async () => {
    const [, raised, after] = await cells("x = 7", "def f():\n    return 1 / 0\nf()", "x");
    expect(raised?.failed).toBe(false);
    expect(raised?.text).toMatch(
      /^Traceback[\s\S]*<cell 2>", line 2, in f\n {4}return 1 \/ 0\n[\s\S]*ZeroDivisionError: division by zero\n$/,
    );
    expect(raised?.text).not.toContain("driver.py");
    expect(after?.text).toBe("7\n");
  });

  test("with a syntax error names its place", async () => {
    const [text] = await texts("print('before')\nx = = 1");
    expect(text).toMatch(/File "<cell 1>", line 2\n {4}x = = 1\n[\s\S]*SyntaxError: invalid syntax\n$/);
    expect(text).not.toContain("Traceback");
  });

  test("may exit, close its streams and read its input, and the state is kept", async () => {
    expect(
      await texts(
        "x = 1; exit()",
        "import sys; sys.exit('gone')",
        "input()",
        "sys.stdout.close(); sys.stdin.close()",
        "x",
      ),
    ).toEqual([NO_OUTPUT, "SystemExit: gone\n", expect.stringContaining("EOFError"), NO_OUTPUT, "1\n"]);
  });

  test("may fork: the child is not a second interpreter", async () => {
    expect(await texts("import os\npid = os.fork()\nif pid: _ = os.waitpid(pid, 0)", "print('once')")).toEqual([
      NO_OUTPUT,
      "once\n",
    ]);
  });
});

describe.skipIf(!COMPLETE)("a cell cannot", () => {
  test("end itself early with a forged answer", async () => {
    const forged = `import os, json
for fd in range(3, 12):
    for text in ('{"token": "0"}\\n', '0' * 32, '\\x00' * 5000):
        try: os.write(fd, text.encode())
        except OSError: pass
print('still here')`;
    const [text, next] = await texts(forged, "print('next')");
    expect(text).toMatch(/still here\n$/);
    expect(next).toBe("next\n");
  });

  test("see the server's environment", async () => {
    const [text] = await texts("import os; print(*sorted(os.environ))");
    expect(text?.trim().split(" ")).toEqual(
      expect.arrayContaining(["HOME", "LANG", "PATH", "RESPONSES_EDGE_TOOL", "TMPDIR"]),
    );
    expect(text).not.toMatch(/npm_|VITEST|NODE/);
  });

  test("take more memory than allowed", async () => {
    const [bomb, after] = await texts("x = 1; y = 'a' * 10**9", "x");
    expect(bomb).toContain("MemoryError");
    expect(after).toBe("1\n");
  });

  test("write a large file", async () => {
    const [text] = await texts("with open('big', 'wb') as f: f.write(b'x' * 3_000_000)");
    expect(text).toContain("OSError: [Errno 27] File too large");
  });

  test("fill the answer: of a hundred megabytes, it has the beginning and the end", async () => {
    const [text, after] = await texts(
      "import os\nprint('first')\nfor _ in range(100): os.write(1, b'x' * 1_000_000)\nraise ValueError('last')",
      "print('after')",
    );
    expect(text?.length).toBeLessThan(263_000);
    expect(text).toMatch(/^first\nxxx/);
    expect(text).toMatch(/\[… 99\d+ bytes left out …\]/);
    expect(text).toMatch(/ValueError: last\n$/);
    expect(after).toBe("after\n");
  });

  test("run for ever: it is ended, with its output until then and a note about the loss", async () => {
    const slow = await startToolServer({ apiKey: KEY, timeoutMs: 1500 });
    const { client, call } = await connect(slow.pythonUrl, { session: "endless" });
    await call("python", { code: "open('kept', 'w').write('yes'); x = 1" });
    const endless = await call("python", { code: "print('begun', end='')\nwhile True: pass" });
    expect(endless).toEqual({
      text:
        "begun\n[ERROR] The interpreter took more than 1.5 s, and was ended. " +
        "Its variables are lost, files are kept: the next call starts a new one.",
      failed: true,
    });
    const after = await call("python", { code: "print(open('kept').read(), 'x' in globals())" });
    expect(after).toEqual({ text: "yes False\n", failed: false });
    await client.close();
    await slow.close();
  });

  test("use more CPU time than allowed, over all its calls", async () => {
    const short = await startToolServer({ apiKey: KEY, cpuSeconds: 2 });
    const { client, call } = await connect(short.pythonUrl, { session: "burning" });
    // The start of the interpreter counts, too.
    const burn = "import time\nstart = time.process_time()\nwhile time.process_time() < start + 1.2: pass";
    expect((await call("python", { code: burn })).failed).toBe(false);
    const burnt = await call("python", { code: burn });
    expect(burnt.failed).toBe(true);
    expect(burnt.text).toMatch(/^\[ERROR\] The interpreter used up its CPU time of 2 s\. /);
    await client.close();
    await short.close();
  });

  test("start processes without end: all of them are ended, also those that left its group", async () => {
    const bomb = `import os, time
for i in range(200):
    if os.fork() == 0:
        if i % 2: os.setsid()
        time.sleep(60)
time.sleep(60)`;
    const [answer, after] = await cells(bomb, "print('new')");
    expect(answer?.failed).toBe(true);
    expect(answer?.text).toContain("[ERROR] The interpreter started more than 16 processes, and was ended.");
    expect(after?.text).toBe("new\n");
    expect(await eventually(() => toolProcesses() === 0)).toBe(true);
  });

  test("end the server", async () => {
    const [gone, crashed, fine] = await cells("import os; os._exit(3)", "import os; os.kill(os.getpid(), 11)", "1");
    expect(gone).toMatchObject({ text: expect.stringContaining("The interpreter exited with code 3."), failed: true });
    expect(crashed?.text).toContain("The interpreter was ended by SIGSEGV.");
    expect(fine?.text).toBe("1\n");
  });

  test("end unnoticed between calls", async () => {
    const { client, call } = await connect(server.pythonUrl, { session: "ending" });
    const others = toolProcessIds();
    await call("python", { code: "x = 1" });
    const own = toolProcessIds().filter((id) => !others.includes(id));
    await call("python", { code: "import os, threading\nthreading.Timer(0.3, lambda: os._exit(4)).start()" });
    // A process that has freed its memory has ended only when its parent is notified.
    expect(await eventually(() => own.every((id) => !existsSync(`/proc/${id}`)))).toBe(true);
    expect(own.length).toBeGreaterThan(0);
    expect((await call("python", { code: "'x' in globals()" })).text).toBe(
      "[WARN] The interpreter exited with code 4 after the last call. Its variables are lost.\nFalse\n",
    );
    await client.close();
  });
});
