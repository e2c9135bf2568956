import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { addressFault, listeningHosts } from "./addresses.ts";
import { EXIT, Refusal } from "./refusal.ts";

/**
 * The sockets that the launcher listens on for its Workers: they inherit them, and a connection that comes while one Worker follows
 * another waits for the next to accept it.
 */
export interface ListeningSockets extends AsyncDisposable {
  /** Their descriptors, in the order of `socketAddresses`. */
  descriptors: readonly number[];
  port: number;
}

/** Node accepts connections of every socket that it listens on. In a thread that does nothing any more it does not. */
const THREAD = `
const { createServer } = require("node:net");
const { parentPort, workerData: { hosts, port } } = require("node:worker_threads");
const servers = [];
const fail = (host) => ({ code }) => parentPort.postMessage({ host, code });
const next = () => {
  if (servers.length === hosts.length) {
    const descriptors = servers.map(({ _handle }) => _handle.fd);
    parentPort.postMessage({ descriptors, port: servers[0].address().port });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
  const host = hosts[servers.length];
  const server = createServer().on("error", fail(host));
  servers.push(server);
  server.listen({ host, port, exclusive: true, backlog: 4096 }, next);
};
next();
`;

type Told = { descriptors: number[]; port: number } | { host: string; code: string };

/** Listens on a host and port; 0 takes a free one. Throws a Refusal where that is not to be had. */
export async function listenOn(host: string, port: number): Promise<ListeningSockets> {
  const hosts = listeningHosts(host, port);
  const thread = new Worker(THREAD, { eval: true, workerData: { hosts, port } });
  const [told] = (await once(thread, "message")) as [Told];
  thread.unref();
  if ("code" in told) {
    await thread.terminate();
    throw new Refusal(EXIT.address, addressFault(told.host, port, told.code));
  }
  return { ...told, [Symbol.asyncDispose]: async () => void (await thread.terminate()) };
}
