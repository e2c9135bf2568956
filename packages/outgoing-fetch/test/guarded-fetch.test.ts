import {
  allowList,
  dohResolver,
  FetchFault,
  type GuardOptions,
  guardedFetch,
} from "@responses-edge/outgoing-fetch/guarded";
import { afterEach, describe, expect, it, vi } from "vitest";

/** Which addresses a call that somebody else has named can reach, and how long and how much it can take. */

const SECRET = "sk-4711-secret";

interface Sent {
  url: string;
  method: string;
  headers: Record<string, string>;
  body: unknown;
  redirect: unknown;
}

/** A network of answers by URL; any other URL answers `ok`. */
function network(answers: Record<string, (init: RequestInit) => Response | Promise<Response>> = {}) {
  const sent: Sent[] = [];
  const fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const headers = Object.fromEntries(new Headers(init.headers));
    sent.push({ url, method: init.method ?? "GET", headers, body: init.body, redirect: init.redirect });
    return (await answers[url]?.(init)) ?? new Response("ok");
  };
  return { sent, fetch };
}

type Network = ReturnType<typeof network>;

function call(net: Network, url: string, init: RequestInit = {}, options: Partial<GuardOptions> = {}) {
  return guardedFetch(url, init, { timeoutMs: 1_000, maxBytes: 1_000, fetch: net.fetch, ...options });
}

function redirect(status: number, location: string): () => Response {
  return () => new Response(null, { status, headers: { location } });
}

const REFUSED: Record<string, string[]> = {
  "another scheme": [
    "http://acme.dev/",
    "ftp://acme.dev/",
    "file:///etc/passwd",
    "data:text/plain,hi",
    "javascript:alert(1)",
    "gopher://acme.dev/",
    "ws://acme.dev/",
    "blob:https://acme.dev/1",
    "https:",
    "",
    "acme.dev",
    "//acme.dev/",
    "/etc/passwd",
  ],
  "credentials in the URL": ["https://user@acme.dev/", "https://user:pw@acme.dev/", "https://:pw@acme.dev/"],
  "a local name": [
    "https://localhost/",
    "https://LOCALHOST./",
    "https://api.localhost/",
    "https://gateway/",
    "https://vllm.internal/",
    "https://metadata.google.internal/computeMetadata/v1/",
    "https://ⓛocalhost/",
  ],
  "a private IPv4 address": [
    "https://127.0.0.1/",
    "https://127.0.0.1:8443/",
    "https://127.0.0.1./",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1/",
    "https://0.0.0.0/",
    "https://255.255.255.255/",
  ],
  "a private IPv4 address in other digits": [
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://0xa9.0xfe.0xa9.0xfe/",
    "https://0251.0376.0251.0376/",
    "https://127。0。0。1/",
    "https://127．0．0．1/",
    "https://①②⑦.0.0.1/",
    "https://%31%32%37.0.0.1/",
  ],
  "a private IPv6 address": [
    "https://[::1]/",
    "https://[::]/",
    "https://[fe80::1]/",
    "https://[fd00:ec2::254]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
  ],
  "a public name of a private address": [
    "https://127.0.0.1.nip.io/",
    "https://169-254-169-254.nip.io/",
    "https://nip.io/",
    "https://a.b.10.0.0.1.sslip.io/",
    "https://10.0.0.1.xip.io/",
    "https://localtest.me/",
    "https://anything.LocalTest.Me./",
    "https://lvh.me:8443/",
    "https://app.vcap.me/",
    "https://7f000001.c0a80001.rbndr.us/",
    "https://make-169-254-169-254-rr.1u.ms/",
  ],
};

const ADMITTED = [
  "https://acme.dev/",
  "https://acme.dev:8443/path?query=1",
  "https://ACME.dev./",
  "https://1.1.1.1/",
  "https://[2606:4700:4700::1111]/",
  "https://bücher.ch/",
  // Only the end of a name counts, at a dot.
  "https://nip.io.acme.dev/",
  "https://snip.io/",
  "https://notlocaltest.me/",
];

describe("without an allow-list", () => {
  for (const [why, urls] of Object.entries(REFUSED)) {
    it.each(urls)(`%s is refused: ${why}`, async (url) => {
      const net = network();
      await expect(call(net, url)).rejects.toMatchObject({ name: "FetchFault", kind: "refused_address" });
      expect(net.sent).toEqual([]);
    });

    // A header holds only ASCII, and anything that is no URL is a path.
    it.each(urls.filter((url) => /^[!-~]+:\/\/[!-~]+$/.test(url)))(
      `a redirect to %s is refused: ${why}`,
      async (url) => {
        const net = network({ "https://acme.dev/": redirect(302, url) });
        const error = await call(net, "https://acme.dev/").catch((reason) => reason);
        expect(error).toMatchObject({ kind: "refused_address" });
        // Where it leads is the server's secret, perhaps.
        expect(error.message).toBe("The URL redirects to an address that is not allowed.");
        expect(net.sent).toHaveLength(1);
      },
    );
  }

  it.each(ADMITTED)("%s is called", async (url) => {
    const net = network();
    expect(await (await call(net, url)).text()).toBe("ok");
    expect(net.sent).toMatchObject([{ url: new URL(url).href, redirect: "manual" }]);
  });

  it("plain http is called only on demand, and still only in public", async () => {
    const net = network();
    await call(net, "http://acme.dev/", {}, { allowHttp: true });
    await expect(call(net, "http://127.0.0.1/", {}, { allowHttp: true })).rejects.toMatchObject({
      kind: "refused_address",
    });
    await expect(call(net, "http://10.0.0.1.nip.io/", {}, { allowHttp: true })).rejects.toMatchObject({
      kind: "refused_address",
    });
    expect(net.sent.map(({ url }) => url)).toEqual(["http://acme.dev/"]);
  });
});

describe("an allow-list", () => {
  const allow = allowList("https://tools.acme.dev/mcp/, http://127.0.0.1:9000 api.acme.dev");

  it.each([
    "https://tools.acme.dev/mcp",
    "https://tools.acme.dev/mcp/",
    "https://tools.acme.dev/mcp/a/b?q=1",
    "https://TOOLS.acme.dev:443/mcp",
    "https://tools.acme.dev./mcp",
    "https://tools.acme.dev/mcp/a;b=c/v1..2/...",
    "https://tools.acme.dev/mcp/caf%C3%A9/a%20b",
    "https://tools.acme.dev/other/../mcp",
    "http://127.0.0.1:9000/",
    "http://127.0.0.1:9000/any%2Fthing",
    "http://2130706433:9000/",
    "https://api.acme.dev/x",
  ])("admits %s", async (url) => {
    await expect(call(network(), url, {}, { allow })).resolves.toMatchObject({ status: 200 });
  });

  it.each([
    "https://tools.acme.dev/",
    "https://tools.acme.dev/mcpx",
    "https://tools.acme.dev/MCP",
    "https://tools.acme.dev/mcp/../admin",
    "https://tools.acme.dev/mcp/%2e%2e/admin",
    "https://tools.acme.dev/mcp/..%2fadmin",
    "https://tools.acme.dev/mcp/..%5Cadmin",
    "https://tools.acme.dev/mcp\\..\\..\\admin",
    "https://tools.acme.dev/mcp/..;/admin",
    "https://tools.acme.dev/mcp/..;a=b/admin",
    "https://tools.acme.dev/mcp/.;/..;/admin",
    "https://tools.acme.dev/mcp/..;",
    "https://tools.acme.dev/mcp/..%3b/admin",
    "https://tools.acme.dev/mcp/%2e%2e;/admin",
    "https://tools.acme.dev/mcp/%252e%252e/admin",
    "https://tools.acme.dev/mcp/%25252e%25252e/admin",
    "https://tools.acme.dev/mcp/..%252fadmin",
    "https://tools.acme.dev/mcp/..%255cadmin",
    "https://tools.acme.dev/mcp/%c0%ae%c0%ae/admin",
    "https://tools.acme.dev/mcp/%ef%bc%8e%ef%bc%8e/admin",
    "https://tools.acme.dev/mcp/..%ef%bc%8fadmin",
    "https://tools.acme.dev/mcp/．．/admin",
    "https://tools.acme.dev/mcp/.%09./admin",
    "https://tools.acme.dev/mcp/..%00/admin",
    "https://tools.acme.dev:8443/mcp",
    "http://tools.acme.dev/mcp",
    "https://tools.acme.dev.evil.dev/mcp",
    "https://evil.dev/https://tools.acme.dev/mcp",
    "https://tools.acme.dev@evil.dev/mcp",
    "https://user:pw@tools.acme.dev/mcp",
    "http://127.0.0.1:9001/",
    "http://127.0.0.1/",
    "https://127.0.0.1:9000/",
    "http://api.acme.dev/",
    "https://acme.dev/",
  ])("refuses %s", async (url) => {
    const net = network();
    await expect(call(net, url, {}, { allow })).rejects.toMatchObject({ kind: "refused_address" });
    expect(net.sent).toEqual([]);
  });

  it("holds for redirects", async () => {
    const net = network({ "https://tools.acme.dev/mcp": redirect(307, "https://acme.dev/") });
    await expect(call(net, "https://tools.acme.dev/mcp", {}, { allow })).rejects.toMatchObject({
      kind: "refused_address",
    });
  });

  it("that is empty admits nothing", async () => {
    await expect(call(network(), "https://acme.dev/", {}, { allow: allowList(" ") })).rejects.toMatchObject({
      kind: "refused_address",
    });
  });

  it.each(["ftp://acme.dev/", "https://", "https://user:pw@acme.dev/", "https://acme.dev/?q=1", "https://acme.dev/#a"])(
    "cannot hold %s",
    (text) => {
      expect(() => allowList(text)).toThrow(TypeError);
    },
  );
});

describe("names that are looked up", () => {
  const lookUp = (addresses: string[]) => ({ resolve: vi.fn(async () => addresses) });

  it.each([[["1.1.1.1"]], [["1.1.1.1", "2606:4700::1111"]]])("are called at %j", async (addresses) => {
    await expect(call(network(), "https://acme.dev/", {}, lookUp(addresses))).resolves.toMatchObject({ status: 200 });
  });

  it.each([
    [["127.0.0.1"]],
    [["1.1.1.1", "10.0.0.1"]],
    [["::1"]],
    [["2606:4700::1111", "fd00::1"]],
    [["not an address"]],
  ])("are refused at %j", async (addresses) => {
    const net = network();
    const promise = call(net, "https://acme.dev/", {}, lookUp(addresses));
    await expect(promise).rejects.toMatchObject({ kind: "refused_address" });
    expect(net.sent).toEqual([]);
  });

  it("are looked up again for a redirect", async () => {
    const resolve = vi.fn(async (name: string) => (name === "acme.dev" ? ["1.1.1.1"] : ["127.0.0.1"]));
    const net = network({ "https://acme.dev/": redirect(302, "https://inside.acme.dev/") });
    await expect(call(net, "https://acme.dev/", {}, { resolve })).rejects.toMatchObject({ kind: "refused_address" });
    expect(resolve.mock.calls.map(([name]) => name)).toEqual(["acme.dev", "inside.acme.dev"]);
  });

  it("are unreachable when they do not exist", async () => {
    await expect(call(network(), "https://acme.dev/", {}, lookUp([]))).rejects.toMatchObject({ kind: "unreachable" });
  });

  it("do not hold a call up longer than it may take", async () => {
    const resolve = () => new Promise<never>(() => {});
    const promise = call(network(), "https://acme.dev/", {}, { resolve, timeoutMs: 30 });
    await expect(promise).rejects.toMatchObject({ kind: "timeout" });
  });

  it("are not addresses", async () => {
    const options = lookUp(["127.0.0.1"]);
    await call(network(), "https://1.1.1.1/", {}, options);
    expect(options.resolve).not.toHaveBeenCalled();
  });

  describe("over https", () => {
    const { signal } = new AbortController();
    const endpoint = "https://dns.acme.dev/dns-query";

    it("are both kinds of address, without the names on the way", async () => {
      const net = network({
        [`${endpoint}?name=acme.dev&type=A`]: () =>
          Response.json({
            Answer: [
              { type: 5, data: "edge.acme.dev." },
              { type: 1, data: "1.1.1.1" },
            ],
          }),
        [`${endpoint}?name=acme.dev&type=AAAA`]: () =>
          Response.json({ Answer: [{ type: 28, data: "2606:4700::1111" }] }),
      });
      expect(await dohResolver(endpoint, net.fetch)("acme.dev", signal)).toEqual(["1.1.1.1", "2606:4700::1111"]);
      expect(net.sent[0]?.headers.accept).toBe("application/dns-json");
    });

    it("are none when they do not exist", async () => {
      const net = network({
        [`${endpoint}?name=gone.dev&type=A`]: () => Response.json({ Status: 3 }),
        [`${endpoint}?name=gone.dev&type=AAAA`]: () => Response.json({ Status: 3 }),
      });
      expect(await dohResolver(endpoint, net.fetch)("gone.dev", signal)).toEqual([]);
    });

    it("are a fault when the server does not answer", async () => {
      const net = network({ [`${endpoint}?name=acme.dev&type=A`]: () => new Response("busy", { status: 503 }) });
      await expect(dohResolver(endpoint, net.fetch)("acme.dev", signal)).rejects.toMatchObject({ kind: "unreachable" });
    });
  });
});

describe("a redirect", () => {
  const headers = { authorization: `Bearer ${SECRET}`, cookie: "a=b", "x-api-key": SECRET, accept: "text/html" };
  const from = "https://acme.dev/";

  it.each([
    [301, "POST", "GET"],
    [302, "POST", "GET"],
    [303, "POST", "GET"],
    [303, "PUT", "GET"],
    [303, "DELETE", "GET"],
    [303, "HEAD", "HEAD"],
    [301, "PUT", "PUT"],
    [302, "DELETE", "DELETE"],
    [307, "POST", "POST"],
    [308, "POST", "POST"],
    [308, "PUT", "PUT"],
    [301, "GET", "GET"],
    [302, "HEAD", "HEAD"],
  ])("with status %d makes a %s a %s, and keeps the body with the method", async (status, method, becomes) => {
    const net = network({ [from]: redirect(status, "/next") });
    const body = method === "POST" || method === "PUT" ? "body" : undefined;
    await call(net, from, { method, body, headers: { "content-type": "text/plain", "x-own": "1" } });
    const [, second] = net.sent;
    expect(second).toMatchObject({ url: "https://acme.dev/next", method: becomes });
    expect(second?.headers["x-own"]).toBe("1");
    const keeps = becomes === method;
    expect(second?.body).toBe(keeps ? body : undefined);
    expect(second?.headers["content-type"]).toBe(keeps ? "text/plain" : undefined);
  });

  it.each(["https://other.dev/", "https://sub.acme.dev/", "https://acme.dev:8443/"])(
    "to %s leaves everything behind that was meant for the first origin",
    async (to) => {
      const net = network({ [from]: redirect(302, to) });
      await call(net, from, { headers });
      expect(net.sent[1]).toMatchObject({ url: to, headers: { accept: "text/html" } });
      expect(JSON.stringify(net.sent[1])).not.toContain(SECRET);
      expect(net.sent[1]?.headers.cookie).toBeUndefined();
    },
  );

  it("does not give the credentials back on the way home", async () => {
    const net = network({
      [from]: redirect(302, "https://other.dev/"),
      "https://other.dev/": redirect(302, "https://acme.dev/2"),
    });
    await call(net, from, { headers });
    expect(net.sent[2]?.headers).toEqual({ accept: "text/html" });
  });

  it("within the origin keeps them", async () => {
    const net = network({ [from]: redirect(302, "/next") });
    await call(net, from, { headers });
    expect(net.sent[1]?.headers).toEqual(headers);
  });

  it("is not followed for ever", async () => {
    const net = network({ [from]: redirect(302, from) });
    await expect(call(net, from)).rejects.toMatchObject({ kind: "protocol" });
    expect(net.sent).toHaveLength(6);
  });

  it("is followed five times", async () => {
    const hops = Object.fromEntries(
      Array.from({ length: 5 }, (_, n) => [`https://acme.dev/${n}`, redirect(302, `/${n + 1}`)]),
    );
    const response = await call(network(hops), "https://acme.dev/0");
    expect(response.url).toBe("https://acme.dev/5");
  });

  it("without a target is the answer", async () => {
    const net = network({ [from]: () => new Response("see elsewhere", { status: 302 }) });
    expect((await call(net, from)).status).toBe(302);
  });

  it("is the answer when the caller follows by itself", async () => {
    const net = network({ [from]: redirect(302, "http://127.0.0.1/") });
    expect((await call(net, from, { redirect: "manual" })).status).toBe(302);
    expect(net.sent).toHaveLength(1);
  });

  it("cannot send a stream twice", async () => {
    const net = network({ [from]: redirect(307, "/next") });
    const body = new Response("body").body;
    await expect(call(net, from, { method: "POST", body })).rejects.toMatchObject({ kind: "protocol" });
  });
});

describe("an answer", () => {
  const from = "https://acme.dev/";
  const endless = (bytes: number, ms = 0) =>
    new ReadableStream<Uint8Array>({
      async pull(controller) {
        if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
        controller.enqueue(new Uint8Array(bytes));
      },
    });

  it("may be as large as allowed", async () => {
    const net = network({ [from]: () => new Response("x".repeat(1_000)) });
    expect(await (await call(net, from)).text()).toHaveLength(1_000);
  });

  it("that says it is larger is not read", async () => {
    const net = network({ [from]: () => new Response("x".repeat(1_001), { headers: { "content-length": "1001" } }) });
    await expect(call(net, from)).rejects.toMatchObject({ kind: "too_large" });
  });

  it("that is larger ends where it gets too large", async () => {
    const response = await call(network({ [from]: () => new Response(endless(100)) }), from);
    await expect(response.text()).rejects.toMatchObject({ name: "FetchFault", kind: "too_large" });
  });

  it("is counted as it is after decompression", async () => {
    const zipped = await new Response(
      new Response(new Uint8Array(1_000_000)).body?.pipeThrough(new CompressionStream("gzip")),
    ).arrayBuffer();
    const decoded = () => new Response(zipped).body?.pipeThrough(new DecompressionStream("gzip"));
    const headers = { "content-encoding": "gzip" };
    const net = network({ [from]: () => new Response(decoded(), { headers, encodeBody: "manual" }) });
    const response = await call(net, from, {}, { maxBytes: 100_000 });
    expect(response.headers.has("content-encoding")).toBe(false);
    await expect(response.arrayBuffer()).rejects.toMatchObject({ kind: "too_large" });
  });

  it("without a body is one", async () => {
    const net = network({ [from]: () => new Response(null, { status: 204 }) });
    expect((await call(net, from)).status).toBe(204);
  });

  it("with any status is an answer", async () => {
    const net = network({ [from]: () => new Response("no", { status: 503, headers: { "x-why": "busy" } }) });
    const response = await call(net, from);
    expect([response.status, response.headers.get("x-why"), await response.text()]).toEqual([503, "busy", "no"]);
  });

  it("that does not come is a timeout", async () => {
    const net = network({ [from]: () => new Promise<never>(() => {}) });
    await expect(call(net, from, {}, { timeoutMs: 30 })).rejects.toMatchObject({ kind: "timeout" });
  });

  it("that comes in drips is a timeout", async () => {
    const response = await call(network({ [from]: () => new Response(endless(1, 10)) }), from, {}, { timeoutMs: 60 });
    await expect(response.text()).rejects.toMatchObject({ kind: "timeout" });
  });

  it("that takes its time over redirects is a timeout", async () => {
    const slowly = async () => {
      await new Promise((resolve) => setTimeout(resolve, 40));
      return redirect(302, from)();
    };
    await expect(call(network({ [from]: slowly }), from, {}, { timeoutMs: 100 })).rejects.toMatchObject({
      kind: "timeout",
    });
  });

  it("that breaks off is a fault", async () => {
    const broken = new ReadableStream({ pull: (controller) => controller.error(new Error(`at 10.0.0.7 ${SECRET}`)) });
    const response = await call(network({ [from]: () => new Response(broken) }), from);
    const error = await response.text().catch((reason) => reason);
    expect(error).toMatchObject({ kind: "unreachable", message: "The connection was lost." });
  });

  it("from no server is a fault that says no more than the caller did", async () => {
    const net = network({
      [from]: () => {
        throw new TypeError(`connect ECONNREFUSED 10.0.0.7:443 ${SECRET}`);
      },
    });
    const error = await call(net, from, { headers: { authorization: SECRET } }).catch((reason) => reason);
    expect(error).toBeInstanceOf(FetchFault);
    expect(error).toMatchObject({ kind: "unreachable", message: "acme.dev could not be reached." });
  });

  it("that is no longer wanted ends the request", async () => {
    let seen: AbortSignal | null | undefined;
    const net = network({
      [from]: (init) => {
        seen = init.signal;
        return new Response(endless(1, 10));
      },
    });
    const response = await call(net, from);
    await response.body?.cancel();
    expect(seen?.aborted).toBe(true);
  });
});

describe("a caller that gives up", () => {
  const from = "https://acme.dev/";
  afterEach(() => vi.useRealTimers());

  it("before the call makes none", async () => {
    const net = network();
    const signal = AbortSignal.abort(new Error("gone"));
    await expect(call(net, from, { signal })).rejects.toThrow("gone");
  });

  it("during the call is let go at once, though the network does not listen", async () => {
    const abort = new AbortController();
    const promise = call(network({ [from]: () => new Promise<never>(() => {}) }), from, { signal: abort.signal });
    abort.abort(new Error("gone"));
    await expect(promise).rejects.toThrow("gone");
  });

  it("during the body is let go at once", async () => {
    const abort = new AbortController();
    const body = new ReadableStream({ pull: () => new Promise(() => {}) });
    const response = await call(network({ [from]: () => new Response(body) }), from, { signal: abort.signal });
    const text = response.text();
    abort.abort(new Error("gone"));
    await expect(text).rejects.toThrow("gone");
  });
});
