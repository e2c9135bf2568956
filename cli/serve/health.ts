import { readFileSync } from "node:fs";

// As in `launcher-socket.ts`: without Node's `fetch`.
const { request: httpRequest } = process.getBuiltinModule("node:http");

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
    ? process.getBuiltinModule("node:https").request(`${url}/health`, {
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
