import { createHash } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { randomFrom } from "../random.ts";

/** An embedding server without a model. A text always has the same embedding, and making it takes microseconds. */
export interface EmbeddingServer {
  url: string;
  /** The number of requests and of answers, by text. */
  answered: Map<string, number>;
  /** Answers a request, with this body, instead of the server if it returns true. */
  fault: ((answer: ServerResponse, body: string) => boolean | Promise<boolean>) | undefined;
  /** Stops listening, and closes all connections. */
  stop(): Promise<void>;
  /** Listens again, at the same address. */
  start(): Promise<void>;
}

/** Each text belongs to one of this many clusters. Texts of one cluster are near each other. */
const CLUSTERS = 1_024;

/** Each cluster has this many endings that distinguish its texts. */
const ENDS = 4_096;

/** The share of a text's elements that comes from its cluster. */
const SHARED = 3 / 4;

export async function serveEmbeddings(dimensions: number): Promise<EmbeddingServer> {
  const shared = Math.floor(dimensions * SHARED);
  const heads = lazily(CLUSTERS, (index) => elements(index, shared));
  const tails = lazily(ENDS, (index) => elements(CLUSTERS + index, dimensions - shared));
  const embeddingOf = (text: string) => {
    const digest = createHash("md5").update(text).digest();
    const parts = [heads(digest.readUInt16LE(0) % CLUSTERS), tails(digest.readUInt16LE(2) % ENDS)];
    return Buffer.concat(parts).toString("base64");
  };
  const answered = new Map<string, number>();
  const server = createServer(async (request, answer) => {
    let body = "";
    try {
      for await (const bytes of request.setEncoding("utf8")) body += bytes;
    } catch {
      // The client disconnected while it sent the body.
      return;
    }
    if (await made.fault?.(answer, body)) return;
    answer.setHeader("content-type", "application/json");
    if (!request.url?.endsWith("/embeddings")) {
      answer.end(JSON.stringify({ object: "list", data: [{ id: "embedder", object: "model" }] }));
      return;
    }
    const { input } = JSON.parse(body) as { input: string | string[] };
    const texts = [input].flat();
    for (const text of texts) answered.set(text, (answered.get(text) ?? 0) + 1);
    const data = texts.map(
      (text, index) => `{"object":"embedding","index":${index},"embedding":"${embeddingOf(text)}"}`,
    );
    answer.end(
      `{"object":"list","model":"embedder","data":[${data.join(",")}],"usage":{"prompt_tokens":1,"total_tokens":1}}`,
    );
  });
  let port = 0;
  const made: EmbeddingServer = {
    url: "",
    answered,
    fault: undefined,
    async stop() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
    async start() {
      await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
      port = (server.address() as AddressInfo).port;
      made.url = `http://127.0.0.1:${port}/v1`;
    },
  };
  await made.start();
  return made;
}

/** Each is made once, at its first use. */
function lazily<Value>(count: number, make: (index: number) => Value): (index: number) => Value {
  const made = new Array<Value | undefined>(count);
  return (index) => {
    made[index] ??= make(index);
    return made[index];
  };
}

/** Normally distributed numbers with mean 0 (Box and Muller), as the bytes of 32-bit floats. */
function elements(seed: number, count: number): Uint8Array {
  const random = randomFrom(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return new Uint8Array(Float32Array.from({ length: count }, () => normal() / Math.sqrt(count)).buffer);
}
