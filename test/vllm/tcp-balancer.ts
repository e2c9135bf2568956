import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** A balancer below HTTP: every connection goes to the next target that accepts it. */
export interface TcpBalancer {
  /** `http://127.0.0.1:PORT`. */
  url: string;
  close(): Promise<void>;
}

/** Starts one on a free port. `targets` are URLs. Only host and port matter. */
export async function startTcpBalancer(targets: readonly string[]): Promise<TcpBalancer> {
  const addresses = targets.map((target) => new URL(target));
  const open = new Set<Socket>();
  let turn = 0;

  /** Joins a connection to one of the `left` targets that have not refused it, beginning with number `index`. */
  function join(client: Socket, index: number, left: number): void {
    const target = addresses[index % addresses.length];
    if (target === undefined || left === 0) {
      client.destroy();
      return;
    }
    let taken = false;
    const server = connect(Number(target.port), target.hostname);
    open.add(server);
    server.once("connect", () => {
      taken = true;
      client.pipe(server).pipe(client);
    });
    server.on("error", () => {
      if (!taken) join(client, index + 1, left - 1);
    });
    server.once("close", () => {
      open.delete(server);
      if (taken) client.destroy();
    });
    client.once("close", () => server.destroy());
  }

  const listener = createServer((client) => {
    open.add(client);
    client.on("error", () => client.destroy());
    client.once("close", () => open.delete(client));
    join(client, turn, addresses.length);
    turn += 1;
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    async close() {
      const closed = once(listener, "close");
      listener.close();
      for (const socket of open) socket.destroy();
      await closed;
    },
  };
}
