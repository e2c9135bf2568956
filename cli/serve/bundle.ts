import { type ChildProcess, execFileSync, type SpawnOptions, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { root, shippedBundle } from "./installation.ts";

/**
 * The Worker as it is deployed: `index.js`, and the data that it imports. A package includes it; a checkout makes it.
 */

/** The environment variable that names a folder with the Worker's bundle: tests start many Workers and bundle once. */
export const BUNDLE_VARIABLE = "RESPONSES_EDGE_TEST_BUNDLE";

/** The list of the files in a bundle that was just made, beside it (esbuild's metafile). */
export const METAFILE = "bundle-meta.json";

/** A folder that already has the bundle; undefined if it must be made. */
export function madeBundle(): string | undefined {
  const given = process.env[BUNDLE_VARIABLE];
  return given ? resolve(given) : shippedBundle;
}

/** Starts bundling the Worker into a directory (`scripts/bundle.js`). */
export function bundle(directory: string, options: SpawnOptions): ChildProcess {
  return spawn(process.execPath, [BUNDLER, directory], { ...options, cwd: root });
}

/** The same, but waits for the end. `cwd` is the checkout; `options` are the script's. */
export function bundleInto(directory: string, cwd = root, options: readonly string[] = []): void {
  execFileSync(process.execPath, [BUNDLER, directory, ...options], { cwd, stdio: ["ignore", "ignore", "inherit"] });
}

const BUNDLER = join(root, "scripts/bundle.js");

/** Tells whether this installation can bundle: `npm ci --omit=dev` leaves out the tools for it. */
export function canBundle(): boolean {
  return existsSync(join(root, "node_modules/wrangler"));
}
