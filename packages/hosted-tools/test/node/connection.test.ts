import {
  McpConnection,
  type McpConnectionOptions,
  type McpTarget,
  ToolFault,
  toMcpError,
} from "@responses-edge/hosted-tools/mcp-client";
import { allowList } from "@responses-edge/outgoing-fetch/guarded";
import { afterEach, describe, expect, it, vi } from "vitest";
import { INJECTION, type McpHandlerOptions, type Misbehaviour } from "../../../../test/tools/mcp-handler.ts";
import { type McpTestServer, startMcpServer } from "../../../../test/tools/mcp-server.ts";

/** MCP servers as a request meets them: real ones, over real HTTP. */

const SECRET = "sk-tool-4711-secret";

const open: { close: () => Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
});

async function start(options: McpHandlerOptions = {}): Promise<McpTestServer> {
  const server = await startMcpServer(options);
  open.push(server);
  return server;
}

type Settings = Partial<Omit<McpConnectionOptions, "timeouts">> & {
  timeouts?: Partial<McpConnectionOptions["timeouts"]>;
};

function newConnection(given: Settings & Pick<McpConnectionOptions, "target">): McpConnection {
  const connection = new McpConnection({
    label: "sample",
    maxBytes: 4_000_000,
    maxOutputBytes: 100_000,
    maxTools: 5_000,
    ...given,
    timeouts: { connectMs: 60_000, listMs: 60_000, callMs: 60_000, ...given.timeouts },
  });
  open.push(connection);
  return connection;
}

/** Longer than any test: who waits for it never ends. In milliseconds. */
const FOR_EVER = 3_600_000;

async function connect({ url }: McpTestServer, given: Settings = {}, more: Partial<McpTarget> = {}) {
  const guard = { allow: allowList(new URL(url).origin) };
  const connection = newConnection({ target: { url, guard, ...more }, ...given });
  await connection.connect();
  return connection;
}

/** The reason of a promise's rejection. */
async function fault(promise: Promise<unknown>): Promise<{ fault: ToolFault }> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof ToolFault)) throw new Error(`expected a ToolFault, got ${String(error)}`);
  return { fault: error };
}

/** Requests for the tool that never ends. */
const slowIn = (server: McpTestServer) => server.requests.filter(({ message }) => message?.params?.name === "slow");

describe.each(["sessions", "stateless", "modern", "sse"] as const)("a server of the kind '%s'", (mode) => {
  it("lists its tools", async () => {
    const session = await connect(await start({ mode }));
    const tools = await session.listTools();
    expect(tools.map(({ name }) => name)).toContain("echo");
    expect(tools[0]).toEqual({
      name: "add",
      description: "The tool add.",
      input_schema: {
        type: "object",
        properties: { a: { type: "number" }, b: { type: "number" } },
        required: ["a", "b"],
      },
      annotations: { readOnlyHint: true },
    });
  });

  it("is called, without its tools having been listed", async () => {
    const server = await start({ mode });
    const session = await connect(server);
    expect(await session.callTool("add", { a: 2, b: 3 })).toEqual({ output: "5", failed: false });
    expect(server.calls).toMatchObject([{ name: "add", arguments: { a: 2, b: 3 } }]);
  });

  it("answers calls side by side, each with its own", async () => {
    const session = await connect(await start({ mode }));
    await session.listTools();
    const calls = Array.from({ length: 20 }, (_, n) => session.callTool("echo", { text: `call ${n}` }));
    const outputs = (await Promise.all(calls)).map(({ output }) => output);
    expect(outputs).toEqual(Array.from({ length: 20 }, (_, n) => `call ${n}`));
  });

  it("tells that a tool has failed", async () => {
    const session = await connect(await start({ mode }));
    expect(await session.callTool("fail", {})).toEqual({
      output: "The disk is full.",
      failed: true,
      error: { type: "mcp_tool_execution_error", content: [{ type: "text", text: "The disk is full." }] },
    });
  });

  it("fails with a protocol error", async () => {
    const session = await connect(await start({ mode }));
    const { fault: thrown } = await fault(session.callTool("throw", {}));
    expect(toMcpError(thrown)).toMatchObject({ type: "mcp_protocol_error", code: -32603 });
  });

  it("sees the caller's credentials and session in every request, and in headers only", async () => {
    const server = await start({ mode });
    const headers = { "X-Session-Id": "session-1", Cookie: "theme=dark", "X-Api-Version": "7" };
    const session = await connect(server, {}, { authorization: SECRET, headers });
    await session.listTools();
    await session.callTool("echo", { text: "hi" });
    await session.close();
    expect(server.requests.length).toBeGreaterThan(2);
    for (const request of server.requests) {
      expect(request.headers).toMatchObject({
        authorization: `Bearer ${SECRET}`,
        "x-session-id": "session-1",
        "x-api-version": "7",
        cookie: "theme=dark",
      });
      expect(JSON.stringify(request.message) ?? "").not.toContain(SECRET);
    }
  });

  it("ends a slow call in its time, and still answers others", async () => {
    const session = await connect(await start({ mode }));
    const { fault: thrown } = await fault(session.callTool("slow", { ms: FOR_EVER }, { timeoutMs: 200 }));
    expect(thrown.kind).toBe("timeout");
    expect(await session.callTool("echo", { text: "still there" })).toMatchObject({ output: "still there" });
  });

  it("is left at once when the caller gives up", async () => {
    const server = await start({ mode });
    const session = await connect(server);
    const abort = new AbortController();
    const call = session.callTool("slow", { ms: FOR_EVER }, { signal: abort.signal });
    await expect.poll(() => slowIn(server).length).toBe(1);
    abort.abort(new Error("nobody waits"));
    await expect(call).rejects.toThrow("nobody waits");
  });

  it("is left by a call that ran out of time, and by everything once the session is closed", async () => {
    const server = await start({ mode });
    const session = await connect(server);
    const slow = () => slowIn(server);
    await fault(session.callTool("slow", { ms: FOR_EVER }, { timeoutMs: 50 }));
    // The old transport has one stream for all.
    if (mode !== "sse") await expect.poll(() => slow()[0]?.signal.aborted).toBe(true);
    const call = fault(session.callTool("slow", { ms: FOR_EVER }));
    await expect.poll(() => slow().length).toBe(2);
    await session.close();
    expect((await call).fault.kind).toBe("unreachable");
    const stream = mode === "sse" ? server.requests.find(({ method }) => method === "GET") : slow()[1];
    await expect.poll(() => stream?.signal.aborted).toBe(true);
    expect((await fault(session.callTool("echo", { text: "?" }))).fault.kind).toBe("unreachable");
  });
});

describe("the transport", () => {
  it("opens no stream of its own, and ends the server's session", async () => {
    const server = await start();
    const session = await connect(server);
    await session.listTools();
    await session.close();
    expect(server.requests.map(({ method, message }) => message?.method ?? method)).toEqual([
      "initialize",
      "notifications/initialized",
      "tools/list",
      "DELETE",
    ]);
  });

  it("sends only permitted headers of the caller", async () => {
    const server = await start();
    const headers = {
      Host: "evil.example.com",
      "Content-Length": "7",
      Connection: "keep-alive, x-gone",
      "Transfer-Encoding": "chunked",
      "Mcp-Session-Id": "stolen",
      "Mcp-Protocol-Version": "1999-01-01",
      "X-Forwarded-For": "10.0.0.1",
      "CF-Connecting-IP": "10.0.0.1",
      "X-Fine": "yes",
    };
    await connect(server, {}, { headers });
    const [first] = server.requests;
    expect(first?.headers).toMatchObject({ "x-fine": "yes", host: new URL(server.url).host });
    expect(JSON.stringify(first?.headers)).not.toMatch(/evil|stolen|1999|10\.0\.0\.1|x-gone|x-mcp-operation/);
  });

  it("leaves an authorization that names its scheme as it is", async () => {
    const server = await start();
    await connect(server, {}, { authorization: "Basic dXNlcjpwYXNz" });
    expect(server.requests[0]?.headers.authorization).toBe("Basic dXNlcjpwYXNz");
  });

  it("refuses a header that HTTP cannot carry, without repeating it", async () => {
    const server = await start();
    const { fault: thrown } = await fault(connect(server, {}, { headers: { "x-key": `${SECRET}\r\nhost: a` } }));
    expect(thrown.kind).toBe("protocol");
    expect(thrown.message).not.toContain(SECRET);
    expect(server.requests).toEqual([]);
  });

  it("says which status a server refuses the caller with", async () => {
    const server = await start({ requireAuthorization: "Bearer another" });
    const { fault: thrown } = await fault(connect(server, {}, { authorization: SECRET }));
    expect(toMcpError(thrown)).toEqual({
      type: "http_error",
      code: 401,
      message: "MCP server 'sample' answered with HTTP status 401.",
    });
    // A second transport would be refused as well.
    expect(server.requests).toHaveLength(1);
  });

  it("removes the credentials from a server's error text", async () => {
    const session = await connect(await start(), {}, { authorization: SECRET });
    const { fault: thrown } = await fault(session.callTool(`no tool ${SECRET}`, {}));
    expect(thrown.message).toContain("[redacted]");
    expect(thrown.message).not.toContain(SECRET);
  });
});

describe("the list of tools", () => {
  it("is all pages together", async () => {
    const session = await connect(await start({ extraTools: 4_990, pageSize: 250 }));
    expect(await session.listTools()).toHaveLength(5_000);
  });

  it("is refused when it is longer than allowed", async () => {
    const session = await connect(await start({ extraTools: 4_991, pageSize: 500 }));
    const { fault: thrown } = await fault(session.listTools());
    expect(thrown).toMatchObject({ kind: "too_large", message: "MCP server 'sample' lists more than 5000 tools." });
  });

  it("is refused when it never ends", async () => {
    const session = await connect(await start({ extraTools: 600, pageSize: 1 }));
    expect((await fault(session.listTools())).fault.kind).toBe("protocol");
  });

  it("leaves out names that no model could call, and the second of a name", async () => {
    const names = ["good", "", "with space", "a\nb", "<|start|>", "é", "x".repeat(129), "good", "a/b.c-d_e"];
    const tools = names.map((name, n) => ({ name, description: `${n}`, inputSchema: { type: "object" } }));
    const session = await connect(await start({ tools }));
    expect((await session.listTools()).map(({ name, description }) => [name, description])).toEqual([
      ["good", "0"],
      ["a/b.c-d_e", "8"],
    ]);
  });

  it.each([
    ["is larger than a prompt can hold", { type: "object", description: "x".repeat(70_000) }, /it is too large/],
    ["is of no object", { type: "string" }, /it is not the schema of an object/],
    ["is missing", undefined, /it is not the schema of an object/],
    ["is null", null, /it is not the schema of an object/],
    [
      "has a pattern that would hold up a model server",
      { type: "object", properties: { a: { type: "string", pattern: "((a{99}){99}){99}" } } },
      /expands to more than 131072 elements/,
    ],
    [
      "has properties that would hold up a model server",
      {
        type: "object",
        properties: {
          a: { type: "object", properties: Object.fromEntries(Array.from({ length: 501 }, (_, n) => [`p${n}`, {}])) },
        },
      },
      /at most 500 properties/,
    ],
  ])(
    "has all tools where the schema of one %s: that one takes any object, and says so",
    async (_, inputSchema, why) => {
      const good = { name: "good", inputSchema: { type: "object" } };
      const tools = [{ name: "bad", description: "Does it.", inputSchema }, good] as never;
      const session = await connect(await start({ tools }));
      const [bad, other] = await session.listTools();
      expect(bad).toEqual({ name: "bad", description: expect.stringMatching(why), input_schema: { type: "object" } });
      expect(bad?.description).toMatch(/^Does it\. \(Its input schema was left out: /);
      expect(other).toEqual({ name: "good", input_schema: { type: "object" } });
    },
  );

  it("is the same when it is asked for again", async () => {
    const session = await connect(await start());
    expect(await session.listTools()).toEqual(await session.listTools());
  });
});

describe("a tool's output", () => {
  it("has its images, and a placeholder for each in the text", async () => {
    const session = await connect(await start());
    const output = "A pixel:\n[image/png, 70 bytes]";
    const images = [expect.stringMatching(/^data:image\/png;base64,iVBOR/)];
    expect(await session.callTool("image", {})).toEqual({ output, images, failed: false });
  });

  it.each([
    [
      "resources",
      "Some notes.\n[application/octet-stream, 4 bytes]\n[resource https://example.com/report]\n[audio/wav, 3 bytes]",
    ],
    ["inject", INJECTION],
  ])("of '%s' is text", async (name, output) => {
    const session = await connect(await start());
    expect(await session.callTool(name, {})).toEqual({ output, failed: false });
  });

  it("is the structured content where there is no text", async () => {
    const session = await connect(await start());
    expect(await session.callTool("structured", {})).toEqual({
      output: '{"temperature":21}',
      failed: false,
      structured: { temperature: 21 },
    });
  });

  it("is cut between characters when it is too long, and says so", async () => {
    const session = await connect(await start(), { maxOutputBytes: 23 });
    expect((await session.callTool("echo", { text: "01234567890123456789012" })).output).toBe(
      "01234567890123456789012",
    );
    const cut = async (text: string) => (await session.callTool("echo", { text })).output;
    expect(await cut(`0123é${"x".repeat(16)}89012`)).toBe("0123\n[truncated]\n89012");
    expect(await cut(`01234${"x".repeat(16)}é678`)).toBe("01234\n[truncated]\né678");
    expect((await session.callTool("big", { bytes: 1_000_000 })).output).toBe("xxxxx\n[truncated]\nxxxxx");
  });
});

describe("a server that misbehaves", () => {
  const cases: [Misbehaviour, ToolFault["kind"]][] = [
    ["nonsense", "protocol"],
    ["html", "protocol"],
    ["wrong-id", "timeout"],
    ["wrong-shape", "protocol"],
    ["redirect", "http"],
    ["hang", "timeout"],
    ["drip", "timeout"],
    ["endless-comments", "timeout"],
    ["endless-pings", "protocol"],
    ["stream-without-answer", "protocol"],
    ["reconnect-for-ever", "protocol"],
    ["close-mid-body", "unreachable"],
    ["huge", "too_large"],
    ["huge-stream", "too_large"],
    [500, "http"],
    [503, "http"],
    [404, "http"],
    [429, "http"],
  ];
  /** Little time only for what is to run out of it. */
  const timeoutsFor = (kind: string) => {
    const ms = kind === "timeout" ? 1_000 : 60_000;
    return { connectMs: ms, listMs: ms, callMs: ms };
  };

  it.each(cases)("with %j on connecting is a fault '%s'", async (how, kind) => {
    const server = await start({ misbehave: { on: "initialize", how } });
    const { fault: thrown } = await fault(connect(server, { timeouts: timeoutsFor(kind), maxBytes: 500_000 }));
    expect(thrown.kind).toBe(kind);
    expect(thrown.message).not.toMatch(/secret of the server|nonsense|It works/);
  });

  it.each(cases)("with %j on listing is a fault '%s'", async (how, kind) => {
    const server = await start({ misbehave: { on: "tools/list", how } });
    const session = await connect(server, { timeouts: timeoutsFor(kind), maxBytes: 500_000 });
    const { fault: thrown } = await fault(session.listTools());
    expect(thrown.kind).toBe(kind);
  });

  it.each(cases)("with %j on a call is a fault '%s'", async (how, kind) => {
    const server = await start({ misbehave: { on: "tools/call", how } });
    const session = await connect(server, { timeouts: timeoutsFor(kind), maxBytes: 500_000 });
    const { fault: thrown } = await fault(session.callTool("echo", { text: "hi" }));
    expect(thrown.kind).toBe(kind);
    expect(thrown.message).not.toMatch(/secret of the server|nonsense|It works/);
    expect(server.requests.length).toBeLessThan(150);
  });

  it("and does not end after its answer is answered, and cancelled", async () => {
    const server = await start({ misbehave: { on: "tools/call", how: "answer-then-endless" } });
    const session = await connect(server);
    expect(await session.callTool("echo", { text: "hi" })).toEqual({ output: "here you are", failed: false });
    await expect.poll(() => server.requests.at(-1)?.signal.aborted).toBe(true);
  });

  it("and ends the old transport's stream ends the waiting requests", async () => {
    const server = await start({ mode: "sse" });
    const session = await connect(server);
    const call = fault(session.callTool("slow", { ms: FOR_EVER }));
    await expect.poll(() => slowIn(server).length).toBe(1);
    await server.close();
    expect((await call).fault.kind).toBe("unreachable");
  });

  it.each(["http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:1/", "https://10.0.0.1/mcp"])(
    "and redirects to %s leads nowhere",
    async (redirectTo) => {
      for (const on of ["initialize", "tools/list", "tools/call"]) {
        const server = await start({ misbehave: { on, how: "redirect" }, redirectTo });
        const asked: string[] = [];
        const guard = {
          allow: allowList(new URL(server.url).origin),
          fetch: (url: string, init: RequestInit) => {
            asked.push(url);
            return fetch(url, { ...init, redirect: "manual" });
          },
        };
        const run = async () => {
          const session = await connect(server, {}, { guard });
          await session.listTools();
          await session.callTool("echo", { text: "hi" });
        };
        const { fault: thrown } = await fault(run());
        expect(thrown).toMatchObject({ kind: "http", status: 307 });
        expect(thrown.message).not.toContain(redirectTo);
        expect(new Set(asked)).toEqual(new Set([server.url]));
      }
    },
  );
});

describe("a session", () => {
  it("does not begin at an address that may not be called", async () => {
    const server = await start();
    const { fault: thrown } = await fault(connect(server, {}, { guard: {} }));
    expect(thrown.kind).toBe("refused_address");
    expect(server.requests).toEqual([]);
  });

  it.each(["", "tools.acme.dev", "/mcp"])("does not begin at '%s', which is no URL", async (url) => {
    const connection = newConnection({ target: { url, guard: {} } });
    expect((await fault(connection.connect())).fault.kind).toBe("refused_address");
  });

  it("does not begin if nothing listens", async () => {
    const server = await start();
    await server.close();
    expect((await fault(connect(server))).fault.kind).toBe("unreachable");
  });

  it("ends when it is closed, at any time", async () => {
    const server = await start();
    const session = await connect(server);
    const calls = [session.callTool("slow", { ms: FOR_EVER }), session.callTool("slow", { ms: FOR_EVER })];
    await expect.poll(() => slowIn(server).length).toBe(2);
    const ended = Promise.all(calls.map((call) => expect(call).rejects.toMatchObject({ kind: "unreachable" })));
    await session.close();
    await ended;
    await expect(session.listTools()).rejects.toMatchObject({ kind: "unreachable" });
  });

  it("is made again after an attempt that failed", async () => {
    const server = await start();
    let isRefused = true;
    const guard = { allow: allowList(new URL(server.url).origin), limit: () => !isRefused };
    const connection = newConnection({ target: { url: server.url, guard } });
    expect((await fault(connection.listTools())).fault.kind).toBe("refused_address");
    isRefused = false;
    expect((await connection.callTool("echo", '{"text":"hi"}')).output).toBe("hi");
    expect((await fault(connection.callTool("echo", "hi"))).fault.kind).toBe("tool");
  });

  it("gives a call no more time than there is until its deadline", async () => {
    const deadline = Date.now() + 60_000;
    const connection = await connect(await start(), { deadline });
    using _now = vi.spyOn(Date, "now").mockReturnValue(deadline);
    expect((await fault(connection.callTool("slow", { ms: FOR_EVER }))).fault.message).toContain("within 1 ms");
  });

  it("is not waited for once the signal of a call is aborted", async () => {
    const server = await start();
    const connection = newConnection({ target: { url: server.url, guard: {} } });
    const signal = AbortSignal.abort(new Error("too late"));
    await expect(connection.listTools({ signal })).rejects.toThrow("too late");
    expect(server.requests).toEqual([]);
  });
});
