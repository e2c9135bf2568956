import OpenAI from "openai";
import type { SimulatorServer } from "../../dev/simulator/serve.ts";
import { start } from "./serve-support.ts";

/** `serve` on a data folder, with a client. */
export interface ServedFolder {
  /** Its URL, with `/v1`. */
  url: string;
  /** A client without a key and without retries. */
  openai: OpenAI;
  /** Its model server. */
  vllm: SimulatorServer;
  /** Stops it, and waits for its end. */
  stop(signal: NodeJS.Signals): Promise<void>;
}

/** Serves a data folder, to everybody if `variables` name no keys. `cleanUp` kills servers that were not stopped. */
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
