import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { startGateway } from "../e2e/support.ts";
import { commandLine, root } from "../workerd/tools.ts";

const readme = readFileSync(join(root, "README.md"), "utf8");

describe("README", () => {
  it("has at most 150 lines", () => {
    expect(readme.trimEnd().split("\n").length).toBeLessThanOrEqual(150);
  });

  it.each([false, true])("has a sample that works unchanged, with keys: %s", async (hasKeys) => {
    const [program, file] = commandLine();
    const printed = execFileSync(program, [file, "create-key", "acme"], { encoding: "utf8" });
    const [, key = ""] = /^ {2}(sk-\S+)$/m.exec(printed) ?? [];
    const [, entry = ""] = /^ {2}(acme:\S+)$/m.exec(printed) ?? [];
    await using gateway = await disposable(startGateway(hasKeys ? { API_KEYS: entry } : {}));
    const [, sample = ""] = /```ts\n([\s\S]*?)```/.exec(readme) ?? [];
    const folder = join(root, "node_modules/.cache/readme");
    mkdirSync(folder, { recursive: true });
    const sampleFile = join(folder, `sample-${hasKeys}.mjs`);
    writeFileSync(sampleFile, sample.replace("http://localhost:8787", gateway.url));
    const { EDGE_API_KEY: _, ...env } = process.env;
    const run = promisify(execFile)(process.execPath, [sampleFile], {
      env: hasKeys ? { ...env, EDGE_API_KEY: key } : env,
    });
    expect((await run).stdout).toBe("You said: Tell me a joke.\nYou said: Explain it.");
    rmSync(sampleFile);
  });
});

async function disposable<Closable extends { close(): Promise<void> }>(starting: Promise<Closable>) {
  const started = await starting;
  return Object.assign(started, { [Symbol.asyncDispose]: () => started.close() });
}
