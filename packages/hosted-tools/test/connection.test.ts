import { McpConnection, ToolFault, toMcpError } from "@responses-edge/hosted-tools/mcp-client";
import { afterEach, describe, expect, it } from "vitest";
import {
  type McpHandler,
  type McpHandlerOptions,
  type Misbehaviour,
  mcpHandler,
} from "../../../test/tools/mcp-handler.ts";

/** The MCP client in its runtime. `test/node/connection.test.ts` tests it over real connections. */

const connections: McpConnection[] = [];
afterEach(async () => {
  for (const connection of connections.splice(0)) await connection.close();
});

function connect(options: McpHandlerOptions = {}): { session: McpConnection; handler: McpHandler } {
  const handler = mcpHandler(options);
  const session = new McpConnection({
    label: "sample",
    target: {
      url: "https://tools.acme.dev/mcp",
      authorization: "sk-token",
      guard: { fetch: (url, init) => handler.fetch(new Request(url, init)) },
    },
    timeouts: { connectMs: 500, listMs: 500, callMs: 500 },
    maxBytes: 500_000,
    maxOutputBytes: 10_000,
    maxTools: 100,
  });
  connections.push(session);
  return { session, handler };
}

describe.each(["sessions", "stateless", "modern", "sse"] as const)("a server of the kind '%s'", (mode) => {
  it("is connected to, listed and called", async () => {
    const { session, handler } = connect({ mode });
    expect((await session.listTools()).map(({ name }) => name)).toContain("add");
    expect(await session.callTool("add", { a: 20, b: 22 })).toEqual({ output: "42", failed: false });
    expect(handler.calls).toMatchObject([{ name: "add", headers: { authorization: "Bearer sk-token" } }]);
  });

  it("ends a slow call in its time, and answers the next one", async () => {
    const { session } = connect({ mode });
    await expect(session.callTool("slow", { ms: 2_000 }, { timeoutMs: 50 })).rejects.toMatchObject({ kind: "timeout" });
    expect(await session.callTool("echo", { text: "hi" })).toMatchObject({ output: "hi" });
  });
});

describe("a server that has forgotten its session", () => {
  it("is asked again in a new one, once", async () => {
    const sessions: McpHandlerOptions["sessions"] = new Map();
    const { session } = connect({ sessions });
    await session.listTools();
    sessions.clear();
    const calls = ["a", "b"].map((text) => session.callTool("echo", { text }));
    expect(await Promise.all(calls)).toMatchObject([{ output: "a" }, { output: "b" }]);
    expect(sessions.size).toBe(1);
  });

  it("and forgets each new one is a fault", async () => {
    const sessions: McpHandlerOptions["sessions"] = new Map();
    sessions.set = function (this: typeof sessions) {
      return this;
    };
    const { session } = connect({ sessions });
    await expect(session.callTool("echo", { text: "hi" })).rejects.toMatchObject({ name: "ToolFault" });
  });
});

describe("a server that misbehaves", () => {
  const cases: [Misbehaviour, ToolFault["kind"]][] = [
    ["nonsense", "protocol"],
    ["hang", "timeout"],
    ["drip", "timeout"],
    ["endless-comments", "timeout"],
    ["endless-pings", "protocol"],
    ["stream-without-answer", "protocol"],
    ["close-mid-body", "unreachable"],
    ["huge", "too_large"],
    ["huge-stream", "too_large"],
    ["redirect", "http"],
    [500, "http"],
  ];
  it.each(cases)("with %j on a call is a fault '%s'", async (how, kind) => {
    const { session } = connect({ misbehave: { on: "tools/call", how } });
    await expect(session.callTool("echo", { text: "hi" })).rejects.toMatchObject({ name: "ToolFault", kind });
  });
});

describe("a fault as the API shows it", () => {
  it.each([
    [new ToolFault("http", "m", { status: 503 }), { type: "http_error", code: 503, message: "m" }],
    [new ToolFault("protocol", "m", { code: -32602 }), { type: "mcp_protocol_error", code: -32602, message: "m" }],
    [new ToolFault("protocol", "m"), { type: "mcp_protocol_error", code: -32000, message: "m" }],
    [new ToolFault("timeout", "m"), { type: "mcp_protocol_error", code: -32001, message: "m" }],
    [new ToolFault("refused_address", "m"), { type: "mcp_protocol_error", code: -32000, message: "m" }],
    [new ToolFault("tool", "m"), { type: "mcp_tool_execution_error", content: [{ type: "text", text: "m" }] }],
  ])("%s", (fault, error) => {
    expect(toMcpError(fault)).toEqual(error);
  });
});
