/**
 * `npm start`: the Worker under `wrangler dev`, in front of a vLLM (VLLM_BASE_URL) or of the built-in simulator.
 * Variables of the environment that the Worker knows are handed to it; PORT chooses the port.
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

// A file rather than arguments: anybody on the machine can read a command line.
const directory = mkdtempSync(join(tmpdir(), "responses-edge-"));
const envFile = join(directory, "vars");
const lines = Object.entries(given).map(([name, value]) => `${name}=${JSON.stringify(value)}\n`);
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
wrangler.on("exit", (code) => process.exit(code ?? 0));
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => wrangler.kill(signal));

const url = `http://localhost:${port}`;
await untilReady(`${url}/health`);
console.log(banner());

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
  const authorization = open ? "" : `-H 'Authorization: Bearer YOUR_KEY' `;
  return `
responses-edge listens on ${url}/v1

  ${backend}
  ${keys}

  curl ${url}/v1/responses ${authorization}-H 'Content-Type: application/json' -d '{"input":"Hello!"}'
`;
}
