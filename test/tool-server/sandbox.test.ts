import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startToolServer, type ToolServer } from "../../dev/tool-server/server.ts";
import { connect, KEY, type ToolClient, useOwnDirectory } from "./support.ts";

/** Attempts to leave the sandbox of the tool server, or to use up the machine. */

useOwnDirectory();

const PYTHON = "/usr/bin/python3";
const BWRAP = process.env.BWRAP ?? "/usr/bin/bwrap";
const isComplete = existsSync(BWRAP) && existsSync(PYTHON) && mayMount();
if (!isComplete) {
  console.log(
    "Escapes are not tried: they need Linux with bubblewrap (or BWRAP=its path), /usr/bin/python3, and a root that may mount.",
  );
}

function mayMount(): boolean {
  try {
    execFileSync("unshare", ["--mount", "mount", "-t", "tmpfs", "none", "/mnt"], { stdio: "ignore" });
    return process.getuid?.() === 0;
  } catch {
    return false;
  }
}

describe("a server without bubblewrap", () => {
  it("does not start with a sandbox", async () => {
    const starting = startToolServer({ apiKey: KEY, sandbox: "bwrap", bwrap: "/nowhere/bwrap", python: PYTHON });
    await expect(starting).rejects.toThrow("The sandbox does not work here");
  });
});

describe.skipIf(!isComplete)("a program in the sandbox", () => {
  let server: ToolServer;
  let tool: ToolClient;
  const secret = () => join(tmpdir(), "secret.txt");
  beforeAll(async () => {
    writeFileSync(secret(), "the secret");
    // The users of sandboxes pass through it.
    chmodSync(tmpdir(), 0o711);
    server = await startToolServer({
      ...{ apiKey: KEY, sandbox: "bwrap", bwrap: BWRAP, python: PYTHON },
      ...{ maxProcesses: 12, maxDiskMb: 8, maxFileMb: 4, memoryMb: 512, timeoutMs: 20_000 },
    });
    tool = await connect(server.pythonUrl, { session: "a" });
  });
  afterAll(async () => {
    await tool.client.close();
    await server.close();
    expect(readFileSync("/proc/self/mounts", "utf8")).not.toContain(tmpdir());
  });

  const run = async (code: string, at = tool) => (await at.call("python", { code })).text;
  /** The value of an expression, or the name of its exception. */
  const tried = (expression: string) =>
    run(
      `import os, socket, subprocess, resource, mmap\ntry:\n  print(${expression})\nexcept BaseException as error:\n  print(type(error).__name__)`,
    );

  it("keeps its variables and files, as without a sandbox", async () => {
    expect(await run("x = 1; open('/mnt/data/a.txt', 'w').write('one'); import os; print(os.getcwd())")).toBe(
      "/mnt/data\n",
    );
    expect(await run("print(x, open('a.txt').read(), os.listdir('/mnt/data'))")).toBe("1 one ['a.txt']\n");
    const { text } = await tool.call("read_file", { name: "a.txt", offset: 0, length: 3 });
    expect(text).toBe("3 bytes.");
    await tool.call("write_file", { name: "b.txt", data: btoa("two") });
    expect(await run("print(open('b.txt').read()); open('b.txt', 'a').write('!'); print(open('b.txt').read())")).toBe(
      "two\ntwo!\n",
    );
  });

  it.each([
    ["files of the machine", "open(__import__('base64').b64decode('SECRET').decode()).read()", "FileNotFoundError"],
    ["the users of the machine", "open('/etc/shadow').read()", "FileNotFoundError"],
    ["home directories", "os.listdir('/root') + os.listdir('/home')", "FileNotFoundError"],
    ["the read-only system", "open('/usr/bin/x', 'w')", "OSError"],
    ["its root", "open('/x', 'w')", "OSError"],
    ["the kernel's settings", "open('/proc/sys/kernel/core_pattern', 'w')", "(PermissionError|OSError)"],
    ["the kernel's keys", "open('/proc/sysrq-trigger', 'w')", "(PermissionError|OSError|FileNotFoundError)"],
    ["processes of others", "[pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) > 50]", "\\[\\]"],
    [
      "the server's environment",
      "[v for p in os.listdir('/proc') if p.isdigit() for v in [open(f'/proc/{p}/environ').read()] if 'KEY' in v]",
      "\\[\\]",
    ],
    ["raw memory", "open('/dev/mem', 'rb')", "FileNotFoundError"],
    ["a device of its own", "os.mknod('/mnt/data/m', 0o600 | 0o020000, os.makedev(1, 1))", "PermissionError"],
    ["another user", "os.setuid(0)", "(PermissionError|OSError)"],
    [
      "privileges of a program",
      "subprocess.run(['/usr/bin/su', '-c', 'id'], capture_output=True, input=b'').returncode != 0",
      "True",
    ],
    [
      "capabilities",
      "[l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1].strip('0')",
      "\\s*",
    ],
    [
      "new namespaces",
      "subprocess.run(['/usr/bin/unshare', '--user', '--map-root-user', 'true'], capture_output=True).returncode != 0",
      "True",
    ],
    [
      "a mount",
      "subprocess.run(['/usr/bin/mount', '-t', 'tmpfs', 'none', '/mnt/data'], capture_output=True).returncode != 0",
      "True",
    ],
    ["the network", "socket.create_connection(('1.1.1.1', 80), 2)", "OSError"],
    ["names", "socket.gethostbyname('example.com')", "gaierror"],
    ["a file beyond its limit", "open('big', 'wb').write(b'x' * (5 << 20))", "OSError"],
    ["memory beyond its limit", "len(bytearray(600 << 20))", "MemoryError"],
    ["its parent's ids", "os.kill(1, 9) or os.listdir('/mnt/data') != []", "True"],
  ])("does not reach %s", async (_, expression, result) => {
    const code = expression.replace("SECRET", btoa(secret()));
    expect(await tried(code)).toMatch(new RegExp(`^${result}\n$`));
  });

  it("does not reach the machine's ports", async () => {
    const listener = createServer((socket) => socket.end("hello")).listen(0, "127.0.0.1");
    await new Promise((resolve) => listener.once("listening", resolve));
    const { port } = listener.address() as { port: number };
    for (const target of [port, server.port]) {
      expect(await tried(`socket.create_connection(('127.0.0.1', ${target}), 2)`)).toBe("ConnectionRefusedError\n");
    }
    listener.close();
  });

  it("reaches no other session, nor its directory", async () => {
    const other = await connect(server.pythonUrl, { session: "b" });
    await run("open('mine.txt', 'w').write('of b')", other);
    const found =
      "[f for top in ('/mnt', '/tmp', '/run', '/dev') for _, _, files in os.walk(top) for f in files if f == 'mine.txt']";
    expect(await tried(found)).toBe("[]\n");
    await other.client.close();
  });

  it("fills no disk, not with one file and not with many", async () => {
    const fill =
      "n = 0\ntry:\n  while True:\n    open(f'f{n}', 'wb').write(b'x' * (1 << 20)); n += 1\nexcept OSError as e: print(n < 9, e.errno)";
    const session = await connect(server.pythonUrl, { session: "disk" });
    expect(await run(fill, session)).toBe("True 28\n");
    expect(await run(`import os\nos.chdir('/tmp')\n${fill}`, session)).toBe("True 28\n");
    expect(await run(`import os\nos.chdir('/dev/shm')\n${fill}`, session)).toBe("True 28\n");
    await session.call("cleanup_session");
    await session.client.close();
  });

  it("makes no crowd: a fork bomb ends at the limit, and with its session", async () => {
    const session = await connect(server.pythonUrl, { session: "bomb" });
    const before = usersProcesses();
    const bomb =
      "import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0:\n      os.setsid(); os.environ.clear(); time.sleep(60); os._exit(0)\n    n += 1\nexcept OSError: print(n < 12)";
    expect(await run(bomb, session)).toBe("True\n");
    expect(usersProcesses()).toBeGreaterThan(before);
    await session.call("cleanup_session");
    await expect.poll(usersProcesses, { timeout: 10_000 }).toBeLessThanOrEqual(before);
    await session.client.close();
  });

  it("leads no call of the server out of its directory by links, devices and pipes", async () => {
    const code = `import os
os.symlink('${secret()}', 'link'); os.symlink('${tmpdir()}', 'folder'); os.mkfifo('pipe')
print(open('/mnt/data/link').read() if os.path.exists('link') else 'dangling')`;
    expect(await run(code)).toBe("dangling\n");
    for (const name of ["link", "folder/secret.txt", "../secret.txt", "pipe"]) {
      const read = await tool.call("read_file", { name, offset: 0, length: 10 });
      expect([name, read.failed, read.text]).toEqual([name, true, expect.stringContaining("is no path of a file")]);
      const written = await tool.call("write_file", { name, data: btoa("gone") });
      expect([name, written.failed]).toEqual([name, true]);
      await tool.call("delete_file", { name });
    }
    expect(readFileSync(secret(), "utf8")).toBe("the secret");
  });

  it("leads none out while it replaces a directory with a link again and again", async () => {
    const race = `import os, threading
os.mkdir('race'); open('race/secret.txt', 'w').write('own'); stop = False
def flip():
  while not stop:
    os.rename('race', 'kept'); os.symlink('${tmpdir()}', 'race'); os.unlink('race'); os.rename('kept', 'race')
threading.Thread(target=flip, daemon=True).start()`;
    await run(race);
    for (let attempt = 0; attempt < 100; attempt += 1) {
      await tool.call("write_file", { name: "race/secret.txt", data: btoa("gone") });
      const { text } = await tool.call("read_file", { name: "race/secret.txt", offset: 0, length: 10 });
      expect(text).not.toContain("10 bytes");
    }
    await run("stop = True");
    expect(readFileSync(secret(), "utf8")).toBe("the secret");
  });
});

/** The number of the machine's processes whose users are those of sandboxes. */
function usersProcesses(): number {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.filter((pid) => {
    try {
      return Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) >= 2_000_000;
    } catch {
      return false;
    }
  }).length;
}
