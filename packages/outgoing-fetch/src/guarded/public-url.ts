/**
 * Tells which URLs a server may call, whoever configured or sent them: http(s), and no address of a private network as
 * far as the URL shows it. A URL does not show the address of a public name; Cloudflare's
 * `global_fetch_strictly_public` and the absence of a private network behind a Worker cover that.
 */

/** IPv4 networks that are not public (IANA special-purpose registry), as [first octets, prefix length]. */
const PRIVATE_IPV4: [number, number][] = [
  [ipv4(0, 0, 0, 0), 8],
  [ipv4(10, 0, 0, 0), 8],
  [ipv4(100, 64, 0, 0), 10],
  [ipv4(127, 0, 0, 0), 8],
  [ipv4(169, 254, 0, 0), 16],
  [ipv4(172, 16, 0, 0), 12],
  [ipv4(192, 0, 0, 0), 24],
  [ipv4(192, 0, 2, 0), 24],
  [ipv4(192, 88, 99, 0), 24],
  [ipv4(192, 168, 0, 0), 16],
  [ipv4(198, 18, 0, 0), 15],
  [ipv4(198, 51, 100, 0), 24],
  [ipv4(203, 0, 113, 0), 24],
  [ipv4(224, 0, 0, 0), 3],
];

const PRIVATE_NAMES =
  /(^|\.)(localhost|local|localdomain|internal|intranet|lan|home|corp|home\.arpa|invalid|test|example)$/;

/**
 * Public names that resolve to a private address by design: the address is in the name (nip.io and similar, for
 * development behind a router), it is always 127.0.0.1, or it changes between two look-ups (rebinding test beds).
 */
const PRIVATE_BY_DNS = [
  // The address is in the name.
  "nip.io",
  "sslip.io",
  "xip.io",
  "traefik.me",
  "ip6.name",
  "backname.io",
  "plex.direct",
  "local-ip.co",
  "local-ip.sh",
  // Always 127.0.0.1.
  "localtest.me",
  "lvh.me",
  "vcap.me",
  "lacolhost.com",
  "localdev.me",
  "local.gd",
  "localh.st",
  "fuf.me",
  "lndo.site",
  "ddev.site",
  "docksal.site",
  // Changes between look-ups.
  "1u.ms",
  "rbndr.us",
  "rebind.network",
];

function ipv4(a: number, b: number, c: number, d: number): number {
  return a * 2 ** 24 + b * 2 ** 16 + c * 2 ** 8 + d;
}

/**
 * The canonical spelling of a host, which all policies compare: lower case, punycode, IPv4 in dotted decimals, without
 * the dot of the root (`tools.example.com.` is `tools.example.com`). Undefined for an invalid host.
 */
export function canonicalHost(host: string): string | undefined {
  // These would end the host, or stand before it, in a URL.
  if (/[\s/\\?#@]/.test(host) || !URL.canParse(`https://${host}/`)) return undefined;
  const { hostname, port } = new URL(`https://${host}/`);
  const canonical = hostname.replace(ROOT, "");
  return port === "" && !canonical.split(".").includes("") ? canonical : undefined;
}

/** The dot of the root, at the end of a host's name. */
const ROOT = /\.+$/;

/** The origin of an http(s) URL, its host in the spelling of {@link canonicalHost}. */
export function canonicalOrigin(url: URL): string {
  const { protocol, port } = url;
  return `${protocol}//${url.hostname.replace(ROOT, "")}${port === "" ? "" : `:${port}`}`;
}

/**
 * True if all servers read a URL's path in the same way. They differ in when and how often they decode it, and in their
 * separators: `/mcp/..;/admin`, `/mcp/%252e%252e/admin` and `/mcp%2f..%2fadmin` are `/admin` for some.
 */
export function isUnambiguousPath(pathname: string): boolean {
  // Separators, dots, percent signs, semicolons and control characters, encoded.
  if (/%(2[ef5]|5c|3b|[01][\da-f]|7f)/i.test(pathname)) return false;
  let decoded: string;
  try {
    // Full-width dots and slashes are plain ones for servers that normalise.
    decoded = decodeURIComponent(pathname).normalize("NFKC");
  } catch {
    return false;
  }
  if (decoded.includes("\\") || decoded.split("/").length !== pathname.split("/").length) return false;
  return !/(^|\/)\.{1,2}([;/]|$)/.test(decoded);
}

/** True for an https URL (or http with `allowHttp`) to a public address, without credentials in it. */
export function isPublicUrl(text: string, { allowHttp = false } = {}): boolean {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  if (url.protocol !== "https:" && !(allowHttp && url.protocol === "http:")) return false;
  if (hasCredentials(url)) return false;
  // The URL parser has converted every spelling of an IPv4 address (octal, hex, one number) to dotted decimals.
  const host = url.hostname.replace(ROOT, "");
  if (host.startsWith("[")) return isPublicIpv6(host.slice(1, -1));
  const octets = /^(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(host);
  if (octets) return isPublicIpv4(ipv4(Number(octets[1]), Number(octets[2]), Number(octets[3]), Number(octets[4])));
  if (PRIVATE_BY_DNS.some((suffix) => host === suffix || host.endsWith(`.${suffix}`))) return false;
  return host.includes(".") && !PRIVATE_NAMES.test(host);
}

function isPublicIpv4(address: number): boolean {
  return !PRIVATE_IPV4.some(([network, length]) => {
    const size = 2 ** (32 - length);
    return Math.floor(address / size) === Math.floor(network / size);
  });
}

/** Global unicast (2000::/3) only, without the ranges in it that lead back to IPv4 or nowhere. */
function isPublicIpv6(text: string): boolean {
  const groups = expandIpv6(text);
  const [first = 0, second = 0] = groups;
  if (first < 0x2000 || first > 0x3fff) return false;
  const isDocumentation = (first === 0x2001 && second === 0x0db8) || (first === 0x3fff && second < 0x1000);
  const isTeredoOrOther = first === 0x2001 && second < 0x0200;
  const is6to4 = first === 0x2002;
  return !isDocumentation && !isTeredoOrOther && !is6to4;
}

/** The eight groups of an address as the URL parser writes it (no dotted quads left). */
function expandIpv6(text: string): number[] {
  const [head = "", tail] = text.split("::");
  const parse = (part: string) => (part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16)));
  const before = parse(head);
  if (tail === undefined) return before;
  const after = parse(tail);
  return [...before, ...new Array<number>(8 - before.length - after.length).fill(0), ...after];
}

/**
 * An operator's allow-list as a predicate. `text` holds URL prefixes, separated by commas or white space:
 * `https://tools.example.com/, http://127.0.0.1:9000/mcp`; a bare `host` or `host:port` means https. A URL is allowed
 * when its origin is the same and its path goes on from the prefix's at a `/`, for every server that reads it
 * ({@link isUnambiguousPath}). Private addresses are allowed if listed.
 * Throws TypeError, without the text, for an entry that is no such prefix.
 */
export function allowList(text: string): (url: URL) => boolean {
  const entries = text
    .split(/[\s,]+/)
    .filter((entry) => entry !== "")
    .map((entry) => {
      const prefix = entry.includes("://") ? entry : `https://${entry}`;
      const url = URL.canParse(prefix) ? new URL(prefix) : undefined;
      const isPrefix = url && /^https?:$/.test(url.protocol) && !hasCredentials(url) && !url.search && !url.hash;
      if (!isPrefix) throw new TypeError("expected URLs such as https://tools.example.com/mcp, without query");
      return { origin: canonicalOrigin(url), path: url.pathname.replace(/\/+$/, "") };
    });
  return (url) => {
    if (hasCredentials(url)) return false;
    const asked = canonicalOrigin(url);
    const { pathname } = url;
    for (const { origin, path } of entries) {
      if (asked !== origin) continue;
      if (path === "") return true;
      if ((pathname === path || pathname.startsWith(`${path}/`)) && isUnambiguousPath(pathname)) return true;
    }
    return false;
  };
}

/** A predicate for URLs on the hosts of `urls`. The default ports of http and https count as one: a server often answers on both. */
export function hostsOf(urls: readonly string[]): (url: URL) => boolean {
  const nameOf = ({ hostname, port }: URL) => `${canonicalHost(hostname)}:${port}`;
  const hosts = new Set(urls.map((url) => nameOf(new URL(url))));
  return (url) => hosts.has(nameOf(url));
}

function hasCredentials(url: URL): boolean {
  return url.username !== "" || url.password !== "";
}
