import { allowList, guardedFetch } from "@responses-edge/guarded-fetch";
import { describe, expect, it } from "vitest";
import type { ToolConfig } from "../../src/config/index.ts";
import { guardOf, isToolServer } from "../../src/tools/guard.ts";

describe("the operator's tool server", () => {
  const config = { servers: { python: "https://tools.acme.dev/python/mcp", browser: "http://10.0.0.1:9000/mcp" } };

  it.each([
    "https://tools.acme.dev/python/mcp",
    "https://tools.acme.dev./python/mcp",
    "https://TOOLS.acme.dev.:443/elsewhere",
    "http://tools.acme.dev/python/mcp",
    "https://ｔools。acme.dev/",
    "http://167772161:9000/",
  ])("is %s", (url) => {
    expect(isToolServer(new URL(url), config as ToolConfig)).toBe(true);
  });

  it.each(["https://tools.acme.dev:8443/", "https://acme.dev/", "https://a.tools.acme.dev/", "http://10.0.0.1/"])(
    "is not %s",
    (url) => {
      expect(isToolServer(new URL(url), config as ToolConfig)).toBe(false);
    },
  );

  it("is not called by a redirect either, even where it is listed", async () => {
    const listed = allowList("https://mcp.acme.dev https://tools.acme.dev");
    const called: string[] = [];
    const fetch = async (url: string) => {
      called.push(url);
      return new Response(null, { status: 307, headers: { location: "https://tools.acme.dev./python/mcp" } });
    };
    const guard = guardOf({ ...config, isListed: listed, fetch } as unknown as ToolConfig);
    const answer = guardedFetch("https://mcp.acme.dev/", {}, { ...guard, timeoutMs: 1_000, maxBytes: 1_000 });
    await expect(answer).rejects.toMatchObject({ kind: "refused_address" });
    expect(called).toEqual(["https://mcp.acme.dev/"]);
  });
});
