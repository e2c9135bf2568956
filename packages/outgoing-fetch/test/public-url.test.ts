import { canonicalHost, isPublicUrl } from "@responses-edge/outgoing-fetch/guarded";
import { describe, expect, it } from "vitest";

/** Hosts as they stand in a URL, by where they lead. */
const PUBLIC = [
  "hooks.acme.dev",
  "HOOKS.ACME.DEV",
  "acme.dev.",
  "acme.dev:8443",
  "xn--bcher-kva.ch",
  "bücher.ch",
  // Only the end of a name makes it private.
  "localhost.acme.dev",
  "internal.acme.dev",
  "notlocalhost.dev",
  "mylocal.network",
  "1.1.1.1",
  "8.8.8.8",
  "9.255.255.255",
  "11.0.0.0",
  "100.63.255.255",
  "100.128.0.0",
  "126.255.255.255",
  "128.0.0.0",
  "169.253.255.255",
  "169.255.0.0",
  "172.15.255.255",
  "172.32.0.0",
  "192.0.1.0",
  "192.167.255.255",
  "192.169.0.0",
  "198.17.255.255",
  "198.20.0.0",
  "223.255.255.255",
  // 1.1.1.1 in other words.
  "0x01010101",
  "16843009",
  "[2606:4700:4700::1111]",
  "[2001:4860:4860::8888]",
  "[2a00:1450:4001:82a::200e]",
  "[3fff:1000::1]",
  "[2001:200::1]",
];

const PRIVATE: Record<string, string[]> = {
  "a name without a domain": ["localhost", "gateway", "LOCALHOST", "localhost.", "localhost.."],
  "a name that is never public": [
    "api.localhost",
    "printer.local",
    "vllm.internal",
    "metadata.google.internal",
    "metadata.google.internal.",
    "wiki.intranet",
    "nas.lan",
    "router.home.arpa",
    "server.home",
    "server.corp",
    "box.localdomain",
    "name.invalid",
    "name.test",
    "name.example",
  ],
  "an address of a private network": [
    "0.0.0.0",
    "0.255.255.255",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "127.0.0.1.",
    "127.0.0.1..",
    "127.0.0.1:8000",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.0",
    "192.168.255.255",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
  ],
  "a private address in other words": [
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "127.1",
    "127.0.1",
    "0",
    "0x0",
    "10.1",
    "0xa9fea9fe",
    "2852039166",
    "169.16689662",
    "0300.0250.1",
    "127。0。0。1",
    "１２７.0.0.1",
    "%31%32%37.0.0.1",
    "%6c%6f%63alhost",
    "ⓛocalhost",
    "loc\u00adalhost",
  ],
  "a private IPv6 address": [
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::1]:8000",
    "[fc00::1]",
    "[fd12:3456:789a::1]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[100::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[3fff:fff::1]",
    "[4000::1]",
  ],
  "an IPv4 address within IPv6": [
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:8.8.8.8]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b:1::10.0.0.1]",
    "[2002:7f00:1::]",
    "[2002:a00:1::1]",
    "[2001::1]",
    "[2001:0:7f00:1::1]",
  ],
};

describe("a URL that a server may call", () => {
  it.each(PUBLIC)("has a public host: %s", (host) => {
    expect(isPublicUrl(`https://${host}/hook?a=b#c`)).toBe(true);
  });

  for (const [what, hosts] of Object.entries(PRIVATE)) {
    it.each(hosts)(`has not ${what}: %s`, (host) => {
      expect(isPublicUrl(`https://${host}/hook`)).toBe(false);
    });
  }

  it.each([
    "http://acme.dev/",
    "ftp://acme.dev/",
    "file:///etc/passwd",
    "data:text/plain,hello",
    "javascript:alert(1)",
    "ws://acme.dev/",
    "blob:https://acme.dev/1",
  ])("is https: %s is not", (url) => {
    expect(isPublicUrl(url)).toBe(false);
  });

  it.each([
    "https://user@acme.dev/",
    "https://user:password@acme.dev/",
    "https://:password@acme.dev/",
    // Reads like acme.dev, and is 127.0.0.1.
    "https://acme.dev@127.0.0.1/",
    "https://acme.dev:443@127.0.0.1/",
  ])("carries no credentials: %s does", (url) => {
    expect(isPublicUrl(url)).toBe(false);
  });

  it("is https, or http where that is allowed", () => {
    expect(isPublicUrl("http://acme.dev/", { allowHttp: true })).toBe(true);
    expect(isPublicUrl("http://127.0.0.1/", { allowHttp: true })).toBe(false);
    expect(isPublicUrl("ftp://acme.dev/", { allowHttp: true })).toBe(false);
  });

  it.each(["", "acme.dev", "//acme.dev", "https://", "https://[::1", "https://256.1.1.1/", "https://a b/"])(
    "is a URL: %o is none",
    (text) => {
      expect(isPublicUrl(text)).toBe(false);
    },
  );
});

describe("a host", () => {
  it.each([
    ["Example.COM", "example.com"],
    ["example.com.", "example.com"],
    ["bücher.example", "xn--bcher-kva.example"],
    ["BÜCHER.example", "xn--bcher-kva.example"],
    ["xn--bcher-kva.example", "xn--bcher-kva.example"],
    ["ｅxample。com", "example.com"],
    ["127.1", "127.0.0.1"],
    ["[::1]", "[::1]"],
  ])("%s is compared as %s", (host, canonical) => {
    expect(canonicalHost(host)).toBe(canonical);
  });

  it.each(["", ".", "a..b", ".example.com", "a b", "a/b", "a\\b", "user@a", "a?b", "a#b", "a:99", "256.1.1.1"])(
    "'%s' is none",
    (host) => {
      expect(canonicalHost(host)).toBeUndefined();
    },
  );
});
