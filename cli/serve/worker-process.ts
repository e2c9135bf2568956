import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { TextVariables } from "../../src/config/index.ts";
import type { DiskState } from "../../src/store/objects/process-state.ts";
import { OBJECTS } from "../../src/store/objects/registry.ts";
import type { ClusterInstance } from "../cluster/cluster.ts";
import type { Environment } from "../configuration/environment.ts";
import { ownUrl, socketAddresses } from "./addresses.ts";
import type { BoundedSocket } from "./bounded-processes.ts";
import { bundle, canBundle, madeBundle } from "./bundle.ts";
import { expiryOf, type KeyPairFiles } from "./certificate.ts";
import { endOf } from "./child-end.ts";
import { closedPeers } from "./client-connections.ts";
import { watchDamage } from "./damage-watch.ts";
import { encodeConfig, spawnServing } from "./encoded-config.ts";
import {
  type Disk,
  diskShare,
  type LauncherState,
  leastFree,
  measuresOf,
  stateMeasures,
  watchDisk,
} from "./free-disk.ts";
import { askHealth } from "./health.ts";
import { askLauncher, callsOf, retire, untilDrained, untilHung, type WorkerState } from "./launcher-socket.ts";
import type { ListeningSockets } from "./listening.ts";
import { type LogFormat, ownLine } from "./log-lines.ts";
import { openFileList, openFilesLimit } from "./open-files.ts";
import { killWithUs } from "./orphan-guard.ts";
import { makeProcessFolder } from "./process-folder.ts";
import { EXIT, Refusal } from "./refusal.ts";
import { removeVacantFiles } from "./vacant-files.ts";
import { certificatesIn, homesFolder, LAUNCHER_SOCKET, type Share, uniqueKeyOf, workerdConfig } from "./workerd.ts";

/** The process of workerd with the Worker in it: `npm start` and `serve` start, watch and end it in the same way. */

export interface WorkerOptions {
  host: string;
  /** 0 takes a free one. */
  port: number;
  /** The sockets on which it accepts connections, instead of its own. */
  listening?: ListeningSockets | undefined;
  /**
   * Set if it follows another process, which has the objects until then. Called when everything except the process itself
   * is ready. The new process has to be told to take them over (`hand-over.ts`).
   */
  predecessorCloses?: (() => Promise<void>) | undefined;
  keyPair?: KeyPairFiles | undefined;
  /** The folder of the objects; absolute. */
  storage: string;
  /** The free disk space that a new write needs, as `MIN_FREE_DISK` says it. */
  minFreeDisk: string | undefined;
  variables: TextVariables;
  /** The variables of the configuration file, which override; undefined without a file. */
  file?: TextVariables | undefined;
  /** Its share, if it is one of several workers. */
  share?: Share | undefined;
  /** Its settings, if it is an instance of a cluster. */
  cluster?: ClusterInstance | undefined;
  /** The way to the processes that read files; undefined has it read them itself. */
  boundedProcesses?: BoundedSocket | undefined;
  /** The launcher's state, for the metrics; undefined without any. */
  state?: LauncherState | undefined;
  /** This program's environment, for `NODE_EXTRA_CA_CERTS` and other variables of the runtime. */
  environment: Environment;
  format: LogFormat;
  /** Receives each line of the Worker and of workerd. */
  say(line: string): void;
  /** Abort it to end the start. */
  signal: AbortSignal;
}

export interface WorkerProcess {
  /** The host that it listens on, and the port of its first socket. */
  host: string;
  port: number;
  pid: number;
  /** The folder of its files other than its data; it contains its sockets. */
  folder: string;
  /** Sends it a command (`src/http/launcher.ts`); rejects if it does not answer. */
  tell(path?: string, body?: unknown, timeoutMs?: number): Promise<WorkerState>;
  /** Resolves when the process has ended and all its output was read: its exit code, null if it was killed. */
  ended: Promise<number | null>;
  /** True if its launcher has killed it because it did not answer any more. */
  hasHung(): boolean;
  /** The files of objects that its log calls damaged. */
  damagedFiles: ReadonlySet<string>;
  /**
   * Applies the configuration file to everything that begins from now on. Gives the errors of the whole; then nothing
   * has changed.
   */
  configure(file: TextVariables): Promise<readonly string[]>;
  /** Lets it refuse new requests, and waits until no foreground turn runs, and all usage is reported. Rejects if it does not answer. */
  drain(): Promise<void>;
  /**
   * Makes it accept no more connections, those of its launcher included, and then release the answers that it holds. It ends with its
   * last client, when the usage of its requests is reported. Rejects if it does not answer.
   */
  retire(): Promise<void>;
  /** Resolves when one that has retired has reported its usage, or has ended. */
  reported(): Promise<void>;
  /**
   * Ends it. For `graceMs` it refuses new requests, and continues the running ones: false if some were left, and cut
   * off. May be called again, with less time, too.
   */
  stop(graceMs: number): Promise<boolean>;
}

/** The first descriptor that workerd inherits; the one before it is for its messages. */
const FIRST_INHERITED = 4;

/** A client's time from its connection to its first byte. Milliseconds. */
const FIRST_BYTE_MS = 100;

/** The interval at which a starting process is asked whether it answers. Milliseconds. */
const START_POLL_MS = 5;

/** Long enough for a first start on a slow machine. */
const READY_TIMEOUT_MS = 60_000;

/**
 * Bundles the Worker, if necessary, and starts it. Resolves when it answers. Throws a Refusal if it does not, or the
 * signal is aborted; then nothing is left running.
 */
export async function startWorker(options: WorkerOptions): Promise<WorkerProcess> {
  const { host, keyPair, storage, minFreeDisk, cluster, environment, format, say, signal, listening } = options;
  const { share, predecessorCloses, variables, boundedProcesses } = options;
  signal.throwIfAborted();
  const { path: directory, remove: removeFiles } = await makeProcessFolder();
  const bundled = madeBundle() ?? (await makeBundle(directory, signal));
  signal.throwIfAborted();
  boundedProcesses?.use(bundled);
  const extra = environment.NODE_EXTRA_CA_CERTS;
  const configFile = join(directory, "workerd.config");
  const launcherSocket = join(directory, LAUNCHER_SOCKET);
  const config = workerdConfig({
    ...{
      keyPair,
      storage,
      cluster,
      share,
      folder: directory,
      bundle: bundled,
      takesOver: predecessorCloses !== undefined,
      boundedTasks: boundedProcesses?.path,
    },
    addresses: socketAddresses(host, listening?.port ?? options.port),
    variables: Object.keys(variables),
    // The nodes of a cluster have no disk in common.
    diskShare: cluster ? undefined : diskShare(storage),
    authorities: extra ? certificatesIn(extra) : [],
    // A cluster's objects are in its bucket, and move between its instances.
    openFiles: cluster ? undefined : { limit: openFilesLimit(), list: openFileList() },
    fileConfiguration: options.file && join(directory, "configuration.json"),
  });
  if (options.file) writeFileSync(join(directory, "configuration.json"), JSON.stringify(options.file), { mode: 0o600 });
  if (!cluster) {
    for (const folder of share?.storages ?? [storage]) mkdirSync(homesFolder(folder), { recursive: true });
    for (const { className, scope } of predecessorCloses ? [] : Object.values(OBJECTS)) {
      if (scope === "key") removeVacantFiles(join(storage, uniqueKeyOf(className)));
    }
  }
  await encodeConfig(config, configFile, { format, say, signal });

  const certificateEnd = keyPair && expiryOf(keyPair);
  const descriptors = listening?.descriptors ?? [];
  const inherited = descriptors.map((_, index) => `--socket-fd=http${index}=${FIRST_INHERITED + index}`);
  await predecessorCloses?.();
  signal.throwIfAborted();
  const child = spawnServing(configFile, ["--control-fd=3", ...inherited], ["pipe", "pipe", "pipe", ...descriptors], {
    isExperimental: cluster !== undefined,
    // In a group of its own: Ctrl-C signals the terminal's group, and would cut off requests that an orderly stop lets
    // end.
    detached: true,
    env: { ...environment, ...variables },
  });
  rmSync(configFile);
  const damage = watchDamage(
    storage,
    format,
    {
      suspects: async () => (await askLauncher(launcherSocket, "suspects")).suspects ?? [],
      tell: (damaged) => askLauncher(launcherSocket, "damaged", damaged),
    },
    say,
  );
  const heard = (line: string) => {
    say(line);
    if (!cluster) damage.heard(line);
  };
  const ended = endOf(child, format, heard).finally(removeFiles);
  const kill = () => void child.kill("SIGKILL");
  signal.addEventListener("abort", kill);
  let stateBefore: DiskState = "ok";
  try {
    const port = listening?.port ?? (await portOf(child, ended));
    const tell = (path?: string, body?: unknown, timeoutMs?: number) =>
      askLauncher(launcherSocket, path, body, timeoutMs);
    const url = ownUrl(keyPair ? "https" : "http", host, port);
    const question = { url, certificateFile: keyPair?.certificateFile, timeoutMs: READY_TIMEOUT_MS };
    // On the shared socket the predecessor, or another worker, could answer instead.
    const isShared = predecessorCloses !== undefined || (share?.storages.length ?? 1) > 1;
    const isReady = isShared ? untilAnswering(tell, signal) : askHealth(question);
    await Promise.race([isReady, ended.then(refuseEnded)]);
    // All workers have the same disk.
    const watched = await watchDisk(share?.storages[0] ?? storage, leastFree(minFreeDisk), async (state, figures) => {
      await tell("disk", state);
      if (state !== stateBefore && !share?.worker) say(diskLine(state, figures, format));
      stateBefore = state;
    });
    const probing = new AbortController();
    probing.signal.addEventListener("abort", () => watched[Symbol.dispose]());
    let hasHung = false;
    let isAccepting = true;
    let reported = Promise.resolve();
    const measured = async () => ({
      ...(await measuresOf(child.pid, storage)),
      ...(options.state && stateMeasures(options.state)),
      certificateEnd,
      closedPeers: child.pid ? await closedPeers({ pid: child.pid, host, port }) : [],
    });
    const process = { measured, calls: () => callsOf(child.pid) };
    void untilHung(launcherSocket, process, probing.signal).then((hangs) => {
      hasHung = hangs;
      if (hangs) kill();
    });
    void ended.finally(() => probing.abort()).catch(() => {});
    return {
      ...{ host, port, pid: child.pid ?? 0, folder: directory, tell, ended, damagedFiles: damage.files },
      hasHung: () => hasHung,
      configure: async (file) => (await tell("configuration", file)).mistakes ?? [],
      drain: () => untilDrained(launcherSocket),
      retire: async () => {
        const stopAccepting = async () => {
          probing.abort();
          isAccepting = false;
          // workerd closes a connection whose first byte has not come. A process that stands still accepts none, and reads what has come
          // meanwhile before it takes the signal.
          child.kill("SIGSTOP");
          await sleep(FIRST_BYTE_MS);
          child.kill("SIGTERM");
          child.kill("SIGCONT");
        };
        ({ reported } = await retire(launcherSocket, stopAccepting));
      },
      reported: () => reported,
      stop: (graceMs) => {
        probing.abort();
        const drainMs = isAccepting ? (cluster ? graceMs / 2 : graceMs) : 0;
        return stop(child, launcherSocket, ended, graceMs, drainMs);
      },
    };
  } catch (error) {
    kill();
    await ended;
    throw error;
  } finally {
    signal.removeEventListener("abort", kill);
  }
}

/** Makes a link to a folder. Replaces an existing link. */
export function link(folder: string, path: string): void {
  rmSync(path, { force: true });
  symlinkSync(folder, path);
}

/** Waits until a process answers its launcher. */
async function untilAnswering(tell: WorkerProcess["tell"], signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + READY_TIMEOUT_MS;
  while (!signal.aborted) {
    try {
      await tell();
      return;
    } catch (error) {
      if (performance.now() > deadline) throw error;
    }
    await sleep(START_POLL_MS);
  }
}

async function makeBundle(directory: string, signal: AbortSignal): Promise<string> {
  if (!canBundle()) {
    throw new Refusal(
      EXIT.failed,
      "The Worker's bundle is missing, and so is wrangler, which makes it: run `npm ci` first.",
    );
  }
  const made = join(directory, "worker");
  // In a group of its own: its children end with it.
  const child = bundle(made, { stdio: ["ignore", "ignore", "inherit"], detached: true });
  const forget = killWithUs({ pid: child.pid, group: true });
  const kill = () => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    } catch {
      // It has ended already.
    }
  };
  signal.addEventListener("abort", kill);
  process.once("exit", kill);
  try {
    const [code] = (await once(child, "exit")) as [number | null];
    if (code !== 0) throw new Refusal(EXIT.failed, "The Worker could not be bundled.");
    return made;
  } finally {
    signal.removeEventListener("abort", kill);
    process.off("exit", kill);
    forget();
  }
}

/** The port on which a process has begun to listen, which it writes to descriptor 3. */
async function portOf(child: ChildProcess, ended: Promise<unknown>): Promise<number> {
  // `serve` gives its sockets, and never loads it.
  const lines = process.getBuiltinModule("node:readline").createInterface({ input: child.stdio[3] as Readable });
  const told = new Promise<number>((resolve) => {
    lines.on("line", (line) => {
      const { event, socket, port } = JSON.parse(line) as { event: string; socket?: string; port?: number };
      if (event === "listen" && socket === "http0" && port !== undefined) resolve(port);
    });
  });
  return Promise.race([told, ended.then(refuseEnded)]);
}

/**
 * Ends a process as `WorkerProcess.stop` says. It gets SIGTERM after `drainMs`: an instance of a cluster hands over then. With 0
 * it has got it already.
 */
async function stop(
  child: ChildProcess,
  launcherSocket: string,
  ended: Promise<number | null>,
  graceMs: number,
  drainMs: number,
): Promise<boolean> {
  const cut = () => void child.kill("SIGKILL");
  if (graceMs === 0) cut();
  const timer = setTimeout(cut, graceMs);
  // After SIGTERM workerd lets new connections wait for its end. So it gets SIGTERM when little is left to end.
  if (graceMs > 0 && drainMs > 0) {
    const time = sleep(drainMs, undefined, { ref: false });
    await Promise.race([untilDrained(launcherSocket).catch(() => {}), ended, time]);
  }
  if (drainMs > 0) child.kill("SIGTERM");
  const code = await ended;
  clearTimeout(timer);
  return code === 0;
}

function diskLine(state: DiskState, { freeBytes, leastBytes }: Disk, format: LogFormat): string {
  if (state === "read_only") {
    const message =
      "The data folder is read-only: its file system was mounted read-only, perhaps after an error. Nothing is stored until it is mounted again.";
    return ownLine("error", message, format, { event: "disk_unwritable" });
  }
  const megabytes = (bytes: number) => `${Math.round(bytes / 1e6)} MB`;
  const free = `${megabytes(freeBytes)} are free on the data folder's disk (MIN_FREE_DISK: ${megabytes(leastBytes)})`;
  const fields = { free_bytes: freeBytes, least_bytes: Math.round(leastBytes) };
  return state === "low"
    ? ownLine(
        "warn",
        `The disk is low: ${free}. Requests that store something new are refused; everything else goes on.`,
        format,
        fields,
      )
    : ownLine("info", `The disk takes new data again: ${free}.`, format, fields);
}

function refuseEnded(): never {
  throw new Refusal(EXIT.failed, "The Worker's process has ended before it answered.");
}
