import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { addressFault, listeningHosts } from "./addresses.ts";
import { EXIT, Refusal } from "./refusal.ts";

/**
 * The sockets on which the launcher listens for a Worker. The Worker inherits them, and a connection that arrives while
 * one process follows another waits for the next to accept it.
 */
export interface ListeningSockets {
  /** Their descriptors, in the order of `socketAddresses`. */
  descriptors: readonly number[];
  port: number;
}

/** The sockets of all workers. They listen on one port. */
export interface Listening extends AsyncDisposable {
  ofWorkers: readonly ListeningSockets[];
}

/**
 * Node accepts connections on every socket that it listens on; in an idle thread it does not. Several workers have
 * sockets of their own, among which the kernel distributes connections (SO_REUSEPORT): on one shared socket, one worker
 * would accept all simultaneous connections. Other processes could listen beside such sockets, so an exclusive one is
 * tried first.
 */
const THREAD = `
const { once } = require("node:events");
const { createServer } = require("node:net");
const { parentPort, workerData: { hosts, port: asked, workers } } = require("node:worker_threads");
const servers = [];
const listen = async (host, port, reusePort) => {
  const server = createServer().listen({ host, port, exclusive: true, backlog: 4096, reusePort });
  await once(server, "listening");
  return server;
};
const close = (server) => new Promise((resolve) => server.close(resolve));
(async () => {
  let host = hosts[0];
  let port = asked;
  try {
    const alone = [];
    for (host of hosts) {
      const server = await listen(host, port, false);
      alone.push(server);
      port = server.address().port;
    }
    if (workers === 1) servers.push(alone);
    else {
      await Promise.all(alone.map(close));
      for (let worker = 0; worker < workers; worker += 1) {
        const own = [];
        for (host of hosts) own.push(await listen(host, port, true));
        servers.push(own);
      }
    }
  } catch ({ code }) {
    parentPort.postMessage({ host, code });
    return;
  }
  parentPort.postMessage({ port, descriptors: servers.map((own) => own.map(({ _handle }) => _handle.fd)) });
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
})();
`;

type Told = { descriptors: number[][]; port: number } | { host: string; code: string };

/**
 * Listens on a host and port for this many workers; port 0 takes a free one. Throws a Refusal if the address is not
 * available.
 */
export async function listenOn(host: string, port: number, workers = 1): Promise<Listening> {
  const hosts = listeningHosts(host, port);
  const thread = new Worker(THREAD, { eval: true, workerData: { hosts, port, workers } });
  const [told] = (await once(thread, "message")) as [Told];
  thread.unref();
  if ("code" in told) {
    await thread.terminate();
    throw new Refusal(EXIT.address, addressFault(told.host, port, told.code));
  }
  const { descriptors: all, port: taken } = told;
  return {
    ofWorkers: all.map((descriptors) => ({ descriptors, port: taken })),
    [Symbol.asyncDispose]: async () => void (await thread.terminate()),
  };
}
