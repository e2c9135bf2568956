import { execFileSync } from "node:child_process";
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { itServes } from "../deploy/facts.ts";
import { startProgram } from "../deploy/program.ts";
import { eventually } from "../e2e/support.ts";
import { freePort, root, workerdVersion } from "../workerd/tools.ts";

/**
 * The published folder, run in its place in the checkout, where it finds workerd in a parent folder. `npm run
 * test:deploy` installs it as a user does.
 */
describe("the package", () => {
  const folder = join(root, "dist/package");
  const program = join(folder, "responses-edge.js");
  const data = mkdtempSync(join(tmpdir(), "responses-edge-"));
  beforeAll(() => {
    execFileSync(process.execPath, [join(root, "scripts/package.ts")], { stdio: ["ignore", "ignore", "inherit"] });
  });
  afterAll(() => rmSync(data, { recursive: true, force: true }));

  it("has the version of the project, its command, and the tested version of workerd as its only dependency", () => {
    const read = (file: string) => JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
    const { version } = read(join(root, "package.json"));
    expect(read(join(folder, "package.json"))).toMatchObject({
      name: "responses-edge",
      version,
      bin: { "responses-edge": "responses-edge.js" },
      dependencies: { workerd: workerdVersion },
    });
    const said = execFileSync(process.execPath, [program, "--version"], { encoding: "utf8" });
    expect(said).toBe(`responses-edge ${version} (workerd ${workerdVersion})\n`);
  });

  it("has the licences of its code, and no sources", () => {
    const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
    const names = files.map(({ parentPath, name }) =>
      relative(folder, join(parentPath, name)).replace(/[0-9a-f]{40}/, "HASH"),
    );
    expect(names).toEqual(
      expect.arrayContaining([
        ...[
          "LICENSE",
          "README.md",
          "THIRD-PARTY-LICENSES",
          "cli.js",
          "package.json",
          "responses-edge.js",
          "sbom.cdx.json",
          "wrangler.toml",
        ],
        ...["worker/HASH-o200k_base.gz", "worker/HASH-cmaps.bin", "worker/index.js", "worker/no-file-formats.js"],
      ]),
    );
    expect(names.filter((name) => /\.(ts|map)$/.test(name))).toEqual([]);
    const licenses = readFileSync(join(folder, "THIRD-PARTY-LICENSES"), "utf8");
    for (const name of ["hono", "zod", "jose", "gpt-tokenizer", "lit-html", "marked", "highlight.js", "temml"])
      expect(licenses).toMatch(new RegExp(`^${name} \\d`, "m"));
  });

  it("has neither schemas nor parsers of files in what `serve` loads: its helper process has them for as long as they are used", () => {
    const loaded = new Set(readdirSync(folder).filter((name) => /^cli-serve-[A-Z0-9]{8}\.js$/.test(name)));
    const textOf = (name: string) => readFileSync(join(folder, name), "utf8");
    for (const name of loaded) {
      for (const [, imported = ""] of textOf(name).matchAll(/^(?:\} from|import) "\.\/([^"]+)";$/gm))
        loaded.add(imported);
    }
    expect(loaded.size).toBeGreaterThan(2);
    const packages = (names: Iterable<string>) =>
      [...names].flatMap((name) => textOf(name).match(/^\/\/ node_modules\/(?:zod|yaml|smol-toml)\//gm) ?? []);
    expect(packages(["helper.js"])).not.toEqual([]);
    expect(packages(loaded)).toEqual([]);
  });

  it.each(["index.js", "no-file-formats.js"])(
    "has the Worker's code in ASCII (%s): one character beyond Latin-1 would double what it takes in memory",
    (name) => {
      const code = readFileSync(join(folder, "worker", name));
      expect(code.length).toBeGreaterThan(1e6);
      expect(code.findIndex((byte) => byte > 0x7f)).toBe(-1);
    },
  );

  it("has the Worker without the readers of PDF, Office files and mails, which is otherwise the same: a smaller process serves", () => {
    const [whole = "", without = ""] = ["index.js", "no-file-formats.js"].map((name) =>
      // Long strings go on in the next line.
      readFileSync(join(folder, "worker", name), "utf8").replaceAll("\\\n", ""),
    );
    const exportsOf = (code: string) => /export\{([^}]*)\};\s*$/.exec(code)?.[1]?.trim().split(/,\s*/).toSorted();
    expect(exportsOf(without)).toContain("Home");
    expect(exportsOf(without)).toEqual(exportsOf(whole));
    for (const reader of ["getDocument", "maxNestingDepth", "word/document.xml", "-pdfium.wasm", "-mozjpeg_enc.wasm"]) {
      expect(whole).toContain(reader);
      expect(without).not.toContain(reader);
    }
  });

  it("has a bill of materials with the same packages as the licences, and workerd, with their checksums", () => {
    const { components, metadata } = JSON.parse(readFileSync(join(folder, "sbom.cdx.json"), "utf8")) as {
      components: { name: string; version: string; hashes?: { alg: string; content: string }[] }[];
      metadata: { component: { name: string } };
    };
    const licenses = readFileSync(join(folder, "THIRD-PARTY-LICENSES"), "utf8");
    const named = components.filter(({ name }) => name !== "workerd");
    expect(named.length).toBeGreaterThan(10);
    for (const { name, version } of named) expect(licenses).toContain(`${name} ${version}\n`);
    for (const [, name] of licenses.matchAll(/^(\S+) \d+\.\d+\.\d+\S*\n\n/gm)) {
      expect(components.map((component) => component.name)).toContain(name);
    }
    expect(components).toContainEqual(expect.objectContaining({ name: "workerd", version: workerdVersion }));
    for (const { hashes } of components) expect(hashes?.[0]?.content).toMatch(/^[0-9a-f]{128}$/);
    expect(metadata.component.name).toBe("responses-edge");
  });

  it("is replaced by another version that is installed in its place, which takes over while it serves", async () => {
    const place = mkdtempSync(join(tmpdir(), "responses-edge-"));
    symlinkSync(join(root, "node_modules"), join(place, "node_modules"));
    const installed = join(place, "responses-edge");
    const next = join(place, "next");
    for (const each of [installed, next]) cpSync(folder, each, { recursive: true });
    const manifest = JSON.parse(readFileSync(join(next, "package.json"), "utf8")) as object;
    writeFileSync(join(next, "package.json"), JSON.stringify({ ...manifest, version: "99.0.0" }));
    const port = String(await freePort());
    const variables = { VLLM_BASE_URL: "http://127.0.0.1:1/v1", ALLOW_ANONYMOUS: "true", LOG_FORMAT: "json" };
    const running = await startProgram({
      command: process.execPath,
      args: [join(installed, "responses-edge.js")],
      environment: { PATH: process.env.PATH, PORT: port, STATE_DIRECTORY: join(place, "data"), ...variables },
      url: `http://127.0.0.1:${port}`,
    });
    try {
      await eventually(() => running.output().includes('"message":"started"'));
      // As npm does it.
      renameSync(installed, join(place, "previous"));
      renameSync(next, installed);
      await eventually(() => running.output().includes("Another process serves (an upgrade of the package)"));
      expect(running.output()).toContain(`"version":"99.0.0"`);
      expect((await fetch(`${running.url}/health`)).status).toBe(200);
      expect(await running.stop()).toBe(0);
      expect(running.output()).not.toContain('"level":"error"');
    } finally {
      await running.stop();
      rmSync(place, { recursive: true, force: true });
    }
  });

  itServes(async (variables) => {
    const port = String(await freePort());
    return startProgram({
      command: process.execPath,
      args: [program],
      // The tests' own bundle differs from the shipped one.
      environment: { PATH: process.env.PATH, PORT: port, STATE_DIRECTORY: data, ...variables },
      url: `http://127.0.0.1:${port}`,
    });
  });
});
