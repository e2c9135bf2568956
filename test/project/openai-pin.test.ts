import { execFile } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { promisify } from "node:util";
import { expect, it } from "vitest";

/**
 * The pinned version of the `openai` package. Its types are what requests and answers are tested against, so tests of a
 * field that is newer than the pin would be missing.
 */

const root = new URL("../../", import.meta.url);

interface Manifest {
  version?: string;
  dependencies?: Record<string, string>;
  packages?: Record<string, Manifest>;
}

const read = (path: string) => JSON.parse(readFileSync(new URL(path, root), "utf8")) as Manifest;
const pinned = read("package.json").dependencies?.openai;

it("is the same in every package, in the lock file, and where it is installed", () => {
  const lock = read("package-lock.json").packages ?? {};
  const manifests = globSync("packages/*/package.json", { cwd: root }).map((path) => [path, read(path)] as const);
  const others = Object.entries({ ...lock, ...Object.fromEntries(manifests) }).flatMap(([path, { dependencies }]) =>
    // Packages of others may want any version of it.
    path.startsWith("node_modules/") || !dependencies?.openai ? [] : [[path, dependencies.openai]],
  );
  expect(others.filter(([, version]) => version !== pinned)).toEqual([]);
  expect(others.length).toBeGreaterThan(2);
  expect(lock["node_modules/openai"]?.version).toBe(pinned);
  expect(read("node_modules/openai/package.json").version, "npm ci installs it").toBe(pinned);
});

// `npm run newest` asks the registry. Every other run needs no network.
it.runIf(process.env.ASK_REGISTRY)("is the newest that the registry has", async () => {
  const { stdout } = await promisify(execFile)("npm", ["view", "openai", "version"]);
  expect(pinned, "package.json pins an older `openai` than the registry has").toBe(stdout.trim());
});
