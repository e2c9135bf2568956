import { braveSearch, type SearchFetch, searxng } from "@responses-edge/hosted-tools/browser/search-provider";
import { describe, expect, it } from "vitest";

function answering(
  body: string,
  status = 200,
): { fetch: SearchFetch; requests: { url: URL; headers: Record<string, string> }[] } {
  const requests: { url: URL; headers: Record<string, string> }[] = [];
  const fetch: SearchFetch = async (url, { headers }) => {
    requests.push({ url: new URL(url), headers });
    return new Response(body, { status });
  };
  return { fetch, requests };
}

describe("SearXNG", () => {
  it("is asked for JSON, and its results are read as plain text", async () => {
    const { fetch, requests } = answering(
      JSON.stringify({
        query: "q",
        results: [
          { url: "https://a.dev", title: "A &amp; <b>B</b>", content: "One\n two", engine: "x", score: 1 },
          { url: "https://a.dev/", title: "again" },
          { url: "magnet:?x", title: "no page" },
          { url: null, title: 5 },
          "nonsense",
          { url: "https://b.dev/", content: null },
          { url: "https://c.dev/" },
        ],
      }),
    );
    expect(await searxng("https://searx.acme.dev/base/", fetch).search("a b&c", { topn: 2 })).toEqual([
      { url: "https://a.dev/", title: "A & B", snippet: "One two" },
      { url: "https://b.dev/", title: "", snippet: "" },
    ]);
    expect(requests[0]?.url.href).toBe("https://searx.acme.dev/base/search?q=a+b%26c&format=json");
  });
});

describe("Brave Search", () => {
  const answer = {
    type: "search",
    web: {
      type: "search",
      results: [{ url: "https://a.dev/", title: "A", description: "<strong>One</strong>", extra_snippets: ["Two"] }],
    },
  };

  it("is asked with its key and within its limits", async () => {
    const { fetch, requests } = answering(JSON.stringify(answer));
    expect(await braveSearch("key", fetch).search(`${"word ".repeat(100)}`, { topn: 50 })).toEqual([
      { url: "https://a.dev/", title: "A", snippet: "One Two" },
    ]);
    const { url, headers } = requests[0] ?? {};
    expect(url?.origin).toBe("https://api.search.brave.com");
    expect(url?.searchParams.get("count")).toBe("20");
    expect(url?.searchParams.get("q")?.split(" ")).toHaveLength(50);
    expect(headers?.["x-subscription-token"]).toBe("key");
  });

  it("may find nothing", async () => {
    expect(await braveSearch("key", answering('{"type":"search"}').fetch).search("q", { topn: 5 })).toEqual([]);
  });
});

it.each<[what: string, body: string, status: number, message: string]>([
  ["refuses", "{}", 403, "the search engine answered with HTTP 403"],
  ["sends no JSON", "<html>", 200, "the search engine's answer was not understood"],
  ["sends other JSON", '{"results":5,"web":5}', 200, "the search engine's answer was not understood"],
  ["sends too much", " ".repeat(3_000_000), 200, "the search engine's answer was too long"],
])("an engine that %s", async (_what, body, status, message) => {
  await expect(searxng("https://s.dev", answering(body, status).fetch).search("q", { topn: 1 })).rejects.toThrow(
    message,
  );
  await expect(braveSearch("k", answering(body, status).fetch).search("q", { topn: 1 })).rejects.toThrow(message);
});
