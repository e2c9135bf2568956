import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** A proxy before a server, which passes bytes on and knows the requests that it has passed. */
export interface RecordingProxy {
  url: string;
  /** True if a request has begun with this: a method and a path. */
  asked(line: string): boolean;
  close(): Promise<void>;
}

export async function openRecordingProxy(target: string): Promise<RecordingProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let heard = "";
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    client.on("data", (bytes) => (heard += bytes.toString("latin1")));
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.pipe(to);
      from.on("error", () => to.destroy());
      from.on("close", () => to.destroy());
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked: (line) => heard.includes(`${line} HTTP/1.1\r\n`),
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
