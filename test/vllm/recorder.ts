import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** A recorded completion: the ids of its prompt, and those of the output so far. */
export interface Completion {
  prompt: number[];
  ids: number[];
}

/** A proxy before a model server that keeps the token ids of its streamed completions. */
export interface Recorder {
  url: string;
  completions: Completion[];
  close(): void;
}

export async function startRecorder(target: string): Promise<Recorder> {
  const completions: Completion[] = [];
  const server = createServer(async (request, response) => {
    const left = new AbortController();
    response.once("close", () => left.abort());
    try {
      const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>));
      const { method = "GET", url = "/" } = request;
      const headers = { "content-type": "application/json" };
      const sent = { method, headers, signal: left.signal, ...(body.length > 0 && { body }) };
      const answer = await fetch(target + url, sent);
      response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" });
      const completion: Completion = { prompt: [], ids: [] };
      if (url === "/v1/completions") completions.push(completion);
      const decoder = new TextDecoder();
      let rest = "";
      for await (const chunk of answer.body ?? []) {
        response.write(chunk);
        const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) note(line, completion);
      }
      response.end();
    } catch {
      response.destroy();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    completions,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

function note(line: string, completion: Completion): void {
  if (!line.startsWith("data: {")) return;
  const { choices = [] } = JSON.parse(line.slice("data: ".length)) as {
    choices?: { prompt_token_ids?: number[] | null; token_ids?: number[] | null }[];
  };
  const [choice] = choices;
  completion.prompt.push(...(choice?.prompt_token_ids ?? []));
  completion.ids.push(...(choice?.token_ids ?? []));
}
