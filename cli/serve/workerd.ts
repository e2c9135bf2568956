import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { CLASS_NAMES, OBJECTS } from "../../src/store/objects/registry.ts";
import { type ClusterInstance, clusterConfig } from "../cluster/cluster.ts";
import type { KeyPairFiles } from "./certificate.ts";
import { compatibility } from "./installation.ts";

/** The configuration of workerd (`workerd.capnp`) for the Worker, in every way to run it. */

/** The data of `packages/file-text`. */
const FILE_DATA = /-(?:cmaps\.bin|pdfium\.wasm|mozjpeg_enc\.wasm)$/;

/** The same Worker as `index.js`, without the code of `packages/file-text` that reads formats other than texts. */
export const NO_FILE_FORMATS = "no-file-formats.js";

/**
 * A bundle's modules as workerd's configuration lists them, the entry first; `embed` is relative to that file, or to
 * `folder`. `readsFiles`: false leaves out the code and the data for the text and the pictures of files, which take 45 MB of memory
 * before they are used.
 */
export function modulesOf(bundle: string, folder = "", readsFiles = true): string {
  const names = readdirSync(bundle);
  const isUsed = (name: string) => readsFiles || !FILE_DATA.test(name);
  const data = names.filter((name) => /\.(gz|bin)$/.test(name) && isUsed(name));
  const wasm = names.filter((name) => name.endsWith(".wasm") && isUsed(name));
  // The names of files that wrangler's rules took out of the bundle begin with a hash.
  const texts = names.filter((name) => /^[0-9a-f]{40}-.+\.(js|css|html|svg)$/.test(name));
  const embed = (name: string) => `embed ${JSON.stringify(join(folder, name))}`;
  return [
    `(name = "index.js", esModule = ${embed(readsFiles ? "index.js" : NO_FILE_FORMATS)})`,
    ...data.map((name) => `(name = "${name}", data = ${embed(name)})`),
    ...wasm.map((name) => `(name = "${name}", wasm = ${embed(name)})`),
    ...texts.map((name) => `(name = "${name}", text = ${embed(name)})`),
  ].join(", ");
}

/**
 * V8's flags. `--expose-gc` lets the Worker start a collection (`src/store/objects/row-pieces.ts`). Open streams make little
 * garbage for a long time. A smaller young generation is collected sooner, and the process takes an eighth less memory; with a
 * larger one fewer objects of open requests become old, and fewer collections stop everything (docs/benchmarks-results.md).
 */
export const V8_FLAGS = ["--max-semi-space-size=8", "--expose-gc"] as const;

/** The `uniqueKey` of a class's namespace: the name of its folder, from which the ids of its objects are derived. It never changes. */
export function uniqueKeyOf(className: string): string {
  return `responses-edge-${className}`;
}

/** The namespaces of the objects as workerd's configuration lists them. */
export function objectNamespaces(keyOf = uniqueKeyOf): string {
  return CLASS_NAMES.map((name) => `(className = "${name}", uniqueKey = "${keyOf(name)}", enableSql = true)`).join(
    ", ",
  );
}

/** The bindings to them. */
export function objectBindings(): string[] {
  return Object.entries(OBJECTS).map(
    ([binding, { className }]) => `(name = "${binding}", durableObjectNamespace = "${className}")`,
  );
}

export interface WorkerdOptions {
  /** The addresses on which it listens, `host:port` each. The sockets are named `http0`, `http1` and so on. */
  addresses: readonly string[];
  /** The certificate for TLS on all of them. */
  keyPair?: KeyPairFiles | undefined;
  /** The folder of the process, with the Unix sockets on which the launcher and another process reach it; none without. */
  folder?: string | undefined;
  /** Its share if it is one of several workers. */
  share?: Share | undefined;
  /** The Unix socket of `BoundedProcesses`; undefined has the Worker read files itself. */
  boundedTasks?: string | undefined;
  /** True if it takes over the objects of another process: calls wait until it has. */
  takesOver?: boolean | undefined;
  /** The folder of the bundle; absolute. */
  bundle: string;
  /** The folder of the objects. The disk service is named `disk`. */
  storage: string;
  /** Names of the Worker's variables. workerd reads their values from its environment, which no other user can read. */
  variables: readonly string[];
  /** The bytes of the disk that each tenant may fill; undefined: any number. */
  diskShare?: number | undefined;
  /** Certificates of authorities that are trusted beside those that browsers trust, as PEM. */
  authorities: readonly string[];
  /** Its settings if it is an instance of a cluster. */
  cluster?: ClusterInstance | undefined;
  /** The limit of open files, for the Worker; none if undefined. */
  openFiles?: OpenFiles | undefined;
  /**
   * The path of a file with the configuration file's variables (`FILE_CONFIGURATION`); undefined without a
   * configuration file.
   */
  fileConfiguration?: string | undefined;
}

/** A worker's share of the objects (docs/self-hosting.md#all-cores): its number, and the ways to the workers. */
export interface Share {
  /** From 0. */
  worker: number;
  /** The folder with links to the folders of the workers' present processes (`linkOf`). */
  links: string;
  /** The folder of each worker's objects. */
  storages: readonly string[];
}

/** The bindings to each worker (`src/store/objects/workers.ts`). */
const CONNECTIONS = 8;

/** The link to the folder of a worker's present process. */
export function linkOf(links: string, worker: number): string {
  return join(links, String(worker));
}

/** In the folder of a process: the socket on which its launcher reaches it. */
export const LAUNCHER_SOCKET = "launcher";

/** In the folder of a process: the socket on which other processes reach its objects. */
const SHARE_SOCKET = "share";

/** workerd sends calls of objects as Cap'n Proto between processes whose configurations name the same host. */
const OBJECTS_HTTP = '(capnpConnectHost = "objects")';

/** The files that a process may have open (`src/store/home/open-objects.ts`). */
export interface OpenFiles {
  limit: number;
  /** A folder that lists the open ones; undefined if the system has no such folder. */
  list: string | undefined;
}

/** The folder of the homes' databases. It must exist when workerd starts. */
export function homesFolder(storage: string): string {
  return join(storage, uniqueKeyOf(OBJECTS.HOME.className));
}

/**
 * workerd's configuration. Only the sockets listen: there is no inspector, no explorer and no trace. `wrangler dev`
 * puts a Worker before this one, by which a request can name another host than in its `Host` (`MF-Original-URL`) and so
 * evade the check of it. Requests to addresses that clients name use the network `internet`, which has no private
 * addresses, whatever a name resolves to. Requests to addresses that the operator names use `private-network`
 * (`src/config/network.ts`).
 */
export function workerdConfig(options: WorkerdOptions): string {
  const { addresses, keyPair, bundle, storage, variables, authorities, cluster, openFiles } = options;
  const { date, flags } = compatibility();
  const protocol = keyPair ? `https = (options = (), tlsOptions = (keypair = ${keyPairOf(keyPair)}))` : "http = ()";
  const sockets = addresses.map(
    (address, index) => `(name = "http${index}", address = "${address}", ${protocol}, service = "main")`,
  );
  const folders: string[] = [];
  const bindings = [
    ...objectBindings(),
    '(name = "PRIVATE_NETWORK", service = "private-network")',
    ...variables.map((name) => `(name = "${name}", fromEnvironment = "${name}")`),
  ];
  if (options.folder !== undefined) {
    const socket = (name: string, service: string, http = "()") =>
      `(name = "${name}", address = "unix:${options.folder}/${name}", http = ${http}, service = ${service})`;
    sockets.push(socket(LAUNCHER_SOCKET, '(name = "main", entrypoint = "Launcher")'));
    if (options.share) sockets.push(socket(SHARE_SOCKET, '(name = "main", entrypoint = "Share")', OBJECTS_HTTP));
  }
  if (options.share) addShare(options.share, folders, bindings);
  if (options.boundedTasks !== undefined) {
    folders.push(`(name = "bounded-tasks", external = (address = "unix:${options.boundedTasks}", http = ())),`);
    bindings.push('(name = "BOUNDED_TASKS", service = "bounded-tasks")');
  }
  if (options.diskShare !== undefined) bindings.push(`(name = "DISK_SHARE", text = "${options.diskShare}")`);
  if (options.takesOver) bindings.push('(name = "TAKES_OVER", text = "true")');
  const addFolder = (binding: string, name: string, path: string, isWritable: boolean) => {
    folders.push(`(name = "${name}", disk = (path = ${JSON.stringify(path)}, writable = ${isWritable})),`);
    bindings.push(`(name = "${binding}", service = "${name}")`);
  };
  if (options.fileConfiguration !== undefined) {
    bindings.push(`(name = "FILE_CONFIGURATION", text = embed ${JSON.stringify(options.fileConfiguration)})`);
  }
  if (openFiles) {
    bindings.push(`(name = "OPEN_FILES", text = "${openFiles.limit}")`);
    if (openFiles.list !== undefined) addFolder("OPEN_FILE_LIST", "open-file-list", openFiles.list, false);
    addFolder("HOME_FILES", "home-files", homesFolder(storage), true);
  }
  const trusted = authorities.map((each) => JSON.stringify(each)).join(", ");
  const tls = `tlsOptions = (trustBrowserCas = true, trustedCertificates = [${trusted}])`;
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (allow = ["public"], ${tls})),
    (name = "private-network", network = (allow = ["public", "private"], ${tls})),
    (name = "disk", disk = (path = ${JSON.stringify(storage)}, writable = true)),
    ${folders.join("\n    ")}
  ],
  sockets = [${sockets.join(", ")}],
  v8Flags = ${JSON.stringify(V8_FLAGS)},
  logging = (structuredLogging = true),${cluster ? `\n  cluster = ${clusterConfig(cluster)},` : ""}
);
const worker :Workerd.Worker = (
  modules = [${modulesOf(bundle, bundle, options.boundedTasks === undefined)}],
  compatibilityDate = ${date},
  compatibilityFlags = ${flags},
  globalOutbound = "internet",
  durableObjectNamespaces = [${objectNamespaces()}],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [${bindings.join(", ")}],
);
`;
}

/** The socket of a process that reads files and runs programs. Each process has an address of its own for it. */
export const TASKS_SOCKET = "tasks";

/**
 * The configuration of the processes that read files and run programs (`cli/serve/bounded-process.ts`): the same bundle, without
 * objects, variables and a network. Their binding makes isolates, which is an experimental feature.
 */
export function boundedConfig(bundle: string): string {
  const { date, flags } = compatibility();
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker), (name = "nowhere", network = (allow = []))],
  sockets = [(name = "${TASKS_SOCKET}", http = (), service = (name = "main", entrypoint = "BoundedTasks"))],
  v8Flags = ${JSON.stringify(BOUNDED_FLAGS)},
  logging = (structuredLogging = true),
);
const worker :Workerd.Worker = (
  modules = [${modulesOf(bundle, bundle)}],
  compatibilityDate = ${date},
  compatibilityFlags = ${flags},
  globalOutbound = "nowhere",
  bindings = [(name = "PROGRAM_LOADER", workerLoader = ())],
);
`;
}

/** V8's flags for it: values of JavaScript take a part of its memory, whose whole its launcher bounds. Megabytes. */
const BOUNDED_FLAGS = ["--max-semi-space-size=4", "--max-old-space-size=640"] as const;

/** The calls from a process to the workers; its own worker's are those to the process that takes its place. */
function addShare({ worker: own, links, storages }: Share, services: string[], bindings: string[]): void {
  bindings.push(`(name = "WORKER_SHARE", text = "${own}/${storages.length}")`);
  for (const [worker, storage] of storages.entries()) {
    const address = `unix:${linkOf(links, worker)}/${SHARE_SOCKET}`;
    for (let connection = 0; connection < CONNECTIONS; connection += 1) {
      const name = `worker-${worker}-${connection}`;
      services.push(`(name = "${name}", external = (address = "${address}", http = ${OBJECTS_HTTP})),`);
      bindings.push(`(name = "WORKER_${worker}_${connection}", service = "${name}")`);
    }
    if (worker === own) continue;
    const files = `home-files-${worker}`;
    services.push(`(name = "${files}", disk = (path = ${JSON.stringify(homesFolder(storage))}, writable = false)),`);
    bindings.push(`(name = "HOME_FILES_${worker}", service = "${files}")`);
  }
}

function keyPairOf({ keyFile, certificateFile }: KeyPairFiles): string {
  return `(privateKey = embed ${JSON.stringify(keyFile)}, certificateChain = embed ${JSON.stringify(certificateFile)})`;
}

/** The certificates in a PEM file, such as that of NODE_EXTRA_CA_CERTS: for a model server behind a private authority. */
export function certificatesIn(file: string): string[] {
  const pem = readFileSync(file, "utf8");
  return (pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []).map((each) => `${each}\n`);
}
