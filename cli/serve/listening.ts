import { addressFault, listeningHosts } from "./addresses.ts";
import { type BareSocket, listen } from "./helper-process.ts";
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
 * Listens on a host and port for this many workers; port 0 takes a free one. Throws a Refusal if the address is not
 * available.
 *
 * Node accepts connections on every socket that it listens on, but not on one that another process has sent. Several workers have
 * sockets of their own, among which the kernel distributes connections (SO_REUSEPORT): on one shared socket, one worker
 * would accept all simultaneous connections. Other processes could listen beside such sockets, so an exclusive one is
 * tried first.
 */
export async function listenOn(host: string, port: number, workers = 1): Promise<Listening> {
  const hosts = listeningHosts(host, port);
  let taken = port;
  const listenOnce = async (isShared: boolean) => {
    const sockets: BareSocket[] = [];
    for (const each of hosts) {
      const listened = await listen({ host: each, port: taken, isShared });
      if ("code" in listened) throw new Refusal(EXIT.address, addressFault(each, port, listened.code));
      taken = listened.port;
      sockets.push(listened.socket);
    }
    return sockets;
  };
  const alone = await listenOnce(false);
  const ofWorkers = [alone];
  if (workers > 1) {
    close(alone);
    ofWorkers.length = 0;
    for (let worker = 0; worker < workers; worker += 1) ofWorkers.push(await listenOnce(true));
  }
  return {
    ofWorkers: ofWorkers.map((sockets) => ({ descriptors: sockets.map(({ fd }) => fd), port: taken })),
    [Symbol.asyncDispose]: async () => close(ofWorkers.flat()),
  };
}

function close(sockets: readonly BareSocket[]): void {
  for (const socket of sockets) socket.close();
}
