import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { CUT_OFF_HEADER, type McpHandler, type McpHandlerOptions, mcpHandler } from "./mcp-handler.ts";

/** A running MCP server on a loopback port. */
export interface McpTestServer extends Pick<McpHandler, "calls" | "requests"> {
  /** `http://127.0.0.1:PORT/mcp`. */
  url: string;
  /** Connections that clients hold open. */
  openConnections: () => Promise<number>;
  close: () => Promise<void>;
}

/** Starts a server. {@link McpHandlerOptions} has its behaviours. */
export async function startMcpServer(options: McpHandlerOptions = {}): Promise<McpTestServer> {
  const handler = mcpHandler(options);
  const listener = toNodeHandler({ fetch: handler.fetch });
  const server = createServer((request, response) => {
    void listener(request, cuttable(response));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    calls: handler.calls,
    requests: handler.requests,
    openConnections: () =>
      new Promise((resolve, reject) =>
        server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
      ),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Writes a response whose connection breaks where its stream fails. The package's adapter would end it regularly. */
function cuttable(response: ServerResponse) {
  let isCutOff = false;
  return {
    writeHead(status: number, headers: Record<string, string> = {}) {
      isCutOff = CUT_OFF_HEADER in headers;
      return response.writeHead(status, headers);
    },
    write: (chunk: string | Uint8Array) => response.write(chunk),
    end: () => (isCutOff ? response.destroy() : response.end()),
    on: (event: string, listener: (...args: unknown[]) => void) => response.on(event, listener),
    get destroyed() {
      return response.destroyed;
    },
  };
}
