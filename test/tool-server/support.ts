import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterAll, beforeAll } from "vitest";
import { findPython } from "../../dev/tool-server/interpreter.ts";
import { markedProcesses } from "../../dev/tool-server/marked-processes.ts";

/** Without Python, or without /proc (macOS), some tests are skipped. */
export const COMPLETE = existsSync("/proc/self/environ") && (await findPython("python3")) !== null;

/** The key that the servers of these tests require. */
export const KEY = "key-of-the-tool-server";

export type Answer = { text: string; failed: boolean };

export type ToolClient = {
  client: Client;
  transport: StreamableHTTPClientTransport;
  call(name: string, args?: Record<string, unknown>, signal?: AbortSignal): Promise<Answer>;
};

export type ClientOptions = {
  /** The header `x-session-id`. */
  session?: string;
  /** The version of MCP: 2026 (without sessions), or before. */
  mode?: "auto" | "legacy";
};

/** An MCP client, connected. */
export async function connect(url: string, { session, mode = "legacy" }: ClientOptions = {}): Promise<ToolClient> {
  const headers = { authorization: `Bearer ${KEY}`, ...(session && { "x-session-id": session }) };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(transport);
  return {
    client,
    transport,
    async call(name, args = {}, signal) {
      const result = await client.callTool({ name, arguments: args }, signal ? { signal } : undefined);
      const texts = result.content.map((part) => (part.type === "text" ? part.text : `(${part.type})`));
      return { text: texts.join(""), failed: result.isError === true };
    },
  };
}

/**
 * Gives a test file its own directory for temporary files, before its first hook, because other files run beside it.
 */
export function useOwnDirectory(): void {
  const before = process.env.TMPDIR;
  beforeAll(() => {
    process.env.TMPDIR = mkdtempSync(join(tmpdir(), "tool-server-test-"));
  });
  afterAll(() => {
    rmSync(tmpdir(), { recursive: true });
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
  });
}

/** The number of running processes of tools. */
export function toolProcesses(): number {
  return toolProcessIds().length;
}

/** The ids of these processes. */
export function toolProcessIds(): number[] {
  return [...markedProcesses().values()].flat().filter(isOurs);
}

function isOurs(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1").includes(tmpdir());
  } catch {
    return false;
  }
}

/** The directories of tool servers. */
export function toolDirectories(): string[] {
  return readdirSync(tmpdir());
}

/** Waits until a fact holds, for half a minute at most. */
export async function eventually(holds: () => boolean): Promise<boolean> {
  for (let attempt = 0; attempt < 1_500; attempt += 1) {
    if (holds()) return true;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return holds();
}
