import type { ToolConfig } from "../../config.ts";
import type { WebSearchTool } from "../../protocol/tools.ts";
import { guardOf } from "../guard.ts";
import { type GuardOptions, guardedFetch } from "../guarded-fetch.ts";
import { ToolFault } from "../tool-fault.ts";
import { Browser } from "./browser.ts";
import { braveSearch, type SearchFetch, type SearchProvider, searxng } from "./search-provider.ts";
import type { BrowserState } from "./state.ts";

/** The built-in browser on the real web: what it may fetch, and where it searches. */

/** A web page, and how long it may take. */
const MAX_PAGE_BYTES = 5_000_000;
const PAGE_TIMEOUT_MS = 20_000;

const MAX_ANSWER_BYTES = 2_000_000;

const PAGE_HEADERS = {
  accept: "text/html,application/xhtml+xml,text/plain,application/json;q=0.9,*/*;q=0.5",
  "user-agent": "Mozilla/5.0 (compatible; responses-edge)",
};

/** Whether the operator has set up a search provider. */
export function hasSearch({ searxngUrl, braveApiKey }: ToolConfig): boolean {
  return searxngUrl !== undefined || braveApiKey !== undefined;
}

/** A browser that goes on from `state`. `filters` tell what it may visit and find. */
export function newBrowser(
  state: BrowserState | undefined,
  filters: WebSearchTool["filters"],
  config: ToolConfig,
): Browser {
  const guard: GuardOptions = {
    ...guardOf(config),
    allowHttp: true,
    limit: (url) => isWanted(url.href, filters),
    timeoutMs: PAGE_TIMEOUT_MS,
    maxBytes: MAX_PAGE_BYTES,
  };
  const provider = searchProvider(config);
  return new Browser(state, {
    fetch: (url, signal) => {
      if (URL.canParse(url) && !isWanted(url, filters)) {
        throw new ToolFault("refused_address", "This request allows only pages of certain domains.");
      }
      const init = { headers: PAGE_HEADERS, signal: signal ?? null };
      return guardedFetch(url, init, guard);
    },
    ...(provider && { search: onlyWanted(provider, filters) }),
    limits: { maxBytes: MAX_PAGE_BYTES },
  });
}

function searchProvider({ searxngUrl, braveApiKey }: ToolConfig): SearchProvider | undefined {
  if (searxngUrl !== undefined) return searxng(searxngUrl, searchAt(new URL(searxngUrl).origin));
  return braveApiKey === undefined ? undefined : braveSearch(braveApiKey, searchAt("https://api.search.brave.com"));
}

function searchAt(origin: string): SearchFetch {
  const allow = (url: URL) => url.origin === origin;
  return (url, init) => guardedFetch(url, init, { allow, timeoutMs: PAGE_TIMEOUT_MS, maxBytes: MAX_ANSWER_BYTES });
}

function isWithin(url: string, domains: readonly string[]): boolean {
  if (!URL.canParse(url)) return false;
  const { hostname } = new URL(url);
  return domains.some((domain) => {
    const suffix = domain.toLowerCase();
    return hostname === suffix || hostname.endsWith(`.${suffix}`);
  });
}

function isWanted(url: string, filters: WebSearchTool["filters"]): boolean {
  const { allowed_domains: allowed, blocked_domains: blocked } = filters ?? {};
  return (allowed == null || isWithin(url, allowed)) && !(blocked != null && isWithin(url, blocked));
}

function onlyWanted(provider: SearchProvider, filters: WebSearchTool["filters"]): SearchProvider {
  return {
    search: async (query, options) =>
      (await provider.search(query, options)).filter(({ url }) => isWanted(url, filters)),
  };
}
