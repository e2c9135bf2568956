import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { connectSamples } from "../../packages/console/src/connect-samples.ts";
import { startGateway } from "../e2e/support.ts";
import { FreshFolder } from "../samples.ts";
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
    using folder = new FreshFolder();
    folder.write("hello.mts", sample.replace("http://localhost:8787", gateway.url));
    const { OPENAI_API_KEY: _, ...env } = process.env;
    const said = await folder.run([process.execPath, "hello.mts"], hasKeys ? { ...env, OPENAI_API_KEY: key } : env);
    expect(said).toBe("You said: Tell me a joke.\nYou said: Explain it.");
  });
});

it("docs/benchmarks.md has at most 150 lines", () => {
  const page = readFileSync(join(root, "docs/benchmarks.md"), "utf8");
  expect(page.trimEnd().split("\n").length).toBeLessThanOrEqual(150);
});

it("docs/clients.md has the console's settings of each client, unchanged", () => {
  const clients = readFileSync(join(root, "docs/clients.md"), "utf8");
  const samples = connectSamples({ baseUrl: "http://localhost:8787/v1", model: "my-model" });
  const texts = samples.filter(({ id }) => id !== "curl").flatMap(({ files }) => files.map(({ text }) => text));
  expect(texts.filter((text) => !clients.includes(`\n${text}\`\`\``))).toEqual([]);
});

async function disposable<Closable extends { close(): Promise<void> }>(starting: Promise<Closable>) {
  const started = await starting;
  return Object.assign(started, { [Symbol.asyncDispose]: () => started.close() });
}
