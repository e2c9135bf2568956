import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { ObjectStorage, UNIQUE_KEY, uniqueKeyOf } from "./storage.ts";
import {
  BUNDLE_VARIABLE,
  bundleInto,
  freePort,
  modulesOf,
  objectBindings,
  objectNamespaces,
  untilReady,
  workerd,
} from "./tools.ts";

/**
 * The Worker on plain `workerd`, bundled as it is deployed, with its storage on disk: a process that can be killed and
 * started again on the same storage and port.
 */
export interface WorkerdProcess {
  url: string;
  /** What its homes have stored. */
  storage: ObjectStorage;
  /** What its other objects have stored: keys, and what tenants have used. */
  keys: ObjectStorage;
  quotas: ObjectStorage;
  /** All that it has printed: the Worker's console, and workerd's own words. */
  logs(): string;
  /** SIGKILL: nothing gets a chance to finish. */
  kill(): Promise<void>;
  /** Starts it again. */
  restart(): Promise<void>;
  /** Lets time pass, for alarms, while it is dead. */
  passTime(ms: number): void;
  /** Kills it and removes its storage. */
  close(): Promise<void>;
}

export async function startWorkerd(variables: Record<string, string>): Promise<WorkerdProcess> {
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-"));
  bundled ??= bundle();
  cpSync(bundled, directory, { recursive: true });
  const port = await freePort();
  const configFile = join(directory, "config.capnp");
  mkdirSync(join(directory, "storage"));
  writeFileSync(configFile, workerdConfig(port, directory, variables));
  const url = `http://127.0.0.1:${port}`;
  let child: ChildProcess | undefined;
  let logs = "";
  const kill = async () => {
    const running = child;
    child = undefined;
    if (!running || running.exitCode !== null) return;
    const gone = new Promise((resolve) => running.once("exit", resolve));
    running.kill("SIGKILL");
    await gone;
  };
  const restart = async () => {
    await kill();
    const running = spawn(workerd, ["serve", configFile], { stdio: ["ignore", "pipe", "pipe"] });
    child = running;
    for (const output of [running.stdout, running.stderr]) output.on("data", (text) => (logs += String(text)));
    try {
      await untilReady(running, `${url}/health`);
    } catch (error) {
      throw new Error(`workerd did not start:\n${logs}`, { cause: error });
    }
  };
  const killAtExit = () => child?.kill("SIGKILL");
  process.once("exit", killAtExit);
  await restart();
  const namespace = join(directory, "storage", UNIQUE_KEY);
  return {
    url,
    storage: new ObjectStorage(namespace),
    keys: new ObjectStorage(join(directory, "storage", uniqueKeyOf("KeyDirectory"))),
    quotas: new ObjectStorage(join(directory, "storage", uniqueKeyOf("Quota"))),
    logs: () => logs,
    kill,
    restart,
    passTime: (ms) => passTime(namespace, ms),
    async close() {
      await kill();
      process.off("exit", killAtExit);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** Where the Worker's bundle is: the test run's (bundle-once.ts), else one of this process. */
let bundled: string | undefined;

function bundle(): string {
  const given = process.env[BUNDLE_VARIABLE];
  if (given) return given;
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-bundle-"));
  bundleInto(directory);
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Makes every alarm due so much earlier: in workerd's own list of them, and in the object that it is for. */
export function passTime(storage: string, ms: number): void {
  for (const name of readdirSync(storage)) {
    if (!name.endsWith(".sqlite")) continue;
    const database = new DatabaseSync(join(storage, name));
    const isList = name === "metadata.sqlite";
    const alarms = isList ? "_cf_ALARM SET scheduled_time = scheduled_time" : "_cf_METADATA SET value = value";
    // An object that was killed while it began has no metadata yet.
    const has = database
      .prepare("SELECT 1 FROM sqlite_master WHERE name = ?")
      .get(alarms.slice(0, alarms.indexOf(" ")));
    // Nanoseconds; the alarm is the first of an object's metadata.
    if (has) database.exec(`UPDATE ${alarms} - ${ms}000000 ${isList ? "" : "WHERE key = 1"}`);
    database.close();
  }
}

/** Compatibility date and flags are those of wrangler.toml; the transport is that of the test project (vitest.config.ts). */
function workerdConfig(port: number, directory: string, variables: Record<string, string>): string {
  const { VLLM_TRANSPORT } = process.env;
  const bindings = Object.entries({ ...(VLLM_TRANSPORT && { VLLM_TRANSPORT }), ...variables }).map(
    ([name, value]) => `(name = "${name}", text = ${JSON.stringify(value)})`,
  );
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (allow = ["public", "private"])),
    (name = "disk", disk = (path = "${join(directory, "storage")}", writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [${modulesOf(directory)}],
  compatibilityDate = "2026-11-09",
  compatibilityFlags = ["enable_request_signal", "global_fetch_strictly_public"],
  globalOutbound = "internet",
  durableObjectNamespaces = [${objectNamespaces(uniqueKeyOf)}],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [
    ${bindings.join(",\n    ")},
    ${objectBindings().join(",\n    ")},
  ],
);
`;
}
