import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createSimulator } from "../simulator/handler.ts";

/**
 * A model server that runs a limited number of requests at a time, first come, first served, as vLLM does with `--max-num-seqs`. Its
 * answers are the simulator's, with the times that the model's name has.
 *
 * npx node dev/bench/batching-server.ts PORT MAX_NUM_SEQS MODEL...
 */

const [port = "", maxNumSeqs = "", ...models] = process.argv.slice(2);
const simulator = createSimulator({ record: false });

let running = 0;
const waiting: (() => void)[] = [];

/** Waits for the request's turn. Gives the function that ends it. */
async function turn(): Promise<() => void> {
  if (running >= Number(maxNumSeqs)) await new Promise<void>((resolve) => waiting.push(resolve));
  else running += 1;
  return () => {
    const next = waiting.shift();
    if (next) next();
    else running -= 1;
  };
}

async function answer(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  if (incoming.url === "/v1/models") {
    const card = { object: "model", owned_by: "vllm", max_model_len: 100_000 };
    outgoing.writeHead(200, { "content-type": "application/json" });
    return void outgoing.end(JSON.stringify({ object: "list", data: models.map((id) => ({ id, root: id, ...card })) }));
  }
  const left = new AbortController();
  outgoing.once("close", () => left.abort());
  const generates = incoming.url?.endsWith("/completions") === true;
  // vLLM sends the headers when it accepts a request, which then waits.
  if (generates) outgoing.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" }).flushHeaders();
  const end = generates ? await turn() : () => {};
  try {
    if (left.signal.aborted) return;
    const response = await simulator.fetch(
      new Request(`http://simulator${incoming.url}`, {
        method: incoming.method ?? "GET",
        headers: { "content-type": "application/json" },
        ...(chunks.length > 0 && { body: Buffer.concat(chunks) }),
        signal: left.signal,
      }),
    );
    if (!generates) outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    if (response.body) for await (const bytes of response.body) outgoing.write(bytes);
    outgoing.end();
  } catch {
    outgoing.destroy();
  } finally {
    end();
  }
}

createServer((incoming, outgoing) => void answer(incoming, outgoing)).listen(Number(port), "127.0.0.1");
