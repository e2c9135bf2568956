#!/usr/bin/env node
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { BackupResult } from "./backup/backup.ts";
import type { BucketFiles } from "./backup/backup-manifest.ts";
import type { Command } from "./reload/control-socket.ts";
import { inMb } from "./serve/disk.ts";
import { version, workerdVersion } from "./serve/installation.ts";
import { logFormat, ownLine } from "./serve/log-lines.ts";
import { EXIT, Refusal } from "./serve/refusal.ts";
import { untilStopped } from "./serve/signals.ts";

/**
 * `responses-edge COMMAND`: the installed program. Each command imports its own code, and before it begins: an upgrade replaces
 * the files.
 */

const HELP = `responses-edge ${version}: the OpenAI Responses API in front of your own vLLM.

Usage: responses-edge [COMMAND]

  serve                 Serves, under the configuration of the environment. The default.
  check                 Says what is wrong with the configuration, and which model servers answer. Serves nothing.
  create-key TENANT     Makes an API key for a tenant; with --admin NAME a root key, an owner's unless
                        --role operator, auditor or tenant_admin:TENANT says otherwise.
  backup DIR            Copies the data folder into DIR, also while it is served; what has not changed since an
                        earlier backup is linked to it with --since EARLIER.
  backup DIR --keep N   Adds a backup to those in DIR, and removes all but the newest N; again and again with
                        --every 6h.
  restore DIR           Puts a backup, or the newest of those in DIR, into an empty data folder; another one of
                        them with --at NAME. With --only CLASS/ID.sqlite only that object, into a folder that has
                        the others and is not served.
  config-schema         Prints the JSON Schema of the file of CONFIG_FILE, for editors.
  reload                Has the server of this environment start another process in its place, of what is installed
                        and configured now.
  quarantine            Has it do so, and put aside the files that its log calls damaged: their data is then unknown.
  doctor [DIR]          Looks through a data folder that nobody serves: damaged files, alarms, orphans. --repair mends
                        what can be mended, and puts aside the rest.
  replay FILE --against URL
                        Sends the requests of an exported response again, with the key of OPENAI_API_KEY, and shows the items
                        in which the outputs differ: exit code 0 or 1.
  health                Asks the server of this environment whether it is healthy: exit code 0 or 1.

  --help, --version

The least that serve wants:

  VLLM_BASE_URL=http://gpu:8000/v1  API_KEYS=TENANT:SHA256  responses-edge serve
`;

interface Options {
  admin?: boolean | undefined;
  role?: string | undefined;
  since?: string | undefined;
  keep?: string | undefined;
  every?: string | undefined;
  at?: string | undefined;
  repair?: boolean | undefined;
  only?: string | undefined;
  against?: string | undefined;
}

interface Subcommand {
  /** The number of its arguments. */
  arguments: number;
  options?: readonly (keyof Options)[];
  run(given: readonly string[], options: Options): void | Promise<void>;
}

const COMMANDS: Readonly<Record<string, Subcommand>> = {
  serve: { arguments: 0, run: async () => (await import("./serve/serve.ts")).serve(process.env) },
  check: { arguments: 0, run: async () => (await import("./configuration/configuration.ts")).check(process.env) },
  "config-schema": {
    arguments: 0,
    run: async () => {
      const { configSchema } = await import("./configuration/config-schema.ts");
      console.log(JSON.stringify(configSchema(), null, 2));
    },
  },
  reload: { arguments: 0, run: () => tellRunning("reload") },
  quarantine: { arguments: 0, run: () => tellRunning("quarantine") },
  health: { arguments: 0, run: async () => (await import("./tools/health.ts")).health(process.env) },
  "create-key": {
    arguments: 1,
    options: ["admin", "role"],
    run: async ([name = ""], { admin = false, role }) => {
      const { createKey } = await import("./tools/create-key.ts");
      createKey({ name, isAdmin: admin, role });
    },
  },
  backup: {
    arguments: 1,
    options: ["since", "keep", "every"],
    run: ([into], { since, ...series }) => {
      if (!into) throw new Refusal(EXIT.usage, "backup needs a folder to write to: `responses-edge backup DIR`.");
      const isOne = series.keep === undefined && series.every === undefined;
      if (isOne) return makeBackup(into, since);
      if (since !== undefined)
        throw new Refusal(EXIT.usage, "--since is for a single backup: a series uses its last one.");
      return makeSeries(into, series);
    },
  },
  restore: {
    arguments: 1,
    options: ["at", "only"],
    run: ([from], { at, only }) => {
      if (!from) throw new Refusal(EXIT.usage, "restore needs a backup's folder: `responses-edge restore DIR`.");
      return only === undefined ? bringBack(from, at) : bringBackOne({ from, at, only });
    },
  },
  replay: {
    arguments: 1,
    options: ["against"],
    run: async ([file], { against }) => {
      if (!file || !against)
        throw new Refusal(EXIT.usage, "replay needs a file and a server: `responses-edge replay FILE --against URL`.");
      const { replayRun } = await import("./tools/replay-run.ts");
      return replayRun({ file, against, key: process.env.OPENAI_API_KEY });
    },
  },
  doctor: {
    arguments: 1,
    options: ["repair"],
    run: async ([folder], { repair = false }) => {
      const { doctor } = await import("./tools/doctor.ts");
      return doctor(folder ?? (await dataFolder()), repair, tellAs);
    },
  },
};

/** The data folder of `serve` under the same environment, in spite of other errors in it. */
async function dataFolder(): Promise<string> {
  const { readServeSettings } = await import("./configuration/serve-settings.ts");
  return readServeSettings(process.env, []).stateDirectory;
}

async function tellRunning(command: Command): Promise<void> {
  const { tellServer } = await import("./tools/tell-server.ts");
  return tellServer(process.env, command);
}

async function makeBackup(into: string, since: string | undefined): Promise<void> {
  const { backup } = await import("./backup/backup.ts");
  const { folder, ...made } = await backup({ data: await dataFolder(), into, since });
  const linked = since === undefined ? "" : `, ${made.unchanged} of them unchanged since ${since}`;
  const message = `Backed up ${made.objects} objects (${inMb(made.bytes)}${linked}) into ${folder}.`;
  tell(`${message}${inBucketsText(made.inBuckets, NOT_COPIED)}`, { folder, ...made });
  refuseDamaged(made);
}

/**
 * Makes one backup of a series, or one after another until the process is told to stop. Reports a backup that fails,
 * and goes on.
 */
async function makeSeries(into: string, { keep: kept, every }: Options): Promise<void> {
  const { durationOf, keepOf, nextBackup } = await import("./backup/backup-series.ts");
  const keep = kept === undefined ? undefined : keepOf(kept);
  const interval = every === undefined ? undefined : durationOf(every);
  const make = async () => {
    const { folder, ...made } = await nextBackup(await dataFolder(), into, keep);
    const linked = `, ${made.unchanged} of them unchanged since the last one`;
    const removed = made.removed.length > 0 ? ` Removed: ${made.removed.join(", ")}.` : "";
    const message = `Backed up ${made.objects} objects (${inMb(made.bytes)}${linked}) into ${folder}.`;
    tell(`${message}${removed}${inBucketsText(made.inBuckets, NOT_COPIED)}`, { folder, ...made });
    refuseDamaged(made);
  };
  if (interval === undefined) return make();
  const { signal } = untilStopped();
  while (!signal.aborted) {
    const next = Date.now() + interval;
    await make().catch((error) => {
      if (!(error instanceof Refusal)) throw error;
      tellFault(error);
    });
    await sleep(Math.max(0, next - Date.now()), undefined, { signal }).catch(() => {});
  }
}

function refuseDamaged({ damaged }: Pick<BackupResult, "damaged">): void {
  if (damaged.length === 0) return;
  throw new Refusal(EXIT.damaged, `These objects are damaged and are not in the backup: ${damaged.join(", ")}.`);
}

async function bringBackOne(chosen: { from: string; at: string | undefined; only: string }): Promise<void> {
  const { restoreObject } = await import("./backup/restore-object.ts");
  const { file, startedAt, quarantined } = await restoreObject({ ...chosen, data: await dataFolder() });
  const before = quarantined === undefined ? "" : ` The file that was there is ${quarantined}.`;
  tell(`Restored ${file} of ${startedAt}.${before}`, { file, backup_started_at: startedAt, quarantined });
}

async function bringBack(from: string, at: string | undefined): Promise<void> {
  const { restore } = await import("./backup/restore.ts");
  const { folder, startedAt, ...made } = await restore({ from, at, data: await dataFolder() });
  const message = `Restored ${made.objects} objects (${inMb(made.bytes)}) of ${startedAt} into ${folder}.`;
  const beside = inBucketsText(made.inBuckets, "are read from the bucket that FILES_S3_BUCKET names");
  tell(`${message}${beside}`, { folder, backup_started_at: startedAt, ...made });
}

/** The note about files whose bytes are in a bucket, in a backup. */
const NOT_COPIED = "are in a bucket and not in this backup: copy the bucket, too";

function inBucketsText(inBuckets: BucketFiles, what: string): string {
  if (inBuckets.files === 0) return "";
  return ` ${inBuckets.files} files (${inMb(inBuckets.bytes)}) ${what}.`;
}

function tellFault({ message }: Refusal): void {
  console.error(ownLine("error", message, logFormat(process.env)));
}

function tell(message: string, fields: object): void {
  tellAs("info", message, fields);
}

function tellAs(level: "info" | "warn", message: string, fields: object): void {
  console.log(ownLine(level, message, logFormat(process.env), fields));
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  tellFault(error);
  process.exitCode = error.exitCode;
}

async function main(args: readonly string[]): Promise<void> {
  const { values, positionals } = parse(args);
  if (values.help) return console.log(HELP);
  if (values.version) return console.log(`responses-edge ${version} (workerd ${workerdVersion})`);
  const [name = "serve", ...given] = positionals;
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  const { help: _, version: __, ...options } = values;
  const known = Object.keys(options).every((each) => command?.options?.includes(each as keyof Options));
  if (!command || given.length > command.arguments || !known) throw usage();
  await command.run(given, options);
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        help: { type: "boolean", short: "h" },
        version: { type: "boolean", short: "v" },
        admin: { type: "boolean" },
        role: { type: "string" },
        since: { type: "string" },
        keep: { type: "string" },
        every: { type: "string" },
        at: { type: "string" },
        only: { type: "string" },
        against: { type: "string" },
        repair: { type: "boolean" },
      },
    });
  } catch {
    throw usage();
  }
}

function usage(): Refusal {
  return new Refusal(EXIT.usage, "Unknown command. `responses-edge --help` lists all commands.");
}
