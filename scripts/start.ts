/**
 * `npm start`: the Worker under `wrangler dev`, in front of a vLLM (VLLM_BASE_URL) or of the built-in simulator.
 * Variables of the environment that the Worker knows are handed to it; PORT chooses the port. TOOL_SERVER=1 starts the
 * development tool server beside it.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { serveSimulator } from "../src/simulator/serve.ts";

const VARIABLES = [
  "VLLM_API_KEY",
  "VLLM_CONNECT_TIMEOUT_MS",
  "VLLM_FIRST_BYTE_TIMEOUT_MS",
  "VLLM_IDLE_TIMEOUT_MS",
  "VLLM_MAX_RETRIES",
  "MODEL_ALIASES",
  "MODEL_ENGINES",
  "HARMONY_START_DATE",
  "HARMONY_SYSTEM_INSTRUCTIONS",
  "HARMONY_TOOL_HEADER",
  "TOOL_SERVERS",
  "TOOL_SERVER_API_KEY",
  "TOOL_SERVER_MCP_LABELS",
  "MCP_SERVERS",
  "DNS_OVER_HTTPS_URL",
  "TOOL_CALL_TIMEOUT_MS",
  "TOOL_TIME_MS",
  "TOOL_OUTPUT_BYTES",
  "MAX_TOOL_ROUNDS",
  "SEARXNG_URL",
  "BRAVE_API_KEY",
  "API_KEYS",
  "RETENTION_DAYS",
  "CONVERSATION_LOCK_WAIT_MS",
  "WEBHOOK_URL",
  "WEBHOOK_SECRET",
  "ALLOW_PRIVATE_WEBHOOKS",
  "MAX_REQUEST_BYTES",
  "HEARTBEAT_MS",
];

/** Long enough for a first start on a slow machine. */
const READY_TIMEOUT_MS = 60_000;

const root = fileURLToPath(new URL("..", import.meta.url));
const port = process.env.PORT ?? "8787";
const simulated = !process.env.VLLM_BASE_URL;
const vllmBaseUrl = process.env.VLLM_BASE_URL ?? `${(await serveSimulator()).url}/v1`;
const open = !process.env.API_KEYS;

const given: Record<string, string> = { VLLM_BASE_URL: vllmBaseUrl, ALLOW_ANONYMOUS: String(open) };
for (const name of VARIABLES) {
  const value = process.env[name];
  if (value) given[name] = value;
}

const toolServer = process.env.TOOL_SERVER && !given.TOOL_SERVERS ? await startTools() : undefined;
if (toolServer) {
  const { pythonUrl: python, containerUrl: container } = toolServer;
  given.TOOL_SERVERS = JSON.stringify({ python, container });
}

// A file rather than arguments: anybody on the machine can read a command line.
const directory = mkdtempSync(join(tmpdir(), "responses-edge-"));
const envFile = join(directory, "vars");
const lines = Object.entries(given).map(([name, value]) => `${name}=${quoted(value)}\n`);
writeFileSync(envFile, lines.join(""), { mode: 0o600 });
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));

const wrangler = spawn(
  join(root, "node_modules/.bin/wrangler"),
  [
    "dev",
    "--port",
    port,
    "--inspector-port",
    "0",
    "--env-file",
    envFile,
    "--log-level",
    "error",
    "--show-interactive-dev-session=false",
  ],
  {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
    env: {
      ...process.env,
      WRANGLER_SEND_METRICS: "false",
      WRANGLER_SEND_ERROR_REPORTS: "false",
      WRANGLER_HIDE_BANNER: "true",
    },
  },
);
wrangler.on("exit", async (code) => {
  await toolServer?.close();
  process.exit(code ?? 0);
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => wrangler.kill(signal));

const url = `http://localhost:${port}`;
await untilReady(`${url}/health`);
console.log(banner());

/** A value as it stands in an env file, where only these quotes leave what is in them as it is. */
function quoted(value: string): string {
  const quote = ["'", "`", '"'].find((mark) => !value.includes(mark)) ?? "'";
  return quote + value + quote;
}

/** Its own port is any that is free: PORT is the Worker's. */
async function startTools() {
  const { optionsFromEnvironment } = await import("../src/tool-server/settings.ts");
  const { startToolServer } = await import("../src/tool-server/server.ts");
  return startToolServer({ ...optionsFromEnvironment({ ...process.env, PORT: undefined }), port: 0 });
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
      process.exit(1);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function banner(): string {
  const backend = simulated
    ? `Backend: the built-in vLLM simulator at ${vllmBaseUrl} (it echoes; no model, no GPU).
           To use a real vLLM: VLLM_BASE_URL=http://gpu:8000/v1 npm start`
    : `Backend: vLLM at ${vllmBaseUrl}`;
  const keys = open
    ? "Keys:    none. This is open local development: any key is accepted, and none is needed."
    : "Keys:    those of API_KEYS.";
  const here = toolServer?.pythonVersion ? `Python ${toolServer.pythonVersion}` : "no Python found";
  const tools = toolServer
    ? `Tools:   ${here}, container. They run a model's code on this machine, without a sandbox.`
    : given.TOOL_SERVERS
      ? "Tools:   those of TOOL_SERVERS."
      : "Tools:   TOOL_SERVER=1 npm start runs python and container here, for development.";
  const authorization = open ? "" : `-H 'Authorization: Bearer YOUR_KEY' `;
  return `
responses-edge listens on ${url}/v1

  ${backend}
  ${keys}
  ${tools}

  curl ${url}/v1/responses ${authorization}-H 'Content-Type: application/json' -d '{"input":"Hello!"}'
`;
}
