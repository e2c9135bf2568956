/**
 * `npm start`: the Worker on `workerd`, in front of a vLLM (VLLM_BASE_URL) or of the built-in simulator. Variables of the
 * environment that the Worker knows are handed to it; PORT chooses the port, STATE_DIRECTORY where responses are kept.
 * TOOL_SERVER=1 starts the development tool server beside it. Everything listens on loopback addresses, and ends with
 * this process, or with npm.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { serveSimulator } from "../dev/simulator/serve.ts";
import { killWithUs } from "../dev/tool-server/orphan-guard.ts";
import type { ToolServer } from "../dev/tool-server/server.ts";
import { ConfigError, loadConfig, misspeltVariables, VARIABLE_NAMES, type Variables } from "../src/config.ts";
import { BUNDLE_VARIABLE, bundle, workerd, workerdConfig } from "./workerd.ts";
import { sayPlainly } from "./workerd-words.ts";

/** Long enough for a first start on a slow machine. */
const READY_TIMEOUT_MS = 60_000;

/** How often this process looks whether npm is still there. */
const PARENT_CHECK_MS = 250;

/** A process of its own has more memory than the isolate of 128 MB that the Worker's own default is for. */
const MAX_OPEN_TURNS = "4000";

/** Whose keys let callers in, by the variable that says so. */
const DOORS = [
  ["API_KEYS", "those of API_KEYS"],
  ["ADMIN_KEY", "those that the admin API makes"],
  ["JWT_ISSUER", "tokens of JWT_ISSUER"],
] as const;

const root = fileURLToPath(new URL("..", import.meta.url));
/** Where the objects are kept: where `wrangler dev` keeps them, too. */
const storage = process.env.STATE_DIRECTORY || join(root, ".wrangler/state/v3/do");
const directory = mkdtempSync(join(tmpdir(), "responses-edge-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));

let toolServer: ToolServer | undefined;
/** How to kill what runs; each gives its end. */
const running = new Set<() => Promise<unknown>>();
let stopping = false;
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => void stop(0));
// npm does not stop what it runs when it is killed itself. (`exec` in package.json makes npm our parent.)
const parent = process.ppid;
if (process.env.npm_lifecycle_event) {
  setInterval(() => process.ppid !== parent && void stop(0), PARENT_CHECK_MS).unref();
}

const port = process.env.PORT || "8787";
const pooled = Boolean(process.env.UPSTREAMS);
const simulated = !process.env.VLLM_BASE_URL && !pooled;
const vllmBaseUrl = process.env.VLLM_BASE_URL || (simulated ? `${(await serveSimulator()).url}/v1` : "");
const open = !process.env.API_KEYS && !process.env.ADMIN_KEY && !process.env.JWT_ISSUER;

/** What the Worker gets: what it knows of this environment, except for what this program says itself. */
const variables: Omit<Variables, "VLLM" | "ANALYTICS"> = {};
for (const name of VARIABLE_NAMES) {
  const value = process.env[name];
  if (value) variables[name] = value;
}
if (vllmBaseUrl) variables.VLLM_BASE_URL = vllmBaseUrl;
variables.ALLOW_ANONYMOUS = String(open);
variables.MAX_OPEN_TURNS ??= MAX_OPEN_TURNS;
// The cheaper way to a server near by (docs/operations.md).
if (vllmBaseUrl.startsWith("http://")) variables.VLLM_TRANSPORT ??= "socket";

for (const [name, meant] of misspeltVariables(Object.keys(process.env))) {
  console.error(`Warning: nothing reads the variable ${name}. Is ${meant} meant?`);
}
checkConfiguration(variables);

if (process.env.TOOL_SERVER && !variables.TOOL_SERVERS) {
  variables.TOOL_SERVER_API_KEY ??= randomBytes(32).toString("base64url");
  toolServer = await startTools(variables.TOOL_SERVER_API_KEY);
  const { pythonUrl: python, containerUrl: container } = toolServer;
  variables.TOOL_SERVERS = JSON.stringify({ python, container });
}

const bundled = process.env[BUNDLE_VARIABLE];
if (bundled) cpSync(bundled, directory, { recursive: true });
else {
  const bundling = bundle(directory, { stdio: ["ignore", "ignore", "inherit"], detached: true });
  if ((await endOf(bundling, true)) !== 0) await stop(1);
}

mkdirSync(storage, { recursive: true });
const configFile = join(directory, "workerd.capnp");
writeFileSync(configFile, workerdConfig({ port: Number(port), directory, storage, variables: Object.keys(variables) }));
const worker = spawn(workerd, ["serve", configFile], {
  stdio: ["ignore", "inherit", "pipe"],
  env: { ...process.env, ...variables },
});
void sayPlainly(worker.stderr, console.error);
void endOf(worker, false).then((code) => {
  if (!stopping) console.error(`The Worker's process has ended (${code ?? "killed"}).`);
  void stop(1);
});

const url = `http://localhost:${port}`;
await untilReady(`http://127.0.0.1:${port}/health`);
console.log(banner());

/** Every mistake at once, and no start: the Worker would refuse each request with them. */
function checkConfiguration(variables: Variables): void {
  try {
    loadConfig(variables);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    console.error(`The configuration is not usable:\n${error.mistakes.map((mistake) => `  ${mistake}`).join("\n")}`);
    process.exit(1);
  }
}

/** Ends all that was started, and this process. */
async function stop(code: number): Promise<never> {
  if (!stopping) {
    stopping = true;
    await Promise.all([toolServer?.close(), ...[...running].map((kill) => kill())]);
    process.exit(code);
  }
  return new Promise(() => {});
}

/**
 * A child's exit code, or null when it was killed. It is killed when this process ends, however that comes about; a
 * `group` with all its children.
 */
async function endOf(child: ChildProcess, group: boolean): Promise<number | null> {
  const exited = once(child, "exit");
  const forget = killWithUs({ pid: child.pid, group });
  const kill = () => {
    try {
      if (child.pid !== undefined) process.kill(group ? -child.pid : child.pid, "SIGKILL");
    } catch {
      // It has ended already, and is about to say so.
    }
    return exited;
  };
  running.add(kill);
  const [code] = await exited;
  running.delete(kill);
  forget();
  return code;
}

/** Its own port is any that is free: PORT is the Worker's. */
async function startTools(apiKey: string): Promise<ToolServer> {
  const { optionsFromEnvironment } = await import("../dev/tool-server/settings.ts");
  const { startToolServer } = await import("../dev/tool-server/server.ts");
  return startToolServer({ ...optionsFromEnvironment({ ...process.env, PORT: undefined }), port: 0, apiKey });
}

async function untilReady(healthUrl: string): Promise<void> {
  const deadline = Date.now() + READY_TIMEOUT_MS;
  for (;;) {
    try {
      if ((await fetch(healthUrl)).ok) return;
    } catch {
      // Not listening yet.
    }
    if (Date.now() > deadline) {
      console.error(`No answer from ${healthUrl} within ${READY_TIMEOUT_MS / 1000} s.`);
      await stop(1);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function banner(): string {
  const backend = simulated
    ? `Backend: the built-in vLLM simulator at ${vllmBaseUrl} (it echoes; no model, no GPU).
           To use a real vLLM: VLLM_BASE_URL=http://gpu:8000/v1 npm start`
    : pooled
      ? "Backend: the model servers of UPSTREAMS."
      : `Backend: vLLM at ${vllmBaseUrl}`;
  const keys = open
    ? "Keys:    none. This is open local development: any program of this machine is served, and no web page."
    : `Keys:    ${DOORS.filter(([name]) => process.env[name])
        .map(([, whose]) => whose)
        .join(", ")}.`;
  const sealing = variables.ENCRYPTION_KEYS
    ? "Sealed:  reasoning goes to clients as encrypted_content, too (ENCRYPTION_KEYS)."
    : "Sealed:  nothing. Without ENCRYPTION_KEYS, reasoning goes to clients as plain text only.";
  const here = toolServer?.pythonVersion ? `Python ${toolServer.pythonVersion}` : "no Python found";
  const tools = toolServer
    ? `Tools:   ${here}, container. They run a model's code on this machine, without a sandbox.`
    : variables.TOOL_SERVERS
      ? "Tools:   those of TOOL_SERVERS."
      : "Tools:   TOOL_SERVER=1 npm start runs python and container here, for development.";
  const authorization = open ? "" : `-H 'Authorization: Bearer YOUR_KEY' `;
  return `
responses-edge listens on ${url}/v1

  ${backend}
  ${keys}
  ${sealing}
  ${tools}

  curl ${url}/v1/responses ${authorization}-H 'Content-Type: application/json' -d '{"input":"Hello!"}'
`;
}
