import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { encodeConfig, spawnServing } from "../../cli/serve/encoded-config.ts";
import { Refusal } from "../../cli/serve/refusal.ts";
import { fetchAnew, freePort, untilReady } from "../workerd/tools.ts";

/** A configuration that workerd gets encoded, with files in it (`cli/serve/encoded-config.ts`). */

const folder = mkdtempSync(join(tmpdir(), "encoded-config-"));
afterAll(() => rmSync(folder, { recursive: true }));

const file = join(folder, "workerd.config");
const said: string[] = [];
const log = { format: "text" as const, say: (line: string) => void said.push(line) };

/** Answers with the hash of each binding, and briefly at its root. */
const WORKER = `export default {
  async fetch({ url }, env) {
    if (new URL(url).pathname === "/") return new Response("ready");
    const hashOf = async (value) => {
      const bytes = typeof value === "string" ? new TextEncoder().encode(value) : new Uint8Array(value);
      return Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    };
    return Response.json(Object.fromEntries(await Promise.all(Object.entries(env).map(async ([name, value]) => [name, await hashOf(value)]))));
  },
};`;

function configOf(port: number, bindings: string[]): string {
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker)],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed ${JSON.stringify(join(folder, "index.js"))})],
  compatibilityDate = "2026-11-09",
  bindings = [${bindings.join(", ")}],
);
`;
}

it("has the bytes of each file, of any length, beside texts that name files", async () => {
  const port = await freePort();
  writeFileSync(join(folder, "index.js"), WORKER);
  const expected: Record<string, string> = {};
  const bindings: string[] = [];
  const add = (name: string, bytes: Buffer, value: string) => {
    expected[name] = createHash("sha256").update(bytes).digest("hex");
    bindings.push(`(name = "${name}", ${value})`);
  };
  const embed = (name: string, bytes: Buffer) => {
    const path = join(folder, `a "file" of embed ${name}`);
    writeFileSync(path, bytes);
    return `embed ${JSON.stringify(path)}`;
  };
  for (const length of [0, 1, 7, 8, 9, 600_001]) {
    const bytes = randomBytes(length);
    add(`data${length}`, bytes, `data = ${embed(`data${length}`, bytes)}`);
    const text = Buffer.from("é".repeat(length));
    add(`text${length}`, text, `text = ${embed(`text${length}`, text)}`);
    // A message of any size is one segment.
    for (let index = 0; index < 200; index += 1) {
      const words = `embed "${folder}/index.js" ${length} ${index}`;
      add(`words${length}_${index}`, Buffer.from(words), `text = ${JSON.stringify(words)}`);
    }
  }
  await encodeConfig(configOf(port, bindings), file, log);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const child = spawnServing(file, [], ["ignore", "ignore"], {});
  try {
    const url = `http://127.0.0.1:${port}`;
    await untilReady(child, url);
    expect(await (await fetchAnew(`${url}/hashes`)).json()).toEqual(expected);
  } finally {
    child.kill("SIGKILL");
    await once(child, "exit");
  }
});

it("is refused with workerd's reason, and where a file of it is not there", async () => {
  await expect(encodeConfig(configOf(0, ["(nam = 1)"]), file, log)).rejects.toThrow(Refusal);
  expect(said.join("\n")).toContain("nam");
  const missing = configOf(0, [`(name = "a", text = embed ${JSON.stringify(join(folder, "missing"))})`]);
  await expect(encodeConfig(missing, file, log)).rejects.toThrow(/missing/);
});
