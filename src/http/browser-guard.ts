import { ApiError } from "@responses-edge/responses-api/errors";
import type { Context } from "hono";
import { loadConfig } from "../config/index.ts";
import type { AppEnv } from "./app-env.ts";
import { requireJsonType } from "./body.ts";

/**
 * Protection from pages in a browser of the same machine where there are no keys (local development). Any site may send
 * requests to localhost, and a site whose name resolves to 127.0.0.1 (DNS rebinding) may read the answers.
 */

/** The names under which a machine reaches itself, as the URL parser writes them. */
const LOCAL_HOSTS = new Set(["localhost", "127.0.0.1", "[::1]"]);

/**
 * The accepted values of `Sec-Fetch-Site` (Fetch Metadata Request Headers §2.4). `same-site` is a page of this machine
 * on another port: its host was checked, and sites do not tell ports apart.
 */
const LOCAL_SITES = new Set(["same-origin", "same-site", "none"]);

const METHODS_WITH_BODY = new Set(["POST", "PUT", "PATCH"]);

/**
 * Refuses requests that a page of another host may have sent, on every path, if there are no keys: 403
 * `browser_request_refused`. If there are keys, the operator decides which pages know one.
 */
export function refuseForeignPages(context: Context<AppEnv>): void {
  if (!servesWithoutKeys(context)) return;
  const { headers, url } = context.req.raw;
  const host = headers.get("host");
  const origin = headers.get("origin");
  const site = headers.get("sec-fetch-site");
  if (!isLocal(url) || (host !== null && !isLocal(`http://${host}`))) throw refused("Host");
  if (origin !== null && !isLocal(origin)) throw refused("Origin");
  if (site !== null && !LOCAL_SITES.has(site)) throw refused("Sec-Fetch-Site");
}

/**
 * Throws the 415 of a body whose type is not JSON. A browser sends other types to any site without asking it first. An
 * empty body needs no type (the SDKs cancel without one), except from a browser where there are no keys.
 */
export function requireJsonBody(context: Context<AppEnv>): void {
  const { raw } = context.req;
  const { method, body, headers } = raw;
  if (!METHODS_WITH_BODY.has(method)) return;
  const isEmpty = body === null || headers.get("content-length") === "0";
  // Node's `fetch` sends `Sec-Fetch-Mode`, and neither of the other headers.
  const isFromBrowser = headers.has("origin") || headers.has("sec-fetch-site");
  const mayBeBare = isEmpty && !headers.has("content-type") && !(isFromBrowser && servesWithoutKeys(context));
  if (!mayBeBare) requireJsonType(raw);
}

/** True if this server serves everyone who reaches it. A misconfigured server serves nobody. */
function servesWithoutKeys(context: Context<AppEnv>): boolean {
  try {
    const { wantsKeys, allowAnonymous } = loadConfig(context.env);
    return !wantsKeys && allowAnonymous;
  } catch {
    return false;
  }
}

/** The last URL of this machine, up to its path. Most requests have the same one. */
let lastLocal: string | undefined;

function isLocal(url: string): boolean {
  const path = url.indexOf("/", "https://".length);
  const origin = path === -1 ? url : url.slice(0, path);
  if (origin === lastLocal) return true;
  const { protocol = "", hostname = "" } = URL.parse(url) ?? {};
  const is = /^https?:$/.test(protocol) && LOCAL_HOSTS.has(hostname);
  if (is) lastLocal = origin;
  return is;
}

/** The 403 of a request whose header shows that it is not from this machine. */
function refused(header: string): ApiError {
  const message =
    `This server has no API keys and serves only this machine, but the header '${header}' names another. ` +
    "To serve others, set API_KEYS (see README, 'API keys').";
  return new ApiError({ status: 403, message, code: "browser_request_refused" });
}
