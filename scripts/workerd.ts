import { type ChildProcess, execFileSync, type SpawnOptions, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The Worker as it is deployed, on plain `workerd`: what `npm start` runs. */

export const root = fileURLToPath(new URL("..", import.meta.url));

// Two versions of workerd are installed; the one that wrangler brings runs what wrangler bundles.
const requireOfWrangler = createRequire(createRequire(import.meta.url).resolve("wrangler/package.json"));

/** The path of the binary. */
export const workerd = requireOfWrangler("workerd").default as string;
export const workerdVersion = requireOfWrangler("workerd").version as string;

/** The environment's variable that names a folder with the Worker's bundle: tests start many Workers and bundle once. */
export const BUNDLE_VARIABLE = "RESPONSES_EDGE_TEST_BUNDLE";

/** Begins to bundle the Worker as `wrangler deploy` does, into a directory: `index.js`, and the data that it imports. */
export function bundle(directory: string, options: SpawnOptions): ChildProcess {
  return spawn(process.execPath, bundlingArguments(directory), { ...options, ...BUNDLING });
}

/** The same, and waits until it is done. */
export function bundleInto(directory: string): void {
  execFileSync(process.execPath, bundlingArguments(directory), {
    ...BUNDLING,
    stdio: ["ignore", "ignore", "inherit"],
  });
}

function bundlingArguments(directory: string): string[] {
  return [join(root, "node_modules/wrangler/bin/wrangler.js"), "deploy", "--dry-run", "--outdir", directory];
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

/** A bundle's modules as workerd's configuration lists them, the entry first; `embed` is relative to that file. */
export function modulesOf(directory: string): string {
  const names = readdirSync(directory);
  const data = names.filter((name) => name.endsWith(".tiktoken"));
  // What wrangler's rules have taken out of the bundle begins with its hash.
  const texts = names.filter((name) => /^[0-9a-f]{40}-.+\.(js|css|html|svg)$/.test(name));
  return [
    '(name = "index.js", esModule = embed "index.js")',
    ...data.map((name) => `(name = "${name}", data = embed "${name}")`),
    ...texts.map((name) => `(name = "${name}", text = embed "${name}")`),
  ].join(", ");
}

/**
 * V8's flags. Open streams make little garbage for a long time: in a young generation of 2 MB rather than 16 less of it lies about,
 * and the process takes an eighth less memory (docs/benchmarks.md).
 */
export const V8_FLAGS = ["--max-semi-space-size=2"] as const;

/** The classes of objects and the bindings to them, as wrangler.toml has them. */
export const OBJECT_CLASSES = { HOME: "Home", KEYS: "KeyDirectory", QUOTAS: "Quota", BOARD: "Board" } as const;

/** The namespaces of the objects as workerd's configuration lists them. `uniqueKey`: of a class, from which ids are derived. */
export function objectNamespaces(uniqueKey: (className: string) => string): string {
  return Object.values(OBJECT_CLASSES)
    .map((name) => `(className = "${name}", uniqueKey = "${uniqueKey(name)}", enableSql = true)`)
    .join(", ");
}

/** The bindings to them. */
export function objectBindings(): string[] {
  return Object.entries(OBJECT_CLASSES).map(
    ([binding, name]) => `(name = "${binding}", durableObjectNamespace = "${name}")`,
  );
}

export interface WorkerdOptions {
  port: number;
  /** Where the bundle is. */
  directory: string;
  /** Where the objects are kept. */
  storage: string;
  /** Names of the Worker's variables. workerd reads their values from its environment, which no other user can read. */
  variables: string[];
}

/**
 * workerd's configuration (`workerd.capnp`): one socket per loopback address and nothing else that listens, no
 * inspector, no explorer, no traces. What `wrangler dev` puts before the Worker lets a request name another host than
 * its `Host` (`MF-Original-URL`), which would make the check of it void.
 */
export function workerdConfig({ port, directory, storage, variables }: WorkerdOptions): string {
  const wrangler = readFileSync(join(root, "wrangler.toml"), "utf8");
  const sockets = loopbackAddresses().map(
    (address, index) => `(name = "http${index}", address = "${address}:${port}", http = (), service = "main")`,
  );
  const bindings = [...objectBindings(), ...variables.map((name) => `(name = "${name}", fromEnvironment = "${name}")`)];
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (
      allow = ["public", "private"],
      tlsOptions = (trustBrowserCas = true, trustedCertificates = [${extraCertificates().join(", ")}]),
    )),
    (name = "disk", disk = (path = ${JSON.stringify(storage)}, writable = true)),
  ],
  sockets = [${sockets.join(", ")}],
  v8Flags = ${JSON.stringify(V8_FLAGS)},
);
const worker :Workerd.Worker = (
  modules = [${modulesOf(directory)}],
  compatibilityDate = ${setting(wrangler, "compatibility_date")},
  compatibilityFlags = ${setting(wrangler, "compatibility_flags")},
  globalOutbound = "internet",
  durableObjectNamespaces = [${objectNamespaces((name) => `responses-edge-${name}`)}],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [${bindings.join(", ")}],
);
`;
}

/** A setting of wrangler.toml on a line of its own. Its strings and lists are written as Cap'n Proto's are. */
function setting(wrangler: string, name: string): string {
  const value = new RegExp(`^${name} = (.+)$`, "m").exec(wrangler)?.[1];
  if (value === undefined) throw new Error(`wrangler.toml has no ${name}.`);
  return value;
}

/** `localhost` is either of them, and some clients try only one. */
function loopbackAddresses(): string[] {
  const addresses = Object.values(networkInterfaces()).flat();
  return ["127.0.0.1", ...(addresses.some((each) => each?.address === "::1") ? ["[::1]"] : [])];
}

/** Those of NODE_EXTRA_CA_CERTS, for a model server behind a private authority. */
function extraCertificates(): string[] {
  const file = process.env.NODE_EXTRA_CA_CERTS;
  const pem = file ? readFileSync(file, "utf8") : "";
  return (pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []).map((each) =>
    JSON.stringify(`${each}\n`),
  );
}
