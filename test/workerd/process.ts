import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { encodeConfig, spawnServing } from "../../cli/serve/encoded-config.ts";
import { followLines } from "../../cli/serve/log-lines.ts";
import { openFileList, openFilesLimit } from "../../cli/serve/open-files.ts";
import { homesFolder, modulesOf, uniqueKeyOf, workerdConfig } from "../../cli/serve/workerd.ts";
import { ObjectStorage } from "./storage.ts";
import { BUNDLE_VARIABLE, bundleInto, commandLine, freePort, untilReady, untilSilent } from "./tools.ts";

/**
 * The Worker on plain `workerd`, bundled as it is deployed and configured as `serve` does it, with its storage on disk.
 * The process can be killed and started again on the same storage and port. `through`: starts `serve` itself, with its
 * lock and its launcher, and kills that. `bundle`: a folder with another Worker's bundle. `readsFormats`: false has the
 * process without the code for PDF and other formats, as that of `serve`: it starts in two thirds of the time, and reads none.
 */
export interface WorkerdProcess {
  url: string;
  /** The storage of its homes. */
  storage: ObjectStorage;
  /** The storage of its other objects: keys, tenants' usage, files and vector stores. */
  keys: ObjectStorage;
  quotas: ObjectStorage;
  boards: ObjectStorage;
  fileDirectories: ObjectStorage;
  fileBytes: ObjectStorage;
  vectorStores: ObjectStorage;
  /** Its process, while there is one. */
  pid(): number | undefined;
  /** The storage of tenants' webhooks and batches. */
  webhooks: ObjectStorage;
  batches: ObjectStorage;
  /** The storage of the lists of responses. */
  responseIndexes: ObjectStorage;
  /** Resident memory of the process, in MB (Linux). */
  memory(): number;
  /** Its whole output: the Worker's console, and workerd's own messages. */
  logs(): string;
  /** SIGKILL: nothing gets a chance to finish. */
  kill(): Promise<void>;
  /** Starts it again. */
  restart(): Promise<void>;
  /** Advances the time of alarms while the process is dead. */
  passTime(ms: number): void;
  /** Kills it and removes its storage. */
  close(): Promise<void>;
}

export async function startWorkerd(
  given: Record<string, string>,
  { through = "workerd", bundle = ownBundle(), readsFormats = true }: StartOptions = {},
): Promise<WorkerdProcess> {
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-"));
  const storage = join(directory, "storage");
  mkdirSync(storage);
  const port = await freePort();
  // The transport of the test project (vitest.config.ts).
  const { VLLM_TRANSPORT } = process.env;
  const variables = { ...(VLLM_TRANSPORT && { VLLM_TRANSPORT }), ...given };
  const start =
    through === "serve"
      ? serveStart(port, directory, storage, bundle)
      : await workerdStart(port, directory, storage, { bundle, readsFormats }, Object.keys(variables));
  const url = `http://127.0.0.1:${port}`;
  let child: ChildProcess | undefined;
  let logs = "";
  const say = (line: string) => {
    logs += `${line}\n`;
  };
  const kill = async () => {
    const running = child;
    child = undefined;
    if (!running || running.exitCode !== null) return;
    const gone = new Promise((resolve) => running.once("exit", resolve));
    running.kill("SIGKILL");
    await gone;
    // The processes of `serve` are killed a moment later, and answer until then.
    await untilSilent(port);
  };
  const restart = async () => {
    await kill();
    const running = start(variables);
    child = running;
    for (const output of [running.stdout, running.stderr]) if (output) void followLines(output, "text", say);
    try {
      await untilReady(running, `${url}/health`);
    } catch (error) {
      throw new Error(`workerd did not start:\n${logs}`, { cause: error });
    }
  };
  const killAtExit = () => {
    child?.kill("SIGKILL");
    // It may still be writing.
    rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
  };
  process.once("exit", killAtExit);
  await restart();
  const folderOf = (className: string) => join(storage, uniqueKeyOf(className));
  const pid = () => child?.pid;
  const storageOf = (className: string) =>
    new ObjectStorage(folderOf(className), through === "workerd" ? pid : undefined);
  return {
    url,
    storage: storageOf("Home"),
    keys: storageOf("KeyDirectory"),
    quotas: storageOf("Quota"),
    boards: storageOf("Board"),
    fileDirectories: storageOf("FileDirectory"),
    fileBytes: storageOf("FileBytes"),
    vectorStores: storageOf("VectorStore"),
    pid,
    webhooks: storageOf("Webhooks"),
    batches: storageOf("Batches"),
    responseIndexes: storageOf("ResponseIndex"),
    memory: () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child?.pid}/status`, "utf8"))?.[1]) / 1024,
    logs: () => logs,
    kill,
    restart,
    passTime: (ms) => {
      for (const name of ["Home", "VectorStore", "Webhooks", "ResponseIndex"]) passTime(folderOf(name), ms);
    },
    async close() {
      await kill();
      process.off("exit", killAtExit);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

export interface StartOptions {
  through?: "workerd" | "serve";
  bundle?: string;
  readsFormats?: boolean;
}

/** Starts a process with variables in its environment. */
type Start = (variables: Record<string, string>) => ChildProcess;

async function workerdStart(
  port: number,
  directory: string,
  storage: string,
  { bundle, readsFormats }: { bundle: string; readsFormats: boolean },
  variables: string[],
): Promise<Start> {
  const configFile = join(directory, "workerd.config");
  const addresses = [`127.0.0.1:${port}`];
  const openFiles = { limit: openFilesLimit(), list: openFileList() };
  const options = { addresses, storage, bundle, variables, authorities: [], openFiles };
  mkdirSync(homesFolder(storage), { recursive: true });
  const config = workerdConfig(options).replace(modulesOf(bundle, bundle), () =>
    modulesOf(bundle, bundle, readsFormats),
  );
  await encodeConfig(config, configFile, { format: "text", say: console.error });
  return (variables) => spawnServing(configFile, [], ["pipe", "pipe"], { env: { ...process.env, ...variables } });
}

function serveStart(port: number, directory: string, storage: string, bundle: string): Start {
  const [program, file] = commandLine();
  const own = {
    ...{ PORT: String(port), STATE_DIRECTORY: storage, TMPDIR: directory, LOG_FORMAT: "text" },
    [BUNDLE_VARIABLE]: bundle,
  };
  return (variables) => {
    const env = { ...process.env, ...own, ...variables };
    return spawn(program, [file, "serve"], { stdio: ["ignore", "pipe", "pipe"], env });
  };
}

/** This process's bundle, if the test run has none (bundle-once.ts). */
let bundled: string | undefined;

function ownBundle(): string {
  const given = bundled ?? process.env[BUNDLE_VARIABLE];
  if (given) return resolve(given);
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-bundle-"));
  bundleInto(directory);
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  bundled = directory;
  return directory;
}

/** Makes every alarm due earlier by `ms`: in workerd's own list, and in its object. */
export function passTime(storage: string, ms: number): void {
  if (!existsSync(storage)) return;
  for (const name of readdirSync(storage)) {
    if (!name.endsWith(".sqlite")) continue;
    const database = new DatabaseSync(join(storage, name));
    const isList = name === "metadata.sqlite";
    const alarms = isList ? "_cf_ALARM SET scheduled_time = scheduled_time" : "_cf_METADATA SET value = value";
    // An object that was killed at its beginning has no metadata yet.
    const has = database
      .prepare("SELECT 1 FROM sqlite_master WHERE name = ?")
      .get(alarms.slice(0, alarms.indexOf(" ")));
    // Nanoseconds; the alarm is the first of an object's metadata.
    if (has) database.exec(`UPDATE ${alarms} - ${ms}000000 ${isList ? "" : "WHERE key = 1"}`);
    database.close();
  }
}
