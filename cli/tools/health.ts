import type { Environment } from "../configuration/environment.ts";
import { readServeSettings } from "../configuration/serve-settings.ts";
import { ownUrl } from "../serve/addresses.ts";
import { askHealth } from "../serve/health.ts";
import { EXIT, Refusal, systemCode } from "../serve/refusal.ts";

/** Longer than an answer takes on a busy machine, shorter than the timeout of a container's health check. */
const TIMEOUT_MS = 5_000;

/**
 * `health`: asks `/health` of the server that `serve` starts under the same environment. Throws a Refusal if it is not
 * healthy, so that a container's health check sees it by the exit code.
 */
export async function health(environment: Environment): Promise<void> {
  const { host, port, keyPair } = readServeSettings(environment);
  const url = ownUrl(keyPair ? "https" : "http", host, port);
  try {
    await askHealth({ url, certificateFile: keyPair?.certificateFile, timeoutMs: TIMEOUT_MS });
  } catch (error) {
    throw new Refusal(EXIT.failed, `${url} is not healthy: ${systemCode(error)}`);
  }
  console.log(`${url} is healthy.`);
}
