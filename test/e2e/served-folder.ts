import OpenAI from "openai";
import type { SimulatorServer } from "../../dev/simulator/serve.ts";
import { start } from "./serve-support.ts";

/** `serve` on a data folder, with a client. */
export interface ServedFolder {
  /** With `/v1`. */
  url: string;
  /** A client without a key; retries are off. */
  openai: OpenAI;
  /** What it has before it. */
  vllm: SimulatorServer;
  /** Ends it, and waits until it is gone. */
  stop(signal: NodeJS.Signals): Promise<void>;
}

/** Serves a data folder, to everybody where `variables` name no keys. `cleanUp` kills what was not stopped. */
export async function serveFolder(
  data: string,
  vllm: SimulatorServer,
  variables: Record<string, string> = { ALLOW_ANONYMOUS: "true" },
): Promise<ServedFolder> {
  const own = { STATE_DIRECTORY: data, VLLM_BASE_URL: `${vllm.url}/v1`, STOP_TIMEOUT_MS: "1000" };
  const served = await start({ ...variables, ...own });
  const url = `${served.url}/v1`;
  return {
    url,
    openai: new OpenAI({ apiKey: "any", baseURL: url, maxRetries: 0 }),
    vllm,
    async stop(signal) {
      served.child.kill(signal);
      await served.exited;
    },
  };
}
