import type { Browser, BrowserAction } from "@responses-edge/hosted-tools/browser/browser";
import { asLink } from "@responses-edge/hosted-tools/browser/citation-marks";
import { BROWSER_FUNCTIONS, BROWSER_NAMESPACE } from "@responses-edge/hosted-tools/browser/definition";
import type { SearchHit } from "@responses-edge/hosted-tools/browser/search-provider";
import { type BrowserState, bounded } from "@responses-edge/hosted-tools/browser/state";
import { ToolFault } from "@responses-edge/hosted-tools/mcp-client";
import { hostedOf, type WebSearchTool } from "@responses-edge/responses-api/hosted-tools";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { Tool } from "@responses-edge/responses-api/tools";
import type { CalledTool, ToolOutcome } from "@responses-edge/turn/contract/tool-session";
import type { ResponseFunctionWebSearch } from "openai/resources/responses/responses";
import { inOrder, type PluginSession, type RunnablePlugin, type SessionOptions, timeLeft } from "../plugin.ts";
import { CLEAN_UP_TOOL, toolServer } from "../tool-server.ts";
import { hasSearch, newBrowser, noLivePages } from "./web.ts";

/** `web_search`: gpt-oss's browser, built in or on the operator's tool server. */

const ACTIONS = ["search", "open", "find"] as const;

interface BrowserTool extends CalledTool {
  readonly kind: "browser";
  readonly action: (typeof ACTIONS)[number];
}

const TOOLS: ReadonlyMap<string, BrowserTool> = new Map(
  ACTIONS.flatMap((action) => {
    const tool: BrowserTool = { kind: "browser", action };
    return [[`browser.${action}`, tool] as const, [`browser_${action}`, tool] as const];
  }),
);

/** The built-in browser's outcome of a call. */
interface BrowserOutcome extends ToolOutcome {
  /** The action that was really done; `sources` are the pages that it has found. */
  action?: BrowserAction;
  sources?: SearchHit[];
}

/** Most bytes of the browser's memory between turns. */
const MAX_MEMORY_BYTES = 32_000;

export const BROWSER: RunnablePlugin<BrowserTool, ResponseFunctionWebSearch> = {
  kind: "browser",
  namespace: BROWSER_NAMESPACE,
  functions: BROWSER_FUNCTIONS,
  tools: TOOLS,
  fullName: ({ action }) => `browser.${action}`,
  toFunctionCall: ({ name, arguments: json }) => ({ name: name.replace(".", "_"), arguments: json }),
  item: {
    type: "web_search_call",
    // The item shows the query, which is in the arguments.
    canShow: (_tool, _text, isComplete) => isComplete,
    create: ({ action }, { id, text }) => ({
      id,
      type: "web_search_call",
      status: "in_progress",
      action: plannedAction(action, text),
    }),
    start(item) {
      item.status = "searching";
      return "response.web_search_call.searching";
    },
    finish(item, { action, sources }: BrowserOutcome, include) {
      const found = action?.type === "search" ? sources : undefined;
      if (found && include.includes("web_search_call.results")) Object.assign(item, { results: found });
      if (action?.type === "search" && sources && include.includes("web_search_call.action.sources")) {
        item.action = { ...action, sources: sources.map(({ url }) => ({ type: "url" as const, url })) };
      } else if (action) item.action = action;
      return "response.web_search_call.completed";
    },
  },
  session(turn) {
    const { config, request } = turn;
    const tool = request.tools?.find(isWebSearch);
    const isOffline = tool?.external_web_access === false;
    if (config.servers.browser !== undefined) return withToolServer(turn, isOffline);
    const offered = offeredOf({ hasSearch: hasSearch(config), isOffline });
    return offered ? withBrowser(turn, tool, offered) : NOTHING;
  },
};

const NEITHER = "There is neither a search engine nor access to the web.";

/** Without a search provider and without the web, a browser is of no use. */
const NOTHING: PluginSession = {
  offered: { functions: [] },
  idle: { key: "web_search", why: `${NEITHER} ('external_web_access' is false.)` },
  tools: TOOLS,
  offers: () => false,
  run: () => Promise.reject(new ToolFault("unreachable", NEITHER)),
};

/** The action of a call, as far as its arguments show before it runs. */
function plannedAction(action: BrowserTool["action"], json: string): ResponseFunctionWebSearch["action"] {
  const { query, id, pattern } = parseArguments(json) ?? {};
  switch (action) {
    case "search":
      return { type: "search", query: textOf(query), queries: [textOf(query)] };
    case "open":
      return { type: "open_page", url: typeof id === "string" ? id : null };
    case "find":
      return { type: "find_in_page", pattern: textOf(pattern), url: "" };
  }
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function withToolServer(turn: SessionOptions, isOffline: boolean): PluginSession {
  const server = toolServer("browser", turn, turn.ownContainer);
  return {
    offered: offeredOf({ hasSearch: true, isOffline }) ?? NOTHING.offered,
    tools: TOOLS,
    run: ({ tool, arguments: json }, signal, traceparent) => {
      const { action } = tool as BrowserTool;
      // Nobody here knows which pages an operator's server has fetched before.
      if (isOffline && action !== "search") throw noLivePages();
      return server.callTool(action, json, { signal, traceparent });
    },
    close: () => server.close(CLEAN_UP_TOOL),
  };
}

function withBrowser(
  { config, replays, deadline }: SessionOptions,
  tool: WebSearchTool | undefined,
  offered: PluginSession["offered"],
): PluginSession {
  const remembered = replays.findLast(({ exchange }) => exchange?.memory !== undefined && TOOLS.has(exchange.name))
    ?.exchange?.memory;
  const browser = newBrowser(remembered as BrowserState | undefined, tool, config);
  const next = inOrder(deadline);
  return {
    offered,
    tools: TOOLS,
    run: ({ tool, arguments: json }, signal) =>
      next(() => browse(browser, (tool as BrowserTool).action, json, signal, timeLeft(deadline, config.callTimeoutMs))),
    cite: (cursor, lines) => {
      const page = /^[0-9]+$/.test(cursor) ? browser.citation(Number(cursor), lines) : undefined;
      return page && asLink(page);
    },
  };
}

const NO_SEARCH = "There is no search engine: `open` a page by its URL.";
const NO_WEB = "There is no access to live pages: what a search shows is all there is.";

/** The browser as models see it; undefined if it could do nothing. */
function offeredOf(has: { hasSearch: boolean; isOffline: boolean }): PluginSession["offered"] | undefined {
  if (has.hasSearch && !has.isOffline) return { namespace: BROWSER_NAMESPACE, functions: BROWSER_FUNCTIONS };
  if (!has.hasSearch && has.isOffline) return undefined;
  const note = has.isOffline ? NO_WEB : NO_SEARCH;
  const [left, told] = has.isOffline ? [["search", "open"], "search"] : [["open", "find"], "open"];
  return {
    namespace: {
      ...BROWSER_NAMESPACE,
      description: `${BROWSER_NAMESPACE.description}\n${note}`,
      tools: BROWSER_NAMESPACE.tools.filter(({ name }) => left.includes(name)),
    },
    functions: BROWSER_FUNCTIONS.filter(({ name }) => left.some((each) => name === `browser_${each}`)).map((each) =>
      each.name === `browser_${told}` ? { ...each, description: `${each.description}\n${note}` } : each,
    ),
  };
}

async function browse(
  browser: Browser,
  name: string,
  json: string,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<BrowserOutcome> {
  const timeout = AbortSignal.timeout(timeoutMs);
  try {
    const { text, isError, action, sources } = await browser.call(name, json, AbortSignal.any([signal, timeout]));
    const memory = withoutLongTexts(bounded(browser.state, MAX_MEMORY_BYTES));
    return { output: text, failed: isError, action, ...(sources && { sources }), memory };
  } catch (error) {
    if (!signal.aborted && timeout.aborted) throw new ToolFault("timeout", "The browser did not answer in time.");
    throw error;
  }
}

/** A page whose text is missing is fetched again when it is needed. */
function withoutLongTexts(state: BrowserState): BrowserState {
  const pages = state.pages.map((page) => {
    if ((page.text?.length ?? 0) <= MAX_MEMORY_BYTES) return page;
    const { text: _, ...rest } = page;
    return rest as typeof page;
  });
  return { ...state, pages };
}

function isWebSearch(tool: Tool): tool is WebSearchTool {
  return hostedOf(tool.type)?.kind === "browser";
}
