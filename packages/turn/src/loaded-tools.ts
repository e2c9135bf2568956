import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { MAX_TOOLS } from "@responses-edge/responses-api/tool-fields";
import {
  clashingTools,
  hostedKey,
  isDeferred,
  isOwnNamespace,
  wrongChoice,
} from "@responses-edge/responses-api/tool-names";
import { chosenTools, type NamespaceTool, type Tool } from "@responses-edge/responses-api/tools";

/**
 * The tools that a model sees: those of the request that are not deferred, and those that items have loaded
 * (`additional_tools`, `tool_search_output`).
 */

/**
 * A request with the tools of its prompt; the request itself if nothing is deferred or loaded. `items` are those of the
 * prompt or, for a request that this function has returned, the later ones. A tool of the request takes precedence over
 * a loaded one with the same name, and a later loaded tool over an earlier one; beyond the limit of tools the oldest
 * are left out. Throws the 400 of tools whose names a model could not tell apart, and of a choice that names none of
 * them.
 */
export function withLoadedTools(request: CreateRequest, items: readonly Item[]): CreateRequest {
  const loads: Tool[][] = [];
  for (const item of items) {
    if (item.type === "additional_tools") loads.push(item.tools);
    else if (item.type === "tool_search_output") loads.push(item.tools.map(inOwnNamespace));
  }
  const own = request.tools ?? [];
  let hasDeferred = false;
  // Without a search, deferred tools could not be found: all tools are present from the beginning.
  let canSearch = false;
  for (const tool of own) {
    hasDeferred ||= isDeferred(tool) || (tool.type === "namespace" && tool.tools.some(isDeferred));
    canSearch ||= tool.type === "tool_search";
  }
  const isAsSent = loads.length === 0 && !hasDeferred;
  const kept = hasDeferred && canSearch ? withoutDeferred(own, request) : own;
  const tools = isAsSent ? own : joined(kept, loads);
  const clash = isAsSent ? undefined : clashingTools(tools);
  if (clash) throw invalidRequest("input", clash.message);
  const wrong = request.tool_choice == null ? undefined : wrongChoice(request.tool_choice, tools);
  if (wrong !== undefined) throw invalidRequest("tool_choice", wrong);
  return isAsSent ? request : { ...request, tools };
}

/**
 * A request with the settings of its items (`configuration_update`), of which the last counts. Settings of its own
 * input override the request; those of earlier turns apply only where the request has none.
 */
export function withConfiguration(
  request: CreateRequest,
  history: readonly Item[],
  input: readonly Item[],
): CreateRequest {
  const before = settingsOf(history);
  const now = settingsOf(input);
  const effort = now.effort ?? request.reasoning?.effort ?? before.effort;
  const format = now.format ?? request.text?.format ?? before.format;
  if (effort === request.reasoning?.effort && format === request.text?.format) return request;
  return {
    ...request,
    ...(effort != null && { reasoning: { ...request.reasoning, effort } }),
    ...(format != null && { text: { ...request.text, format } }),
  };
}

type Update = Extract<Item, { type: "configuration_update" }>;

function settingsOf(items: readonly Item[]) {
  let reasoning: Update["reasoning"];
  let text: Update["text"];
  for (const item of items) {
    if (item.type !== "configuration_update") continue;
    reasoning = item.reasoning ?? reasoning;
    text = item.text ?? text;
  }
  return { effort: reasoning?.effort, format: text?.format };
}

/** A request with all tools of its prompt, including deferred ones: those that this server runs, or searches. */
export function withAllTools(request: CreateRequest, items: readonly Item[]): CreateRequest {
  const { tools } = withLoadedTools(request, items);
  if (tools == null || tools === request.tools) return request;
  const own = new Set(request.tools);
  return { ...request, tools: [...own, ...tools.filter((tool) => !own.has(tool))] };
}

/** The tools before any search: without deferred ones, unless the request's choice names them. */
function withoutDeferred(tools: readonly Tool[], { tool_choice: choice }: CreateRequest): Tool[] {
  const named = new Set(chosenTools(choice)?.flatMap((each) => ("name" in each ? [each.name] : [])));
  const isThere = (tool: Tool) => !isDeferred(tool) || ("name" in tool && named.has(tool.name));
  return tools.flatMap((tool): Tool[] => {
    if (tool.type !== "namespace") return isThere(tool) ? [tool] : [];
    const members = tool.tools.filter(isThere);
    if (members.length === tool.tools.length) return [tool];
    return members.length > 0 ? [{ ...tool, tools: members }] : [];
  });
}

/** A found deferred function, in the namespace with its own name in which OpenAI calls it (`isOwnNamespace`). */
function inOwnNamespace(tool: Tool): Tool {
  if (tool.type !== "function" || !isDeferred(tool)) return tool;
  return { type: "namespace", name: tool.name, description: "", tools: [tool] };
}

type Member = NamespaceTool["tools"][number];

/** A tool that an item has loaded, with its namespace. */
interface Loaded {
  tool: Tool;
  namespace: NamespaceTool | undefined;
}

/** A request's tools followed by those of later lists, in order, each once. */
function joined(own: readonly Tool[], loads: readonly (readonly Tool[])[]): Tool[] {
  const loaded = new Map<string, Loaded>();
  for (const { tool, namespace } of loads.flat().flatMap(taken))
    loaded.set(keyOf(tool, namespace), { tool, namespace });
  const known = own.flatMap(taken);
  for (const { tool, namespace } of known) loaded.delete(keyOf(tool, namespace));
  const left = Math.max(0, MAX_TOOLS - known.length);
  const added = left === 0 ? [] : [...loaded.values()].slice(-left);

  const tools: Tool[] = [...own];
  const places = new Map<string, number>();
  for (const [index, tool] of own.entries()) if (tool.type === "namespace") places.set(tool.name, index);
  const members = new Map<string, Member[]>();
  for (const { tool, namespace } of added) {
    if (!namespace) {
      tools.push(notDeferred(tool));
      continue;
    }
    const { name } = namespace;
    if (!places.has(name)) {
      places.set(name, tools.length);
      tools.push({ ...namespace, tools: [] });
    }
    const joining = members.get(name);
    if (joining) joining.push(notDeferred(tool as Member));
    else members.set(name, [notDeferred(tool as Member)]);
  }
  for (const [name, joining] of members) {
    const index = places.get(name) ?? 0;
    const namespace = tools[index];
    if (namespace?.type === "namespace") tools[index] = { ...namespace, tools: [...namespace.tools, ...joining] };
  }
  return tools;
}

/** The tools of a list; a namespace gives its tools one by one. */
function taken(tool: Tool): Loaded[] {
  if (tool.type !== "namespace") return [{ tool, namespace: undefined }];
  return tool.tools.map((member) => ({ tool: member, namespace: tool }));
}

function keyOf(tool: Tool, namespace: NamespaceTool | undefined): string {
  const name = "name" in tool ? tool.name : tool.type;
  if (!namespace || isOwnNamespace(namespace.name, name)) return hostedKey(tool) ?? `.${name}`;
  return `${namespace.name}.${name}`;
}

/** A found tool is no longer deferred. */
function notDeferred<T extends Tool>(tool: T): T {
  return isDeferred(tool) ? { ...tool, defer_loading: false } : tool;
}
