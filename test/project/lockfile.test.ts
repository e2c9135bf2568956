import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

interface LockedPackage {
  version?: string;
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
      // Pinned ones are platform binaries; `npm ci` refuses a lock file that lacks one.
      if (!/^\d/.test(wanted)) continue;
      const found = resolve(path, name);
      if (!found || lock.packages[found]?.version !== wanted) missing.push(`${path} → ${name}@${wanted}`);
    }
  }
  expect(missing).toEqual([]);
});
