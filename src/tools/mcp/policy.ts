import type { ListedTool } from "../../contract/tool-session.ts";
import type { McpServerTool, ToolFilter } from "../../protocol/hosted-tools.ts";

/** Which tools of an MCP server a request allows, and which calls of them need the client's approval. */

/** The names that are allowed, where they are given as such. */
function namesOf(allowed: McpServerTool["allowed_tools"]): string[] | undefined {
  return Array.isArray(allowed) ? allowed : allowed?.tool_names;
}

const nameSets = new WeakMap<readonly string[], ReadonlySet<string>>();

/** Whether a list has a name. A request may list as many as a server has tools: each list is made a set once. */
function includes(names: readonly string[], name: string): boolean {
  const set = nameSets.get(names) ?? new Set(names);
  nameSets.set(names, set);
  return set.has(name);
}

export function isAllowed(allowed: McpServerTool["allowed_tools"], tool: ListedTool): boolean {
  if (allowed === undefined) return true;
  return Array.isArray(allowed) ? includes(allowed, tool.name) : isMatched(allowed, tool);
}

/** A filter without any condition matches all; one with several, what meets each. */
function isMatched(filter: ToolFilter, tool: ListedTool): boolean {
  if (filter.tool_names && !includes(filter.tool_names, tool.name)) return false;
  return filter.read_only === undefined || (tool.annotations?.readOnlyHint === true) === filter.read_only;
}

/** `always` is the default, of what a filter does not name too. */
export function needsApproval(approval: McpServerTool["require_approval"], tool: ListedTool): boolean {
  if (typeof approval === "string") return approval === "always";
  if (approval.always && isMatched(approval.always, tool)) return true;
  return !(approval.never && isMatched(approval.never, tool));
}

/** Whether a tool may be called by its name alone; whether it only reads is known when tools are listed. */
export function mayBeCalled({ allowed_tools: allowed }: McpServerTool, name: string): boolean {
  const names = namesOf(allowed);
  return names === undefined || includes(names, name);
}

/** What a list of a server's tools depends on: a list of another origin may lack some. */
export function listOrigin({ server_url: url, allowed_tools: allowed }: McpServerTool): string {
  const { origin, pathname } = url !== undefined && URL.canParse(url) ? new URL(url) : { origin: "", pathname: "" };
  return JSON.stringify([origin + pathname, allowed ?? null]);
}

/** Whether a list that an earlier turn has made has all that this one allows. One of unknown origin is taken at its word. */
export function isUsable(listed: readonly ListedTool[], origin: string | undefined, server: McpServerTool): boolean {
  const now = listOrigin(server);
  if (origin === now) return true;
  const isSameServer = origin === undefined || JSON.parse(origin)[0] === JSON.parse(now)[0];
  const names = namesOf(server.allowed_tools);
  if (!names) return origin === undefined;
  const has = new Set(listed.map((tool) => tool.name));
  return isSameServer && names.every((name) => has.has(name));
}
