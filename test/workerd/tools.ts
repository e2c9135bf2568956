import { type ChildProcess, execFileSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** What it takes to run the Worker on plain `workerd`: for the tests that kill it, and for the benchmark. */

export const root = fileURLToPath(new URL("../..", import.meta.url));

// Two versions of workerd are installed; the one that wrangler brings runs what wrangler bundles.
const requireOfWrangler = createRequire(createRequire(import.meta.url).resolve("wrangler/package.json"));

/** The path of the binary. */
export const workerd = requireOfWrangler("workerd").default as string;
export const workerdVersion = requireOfWrangler("workerd").version as string;

/** The environment's variable that names a folder with the Worker's bundle. */
export const BUNDLE_VARIABLE = "RESPONSES_EDGE_TEST_BUNDLE";

/** Bundles the Worker as `wrangler deploy` does, into a directory: `index.js`, and the data that it imports. */
export function bundleInto(directory: string): void {
  const wrangler = join(root, "node_modules/wrangler/bin/wrangler.js");
  execFileSync(process.execPath, [wrangler, "deploy", "--dry-run", "--outdir", directory], {
    cwd: root,
    stdio: ["ignore", "ignore", "inherit"],
    env: {
      ...process.env,
      WRANGLER_SEND_METRICS: "false",
      WRANGLER_SEND_ERROR_REPORTS: "false",
      WRANGLER_HIDE_BANNER: "true",
      WRANGLER_LOG: "error",
    },
  });
}

/** A bundle's modules as workerd's configuration lists them, the entry first; `embed` is relative to that file. */
export function modulesOf(directory: string): string {
  const data = readdirSync(directory).filter((name) => name.endsWith(".tiktoken"));
  return [
    '(name = "index.js", esModule = embed "index.js")',
    ...data.map((name) => `(name = "${name}", data = embed "${name}")`),
  ].join(", ");
}

/** Waits until a process answers at `url`; throws when it exits, or has not answered in ten seconds. */
export async function untilReady(child: ChildProcess, url: string): Promise<void> {
  for (let attempt = 0; attempt < 400; attempt += 1) {
    if (child.exitCode !== null) throw new Error(`workerd exited with ${child.exitCode}`);
    try {
      if ((await fetch(url)).ok) return;
    } catch {
      // Not listening yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`no answer from ${url}`);
}

/** A port on which nothing listens. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("No port.");
  return address.port;
}
