import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { freePort, root } from "../workerd/tools.ts";
import { eventually, gatewayAt, type RealGateway } from "./support.ts";

/**
 * A gateway under a real `wrangler dev`, for what wrangler's test harness cannot show: the harness carries the Worker's
 * requests to vLLM through Node, where an abort does not close the connection, a refused connection is a 500, and
 * response headers wait for the first byte of the body.
 */
export type DevGateway = RealGateway & {
  /** How many objects have any storage at all. */
  storedObjects(): Promise<number>;
  /** Everything that the Worker and wrangler have printed. */
  logs(): string;
};

/** Starts one as `startGateway` does; its storage is its own and goes with it. */
export async function startWranglerDev(vars: Record<string, string> = {}): Promise<DevGateway> {
  const vllm = await serveSimulator();
  const directory = await mkdtemp(join(tmpdir(), "responses-edge-test-"));
  const envFile = join(directory, "vars");
  const given = { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", ...vars };
  const lines = Object.entries(given).map(([name, value]) => `${name}=${JSON.stringify(value)}\n`);
  await writeFile(envFile, lines.join(""));
  const port = await freePort();
  const state = join(directory, "state");
  const wrangler = spawn(
    join(root, "node_modules/.bin/wrangler"),
    [
      "dev",
      ...["--ip", "127.0.0.1", "--port", String(port), "--inspector-port", "0"],
      ...["--env-file", envFile, "--persist-to", state],
      ...["--log-level", "error", "--show-interactive-dev-session=false"],
    ],
    {
      cwd: root,
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        ...process.env,
        WRANGLER_SEND_METRICS: "false",
        WRANGLER_SEND_ERROR_REPORTS: "false",
        WRANGLER_HIDE_BANNER: "true",
      },
    },
  );
  const exited = once(wrangler, "exit");
  let logs = "";
  for (const output of [wrangler.stdout, wrangler.stderr]) output.on("data", (text) => (logs += String(text)));
  const url = `http://127.0.0.1:${port}`;
  const close = async () => {
    wrangler.kill("SIGTERM");
    await exited;
    await rm(directory, { recursive: true, force: true });
  };
  try {
    await eventually(
      () =>
        fetch(`${url}/health`).then(
          (response) => response.ok,
          () => false,
        ),
      15_000,
    );
  } catch {
    await close();
    await vllm.close();
    throw new Error(`wrangler dev did not start:\n${logs}`);
  }

  return {
    ...gatewayAt(url, vllm, close),
    async storedObjects() {
      const files = await readdir(state, { recursive: true });
      return files.filter((name) => name.includes("Home") && /[0-9a-f]{64}\.sqlite$/.test(name)).length;
    },
    logs: () => logs,
  };
}
