import { execFile, type SpawnSyncReturns, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { eventually } from "../e2e/support.ts";
import { freePort } from "../workerd/tools.ts";

/** OpenTelemetry's own collector, built in the cache from its Go modules (`main.go`). */

const source = fileURLToPath(new URL(".", import.meta.url));
const cache = fileURLToPath(new URL("../../node_modules/.cache/collector/", import.meta.url));

/** The reason why there is no collector. Undefined if there is one. `COLLECTOR` names an existing build. */
export function whyNoCollector(): string | undefined {
  if (process.env.COLLECTOR) return undefined;
  const go: SpawnSyncReturns<Buffer> = spawnSync("go", ["version"]);
  return go.status === 0 ? undefined : "there is no Go to build the collector with; COLLECTOR may name a binary";
}

async function builtCollector(): Promise<string> {
  if (process.env.COLLECTOR) return process.env.COLLECTOR;
  const binary = join(cache, "otelcol");
  if (!existsSync(binary)) {
    mkdirSync(cache, { recursive: true });
    await promisify(execFile)("go", ["build", "-o", binary, "."], { cwd: source });
  }
  return binary;
}

export interface CollectorProcess {
  /** The address at which it accepts OTLP over HTTP. */
  url: string;
  /** Its whole output. */
  logs(): string;
  close(): void;
}

/** Starts a collector that forwards its data to `target` as OTLP's JSON. */
export async function startCollector(target: string): Promise<CollectorProcess> {
  const directory = mkdtempSync(join(tmpdir(), "responses-edge-collector-"));
  const port = await freePort();
  const config = join(directory, "config.yaml");
  writeFileSync(
    config,
    JSON.stringify({
      receivers: { otlp: { protocols: { http: { endpoint: `127.0.0.1:${port}` } } } },
      exporters: {
        otlp_http: { endpoint: target, encoding: "json", compression: "none", sending_queue: { enabled: false } },
      },
      service: {
        telemetry: { metrics: { level: "none" } },
        pipelines: {
          traces: { receivers: ["otlp"], exporters: ["otlp_http"] },
          metrics: { receivers: ["otlp"], exporters: ["otlp_http"] },
        },
      },
    }),
  );
  const child = spawn(await builtCollector(), ["--config", `file:${config}`], { stdio: ["ignore", "pipe", "pipe"] });
  let logs = "";
  for (const output of [child.stdout, child.stderr]) output.on("data", (text) => (logs += String(text)));
  await eventually(() => {
    if (child.exitCode !== null) throw new Error(`The collector did not start:\n${logs}`);
    return isListening(port);
  }, 30_000);
  return {
    url: `http://127.0.0.1:${port}`,
    logs: () => logs,
    close() {
      child.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
