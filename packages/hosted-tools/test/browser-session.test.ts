import { Browser, type BrowserLimits } from "@responses-edge/hosted-tools/browser/browser";
import type { SearchHit, SearchProvider } from "@responses-edge/hosted-tools/browser/search-provider";
import type { BrowserState } from "@responses-edge/hosted-tools/browser/state";
import { describe, expect, it } from "vitest";

const HITS: SearchHit[] = [
  { url: "https://acme.dev/", title: "Acme 【†】", snippet: "Makes\n things" },
  { url: "https://other.dev/x", title: "", snippet: "" },
];

const LONG = Array.from(
  { length: 1000 },
  (_, n) => `<p>Paragraph ${n} has a Needle${n % 10 === 0 ? " and a haystack" : ""}</p>`,
);

const WEB: Record<string, string> = {
  "https://acme.dev/":
    '<title>Acme</title><p>Home <a href="/long">Long page</a> <a href="https://other.dev/x">Other</a>',
  "https://acme.dev/long": `<title>Long</title>${LONG.join("")}`,
  "https://other.dev/x": "<title>Other</title>There",
};

interface Session {
  browser: Browser;
  fetched: string[];
  searched: string[];
}

function session(
  options: { state?: BrowserState; search?: SearchProvider | null; limits?: Partial<BrowserLimits> } = {},
): Session {
  const fetched: string[] = [];
  const searched: string[] = [];
  const search: SearchProvider = {
    async search(query, { topn }) {
      searched.push(`${query} ${topn}`);
      return HITS.slice(0, topn);
    },
  };
  const browser = new Browser(options.state, {
    async fetch(url) {
      fetched.push(url);
      const html = WEB[url];
      if (url.endsWith("/down")) throw new Error("Network connection lost.");
      return new Response(html ?? "Not here", {
        status: html === undefined ? 404 : 200,
        headers: { "content-type": "text/html" },
      });
    },
    search: options.search === null ? undefined : (options.search ?? search),
    limits: options.limits,
  });
  return { browser, fetched, searched };
}

describe("browser.search", () => {
  it("shows the results as links, under cursor 0", async () => {
    const { browser } = session();
    expect(await browser.search({ query: "acme  things" })).toEqual({
      text: [
        "[0] acme things",
        "**viewing lines [0 - 5] of 5**",
        "",
        "L0: ",
        "L1: URL: ",
        "L2: # Search Results",
        "L3: ",
        "L4:   * 【0†Acme 〖‡〗†acme.dev】 Makes things",
        "L5:   * 【1†other.dev†other.dev】",
      ].join("\n"),
      isError: false,
      action: { type: "search", query: "acme  things", queries: ["acme  things"] },
      sources: HITS.slice(0, 2),
    });
  });

  it("asks for as many results as the model wants, up to the limit", async () => {
    const { browser, searched } = session();
    await browser.search({ query: "a" });
    await browser.search({ query: "b", topn: 3 });
    await browser.search({ query: "c", topn: 500 });
    await browser.search({ query: "d", topn: "no" });
    expect(searched).toEqual(["a 10", "b 3", "c 20", "d 10"]);
  });

  it("says when it fails, and when there is nothing to search with", async () => {
    const failing: SearchProvider = { search: () => Promise.reject(new Error("out of order")) };
    expect(await session({ search: failing }).browser.search({ query: "q" })).toMatchObject({
      text: "Error during search for `q`: out of order",
      isError: true,
    });
    expect(await session({ search: null }).browser.search({ query: "q" })).toMatchObject({
      text: "Error during search for `q`: no search engine is configured",
      isError: true,
    });
  });
});

describe("browser.open", () => {
  it("opens a result, then a link of the page, with cursors that count up", async () => {
    const { browser, fetched } = session();
    await browser.search({ query: "acme" });
    const home = await browser.open({ id: 0 });
    expect(home.text).toBe(
      [
        "[1] Acme (https://acme.dev/)",
        "**viewing lines [0 - 2] of 2**",
        "",
        "L0: ",
        "L1: URL: https://acme.dev/",
        "L2: Home 【0†Long page】 【1†Other†other.dev】",
      ].join("\n"),
    );
    expect(home.action).toEqual({ type: "open_page", url: "https://acme.dev/" });
    expect((await browser.open({ id: 1, cursor: 1 })).text).toMatch(/^\[2\] Other \(https:\/\/other\.dev\/x\)/);
    expect((await browser.open({ id: "1", cursor: 0 })).text).toMatch(/^\[3\] Other /);
    // The page of cursor 2 was shown again.
    expect(fetched).toEqual(["https://acme.dev/", "https://other.dev/x"]);
  });

  it("opens a URL, again each time, with or without its scheme", async () => {
    const { browser, fetched } = session();
    await browser.open({ id: "https://acme.dev/" });
    await browser.open({ id: "https://acme.dev/" });
    expect((await browser.open({ id: "acme.dev" })).text).toMatch(/^\[2\] Acme/);
    expect(fetched).toEqual(["https://acme.dev/", "https://acme.dev/", "https://acme.dev/"]);
  });

  it("shows about a thousand tokens, and scrolls", async () => {
    const { browser, fetched } = session();
    const first = await browser.open({ id: "https://acme.dev/long" });
    const last = Number(/viewing lines \[0 - (\d+)\] of 2000/.exec(first.text)?.[1]);
    expect(first.text.length).toBeGreaterThan(2_000);
    expect(first.text.length).toBeLessThan(5_000);
    const next = await browser.open({ loc: last + 1 });
    expect(next.text).toMatch(
      new RegExp(`^\\[1\\] Long .*\\n\\*\\*viewing lines \\[${last + 1} - \\d+\\] of 2000\\*\\*\\n\\nL${last + 1}: `),
    );
    expect(next.action).toEqual({ type: "open_page", url: "https://acme.dev/long" });
    expect((await browser.open({ loc: 1990, num_lines: 3 })).text).toMatch(/viewing lines \[1990 - 1992\] of 2000/);
    expect((await browser.open({ loc: 1990 })).text).toMatch(/viewing lines \[1990 - 2000\] of 2000/);
    expect(fetched).toHaveLength(1);
  });

  it("shows at most the limit, for any request of the model", async () => {
    const { browser } = session({ limits: { maxViewTokens: 2000 } });
    const { text } = await browser.open({ id: "https://acme.dev/long", num_lines: 100_000 });
    expect(text.length).toBeLessThan(10_000);
  });

  it("shows a page's source", async () => {
    const { browser } = session();
    await browser.open({ id: "https://acme.dev/" });
    expect((await browser.open({ view_source: true })).text).toContain("L2: <title>Acme</title><p>Home <a");
    expect((await browser.open({ id: "view-source:https://acme.dev/" })).text).toContain("<title>");
    expect((await browser.open({ cursor: 0 })).text).toContain("L2: Home");
  });

  it.each<[what: string, call: Record<string, unknown>, message: string]>([
    ["a link that is not there", { id: 9 }, "Invalid link id `9`."],
    ["a cursor that is not there", { cursor: 5 }, "Cursor `5` is out of range. Available cursor indices: [0 - 0]."],
    ["a line that is not there", { loc: 99 }, "Invalid location parameter: `99`. Cannot exceed page maximum of 2."],
    ["a page that is not there", { id: "https://acme.dev/no" }, "Error fetching URL `https://acme.dev/no`: HTTP 404"],
    [
      "a server that is not there",
      { id: "https://acme.dev/down" },
      "Error fetching URL `https://acme.dev/down`: Network connection lost.",
    ],
    [
      "a file",
      { id: "file:///etc/passwd" },
      "Error fetching URL `file:///etc/passwd`: only http and https URLs can be opened",
    ],
    ["nothing that can be opened", { id: "" }, "Error fetching URL ``: only http and https URLs can be opened"],
  ])("says what is wrong with %s, and changes nothing", async (_what, call, message) => {
    const { browser } = session();
    await browser.open({ id: "https://acme.dev/" });
    const before = JSON.stringify(browser.state);
    const { text, isError } = await browser.open(call);
    expect(text.replace(/HTTP 404.*/, "HTTP 404")).toBe(message);
    expect(isError).toBe(true);
    expect(JSON.stringify(browser.state)).toBe(before);
  });

  it("has nothing to show at first", async () => {
    expect(await session().browser.open()).toMatchObject({ text: "No pages to access!", isError: true });
  });
});

describe("browser.find", () => {
  it("shows matches of any case with the lines after them", async () => {
    const { browser } = session();
    await browser.open({ id: "https://acme.dev/long" });
    const { text, action } = await browser.find({ pattern: "HAYstack" });
    expect(text).toContain(
      "[1] Find results for text: `haystack` in `Long` (https://acme.dev/long/find?pattern=haystack)\n",
    );
    expect(text).toContain(
      "L0: # 【0†match at L2】\nL1: Paragraph 0 has a Needle and a haystack\nL2: \nL3: Paragraph 1 has a Needle\nL4: \nL5: \nL6: # 【1†match at L22】",
    );
    expect(action).toEqual({ type: "find_in_page", pattern: "HAYstack", url: "https://acme.dev/long" });
  });

  it("shows fifty matches at most, and opens the page at one", async () => {
    const { browser } = session();
    await browser.open({ id: "https://acme.dev/long" });
    expect((await browser.find({ pattern: "needle" })).text).toContain("L0: # 【0†match at L2】");
    expect((await browser.open({ loc: 290 })).text).toContain("【49†match at L198】");
    expect((await browser.open({ id: 50 })).text).toBe("Invalid link id `50`.");
    expect((await browser.open({ id: 49, cursor: 1, num_lines: 5 })).text).toMatch(
      /^\[3\] Long .*\n\*\*viewing lines \[194 - 198\] of 2000/,
    );
    expect((await browser.open({ id: 0, cursor: 1 })).text).toMatch(/^\[4\] Long .*\n\*\*viewing lines \[2 - /);
  });

  it("sees a link's text without its marks, and numbers lines as the page does", async () => {
    const { browser } = session();
    await browser.open({ id: "https://acme.dev/" });
    expect((await browser.find({ pattern: "home long page other" })).text).toContain(
      "# 【0†match at L2】\nL1: Home Long page Other",
    );
  });

  it("says when there is nothing, and where it cannot search", async () => {
    const { browser } = session();
    expect((await browser.find({ pattern: "x" })).text).toBe("No pages to access!");
    await browser.open({ id: "https://acme.dev/" });
    expect((await browser.find({ pattern: "ABSENT" })).text).toContain("L0: No `find` results for pattern: `absent`");
    const refused = { text: "Cannot run `find` on search results page or find results page", isError: true };
    expect(await browser.find({ pattern: "x" })).toMatchObject(refused);
    await browser.search({ query: "q" });
    expect(await browser.find({ pattern: "x" })).toMatchObject(refused);
    expect((await browser.find({ pattern: "home", cursor: 0 })).isError).toBe(false);
  });
});

describe("a browsing session", () => {
  it.each([
    ["search", "{}"],
    ["search", "[]"],
    ["search", '{"query": 5}'],
    ["open", "{broken"],
    ["open", "null"],
    ["find", ""],
  ])("answers a bad call of %s: %s", async (name, json) => {
    expect(await session().browser.call(name, json)).toMatchObject({
      text: expect.stringMatching(/^{"error":"Invalid function arguments/),
      isError: true,
    });
  });

  it("answers a call of an unknown tool", async () => {
    expect((await session().browser.call("click", "{}")).text).toBe('{"error":"Unknown function: click"}');
  });

  it("continues from its stored state", async () => {
    const { browser } = session();
    await browser.search({ query: "acme" });
    await browser.open({ id: 0 });
    const { browser: next, fetched } = session({ state: JSON.parse(JSON.stringify(browser.state)) });
    expect((await next.open({ id: 0 })).text).toMatch(/^\[2\] Long /);
    expect((await next.open({ cursor: 1 })).text).toMatch(/^\[3\] Acme /);
    expect(fetched).toEqual(["https://acme.dev/long"]);
  });

  it("drops old texts beyond its limit, and fetches them again", async () => {
    const { browser, fetched, searched } = session({ limits: { maxStateBytes: 50_000 } });
    await browser.search({ query: "acme" });
    await browser.open({ id: "https://acme.dev/long" });
    await browser.find({ pattern: "haystack" });
    for (let n = 0; n < 20; n++) await browser.open({ id: "https://acme.dev/long" });
    expect(JSON.stringify(browser.state).length).toBeLessThan(80_000);
    fetched.length = 0;
    expect((await browser.open({ cursor: 1, loc: 10 })).text).toContain("[23] Long");
    expect(fetched).toEqual(["https://acme.dev/long"]);
    expect((await browser.open({ cursor: 2 })).text).toContain("L0: # 【0†match at L2】");
    expect((await browser.open({ cursor: 0 })).text).toContain("【0†Acme");
    expect((await browser.open({ cursor: 0, id: 1 })).text).toContain("Other");
    expect(searched.length).toBeLessThanOrEqual(3);
  });

  it("ends at its limit of displays", async () => {
    const { browser } = session({ limits: { maxCursors: 2 } });
    await browser.search({ query: "a" });
    await browser.search({ query: "b" });
    expect(await browser.search({ query: "c" })).toMatchObject({
      text: "No more pages can be opened in this session.",
      isError: true,
    });
  });

  it("throws only when it is aborted, with the reason", async () => {
    const abort = new AbortController();
    const reason = new Error("left");
    const browser = new Browser(undefined, {
      fetch: (_url, signal) =>
        new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted")))),
    });
    const opened = browser.open({ id: "https://acme.dev/" }, abort.signal);
    abort.abort(reason);
    await expect(opened).rejects.toBe(reason);
    await expect(browser.open({ id: "https://acme.dev/" }, abort.signal)).rejects.toBe(reason);
  });

  it("resolves citations", async () => {
    const { browser } = session();
    await browser.search({ query: "acme" });
    await browser.open({ id: 0 });
    await browser.find({ pattern: "home" });
    const acme = { url: "https://acme.dev/", title: "Acme" };
    expect(browser.citation(1, "L2")).toEqual(acme);
    expect(browser.citation(2, "L1")).toEqual(acme);
    expect(browser.citation(0, "L4-L5")).toEqual({ url: "https://acme.dev/", title: "Acme 〖‡〗" });
    expect(browser.citation(0, "L5")?.url).toBe("https://other.dev/x");
    expect(browser.citation(0, "L1")).toBeUndefined();
    expect(browser.citation(3, "L1")).toBeUndefined();
  });
});
