import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A proxy before a model server that breaks connections in the middle of answers, as a server does that is killed. */
export interface CuttingProxy {
  /** `http://127.0.0.1:PORT`. */
  url: string;
  /** How many answers it has broken off. */
  cuts(): number;
  /** The bytes of all answers so far. */
  passed(): number;
  close(): Promise<void>;
}

/** The text in a prompt by which its answer is broken off after so many bytes, once at each proxy. `id` tells prompts apart. */
export const cutAfter = (bytes: number, id: number) => `CUT=${bytes}/${id} `;

/** Starts one on a free port. */
export async function startCuttingProxy(target: string): Promise<CuttingProxy> {
  const done = new Set<string>();
  let passed = 0;

  async function pass(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    const body = Buffer.concat(await Array.fromAsync(asked as AsyncIterable<Buffer>));
    const [mark, bytes] = /CUT=(\d+)\/\d+ /.exec(body.toString()) ?? [];
    const isGeneration = asked.url?.endsWith("/completions") === true;
    const isCut = isGeneration && mark !== undefined && !done.has(mark);
    let left = isCut ? Number(bytes) : Number.POSITIVE_INFINITY;
    const forward = request(new URL(asked.url ?? "/", target), { method: asked.method, headers: asked.headers });
    answer.on("close", () => forward.destroy());
    forward.on("error", () => answer.destroy());
    forward.on("response", (given) => {
      answer.writeHead(given.statusCode ?? 502, given.headers);
      given.on("error", () => answer.destroy());
      given.on("end", () => answer.end());
      given.on("data", (part: Buffer) => {
        if (left <= 0) return;
        if (isGeneration) passed += Math.min(part.length, left);
        answer.write(part.subarray(0, left));
        left -= part.length;
        if (left > 0) return;
        done.add(mark ?? "");
        // The bytes before this one are sent first.
        answer.write("", () => answer.socket?.destroySoon());
        forward.destroy();
      });
    });
    forward.end(body);
  }

  const server = createServer((asked, answer) => void pass(asked, answer).catch(() => answer.destroy()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    cuts: () => done.size,
    passed: () => passed,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
