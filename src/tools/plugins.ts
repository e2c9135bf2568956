import type { HostedKind } from "@responses-edge/responses-api/hosted-tools";
import { Plugins } from "@responses-edge/turn/contract/plugin";
import { CONTAINER } from "./container/plugin.ts";
import { FILE_SEARCH } from "./file-search/plugin.ts";
import { IMAGE_GENERATION } from "./image-generation/plugin.ts";
import { MCP } from "./mcp/plugin.ts";
import { MULTI_AGENT } from "./multi-agent/plugin.ts";
import type { RunnablePlugin } from "./plugin.ts";
import { PYTHON } from "./python/plugin.ts";
import { TOOL_SEARCH } from "./tool-search/plugin.ts";
import { BROWSER } from "./web-search/plugin.ts";

/** The tools that this server runs (docs/tools.md, "Adding a hosted tool"). */
const OWN: { readonly [Kind in Exclude<HostedKind, "mcp">]: RunnablePlugin & { kind: Kind } } = {
  browser: BROWSER,
  python: PYTHON,
  file_search: FILE_SEARCH,
  image_generation: IMAGE_GENERATION,
  container: CONTAINER,
  tool_search: TOOL_SEARCH,
  multi_agent: MULTI_AGENT,
};

/** MCP is the last: an `mcp_call` that no other tool claims is a call of an MCP server's tool. */
export const PLUGIN_LIST: readonly RunnablePlugin[] = [...Object.values(OWN), MCP];

export const PLUGINS_BY_KIND = new Map(PLUGIN_LIST.map((plugin) => [plugin.kind, plugin]));

/** As engines and turns know them. */
export const PLUGINS = new Plugins(PLUGIN_LIST);
