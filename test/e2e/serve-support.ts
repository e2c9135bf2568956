import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { commandLine } from "../workerd/tools.ts";
import { eventually } from "./support.ts";

/** Starts and stops `serve`, as an operator does. */
export interface Served {
  child: ChildProcess;
  /** The URL of the API, after its start. */
  url: string;
  /** Its whole output. */
  output(): string;
  /** Its exit code, when it has ended and its output was read. */
  exited: Promise<number | null>;
}

/** The folders of the tests, which `removeFolders` removes. */
const folders: string[] = [];
const running = new Set<ChildProcess>();

export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "serve-test-"));
  folders.push(folder);
  return folder;
}

/** Kills the running processes, and removes their files. */
export function cleanUp(): void {
  for (const child of running) child.kill("SIGKILL");
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

/** The environment without the tests' own variables, except these. */
const { PATH, RESPONSES_EDGE_TEST_BUNDLE, NODE_COMPILE_CACHE } = process.env;

/** Settings of a program's start. */
export interface Before {
  /** Shell commands to run before it, in a mount namespace of its own. */
  mounts?: string;
  /** Its hard limit of open files. */
  openFiles?: number;
  /** The file of the command, if it is not this checkout's. */
  file?: string;
}

/** Starts `serve` on a free port; or another command, with its arguments. */
export function begin(
  variables: Record<string, string>,
  command: readonly string[] | string = "serve",
  { mounts, openFiles, file }: Before = {},
): Served {
  const shell = [openFiles && `ulimit -n ${openFiles}`, mounts, 'exec "$0" "$@"'].filter(Boolean).join(" && ");
  const wrapper = mounts === undefined ? [] : ["unshare", ...UNSHARE];
  const line = file === undefined ? commandLine() : [process.execPath, file];
  const [program = "", ...args] = [...wrapper, "sh", "-c", shell, ...line, ...[command].flat()];
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    // The files of a killed one are removed with the rest.
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

/** Starts `serve`, and waits until it answers. */
export async function start(variables: Record<string, string>, before?: Before): Promise<Served> {
  const served = begin(variables, "serve", before);
  const url = () => /"url":"([^"]+)\/v1"/.exec(served.output())?.[1];
  await eventually(() => url() !== undefined || served.child.exitCode !== null);
  served.url = url() ?? "";
  if (served.url === "") throw new Error(served.output());
  return served;
}

/** The processes of workerd that `serve` has started, in the order of their starts. */
export function workerdsOf({ child: { pid } }: Served): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
  return children.filter((each) => commandOf(each).includes("workerd\0serve\0")).map(Number);
}

/** Reloads a server, and waits until each of its workers was replaced by another process. */
export async function reload({ child, output }: Served, workers: number): Promise<void> {
  const times = () => output().split("Another process serves").length - 1;
  const before = times();
  child.kill("SIGHUP");
  await eventually(() => times() === before + workers);
}

/** The command of a process, with its arguments; empty if the process has ended. */
export const commandOf = (pid: string | number) => textIfThere(`/proc/${pid}/cmdline`);

/** The text of a file; empty if there is none. */
export function textIfThere(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

/** Runs a command that ends by itself. Gives its exit code and its output. */
export async function run(
  variables: Record<string, string>,
  command: readonly string[] | string = "serve",
): Promise<[number | null, string]> {
  const served = begin(variables, command);
  return [await served.exited, served.output()];
}

/** This works without root, too, if the kernel lets users have namespaces. */
const UNSHARE = ["--mount", "--map-root-user"];

/** True if this machine lets a process have mounts of its own. */
export function mayMount(): boolean {
  const may = spawnSync("unshare", [...UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"]).status === 0;
  if (!may) console.log("Not shown here: this machine lets no process have mounts of its own.");
  return may;
}

/** A self-signed certificate for 127.0.0.1, with its key. It expires in `days` days. */
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

/** Opens a WebSocket that answers no frame. Resolves when it is open; `ended` resolves when the server has ended it. */
export async function deafSocket(url: string): Promise<{ ended: Promise<unknown> }> {
  const { host, hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const key = Buffer.alloc(16).toString("base64");
  const headers = [`host: ${host}`, "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"];
  socket.write(`GET /v1/responses HTTP/1.1\r\n${headers.join("\r\n")}\r\nsec-websocket-key: ${key}\r\n\r\n`);
  await once(socket, "data");
  socket.resume();
  return { ended: once(socket, "close") };
}
