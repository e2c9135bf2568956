import { guardedFetch } from "@responses-edge/outgoing-fetch/guarded";
import { describe, expect, it } from "vitest";
import { loadConfig, type Variables } from "../../src/config/index.ts";

describe("the operator's tool server", () => {
  const { guard } = loadConfig({
    VLLM_BASE_URL: "http://vllm/v1",
    TOOL_SERVERS: '{"python":"https://tools.acme.dev/python/mcp","browser":"http://10.0.0.1:9000/mcp"}',
    MCP_SERVERS: "https://mcp.acme.dev https://tools.acme.dev",
  } as Variables).tools;

  it.each([
    "https://tools.acme.dev/python/mcp",
    "https://tools.acme.dev./python/mcp",
    "https://TOOLS.acme.dev.:443/elsewhere",
    "http://tools.acme.dev/python/mcp",
    "https://ｔools。acme.dev/",
    "http://167772161:9000/",
  ])("is %s", (url) => {
    expect(guard.deny?.(new URL(url))).toBe(true);
  });

  it.each(["https://tools.acme.dev:8443/", "https://acme.dev/", "https://a.tools.acme.dev/", "http://10.0.0.1/"])(
    "is not %s",
    (url) => {
      expect(guard.deny?.(new URL(url))).toBe(false);
    },
  );

  it("is not called by a redirect, even if it is listed", async () => {
    const called: string[] = [];
    const fetch = async (url: string) => {
      called.push(url);
      return new Response(null, { status: 307, headers: { location: "https://tools.acme.dev./python/mcp" } });
    };
    const bounds = { timeoutMs: 1_000, maxBytes: 1_000 };
    const answer = guardedFetch("https://mcp.acme.dev/", {}, { ...guard, ...bounds, fetchListed: fetch });
    await expect(answer).rejects.toMatchObject({ kind: "refused_address" });
    expect(called).toEqual(["https://mcp.acme.dev/"]);
  });
});
