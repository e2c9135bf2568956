import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

interface LockedPackage {
  version?: string;
  link?: boolean;
  integrity?: string;
  optionalDependencies?: Record<string, string>;
}

const lock = JSON.parse(readFileSync(new URL("../../package-lock.json", import.meta.url), "utf8")) as {
  packages: Record<string, LockedPackage>;
};

/** The path at which `from` finds a package, as Node resolves it. */
function resolve(from: string, name: string): string | undefined {
  for (let base = from; ; base = base.replace(/(^|\/)node_modules\/(@[^/]+\/)?[^/]+$/, "")) {
    const path = `${base === "" ? "" : `${base}/`}node_modules/${name}`;
    if (path in lock.packages) return path;
    if (base === "") return undefined;
  }
}

it("the lock file names the binaries of every platform, so that `npm ci` works on all of them", () => {
  const missing: string[] = [];
  for (const [path, { optionalDependencies = {} }] of Object.entries(lock.packages)) {
    for (const [name, wanted] of Object.entries(optionalDependencies)) {
      // Optional dependencies with an exact version are platform binaries. `npm ci` refuses a lock file that lacks one.
      if (!/^\d/.test(wanted)) continue;
      const found = resolve(path, name);
      if (!found || lock.packages[found]?.version !== wanted) missing.push(`${path} → ${name}@${wanted}`);
    }
  }
  expect(missing).toEqual([]);
});

/**
 * Binaries of other platforms, in versions that the registry of the lock file's machine did not have, so that their
 * checksums are unknown. `npm ci` accepts them unchecked. `npm install` on such a platform adds the checksums.
 */
const UNCHECKED: Record<string, string[]> = {
  "2.6.8": ["android-arm64", "android-x64", "darwin-arm64", "darwin-x64", "linux-arm64-musl", "linux-x64-musl"]
    .concat("win32-arm64", "win32-x64")
    .map((platform) => `node_modules/@biomejs/cli-${platform}`),
  "1.20261102.1": ["@cloudflare/vitest-plugin", "miniflare"].flatMap((user) =>
    ["darwin-64", "darwin-arm64", "windows-64"].map(
      (platform) => `node_modules/${user}/node_modules/@cloudflare/workerd-${platform}`,
    ),
  ),
  "1.20261117.1": ["darwin-64", "darwin-arm64", "windows-64"].map(
    (platform) => `node_modules/@cloudflare/workerd-${platform}`,
  ),
};

it("the lock file has the checksum of every package, except those listed without one", () => {
  const isOwn = (path: string) => path === "" || path.startsWith("packages/") || lock.packages[path]?.link === true;
  const unchecked = Object.entries(lock.packages).filter(([path, { integrity }]) => !isOwn(path) && !integrity);
  const named = unchecked.map(([path, { version }]) => `${path}@${version}`);
  const known = Object.entries(UNCHECKED).flatMap(([version, paths]) => paths.map((path) => `${path}@${version}`));
  expect(named.toSorted()).toEqual(known.toSorted());
});

it("the lock file's checksums are SHA-512", () => {
  for (const [path, { integrity }] of Object.entries(lock.packages)) {
    if (integrity !== undefined) expect(integrity, path).toMatch(/^sha512-[A-Za-z0-9+/]{86}==$/);
  }
});
