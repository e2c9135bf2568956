import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { commandLine } from "../workerd/tools.ts";
import { eventually } from "./support.ts";

/** `serve`, as an operator starts and stops it. */
export interface Served {
  child: ChildProcess;
  /** Of the API, once it has started. */
  url: string;
  /** Everything that it has printed. */
  output(): string;
  /** Its exit code, when it has ended and all that it printed was read. */
  exited: Promise<number | null>;
}

/** Folders of the tests, removed with `removeFolders`. */
const folders: string[] = [];
const running = new Set<ChildProcess>();

export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "serve-test-"));
  folders.push(folder);
  return folder;
}

/** Kills what still runs, and removes what was written. */
export function cleanUp(): void {
  for (const child of running) child.kill("SIGKILL");
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

/** Only these of the tests' own variables. */
const { PATH, RESPONSES_EDGE_TEST_BUNDLE, NODE_COMPILE_CACHE } = process.env;

/** What a program is started after. */
export interface Before {
  /** A shell's commands, in a mount namespace of their own. */
  mounts?: string;
  /** How many files it may have open, and cannot have more. */
  openFiles?: number;
}

/** Begins one, on any port that is free; or another command, with its arguments. */
export function begin(
  variables: Record<string, string>,
  command: readonly string[] | string = "serve",
  { mounts, openFiles }: Before = {},
): Served {
  const shell = [openFiles && `ulimit -n ${openFiles}`, mounts, 'exec "$0" "$@"'].filter(Boolean).join(" && ");
  const wrapper = mounts === undefined ? [] : ["unshare", ...UNSHARE];
  const [program = "", ...args] = [...wrapper, "sh", "-c", shell, ...commandLine(), ...[command].flat()];
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    // What one that is killed leaves behind is removed with the rest.
    env: {
      ...{ PATH, RESPONSES_EDGE_TEST_BUNDLE, NODE_COMPILE_CACHE, TMPDIR: newFolder() },
      ...{ PORT: "0", LOG_FORMAT: "json", ...variables },
    },
  });
  running.add(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (text) => (output += String(text)));
  const exited = once(child, "close").then(([code]) => {
    running.delete(child);
    return code as number | null;
  });
  return { child, url: "", output: () => output, exited };
}

/** Starts one, and waits until it answers. */
export async function start(variables: Record<string, string>, before?: Before): Promise<Served> {
  const served = begin(variables, "serve", before);
  const url = () => /"url":"([^"]+)\/v1"/.exec(served.output())?.[1];
  await eventually(() => url() !== undefined || served.child.exitCode !== null);
  served.url = url() ?? "";
  if (served.url === "") throw new Error(served.output());
  return served;
}

/** Runs one that is to end by itself; gives its exit code and what it has printed. */
export async function run(
  variables: Record<string, string>,
  command: readonly string[] | string = "serve",
): Promise<[number | null, string]> {
  const served = begin(variables, command);
  return [await served.exited, served.output()];
}

/** Without being root, too, where the kernel lets users have namespaces. */
const UNSHARE = ["--mount", "--map-root-user"];

/** Whether this machine lets a process have mounts of its own. */
export function mayMount(): boolean {
  const may = spawnSync("unshare", [...UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"]).status === 0;
  if (!may) console.log("Not shown here: this machine lets no process have mounts of its own.");
  return may;
}

/** A certificate for 127.0.0.1 that is its own authority, with its key; `days` from now it expires. */
export function certificate(days: number): { certificateFile: string; keyFile: string } {
  const folder = newFolder();
  const [request, certificateFile, keyFile, extensions] = ["csr", "crt", "key", "ext"].map((name) =>
    join(folder, `tls.${name}`),
  ) as [string, string, string, string];
  writeFileSync(extensions, "subjectAltName = DNS:localhost, IP:127.0.0.1");
  const openssl = (...args: string[]) => execFileSync("openssl", args, { stdio: "pipe" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", keyFile];
  openssl("req", ...key, "-out", request, "-subj", "/CN=localhost");
  const signed = ["-signkey", keyFile, "-extfile", extensions, "-days", String(days)];
  openssl("x509", "-req", "-in", request, "-out", certificateFile, ...signed);
  return { certificateFile, keyFile };
}
