import { type ChildProcess, execFileSync, type SpawnOptions, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { root, shippedBundle } from "./installation.ts";

/**
 * The Worker as it is deployed: `index.js`, and the data that it imports. A package includes it; a checkout makes it.
 */

/** The environment variable that names a folder with the Worker's bundle: tests start many Workers and bundle once. */
export const BUNDLE_VARIABLE = "RESPONSES_EDGE_TEST_BUNDLE";

/** A folder that already has the bundle; undefined if it must be made. */
export function madeBundle(): string | undefined {
  const given = process.env[BUNDLE_VARIABLE];
  return given ? resolve(given) : shippedBundle;
}

/** Starts bundling the Worker as `wrangler deploy` does, into a directory. */
export function bundle(directory: string, options: SpawnOptions): ChildProcess {
  return spawn(process.execPath, bundlingArguments(directory), { ...options, ...BUNDLING });
}

/** The same, but waits for the end. `cwd` is the checkout. */
export function bundleInto(directory: string, cwd = root): void {
  const options = { ...BUNDLING, cwd };
  execFileSync(process.execPath, bundlingArguments(directory), { ...options, stdio: ["ignore", "ignore", "inherit"] });
}

const WRANGLER = join(root, "node_modules/wrangler/bin/wrangler.js");

/** Tells whether this installation can bundle: `npm ci --omit=dev` leaves out the tools for it. */
export function canBundle(): boolean {
  return existsSync(WRANGLER);
}

function bundlingArguments(directory: string): string[] {
  return [WRANGLER, "deploy", "--dry-run", "--outdir", directory];
}

const BUNDLING = {
  cwd: root,
  env: {
    ...process.env,
    WRANGLER_SEND_METRICS: "false",
    WRANGLER_SEND_ERROR_REPORTS: "false",
    WRANGLER_HIDE_BANNER: "true",
    WRANGLER_LOG: "error",
  },
};
