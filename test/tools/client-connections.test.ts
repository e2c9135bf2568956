import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { expect, it } from "vitest";
import { closedPeers, connectionCounter } from "../../cli/serve/client-connections.ts";
import { eventually } from "../e2e/support.ts";

/** The connections of a process's clients, as the launcher finds them in the system's tables (`cli/serve/client-connections.ts`). */

/** Their lines are longer than what the launcher reads at once. */
const CLIENTS = 200;

it.runIf(process.platform === "linux")(
  "finds each client of a port that has closed its end, in a table of any length",
  async () => {
    const served = new Set<Socket>();
    const server = createServer({ allowHalfOpen: true }, (socket) => served.add(socket)).listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const clients = Array.from({ length: CLIENTS }, () => connect({ port, host: "127.0.0.1", allowHalfOpen: true }));
    try {
      await Promise.all(clients.map((client) => once(client, "connect")));
      const listener = { pid: process.pid, host: "127.0.0.1", port };
      await eventually(() => served.size === CLIENTS);
      // Both ends are of this process, and only the server's are at the port. A table that changes while it is read may lack one.
      await expect.poll(() => connectionCounter(listener)()).toBe(CLIENTS);
      expect(await closedPeers(listener)).toEqual([]);
      const leaving = clients.filter((_, index) => index % 2 === 0);
      const names = leaving.map(({ localPort }) => `127.0.0.1:${localPort}`);
      for (const client of leaving) client.end();
      await expect.poll(async () => (await closedPeers(listener)).toSorted()).toEqual(names.toSorted());
    } finally {
      for (const socket of [...clients, ...served]) socket.destroy();
      server.close();
    }
  },
);
