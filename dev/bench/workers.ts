import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import {
  bundleInto,
  freePort,
  modulesOf,
  objectBindings,
  objectNamespaces,
  untilReady,
  workerd,
} from "../../test/workerd/tools.ts";
import { GATEWAY_CORE, start, stop } from "./processes.ts";

/** Workers on plain `workerd`: bundled as deployed, and configured as wrangler would do it, without wrangler. */

/** The benchmark's own entry modules. `counting` contains the server. */
const ENTRY = {
  pipe: "pipe-worker.js",
  reads: "reads-worker.js",
  translate: "translate-worker.js",
  counting: "counting-worker.js",
  object: "object-worker.js",
};

const here = fileURLToPath(new URL(".", import.meta.url));

const directory = mkdtempSync(join(tmpdir(), "responses-edge-bench-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));

/**
 * `ours` is the server. `counting` is the server with an entry module that counts rows and object calls. The others do
 * less: `pipe` pipes bytes, `reads` reads and writes them in JavaScript, `translate` makes events of them, and `object`
 * only writes a row into an object.
 */
export type WorkerKind = "ours" | "counting" | keyof typeof ENTRY;

export interface WorkerOptions {
  inspect?: boolean;
  variables?: Record<string, string>;
  /** V8's flags. */
  flags?: readonly string[];
}

export interface RunningWorker {
  port: number;
  /** Changes with `restart`. */
  readonly pid: number;
  inspectorPort: number | undefined;
  /** The folder with the objects' storage: one subfolder for each class. */
  disk: string;
  /** kill -9. Its storage stays until the benchmark ends. */
  stop(): Promise<void>;
  /** Starts it again on its port and its storage. Does not wait until it answers. */
  restart(): void;
}

/** The folder of the Worker's bundle. */
export const bundleFolder = directory;

/** Bundles the Worker, and adds the benchmark's own Workers. */
export function bundle(): void {
  bundleInto(directory);
  for (const name of Object.values(ENTRY)) copyFileSync(join(here, name), join(directory, name));
}

/** A module of the deployed Worker. Sizes in bytes. */
export interface BundledModule {
  name: string;
  bytes: number;
  gzipped: number;
}

/** The modules of the Worker: its script, and the data that it imports on demand. */
export function bundledModules(): BundledModule[] {
  const names = ["index.js", ...readdirSync(directory).filter((name) => name.endsWith(".tiktoken"))];
  return names.map((name) => {
    const contents = readFileSync(join(directory, name));
    return { name, bytes: contents.length, gzipped: gzipSync(contents).length };
  });
}

function modules(kind: WorkerKind): string {
  const entry = kind === "ours" ? undefined : ENTRY[kind];
  const own = entry === undefined ? [] : [`(name = "${entry}", esModule = embed "${entry}")`];
  return [...own, ...(isServer(kind) ? [modulesOf(directory)] : [])].join(", ");
}

function isServer(kind: WorkerKind): boolean {
  return kind === "ours" || kind === "counting";
}

let workers = 0;

export async function startWorker(
  kind: WorkerKind,
  upstreamPort: number,
  { inspect = false, variables = {}, flags = [] }: WorkerOptions = {},
): Promise<RunningWorker> {
  const port = await freePort();
  const inspectorPort = inspect ? await freePort() : undefined;
  const name = `${kind}-${++workers}`;
  const disk = join(directory, name);
  mkdirSync(disk);
  const configFile = join(directory, `${name}.capnp`);
  writeFileSync(configFile, config(kind, port, upstreamPort, disk, variables, flags));
  const inspector = inspectorPort === undefined ? [] : [`--inspector-addr=127.0.0.1:${inspectorPort}`];
  const launch = () => start(workerd, ["serve", ...inspector, configFile], GATEWAY_CORE);
  let child = launch();
  await untilReady(child, `http://127.0.0.1:${port}/${isServer(kind) ? "health" : ""}`);
  return {
    port,
    get pid() {
      return child.pid ?? 0;
    },
    inspectorPort,
    disk,
    stop: () => stop(child),
    restart() {
      child = launch();
    },
  };
}

/** Compatibility date and flags are those of wrangler.toml; workerd refuses a flag that its date already sets. */
function config(
  kind: WorkerKind,
  port: number,
  upstreamPort: number,
  disk: string,
  variables: Record<string, string>,
  flags: readonly string[],
): string {
  const given = Object.entries(variables).map(([name, value]) => `\n    (name = "${name}", text = "${value}"),`);
  const hasHome = isServer(kind) || kind === "object";
  const upstream = `http://127.0.0.1:${upstreamPort}`;
  // The benchmark's own Worker has only the class of homes.
  const isWhole = isServer(kind);
  const ownHome = '(className = "Home", uniqueKey = "home", enableSql = true)';
  const namespaces = isWhole ? objectNamespaces((name) => name.toLowerCase()) : ownHome;
  const bindings = isWhole ? objectBindings() : ['(name = "HOME", durableObjectNamespace = "Home")'];
  const home = `
  durableObjectNamespaces = [${namespaces}],
  durableObjectStorage = (localDisk = "disk"),`;
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (allow = ["public", "private"])),
    (name = "disk", disk = (path = "${disk}", writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
  v8Flags = ${JSON.stringify(flags)},
);
const worker :Workerd.Worker = (
  modules = [${modules(kind)}],
  compatibilityDate = "2026-11-09",
  compatibilityFlags = ["enable_request_signal", "global_fetch_strictly_public"],
  globalOutbound = "internet",${hasHome ? home : ""}
  bindings = [
    (name = "VLLM_BASE_URL", text = "${upstream}/v1"),
    (name = "UPSTREAM_ORIGIN", text = "${upstream}"),
    (name = "ALLOW_ANONYMOUS", text = "true"),
    (name = "MAX_OPEN_TURNS", text = "100000"),
    (name = "MAX_BACKGROUND_RUNS_PER_TENANT", text = "100000"),
    (name = "MAX_OPEN_CONVERSATIONS_PER_TENANT", text = "100000"),${hasHome ? `\n    ${bindings.join(",\n    ")},` : ""}${given.join("")}
  ],
);
`;
}
