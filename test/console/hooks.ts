import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** The programs of an operator and of a tenant: a guard, and receivers of webhooks. */
export interface Hooks {
  url: string;
  /** The variables of a gateway that asks the guard, and may send webhooks to the receivers. */
  variables: Record<string, string>;
  /** The receiver that accepts events, and the one that answers each with a 500. */
  accepting: string;
  failing: string;
  /** The guard's requests. */
  judged: { text: string; images?: string[] }[];
  close(): void;
}

/** Texts with this word are flagged. */
export const BAD = "arson";

/** Starts both on a free port. */
export async function startHooks(): Promise<Hooks> {
  const judged: Hooks["judged"] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.url === "/guard") {
      const asked = JSON.parse(Buffer.concat(chunks).toString()) as Hooks["judged"][number];
      judged.push(asked);
      const isBad = asked.text.includes(BAD);
      const categories = { illicit: isBad, violence: false };
      const scores = { illicit: isBad ? 0.97 : 0.02, violence: isBad ? 0.31 : 0.01, "self-harm": 0 };
      const judgement = { flagged: isBad, categories, category_scores: scores };
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(judgement));
    } else response.writeHead(request.url === "/failing" ? 500 : 200).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    variables: { GUARD_URL: `${url}/guard`, WEBHOOK_URLS: url },
    accepting: `${url}/accepting`,
    failing: `${url}/failing`,
    judged,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
