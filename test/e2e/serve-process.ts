import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import OpenAI from "openai";
import type { SimulatorServer } from "../../dev/simulator/serve.ts";
import { root } from "../workerd/tools.ts";
import { eventually } from "./support.ts";

/** `responses-edge serve` on a data folder, as an operator runs it. */
export interface Served {
  /** With `/v1`. */
  url: string;
  /** A client without a key; retries are off. */
  openai: OpenAI;
  /** What it has before it. */
  vllm: SimulatorServer;
  /** Ends it, and waits until it is gone. */
  stop(signal: NodeJS.Signals): Promise<void>;
}

/** Serves a data folder, to everybody where `variables` name no keys. It ends with this process. */
export async function serve(
  data: string,
  vllm: SimulatorServer,
  variables: Record<string, string> = { ALLOW_ANONYMOUS: "true" },
): Promise<Served> {
  const child = spawn(process.execPath, [join(root, "cli/main.ts"), "serve"], {
    env: {
      ...process.env,
      ...variables,
      STATE_DIRECTORY: data,
      LOG_FORMAT: "json",
      PORT: "0",
      VLLM_BASE_URL: `${vllm.url}/v1`,
      STOP_TIMEOUT_MS: "1000",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const kill = () => void child.kill("SIGKILL");
  process.once("exit", kill);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (output += String(text)));
  const url = await eventually(() => {
    if (child.exitCode !== null) throw new Error(`serve has ended:\n${output}`);
    return /"url":"([^"]+)"/.exec(output)?.[1];
  });
  return {
    url,
    openai: new OpenAI({ apiKey: "any", baseURL: url, maxRetries: 0 }),
    vllm,
    async stop(signal) {
      process.off("exit", kill);
      const gone = once(child, "exit");
      child.kill(signal);
      await gone;
    },
  };
}
