import { Browser } from "@responses-edge/hosted-tools/browser/browser";
import {
  braveSearch,
  type SearchFetch,
  type SearchProvider,
  searxng,
} from "@responses-edge/hosted-tools/browser/search-provider";
import type { BrowserState } from "@responses-edge/hosted-tools/browser/state";
import { ToolFault } from "@responses-edge/hosted-tools/mcp-client";
import { canonicalHost, type GuardOptions, guardedFetch } from "@responses-edge/outgoing-fetch/guarded";
import { parseDomain, type WebSearchTool } from "@responses-edge/responses-api/hosted-tools";
import type { ToolConfig } from "../../config/index.ts";
import type { Fetch } from "../../config/network.ts";

/** The built-in browser on the real web: the addresses that it may fetch, and its search provider. */

/** Bounds of a web page: its length and its time. */
const MAX_PAGE_BYTES = 5_000_000;
const PAGE_TIMEOUT_MS = 20_000;

const MAX_ANSWER_BYTES = 2_000_000;

const PAGE_HEADERS = {
  accept: "text/html,application/xhtml+xml,text/plain,application/json;q=0.9,*/*;q=0.5",
  "user-agent": "Mozilla/5.0 (compatible; responses-edge)",
};

/** True if the operator has set up a search provider. */
export function hasSearch({ searxngUrl, braveApiKey }: ToolConfig): boolean {
  return searxngUrl !== undefined || braveApiKey !== undefined;
}

/** The fault of a call that needs a page where `external_web_access` is false. */
export function noLivePages(): ToolFault {
  return new ToolFault("refused_address", "This request allows no access to live pages, only what a search shows.");
}

/** A browser that continues from `state`. `tool` is the request's, with the filters of pages that it may visit and find. */
export function newBrowser(
  state: BrowserState | undefined,
  tool: Pick<WebSearchTool, "filters" | "external_web_access"> | undefined,
  config: ToolConfig,
): Browser {
  const isWanted = wantedBy(tool?.filters);
  const isOffline = tool?.external_web_access === false;
  const guard: GuardOptions = {
    ...config.guard,
    allowHttp: true,
    limit: (url) => isWanted(url.href),
    timeoutMs: PAGE_TIMEOUT_MS,
    maxBytes: MAX_PAGE_BYTES,
  };
  const provider = searchProvider(config);
  return new Browser(state, {
    fetch: (url, signal) => {
      if (isOffline) throw noLivePages();
      if (URL.canParse(url) && !isWanted(url)) {
        throw new ToolFault("refused_address", "This request allows only pages of certain domains.");
      }
      const init = { headers: PAGE_HEADERS, signal: signal ?? null };
      return guardedFetch(url, init, guard);
    },
    ...(provider && { search: onlyWanted(provider, isWanted) }),
    limits: { maxBytes: MAX_PAGE_BYTES },
  });
}

function searchProvider({ searxngUrl, braveApiKey, fetch }: ToolConfig): SearchProvider | undefined {
  if (searxngUrl !== undefined) return searxng(searxngUrl, searchAt(new URL(searxngUrl).origin, fetch));
  return braveApiKey === undefined
    ? undefined
    : braveSearch(braveApiKey, searchAt("https://api.search.brave.com", fetch));
}

function searchAt(origin: string, fetchListed: Fetch): SearchFetch {
  const guard = { allow: (url: URL) => url.origin === origin, fetchListed, maxRedirects: 0 };
  return (url, init) => guardedFetch(url, init, { ...guard, timeoutMs: PAGE_TIMEOUT_MS, maxBytes: MAX_ANSWER_BYTES });
}

/** A domain of a filter. The schema `domains` in `hosted-tools.ts` has checked it. */
type Domain = ReturnType<typeof parseDomain>;

/** True if a host is a domain or below it; `*.` before a domain means below it only. */
function isWithin(host: string, domains: readonly Domain[]): boolean {
  return domains.some(({ host: name, isWildcard }) => {
    return name !== undefined && ((host === name && !isWildcard) || host.endsWith(`.${name}`));
  });
}

type IsWanted = (url: string) => boolean;

/** Tells which pages a request's filters allow to visit, or to find. */
function wantedBy(filters: WebSearchTool["filters"]): IsWanted {
  const allowed = filters?.allowed_domains?.map(parseDomain);
  const blocked = filters?.blocked_domains?.map(parseDomain);
  if (!allowed && !blocked) return () => true;
  return (url) => {
    const host = URL.canParse(url) ? canonicalHost(new URL(url).hostname) : undefined;
    if (host === undefined) return false;
    return (!allowed || isWithin(host, allowed)) && !(blocked && isWithin(host, blocked));
  };
}

function onlyWanted(provider: SearchProvider, isWanted: IsWanted): SearchProvider {
  return {
    search: async (query, options) => (await provider.search(query, options)).filter(({ url }) => isWanted(url)),
  };
}
