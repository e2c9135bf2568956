import { readFileSync } from "node:fs";
import { request as httpsRequest } from "node:https";
import type { Environment } from "../configuration/environment.ts";
import { readServeSettings } from "../configuration/serve-settings.ts";
import { ownUrl } from "./addresses.ts";
import { EXIT, Refusal, systemCode } from "./refusal.ts";

// As in `launcher-socket.ts`: without Node's `fetch`.
const { request: httpRequest } = process.getBuiltinModule("node:http");

/** Longer than an answer takes on a busy machine, shorter than the timeout of a container's health check. */
const TIMEOUT_MS = 5_000;

export interface HealthQuestion {
  /** The server's URL, without a path. */
  url: string;
  /** The server's own certificate, if it uses TLS: this one is trusted whatever names it has, and no other. */
  certificateFile?: string | undefined;
  timeoutMs: number;
}

/** Asks a server's `/health`. Resolves if it is healthy; rejects if it is not, or does not answer in time. */
export function askHealth({ url, certificateFile, timeoutMs }: HealthQuestion): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const signal = AbortSignal.timeout(timeoutMs);
  const options = { agent: false, signal };
  const asked = certificateFile
    ? httpsRequest(`${url}/health`, {
        ...options,
        ca: readFileSync(certificateFile),
        // The certificate itself is the anchor, rather than the authority that has signed it.
        allowPartialTrustChain: true,
        checkServerIdentity: () => undefined,
      })
    : httpRequest(`${url}/health`, options);
  asked.on("error", (error) => reject(signal.aborted ? new Error(`no answer in ${timeoutMs / 1000} s`) : error));
  asked.on("response", (answer) => {
    answer.resume();
    if (answer.statusCode === 200) resolve();
    else reject(new Error(`status ${answer.statusCode}`));
  });
  asked.end();
  return promise;
}

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
