import { createHash, timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from "@modelcontextprotocol/node";
import { createContainerTool } from "./container-tool.ts";
import { findPython } from "./interpreter.ts";
import { ProgramHost } from "./program-host.ts";
import { createPythonTool } from "./python-tool.ts";
import { settingsSchema, type ToolServerOptions } from "./settings.ts";
import { serveTool } from "./tool-endpoint.ts";

/** Fixed on purpose, because a caller with access and the key can run anything. */
const HOST = "127.0.0.1";

/** A tool server behind a port. */
export type ToolServer = {
  pythonUrl: string;
  containerUrl: string;
  port: number;
  /** The version of the Python found. Null if there is none: every call of `python` then returns an error. */
  pythonVersion: string | null;
  /** Ends all sessions, as a restart does. */
  endSessions(): Promise<void>;
  /** Stops listening, ends every program and removes its files. */
  close(): Promise<void>;
};

/**
 * Starts a server of the tools `python` and `exec` (container) over MCP, reachable from this machine only, with its key. **What it is sent runs on this
 * machine, with limits, and without a sandbox unless the options say so.** Throws a ZodError for an impossible option, an Error for a
 * sandbox that does not work here, and what `listen` throws.
 */
export async function startToolServer(options: ToolServerOptions): Promise<ToolServer> {
  const settings = settingsSchema.parse(options);
  const python = await findPython(settings.python);
  const host = new ProgramHost(settings);
  try {
    host.useSandbox(python);
  } catch (error) {
    await host.close();
    throw new Error(`The sandbox does not work here: ${error instanceof Error ? error.message : error}`);
  }
  const endpoints = [createPythonTool(host, python), createContainerTool(host)];
  const handlers = new Map(
    endpoints.map((endpoint) => [`/${endpoint.name}/mcp`, toNodeHandler({ fetch: serveTool(endpoint) })]),
  );
  // A web page in a browser of this machine reaches the port, too, under its own host name (DNS rebinding).
  const guards = [localhostHostValidation(), localhostOriginValidation()];

  const isCaller = keyCheck(settings.apiKey);

  function onRequest(request: IncomingMessage, response: ServerResponse): void {
    if (!guards.every((allows) => allows(request, response))) return;
    if (!isCaller(request)) {
      response.writeHead(401, { "www-authenticate": "Bearer" }).end();
      return;
    }
    const handler = handlers.get((request.url ?? "/").split("?")[0] ?? "/");
    if (handler) void handler(request, response);
    else response.writeHead(404).end();
  }

  const server = createServer(onRequest);
  server.listen(settings.port, HOST);
  try {
    await once(server, "listening");
  } catch (error) {
    await host.close();
    throw error;
  }
  const { port } = server.address() as AddressInfo;
  const endSessions = async () => void (await Promise.all(endpoints.map(({ sessions }) => sessions.close())));
  return {
    pythonUrl: `http://${HOST}:${port}/python/mcp`,
    containerUrl: `http://${HOST}:${port}/container/mcp`,
    port,
    pythonVersion: python?.version ?? null,
    endSessions,
    async close() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
      await endSessions();
      await host.close();
    },
  };
}

/** Makes the check whether a request has the key. Its time does not depend on the number of right characters. */
function keyCheck(apiKey: string): (request: IncomingMessage) => boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const expected = digest(`Bearer ${apiKey}`);
  return ({ headers }) => timingSafeEqual(digest(headers.authorization ?? ""), expected);
}
