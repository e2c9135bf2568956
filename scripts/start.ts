/**
 * `npm start`: the Worker on `workerd`, in front of a vLLM (VLLM_BASE_URL) or of the built-in simulator with an image
 * server (`dev/image-server`). It passes the Worker's variables of the environment on; PORT chooses the port,
 * STATE_DIRECTORY the folder of responses, MIN_FREE_DISK its required free space. TOOL_SERVER=1 starts the development
 * tool server beside it. Everything listens on loopback addresses, and ends with this process, or with npm. `cli/` has
 * the code that it shares with `serve`.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { backendOf, keySourcesOf, sealingOf } from "../cli/configuration/banner.ts";
import { checkVariables, warningsOf, workerVariables } from "../cli/configuration/environment.ts";
import { modelServerLines } from "../cli/configuration/model-servers.ts";
import { readStartSettings } from "../cli/configuration/serve-settings.ts";
import { checkAddress } from "../cli/serve/addresses.ts";
import { BoundedProcesses } from "../cli/serve/bounded-processes.ts";
import { openDataFolder } from "../cli/serve/data-folder.ts";
import { checkPlatform, root } from "../cli/serve/installation.ts";
import { EXIT, Refusal } from "../cli/serve/refusal.ts";
import { untilStopped } from "../cli/serve/signals.ts";
import { startWorker } from "../cli/serve/worker-process.ts";
import { IMAGE_SERVER_MODEL, serveImages } from "../dev/image-server/server.ts";
import { serveSimulator } from "../dev/simulator/serve.ts";
import type { ToolServer } from "../dev/tool-server/server.ts";
import type { TextVariables } from "../src/config/index.ts";

/** Everything listens on the loopback addresses. */
const HOST = "localhost";

/** `wrangler dev` uses the same folder. */
const DEFAULT_STATE = join(root, ".wrangler/state/v3/do");

/** The variables of the environment that this program reads itself. */
const OWN_VARIABLES = ["PORT", "STATE_DIRECTORY", "MIN_FREE_DISK", "TOOL_SERVER"];

const stopping = untilStopped();
let toolServer: ToolServer | undefined;
try {
  await start();
} catch (error) {
  if (!stopping.signal.aborted) {
    if (!(error instanceof Refusal)) throw error;
    console.error(error.message);
    process.exitCode = error.exitCode;
  }
}
await toolServer?.close();
process.exit();

/** Resolves when it was told to stop, and the Worker has ended. */
async function start(): Promise<void> {
  checkPlatform();
  const mistakes: string[] = [];
  const { port, minFreeDisk } = readStartSettings(process.env, mistakes);
  const simulator = process.env.VLLM_BASE_URL || process.env.UPSTREAMS ? undefined : await serveSimulator();
  const painter = simulator && !process.env.IMAGE_MODEL ? await serveImages() : undefined;
  const simulated = {
    ...(simulator && { VLLM_BASE_URL: `${simulator.url}/v1` }),
    ...(painter && { IMAGE_MODEL: IMAGE_SERVER_MODEL, IMAGE_BASE_URL: `${painter.url}/v1` }),
  };
  const variables = workerVariables({ ...process.env, ...simulated }, mistakes);
  variables.ALLOW_ANONYMOUS = String(keySourcesOf(variables) === "");
  for (const warning of warningsOf(process.env, OWN_VARIABLES)) console.error(warning);
  checkVariables(variables, mistakes);
  if (process.env.TOOL_SERVER && !variables.TOOL_SERVERS) {
    variables.TOOL_SERVER_API_KEY ??= randomBytes(32).toString("base64url");
    toolServer = await startTools(variables.TOOL_SERVER_API_KEY);
    const { pythonUrl: python, containerUrl: container } = toolServer;
    variables.TOOL_SERVERS = JSON.stringify({ python, container });
  }
  const folder = await openDataFolder(process.env.STATE_DIRECTORY || DEFAULT_STATE);
  await checkAddress(HOST, port);
  await using boundedProcesses = await BoundedProcesses.start({ format: "text", say: console.log });
  const worker = await startWorker({
    ...{ host: HOST, port, variables, boundedProcesses, environment: process.env, signal: stopping.signal },
    ...{ storage: folder.path, minFreeDisk },
    format: "text",
    say: console.log,
  });
  console.log(banner(`http://localhost:${worker.port}`, variables, simulator !== undefined));
  if (!simulator) {
    void modelServerLines(variables).then((lines) => lines.forEach(({ level, line }) => void console[level](line)));
  }
  const first = await Promise.race([worker.ended.then(() => "ended" as const), stopping.first]);
  if (first === "ended") throw new Refusal(EXIT.failed, "The Worker's process has ended.");
  await worker.stop(0);
}

/** Starts the tool server on a free port, because PORT is the Worker's. */
async function startTools(apiKey: string): Promise<ToolServer> {
  const { optionsFromEnvironment } = await import("../dev/tool-server/settings.ts");
  const { startToolServer } = await import("../dev/tool-server/server.ts");
  const options = optionsFromEnvironment({ ...process.env, PORT: undefined });
  // The sandbox needs a process in a namespace of its own: `npm run tool-server`.
  return startToolServer({ ...options, sandbox: "none", port: 0, apiKey });
}

function banner(url: string, variables: TextVariables, isSimulated: boolean): string {
  const backend = isSimulated
    ? `the built-in vLLM simulator at ${variables.VLLM_BASE_URL} (it echoes; no model, no GPU).
           To use a real vLLM: VLLM_BASE_URL=http://gpu:8000/v1 npm start`
    : backendOf(variables);
  const sources = keySourcesOf(variables);
  const keys = sources
    ? `${sources}.`
    : "none. This is open local development: any program of this machine is served, and no page of another site.";
  const here = toolServer?.pythonVersion ? `Python ${toolServer.pythonVersion}` : "no Python found";
  const tools = toolServer
    ? `${here}, container. They run a model's code on this machine, without a sandbox (docs/tools.md#tool-servers).`
    : variables.TOOL_SERVERS
      ? "those of TOOL_SERVERS."
      : "TOOL_SERVER=1 npm start runs python and container here, for development.";
  const authorization = sources ? "-H 'Authorization: Bearer YOUR_KEY' " : "";
  return `
responses-edge listens on ${url}/v1, and has a console at ${url}/

  Backend: ${backend}
  Keys:    ${keys}
  Sealed:  ${sealingOf(variables)}
  Tools:   ${tools}

  curl ${url}/v1/responses ${authorization}-H 'Content-Type: application/json' -d '{"input":"Hello!"}'
`;
}
