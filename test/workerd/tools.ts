import type { ChildProcess } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { root } from "../../cli/serve/installation.ts";

export { BUNDLE_VARIABLE, bundleInto } from "../../cli/serve/bundle.ts";
export { root, workerd, workerdVersion } from "../../cli/serve/installation.ts";
export { modulesOf, objectBindings, objectNamespaces } from "../../cli/serve/workerd.ts";

/** The environment variable that names the bundled command (bundle-once.ts): Node loads it in half the time of its sources. */
export const COMMAND_VARIABLE = "RESPONSES_EDGE_TEST_COMMAND";

/** The program and the file that run the command. */
export function commandLine(): [program: string, file: string] {
  return [process.execPath, process.env[COMMAND_VARIABLE] ?? join(root, "cli/main.ts")];
}

/** Functions that run the Worker on plain `workerd`, for tests and for the benchmark. */

/** Waits until a process answers at `url`. Throws if it exits, or does not answer within a minute. */
export async function untilReady(child: ChildProcess, url: string): Promise<void> {
  const { port } = new URL(url);
  for (let attempt = 0; attempt < 2_400; attempt += 1) {
    if (child.exitCode !== null) throw new Error(`the process exited with ${child.exitCode}`);
    try {
      // While it does not listen, a connection costs less than a request.
      if ((await isOpen(Number(port))) && (await fetchAnew(url)).ok) return;
    } catch {
      // The process does not answer yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`no answer from ${url}`);
}

/** Waits until nothing listens on a port. Throws after a minute. */
export async function untilSilent(port: number): Promise<void> {
  for (let attempt = 0; attempt < 2_400; attempt += 1) {
    if (!(await isOpen(port))) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`port ${port} is still open`);
}

function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  const opened = once(socket, "connect").then(
    () => true,
    () => false,
  );
  return opened.finally(() => socket.destroy());
}

/**
 * `fetch` with a connection for each request. A reused connection may be about to close: workerd closes it after a
 * refusal in the middle of a body, after a while without a request, and with its process.
 */
export const fetchAnew: typeof fetch = (input, init) => {
  const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
  headers.set("connection", "close");
  return fetch(input, { ...init, headers });
};

/** `fetch` refuses some ports, the last of which is 10080 (https://fetch.spec.whatwg.org/#port-blocking). */
const FIRST_PORT = 10_081;

/** Below the range from which systems take ports of connections (Linux: from 32768), so that no connection takes one. */
const PORTS_OF_A_WORKER = Math.floor((32_768 - FIRST_PORT) / 16);

/** vitest's workers (1 to 8) choose at the same time: each has ports of its own, and a process outside of vitest, too. */
const firstOfWorker = FIRST_PORT + (Number(process.env.VITEST_POOL_ID ?? 0) % 16) * PORTS_OF_A_WORKER;

let chosen = randomInt(PORTS_OF_A_WORKER);

/** A port on which nothing listens. A process gets each port of its own once before it gets one again. */
export async function freePort(): Promise<number> {
  for (;;) {
    chosen = (chosen + 1) % PORTS_OF_A_WORKER;
    const port = firstOfWorker + chosen;
    if (await isFree(port)) return port;
  }
}

/** True if nothing listens on a port. */
export async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, "127.0.0.1");
  const isListening = await once(server, "listening").then(
    () => true,
    () => false,
  );
  if (isListening) await once(server.close(), "close");
  return isListening;
}
